import type { Message, Model, ModelError, ModelReply, ModelRequest, Settings } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { acceptsMedia, checkSettings, requestModels } from './request-model.ts';

const request: ModelRequest = {
  messages: [],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: { temperature: 0 },
  key: 'k',
};

const PLAIN = { parallel: true, truncation: 'disabled' } as const;
const TRUNCATED = { parallel: true, truncation: 'auto' } as const;
const UNLIMITED = { usedTokens: 0, onSpent: () => {} };

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

const requestModel = (model: Model, ...[request, options]: Parameters<typeof requestModels>): Model =>
  requestModels(request, options)(model);

test('applies the settings of the request to every model call', async () => {
  const { model, seen } = replying(5);
  await ask(
    requestModel(
      model,
      { ...PLAIN, parallel: false, format: { schema: { type: 'object' }, name: 'form', strict: true } },
      UNLIMITED,
    ),
  );
  expect(seen[0]).toMatchObject({
    parallel: false,
    output: { type: 'object' },
    outputForm: { name: 'form', strict: true },
    settings: { temperature: 0 },
  });
  expect(seen[0]!.settings.maxOutputTokens).toBeUndefined();
});

test('counts max_output_tokens over all replies', async () => {
  const { model, seen } = replying(30);
  const onSpent = vi.fn<() => void>();
  const one = requestModel(model, { ...PLAIN, maxOutputTokens: 100 }, { usedTokens: 20, onSpent });
  await ask(one);
  await ask(one);
  await ask(one);
  expect(seen.map(({ settings }) => settings.maxOutputTokens)).toEqual([80, 50, 20]);
  expect(onSpent).not.toHaveBeenCalled();
  expect(await ask(one)).toMatchObject({ type: 'failure' });
  expect(onSpent).toHaveBeenCalledOnce();
});

test('does not call the model again after a reply that was cut off', async () => {
  const { model, seen } = replying(3, 'length');
  const onSpent = vi.fn<() => void>();
  const one = requestModel(model, PLAIN, { usedTokens: 0, onSpent });
  await ask(one);
  await ask(one);
  expect(seen).toHaveLength(1);
  expect(onSpent).toHaveBeenCalledOnce();
});

const said = (role: 'user' | 'assistant', text: string): Message => ({ role, content: [{ type: 'text', text }] });
const TALK = [said('user', 'a'), said('assistant', 'b'), said('user', 'c'), said('assistant', 'd'), said('user', 'e')];

/** A model whose context fits `most` messages. */
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

  test('loses its older half, also in later calls', async () => {
    const { model, seen } = narrow(3);
    const one = requestModel(model, TRUNCATED, UNLIMITED);
    expect(await asking(one)).toMatchObject({ type: 'reply' });
    expect(seen.map(({ length }) => length)).toEqual([5, 3]);
    await asking(one, [...TALK, said('assistant', 'f')]);
    expect(seen.at(-1)).toEqual([...TALK, said('assistant', 'f')].slice(4));
  });

  test('fails if nothing can be dropped, or if truncation is disabled', async () => {
    const { model, seen } = narrow(0);
    expect(await asking(requestModel(model, TRUNCATED, UNLIMITED))).toMatchObject({ type: 'failure' });
    expect(seen.at(-1)).toEqual([said('user', 'e')]);
    expect(await asking(requestModel(model, PLAIN, UNLIMITED))).toMatchObject({ type: 'failure' });
    expect(seen.at(-1)).toBe(TALK);
  });
});

test('merges consecutive messages of one role', async () => {
  const { model, seen } = narrow(9);
  const twice = [said('user', 'a'), said('user', 'b')];
  await requestModel(model, PLAIN, UNLIMITED).reply(
    { ...request, messages: twice },
    () => {},
    new AbortController().signal,
  );
  expect(seen).toEqual([[said('user', 'a\n\nb')]]);
});

const NAMES = { reasoning: 'reasoning.effort', topLogprobs: 'top_logprobs' };

function problem(model: Model, settings: Settings): unknown {
  try {
    checkSettings(model, 'm', settings, NAMES);
    return undefined;
  } catch (error) {
    return error;
  }
}

const custom: Model = scriptedModel([]);
const taking = (...takes: readonly (keyof Settings)[]): Model => ({ ...custom, takes });

describe('settings', () => {
  test.each<[string, Settings]>([
    ['presence_penalty', { presencePenalty: 1 }],
    ['frequency_penalty', { frequencyPenalty: 1 }],
    ['logit_bias', { logitBias: { 1: 1 } }],
    ['service_tier', { serviceTier: 'flex' }],
    ['top_logprobs', { topLogprobs: 0 }],
    ['temperature', { temperature: 0 }],
    ['top_p', { topP: 0.5 }],
    ['stop', { stop: ['.'] }],
    ['seed', { seed: 7 }],
    ['reasoning.effort', { reasoning: 'none' }],
  ])('%s is refused by a model that does not take it, with what to do', (param, settings) => {
    expect(problem(taking(), settings)).toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param,
      message: `The model "m" does not support '${param}'. Leave it out, or use another model.`,
    });
    expect(problem(taking(...(Object.keys(settings) as (keyof Settings)[])), settings)).toBeUndefined();
  });

  test.each<Settings>([
    { promptCacheKey: 'k' },
    { verbosity: 'low' },
    { serviceTier: 'auto' },
    { serviceTier: 'default' },
    { temperature: 1, topP: 1 },
    { maxOutputTokens: 16 },
  ])('%j is accepted by every model', (settings) => {
    expect(problem(taking(), settings)).toBeUndefined();
  });

  test('a model that does not say what it takes has the usual settings', () => {
    expect(problem(custom, { temperature: 0, topP: 0, stop: ['.'], seed: 7, reasoning: 'max' })).toBeUndefined();
    expect(problem(custom, { presencePenalty: 1 })).toMatchObject({ param: 'presence_penalty' });
  });

  test('a setting that the model omits because of another is refused', () => {
    const omits = ({ reasoning }: Settings): readonly (keyof Settings)[] => (reasoning ? ['temperature'] : []);
    const model: Model = { ...taking('temperature', 'reasoning'), omits };
    expect(problem(model, { temperature: 0 })).toBeUndefined();
    expect(problem(model, { temperature: 0, reasoning: 'low' })).toMatchObject({ param: 'temperature' });
    expect(problem({ ...custom, asks: [model] }, { temperature: 0, reasoning: 'low' })).toBeDefined();
    expect(problem(model, { temperature: 1, reasoning: 'low' })).toBeUndefined();
  });

  test('a model that asks others takes what all of them take', () => {
    const asking = (...asks: readonly Model[]): Model => ({ ...custom, asks });
    const both = asking(taking('seed', 'stop'), taking('seed'));
    expect(problem(both, { seed: 7 })).toBeUndefined();
    expect(problem(both, { stop: ['.'] })).toMatchObject({ param: 'stop' });
    expect(problem(asking(taking('presencePenalty'), custom), { presencePenalty: 1 })).toBeDefined();
    const itself: { asks: Model[] } & Model = { ...custom, asks: [] };
    itself.asks.push(itself);
    expect(problem(itself, { seed: 7 })).toBeUndefined();
  });
});

test('images with a detail and files by URL are accepted unless a model that may reply says otherwise', () => {
  const image = { type: 'image', detail: 'low' } as const;
  const file = (mediaType: string) => ({ type: 'file', mediaType, source: { type: 'url', url: 'https://a' } }) as const;
  const all = [image, file('application/pdf'), file('text/csv'), file('application/octet-stream')];
  const accepted = (model: Model): boolean[] => all.map((block) => acceptsMedia(model, block));
  const pdf: Model = { ...custom, accepts: { fileUrls: 'pdf' } };
  expect(accepted(custom)).toEqual([true, true, true, true]);
  expect(accepted(pdf)).toEqual([true, true, false, true]);
  expect(accepted({ ...custom, accepts: { fileUrls: false, imageDetail: false } })).toEqual([
    false,
    false,
    false,
    false,
  ]);
  expect(accepted({ ...custom, asks: [custom, pdf] })).toEqual([true, true, false, true]);
  const whole: Model = { ...custom, accepts: { imageDetail: false } };
  for (const detail of ['high', 'original'] as const) expect(acceptsMedia(whole, { type: 'image', detail })).toBe(true);
  expect(acceptsMedia(whole, { type: 'image' })).toBe(true);
});
