import type { Embedder } from '@treadle/core/memory';
import { chooseEntry } from '../config/choose-model.ts';
import type { LoadedConfig } from '../config/load.ts';
import type { Io } from '../terminal/io.ts';

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
