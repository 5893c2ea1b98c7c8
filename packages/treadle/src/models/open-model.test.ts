import { expect, test } from 'vitest';
import type { HttpChoice } from '../config/choose-model.ts';
import { PROVIDERS } from '../config/providers.ts';
import { openModel } from './open-model.ts';

const baseURL = 'http://127.0.0.1:1/v1';

test.each(PROVIDERS)('opens a model of %s', async (provider) => {
  if (provider === 'demo') expect(await openModel({ type: 'demo' })).toMatchObject({ id: 'demo' });
  else expect(await openModel({ type: provider, model: 'm', baseURL, apiKey: 'secret' })).toMatchObject({ id: 'm' });
});

test('opens a model with what its protocol and its entry say that it takes', async () => {
  const open = async (choice: HttpChoice): Promise<unknown> => (await openModel(choice)).accepts;
  expect(await open({ type: 'openai', model: 'm', baseURL })).toEqual({ fileUrls: false });
  expect(await open({ type: 'openai', model: 'm', baseURL, accepts: { images: false } })).toEqual({
    images: false,
    fileUrls: false,
  });
  expect(await open({ type: 'ollama', model: 'm', accepts: { images: false } })).toMatchObject({
    images: false,
    files: false,
  });
  expect(await open({ type: 'deepseek', model: 'm' })).toMatchObject({ images: false, files: false });
});

test('keeps the id of the first model if there are fallbacks', async () => {
  const one: HttpChoice = { type: 'openai', model: 'm', baseURL };
  const same = { ...one, fallback: [one, { type: 'demo' }] } as const;
  expect(await openModel(same)).toMatchObject({ id: 'm', priced: false });
});
