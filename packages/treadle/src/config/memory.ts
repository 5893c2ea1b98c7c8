import type { Shape } from '@treadle/tools/toml';
import { isWebAddress } from './web-address.ts';

/** [memory] of treadle.toml. */
export interface MemoryConfig {
  readonly enabled?: boolean;
  readonly embeddings?: EmbeddingsEntry;
}

/** The model that makes vectors of what is remembered. The keys are those of [models]. */
export interface EmbeddingsEntry {
  readonly provider?: EmbeddingsProvider;
  readonly model?: string;
  readonly base_url?: string;
  readonly api_key_env?: string;
  readonly dimensions?: number;
}

type EmbeddingsProvider = 'openai' | 'openai-compatible' | 'ollama' | 'google';

const EMBEDDINGS_PROVIDERS = Object.keys({
  openai: 0,
  'openai-compatible': 0,
  ollama: 0,
  google: 0,
} satisfies Record<EmbeddingsProvider, 0>);

/** `variable`: the name of an environment variable. */
export function memoryShape(variable: Shape): Shape {
  return {
    type: 'table',
    fields: {
      enabled: { type: 'switch' },
      embeddings: {
        type: 'table',
        fields: {
          provider: { type: 'text', choices: EMBEDDINGS_PROVIDERS },
          model: { type: 'text' },
          base_url: { type: 'text', form: { matches: isWebAddress, means: 'an address such as https://host/v1' } },
          api_key_env: variable,
          dimensions: { type: 'count', min: 1 },
        } satisfies Record<keyof EmbeddingsEntry, Shape>,
      },
    } satisfies Record<keyof MemoryConfig, Shape>,
  };
}
