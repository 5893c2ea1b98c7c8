import type { Clock } from '@treadle/core';
import { expect, test } from 'vitest';
import { answer, answering } from '../../test/fetches.ts';
import { googleEmbedder, ollamaEmbedder, openaiEmbedder } from './embedders.ts';
import type { EmbedderOptions } from './http-embedder.ts';

const TEXTS = ['Ann has a dog.', 'lone \ud800'];
const VECTORS = [
  [0.25, -1],
  [1, 0],
];

const json = (body: object, status = 200): Response => answer(JSON.stringify(body), 'application/json', status);

const WIRES = {
  openai: {
    make: openaiEmbedder,
    url: 'https://api.openai.com/v1/embeddings',
    // In any order.
    answer: {
      object: 'list',
      data: [
        { object: 'embedding', index: 1, embedding: VECTORS[1] },
        { object: 'embedding', index: 0, embedding: VECTORS[0] },
      ],
      model: 'm',
      usage: { prompt_tokens: 5, total_tokens: 5 },
    },
    body: { model: 'm', input: ['Ann has a dog.', 'lone \ufffd'], dimensions: 2 },
    key: { authorization: 'Bearer sk-test' },
  },
  ollama: {
    make: ollamaEmbedder,
    url: 'http://127.0.0.1:11434/api/embed',
    answer: { model: 'm', embeddings: VECTORS, total_duration: 14143917, prompt_eval_count: 8 },
    body: { model: 'm', input: ['Ann has a dog.', 'lone \ufffd'], truncate: true, dimensions: 2 },
    key: { authorization: 'Bearer sk-test' },
  },
  google: {
    make: googleEmbedder,
    url: 'https://generativelanguage.googleapis.com/v1beta/models/m:batchEmbedContents',
    answer: { embeddings: VECTORS.map((values) => ({ values })) },
    body: {
      requests: ['Ann has a dog.', 'lone \ufffd'].map((text) => ({
        model: 'models/m',
        content: { parts: [{ text }] },
        outputDimensionality: 2,
      })),
    },
    key: { 'x-goog-api-key': 'sk-test' },
  },
} as const;

type Wire = (typeof WIRES)[keyof typeof WIRES];
const wires: readonly (readonly [string, Wire])[] = Object.entries(WIRES);

test.each(wires)('%s: one request for all texts, and a vector for each', async (_, wire) => {
  const { fetch, seen } = answering(json(wire.answer));
  const embedder = wire.make({ model: 'm', apiKey: 'sk-test', dimensions: 2, fetch });
  expect(await embedder.embed(TEXTS)).toEqual(VECTORS);
  expect(await embedder.embed([])).toEqual([]);
  expect(seen).toHaveLength(1);
  expect(seen[0]).toMatchObject({ url: wire.url, body: wire.body, headers: wire.key });
});

test('vectors of different models and lengths have different names', () => {
  const ids = [
    openaiEmbedder({ model: 'a' }),
    openaiEmbedder({ model: 'b' }),
    openaiEmbedder({ model: 'a', dimensions: 64 }),
    ollamaEmbedder({ model: 'a' }),
    googleEmbedder({ model: 'a' }),
  ].map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
});

const WRONG: readonly unknown[] = [
  {},
  null,
  [],
  'text',
  { data: [] },
  { embeddings: [] },
  { data: [{ embedding: [1] }] },
  { data: [{ embedding: [1] }, { embedding: [1, 2] }] },
  { data: [{ embedding: ['a'] }, { embedding: ['b'] }] },
  { data: [{ embedding: [] }, { embedding: [] }] },
  { data: [{ embedding: [null] }, { embedding: [1] }] },
  { embeddings: [[1], 'x'] },
  { embeddings: [{ values: [1] }] },
  { embeddings: { length: 2 } },
  { data: 'x' },
];

test.each(wires)('%s: whatever else comes back is an error', async (_, { make }) => {
  for (const wrong of WRONG) {
    const { fetch } = answering(json(wrong as object));
    const embedder = make({ model: 'm', apiKey: 'k', fetch, maxRetries: 0 });
    await expect(embedder.embed(TEXTS)).rejects.toThrow('The answer does not contain a vector for each text.');
  }
  const { fetch } = answering(answer('<html>', 'text/plain'));
  await expect(make({ model: 'm', apiKey: 'k', fetch, maxRetries: 0 }).embed(TEXTS)).rejects.toThrow('not JSON');
});

test('tries again after a temporary failure, and says without secrets why it failed', async () => {
  // Waits between attempts are over at once.
  const timer: Clock['timer'] = (ms, wake) => (ms < 1_000 && queueMicrotask(wake), () => {});
  const clock: Clock = { now: () => 0, timer };
  const busy = json({ error: { message: 'busy' } }, 503);
  const { fetch, seen } = answering(busy, json(WIRES.ollama.answer));
  expect(await ollamaEmbedder({ model: 'm', fetch, clock }).embed(TEXTS)).toEqual(VECTORS);
  expect(seen).toHaveLength(2);
  const refused = answering(json({ error: { message: 'The key sk-secret is wrong' } }, 401));
  const embedder = openaiEmbedder({ model: 'm', apiKey: 'sk-secret', fetch: refused.fetch });
  await expect(embedder.embed(TEXTS)).rejects.toThrow(/^(?!.*sk-secret).*401/);
});

test('ends with its signal', async () => {
  const aborted = AbortSignal.abort(new Error('no more'));
  const { fetch, seen } = answering(json(WIRES.ollama.answer));
  await expect(ollamaEmbedder({ model: 'm', fetch }).embed(TEXTS, aborted)).rejects.toThrow('no more');
  expect(seen).toEqual([]);
});

test('rejects invalid options', () => {
  expect(() => openaiEmbedder({} as EmbedderOptions)).toThrow('openaiEmbedder: "model" is missing');
  expect(() => openaiEmbedder(undefined as unknown as EmbedderOptions)).toThrow('openaiEmbedder: pass an object');
  expect(() => googleEmbedder({ model: 'm', dimensions: 0.5 })).toThrow('"dimensions" must be a whole number above 0.');
  const wrong = { model: 'm', temperature: 1 } as EmbedderOptions;
  expect(() => ollamaEmbedder(wrong)).toThrow('ollamaEmbedder has no option "temperature"');
});
