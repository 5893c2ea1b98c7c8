import type { Model, ModelReply, ModelRequest } from '@treadle/core';
import { expect, test, vi } from 'vitest';
import { shaped } from './shaped-model.ts';

const request: ModelRequest = {
  messages: [],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: { temperature: 0 },
  key: 'k',
};

const replying = (outputTokens: number, finish: 'stop' | 'length' = 'stop') => {
  const seen: ModelRequest[] = [];
  const model: Model = {
    id: 'm',
    reply: async (asked): Promise<ModelReply> => {
      seen.push(asked);
      return { type: 'reply', content: [], finish, usage: { inputTokens: 1, outputTokens }, model: 'm' };
    },
  };
  return { model, seen };
};

const ask = (model: Model) => model.reply(request, () => {}, new AbortController().signal);

test('a request says how every reply is to be', async () => {
  const { model, seen } = replying(5);
  await ask(shaped(model, { parallel: false, format: { type: 'object' }, usedTokens: 0, onSpent: () => {} }));
  expect(seen[0]).toMatchObject({ parallel: false, output: { type: 'object' }, settings: { temperature: 0 } });
  expect(seen[0]!.settings.maxOutputTokens).toBeUndefined();
});

test('max_output_tokens is for all replies together', async () => {
  const { model, seen } = replying(30);
  const onSpent = vi.fn<() => void>();
  const one = shaped(model, { parallel: true, maxOutputTokens: 100, usedTokens: 20, onSpent });
  await ask(one);
  await ask(one);
  await ask(one);
  expect(seen.map(({ settings }) => settings.maxOutputTokens)).toEqual([80, 50, 20]);
  expect(onSpent).not.toHaveBeenCalled();
  expect(await ask(one)).toMatchObject({ type: 'failure' });
  expect(onSpent).toHaveBeenCalledOnce();
});

test('after a reply that was cut off there is no other', async () => {
  const { model, seen } = replying(3, 'length');
  const onSpent = vi.fn<() => void>();
  const one = shaped(model, { parallel: true, usedTokens: 0, onSpent });
  await ask(one);
  await ask(one);
  expect(seen).toHaveLength(1);
  expect(onSpent).toHaveBeenCalledOnce();
});
