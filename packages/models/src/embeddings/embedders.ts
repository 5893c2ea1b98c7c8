import type { Embedder } from '@treadle/core/memory';
import { isRecord } from '../json.ts';
import { GOOGLE, OLLAMA, OPENAI } from '../providers.ts';
import { httpEmbedder, type EmbedderOptions, type EmbeddingProtocol } from './http-embedder.ts';

/** OpenAI's embeddings, or those of a host with the same API at `baseURL`. Throws if the options are invalid. */
export function openaiEmbedder(options: EmbedderOptions): Embedder {
  const { model, dimensions } = options ?? {};
  const protocol: EmbeddingProtocol = {
    path: '/embeddings',
    body: (input) => ({ model, input, ...(dimensions !== undefined && { dimensions }) }),
    vectors: (answer) => inOrder(fieldOf(answer, 'data')).map((item) => fieldOf(item, 'embedding')),
  };
  return httpEmbedder({ factory: 'openaiEmbedder', provider: OPENAI, auth: bearer, protocol }, options);
}

/** A model behind Ollama's own API, on this machine or at `baseURL`. Throws if the options are invalid. */
export function ollamaEmbedder(options: EmbedderOptions): Embedder {
  const { model, dimensions } = options ?? {};
  const protocol: EmbeddingProtocol = {
    path: '/api/embed',
    body: (input) => ({ model, input, truncate: true, ...(dimensions !== undefined && { dimensions }) }),
    vectors: (answer) => fieldOf(answer, 'embeddings'),
  };
  return httpEmbedder({ factory: 'ollamaEmbedder', provider: OLLAMA, auth: bearer, protocol }, options);
}

/** A model behind Google's Gemini API, or a host with the same API. Throws if the options are invalid. */
export function googleEmbedder(options: EmbedderOptions): Embedder {
  const { model, dimensions } = options ?? {};
  const resource = String(model).includes('/') ? String(model) : `models/${model}`;
  const protocol: EmbeddingProtocol = {
    path: `/${resource.split('/').map(encodeURIComponent).join('/')}:batchEmbedContents`,
    body: (texts) => ({
      requests: texts.map((text) => ({
        model: resource,
        content: { parts: [{ text }] },
        ...(dimensions !== undefined && { outputDimensionality: dimensions }),
      })),
    }),
    vectors: (answer) => listOf(fieldOf(answer, 'embeddings')).map((item) => fieldOf(item, 'values')),
  };
  const auth = (apiKey: string): Readonly<Record<string, string>> => ({ 'x-goog-api-key': apiKey });
  return httpEmbedder({ factory: 'googleEmbedder', provider: GOOGLE, auth, protocol }, options);
}

function bearer(apiKey: string): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${apiKey}` };
}

/** Each item says of which text it is. */
function inOrder(data: unknown): readonly unknown[] {
  const indexOf = (item: unknown): number => Number(fieldOf(item, 'index') ?? 0);
  return listOf(data).toSorted((a, b) => indexOf(a) - indexOf(b));
}

function fieldOf(value: unknown, name: string): unknown {
  return isRecord(value) ? value[name] : undefined;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
