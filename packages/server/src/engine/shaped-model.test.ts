import type { Message, Model, ModelError, ModelReply, ModelRequest } from '@treadle/core';
import { describe, expect, test, vi } from 'vitest';
import { shaped } from './shaped-model.ts';

const request: ModelRequest = {
  messages: [],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: { temperature: 0 },
  key: 'k',
};

const PLAIN = { parallel: true, truncates: false, usedTokens: 0, onSpent: () => {} };

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
  await ask(
    shaped(model, {
      ...PLAIN,
      parallel: false,
      format: { schema: { type: 'object' }, name: 'form', strict: true },
      usedTokens: 0,
      onSpent: () => {},
    }),
  );
  expect(seen[0]).toMatchObject({
    parallel: false,
    output: { type: 'object' },
    outputForm: { name: 'form', strict: true },
    settings: { temperature: 0 },
  });
  expect(seen[0]!.settings.maxOutputTokens).toBeUndefined();
});

test('max_output_tokens is for all replies together', async () => {
  const { model, seen } = replying(30);
  const onSpent = vi.fn<() => void>();
  const one = shaped(model, { ...PLAIN, maxOutputTokens: 100, usedTokens: 20, onSpent });
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
  const one = shaped(model, { ...PLAIN, usedTokens: 0, onSpent });
  await ask(one);
  await ask(one);
  expect(seen).toHaveLength(1);
  expect(onSpent).toHaveBeenCalledOnce();
});

const said = (role: 'user' | 'assistant', text: string): Message => ({ role, content: [{ type: 'text', text }] });
const TALK = [said('user', 'a'), said('assistant', 'b'), said('user', 'c'), said('assistant', 'd'), said('user', 'e')];

/** A model that takes so many messages. */
function narrow(most: number): { readonly model: Model; readonly seen: (readonly Message[])[] } {
  const seen: (readonly Message[])[] = [];
  const error: ModelError = { code: 'context-length', message: 'too long', retryable: false };
  const usage = { inputTokens: 1, outputTokens: 1 };
  const model: Model = {
    id: 'm',
    async reply({ messages }) {
      seen.push(messages);
      if (messages.length > most) return { type: 'failure', error };
      return { type: 'reply', content: [], finish: 'stop', usage, model: 'm' };
    },
  };
  return { model, seen };
}

describe('a conversation that is too long', () => {
  const asking = (model: Model, messages: readonly Message[] = TALK) =>
    model.reply({ ...request, messages }, () => {}, new AbortController().signal);

  test('loses its beginning, and stays without it', async () => {
    const { model, seen } = narrow(3);
    const one = shaped(model, { ...PLAIN, truncates: true });
    expect(await asking(one)).toMatchObject({ type: 'reply' });
    expect(seen.map(({ length }) => length)).toEqual([5, 3]);
    await asking(one, [...TALK, said('assistant', 'f')]);
    expect(seen.at(-1)).toEqual([...TALK, said('assistant', 'f')].slice(4));
  });

  test('is a failure where nothing can be left out, or nobody allowed it', async () => {
    const { model, seen } = narrow(0);
    expect(await asking(shaped(model, { ...PLAIN, truncates: true }))).toMatchObject({ type: 'failure' });
    expect(seen.at(-1)).toEqual([said('user', 'e')]);
    expect(await asking(shaped(model, PLAIN))).toMatchObject({ type: 'failure' });
    expect(seen.at(-1)).toBe(TALK);
  });
});

test('the model is never shown two messages of one role in a row', async () => {
  const { model, seen } = narrow(9);
  const twice = [said('user', 'a'), said('user', 'b')];
  await shaped(model, PLAIN).reply({ ...request, messages: twice }, () => {}, new AbortController().signal);
  expect(seen).toEqual([[said('user', 'a\n\nb')]]);
});
