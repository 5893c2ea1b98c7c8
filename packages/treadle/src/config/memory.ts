import type { Embedder } from '@treadle/core/memory';
import type { Shape } from '@treadle/tools/toml';
import type { Io } from '../terminal/io.ts';
import { chooseEntry } from './choose-model.ts';
import type { LoadedConfig } from './load.ts';
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

/** The model of the configuration, and a message for the user. Throws if it has no key. */
export async function openEmbedder(
  loaded: LoadedConfig,
  env: Io['env'],
): Promise<{ readonly embedder?: Embedder; readonly notice?: string }> {
  const { embeddings } = loaded.config.memory ?? {};
  if (!embeddings) return {};
  const choice = chooseEntry(embeddings, {}, loaded, env);
  if (choice.type === 'demo') return {};
  const { openaiEmbedder, ollamaEmbedder, googleEmbedder } = await import('@treadle/models');
  const { model, baseURL, apiKey, notice } = choice;
  const { dimensions, provider = 'openai' } = embeddings;
  const make = {
    openai: openaiEmbedder,
    'openai-compatible': openaiEmbedder,
    ollama: ollamaEmbedder,
    google: googleEmbedder,
  };
  const embedder = make[provider]({
    model,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
    ...(dimensions !== undefined && { dimensions }),
  });
  return { embedder, ...(notice !== undefined && { notice }) };
}
