import { runLoop, tool, type Item, type ModelReply, type TokenLogprob } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { addedChunks } from '../../../test/added-chunks.ts';
import { ApiError } from '../../api-error.ts';
import { endingOf, type Ending } from '../../requests/ending.ts';
import type { CallKinds } from '../../engine/tools.ts';
import type { WireLogprob } from '../responses/wire.ts';
import { walkRun } from '../../requests/projection.ts';
import { completionProjection, replayCompletion, type CompletionFrame } from './projection.ts';
import type { ChatChunk, ChatCompletion, ChatHead } from './wire.ts';

const HEX = '0123456789abcdef0123456789abcdef';
const HEAD: ChatHead = {
  id: `chatcmpl-${HEX}`,
  created: 1_700_000_000,
  model: 'm',
  service_tier: 'default',
  system_fingerprint: null,
};

const look = tool({
  name: 'look',
  description: '',
  parameters: { type: 'object' },
  effect: 'pure',
  execute: async () => 'seen',
});
const ask = tool({ name: 'ask', description: '', parameters: { type: 'object' } });
const tell = tool({ name: 'tell', description: '', parameters: { type: 'object' } });

const KINDS: CallKinds = {
  kindOf: (name) => (name === 'look' ? 'server' : name === 'ask' || name === 'tell' ? 'client' : 'refused'),
  labelOf: () => 'treadle',
};

const LATER: CallKinds = { ...KINDS, kindOf: (name) => (name === 'look' ? 'server' : 'client-later') };

type Frame = CompletionFrame;

interface Played {
  readonly frames: readonly Frame[];
  readonly whole: ChatCompletion | ApiError;
}

interface Playing {
  readonly calls?: CallKinds;
  readonly includeUsage?: boolean;
  readonly lastTextOnly?: boolean;
  readonly maxTurns?: number;
  readonly maxCalls?: number;
  /** Selects the items that the output receives; default all. */
  readonly passes?: (item: Item) => boolean;
}

async function play(script: readonly ScriptStep[], playing: Playing = {}): Promise<Played> {
  const { calls = KINDS, includeUsage = false, lastTextOnly = false, maxTurns = 10, maxCalls, passes } = playing;
  const frames: Frame[] = [];
  const emit = (frame: Frame): void => void frames.push(frame);
  const out = walkRun(completionProjection({ head: HEAD, calls, includeUsage, lastTextOnly }), { emit });
  out.open();
  const result = await runLoop({
    model: scriptedModel(script),
    tools: [look, ask, tell],
    input: 'go',
    maxTurns,
    ...(maxCalls !== undefined && { limits: { calls: maxCalls } }),
    onItem: (item) => (passes?.(item) === false ? undefined : void out.add(item)),
  });
  const whole = out.end({ ending: endingOf(result, { isSpent: false, failure: undefined, at: 0 }) });
  out.last();
  return { frames, whole };
}

function deltasOf(frames: readonly Frame[]): readonly unknown[] {
  return (frames as readonly ChatChunk[]).flatMap(({ choices }) => choices.map(({ delta }) => delta));
}

function contentOf({ whole }: Played): string | null {
  if (whole instanceof ApiError) throw whole;
  return whole.choices[0].message.content;
}

test('sends the role, the text, the finish reason and the usage', async () => {
  const { frames, whole } = await play(['two words'], { includeUsage: true });
  const chunk = { ...HEAD, object: 'chat.completion.chunk', usage: null };
  const choice = { index: 0, logprobs: null, finish_reason: null };
  const usage = {
    prompt_tokens: 10,
    completion_tokens: 5,
    total_tokens: 15,
    prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
  expect(frames).toEqual([
    { ...chunk, choices: [{ ...choice, delta: { role: 'assistant', content: '', refusal: null } }] },
    { ...chunk, choices: [{ ...choice, delta: { content: 'two ' } }] },
    { ...chunk, choices: [{ ...choice, delta: { content: 'words' } }] },
    { ...chunk, choices: [{ ...choice, delta: {}, finish_reason: 'stop' }] },
    { ...chunk, choices: [], usage },
  ]);
  expect(whole).toEqual({
    ...HEAD,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'two words', refusal: null, annotations: [] },
        logprobs: null,
        finish_reason: 'stop',
      },
    ],
    usage,
  });
});

describe('log probabilities', () => {
  const token = (text: string): TokenLogprob => ({ token: text, logprob: -1, top: [{ token: 'x', logprob: -2 }] });
  const wire = (text: string): WireLogprob => ({
    token: text,
    logprob: -1,
    bytes: [...Buffer.from(text)],
    top_logprobs: [{ token: 'x', logprob: -2, bytes: [120] }],
  });
  const deltas: readonly Item[] = ['日 ', 'b'].map((text) => ({ type: 'text-delta', text, logprobs: [token(text)] }));
  const reply: Extract<ModelReply, { type: 'reply' }> = {
    type: 'reply',
    content: [{ type: 'text', text: '日 b', logprobs: [token('日 '), token('b')] }],
    finish: 'stop',
    usage: { inputTokens: 1, outputTokens: 1 },
    model: 'm',
  };

  test.each([
    { streamed: 2, sent: [['日 '], ['b']] },
    { streamed: 1, sent: [['日 '], ['b']] },
    { streamed: 0, sent: [['日 ', 'b']] },
  ])('are sent with the text if $streamed deltas came before the reply', ({ streamed, sent }) => {
    const frames: ChatChunk[] = [];
    const emit = (frame: Frame): void => void frames.push(frame as ChatChunk);
    const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }), {
      emit,
    });
    const { type: _, ...replied } = reply;
    const event = { ...replied, type: 'model-replied', at: 0, effect: 't1.model.0', checks: [] } as const;
    for (const item of [...deltas.slice(0, streamed), { type: 'fact', seq: 0, event } as const]) void out.add(item);
    const whole = out.end({ ending: { type: 'completed', at: 0, usage: reply.usage } }) as ChatCompletion;
    expect(frames.map(({ choices }) => choices[0]!.logprobs)).toEqual(
      sent.map((tokens) => ({ content: tokens.map(wire), refusal: null })),
    );
    expect(whole.choices[0].logprobs).toEqual({ content: [wire('日 '), wire('b')], refusal: null });
  });

  test('are those of the last turn in a required format', async () => {
    const first: ModelReply = {
      ...reply,
      content: [
        { type: 'text', text: 'Hm.', logprobs: [token('Hm.')] },
        { type: 'tool-call', id: 'c', name: 'look', arguments: '{}' },
      ],
    };
    const { frames, whole } = await play([first, reply], { lastTextOnly: true });
    const logprobs = { content: [wire('日 '), wire('b')], refusal: null };
    expect((whole as ChatCompletion).choices[0].logprobs).toEqual(logprobs);
    const choices = (frames as readonly ChatChunk[]).flatMap((frame) => frame.choices);
    expect(choices.filter((choice) => choice.logprobs)).toMatchObject([{ delta: { content: '日 b' }, logprobs }]);
    const replayed: ChatChunk[] = [];
    await replayCompletion(whole as ChatCompletion, false, (frame) => void replayed.push(frame as ChatChunk));
    expect(replayed.map((chunk) => chunk.choices[0]!.logprobs)).toEqual([null, logprobs, null]);
  });
});

test('sends no usage without include_usage', async () => {
  const { frames } = await play(['hello']);
  expect(frames.some((frame) => 'usage' in frame)).toBe(false);
  expect(frames).toHaveLength(3);
});

describe('calls', () => {
  test('for the client are sent as they arrive, and the run waits for them', async () => {
    const { frames, whole } = await play([{ text: 'I ask.', calls: [{ name: 'ask', arguments: { a: 1 } }] }]);
    expect(deltasOf(frames).slice(1)).toEqual([
      { content: 'I ' },
      { content: 'ask.' },
      {
        tool_calls: [
          { index: 0, id: `call_${HEX}_1_0`, type: 'function', function: { name: 'ask', arguments: '{"a":1}' } },
        ],
      },
      {},
    ]);
    expect(whole).toMatchObject({
      choices: [
        {
          message: { content: 'I ask.', tool_calls: [{ id: `call_${HEX}_1_0`, function: { arguments: '{"a":1}' } }] },
          finish_reason: 'tool_calls',
        },
      ],
    });
  });

  test('of the server are not sent; indices count the sent calls, ids the calls of the reply', async () => {
    const played = await play(
      [
        { text: 'First.', calls: [{ name: 'look' }] },
        {
          text: 'Then.',
          calls: [{ name: 'look' }, { name: 'ask', id: 'x' }, { name: 'nothing' }, { name: 'tell', id: 'x' }],
        },
      ],
      { includeUsage: true },
    );
    expect(addedChunks(played.frames)).toEqual(played.whole);
    expect(played.whole).toMatchObject({
      choices: [
        {
          message: {
            content: 'First.\n\nThen.',
            tool_calls: [
              { id: `call_${HEX}_2_1`, type: 'function', function: { name: 'ask', arguments: '{}' } },
              { id: `call_${HEX}_2_3`, type: 'function', function: { name: 'tell', arguments: '{}' } },
            ],
          },
          finish_reason: 'tool_calls',
        },
      ],
    });
    const shown = deltasOf(played.frames).flatMap(
      (delta) => (delta as { tool_calls?: { index: number }[] }).tool_calls ?? [],
    );
    expect(shown.map(({ index }) => index)).toEqual([0, 1]);
  });

  test('that may still be refused are sent only when the run waits for them', async () => {
    const played = await play(
      [
        {
          calls: [
            { name: 'ask', id: 'a' },
            { name: 'tell', id: 'b' },
          ],
        },
      ],
      {
        calls: LATER,
        includeUsage: true,
        maxCalls: 1,
      },
    );
    expect(deltasOf(played.frames)).toEqual([
      { role: 'assistant', content: '', refusal: null },
      {
        tool_calls: [{ index: 0, id: `call_${HEX}_1_0`, type: 'function', function: { name: 'ask', arguments: '{}' } }],
      },
      {},
    ]);
    expect(addedChunks(played.frames)).toEqual(played.whole);
  });

  test('without arguments have an empty object', async () => {
    const called = { message: { content: null, tool_calls: [{ function: { name: 'ask', arguments: '{}' } }] } };
    for (const calls of [KINDS, LATER]) {
      const played = await play([{ calls: [{ name: 'ask', arguments: '' }] }], { calls, includeUsage: true });
      expect(played.whole).toMatchObject({ choices: [called] });
      expect(addedChunks(played.frames)).toEqual(played.whole);
    }
  });

  test('that are streamed in parallel receive their own deltas', () => {
    const frames: Frame[] = [];
    const emit = (frame: Frame): void => void frames.push(frame);
    const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }), {
      emit,
    });
    void out.add({ type: 'turn-started', turn: 1 });
    for (const [call, name, piece] of [
      [0, 'ask', ''],
      [1, 'look', '{'],
      [2, 'tell', '{"b"'],
      [0, 'ask', '{}'],
      [1, 'look', '}'],
      [2, 'tell', ':1}'],
      [2, 'tell', ''],
    ] as const) {
      void out.add({ type: 'call-delta', call, name, arguments: piece });
    }
    expect(deltasOf(frames)).toEqual([
      { tool_calls: [{ index: 0, id: `call_${HEX}_1_0`, type: 'function', function: { name: 'ask', arguments: '' } }] },
      {
        tool_calls: [
          { index: 1, id: `call_${HEX}_1_2`, type: 'function', function: { name: 'tell', arguments: '{"b"' } },
        ],
      },
      { tool_calls: [{ index: 0, function: { arguments: '{}' } }] },
      { tool_calls: [{ index: 1, function: { arguments: ':1}' } }] },
    ]);
  });
});

describe('texts of several turns', () => {
  const script = [
    { text: 'Looking.', calls: [{ name: 'look' }] },
    { calls: [{ name: 'look', arguments: { a: 1 } }] },
    '{"a":1}',
  ];

  test('are separated by a blank line; a turn without text adds none', async () => {
    const played = await play(script, { includeUsage: true });
    expect(contentOf(played)).toBe('Looking.\n\n{"a":1}');
    expect(addedChunks(played.frames)).toEqual(played.whole);
  });

  test('are dropped except the last one if the answer needs a format', async () => {
    const played = await play(script, { includeUsage: true, lastTextOnly: true });
    expect(contentOf(played)).toBe('{"a":1}');
    expect(addedChunks(played.frames)).toEqual(played.whole);
  });
});

test('sends the reply of a model that does not stream', async () => {
  const silent = (item: Item): boolean => !item.type.endsWith('-delta');
  const script = [
    { text: 'First.', calls: [{ name: 'look' }] },
    { text: 'Then.', calls: [{ name: 'ask' }] },
  ];
  const played = await play(script, { includeUsage: true, passes: silent });
  expect(played.whole).toEqual((await play(script)).whole);
  expect(addedChunks(played.frames)).toEqual(played.whole);
});

test('sends reasoning beside the content, separated by turn', async () => {
  const reply = (text: string, thought: string, calls: readonly string[]): ModelReply => ({
    type: 'reply',
    content: [
      { type: 'reasoning', text: thought },
      { type: 'text', text },
      ...calls.map((name) => ({ type: 'tool-call', id: name, name, arguments: '{}' }) as const),
    ],
    finish: 'stop',
    usage: { inputTokens: 1, outputTokens: 2, cachedTokens: 1, reasoningTokens: 1 },
    model: 'm',
  });
  const played = await play([reply('a', 'one two', ['look']), reply('b', 'three', [])], { includeUsage: true });
  expect(played.whole).toMatchObject({
    choices: [{ message: { content: 'a\n\nb', reasoning_content: 'one two\n\nthree' } }],
    usage: {
      prompt_tokens: 2,
      completion_tokens: 4,
      total_tokens: 6,
      prompt_tokens_details: { cached_tokens: 2 },
      completion_tokens_details: { reasoning_tokens: 2 },
    },
  });
  expect(addedChunks(played.frames)).toEqual(played.whole);
});

describe('the end', () => {
  test('is length for a reply that was cut off', async () => {
    const played = await play([{ text: 'half a', finish: 'length' }], { includeUsage: true });
    expect(played.whole).toMatchObject({
      choices: [{ finish_reason: 'length' }],
      incomplete_details: { reason: 'max_output_tokens' },
    });
    expect(addedChunks(played.frames)).toEqual(played.whole);
  });

  test('is length for a limit of the loop, with the reason in incomplete_details', async () => {
    const played = await play([{ text: 'On and on', calls: [{ name: 'look' }] }], { maxTurns: 1, includeUsage: true });
    expect(played.whole).toMatchObject({
      choices: [{ finish_reason: 'length', message: { content: 'On and on' } }],
      incomplete_details: { reason: 'max_turns' },
    });
    expect(addedChunks(played.frames)).toEqual(played.whole);
  });

  test('leaves a call that was being streamed out of the whole completion', async () => {
    const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }));
    void out.add({ type: 'turn-started', turn: 1 });
    void out.add({ type: 'call-delta', call: 0, name: 'ask', arguments: '{"a' });
    const usage = { inputTokens: 0, outputTokens: 0 };
    const whole = out.end({ ending: { type: 'incomplete', reason: 'max_output_tokens', at: 0, usage } });
    expect(whole).toMatchObject({ choices: [{ finish_reason: 'length', message: { content: null } }] });
    expect(JSON.stringify(whole)).not.toContain('tool_calls');
  });

  test('is content_filter for a filtered reply', async () => {
    const { whole } = await play([{ text: 'So', finish: 'content-filter' }]);
    expect(whole).toMatchObject({ choices: [{ finish_reason: 'content_filter', message: { content: 'So' } }] });
  });

  test('is an error after a failure; the chunks before it were sent', async () => {
    const failure = { type: 'failure', error: { code: 'overloaded', message: 'Busy.', retryable: true } } as const;
    const { frames, whole } = await play([{ text: 'So far', calls: [{ name: 'look' }] }, failure], {
      includeUsage: true,
    });
    expect(whole).toBeInstanceOf(ApiError);
    expect(deltasOf(frames.slice(0, -1))).toEqual([
      { role: 'assistant', content: '', refusal: null },
      { content: 'So ' },
      { content: 'far' },
    ]);
    expect(frames.at(-1)).toEqual({
      error: { message: 'Busy.', type: 'server_error', param: null, code: 'server_error' },
    });
  });

  test('has the details of a model failure', () => {
    const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }));
    const ending: Ending = {
      type: 'failed',
      at: 0,
      usage: { inputTokens: 0, outputTokens: 0 },
      error: { code: 'rate_limit_exceeded', message: 'Wait.' },
    };
    const failure = { code: 'rate-limit', message: 'Wait.', retryable: true, retryAfterMs: 1500 } as const;
    const error = out.end({ ending, failure });
    expect(error).toMatchObject({ status: 429, code: 'rate_limit_exceeded', headers: { 'retry-after': '2' } });
  });

  test('is an error after a cancellation', () => {
    const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }));
    const ending: Ending = {
      type: 'cancelled',
      at: 0,
      usage: { inputTokens: 0, outputTokens: 0 },
    };
    expect(out.end({ ending })).toMatchObject({ status: 503, code: 'cancelled' });
  });
});

test('returns the promise of a client that reads slowly', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: false, lastTextOnly: false }), {
    emit: () => promise,
  });
  const pending = out.add({ type: 'text-delta', text: 'a' });
  expect(pending).toBe(promise);
  expect(
    out.add({ type: 'tool-report', call: { type: 'tool-call', id: '', name: '', arguments: '' }, progress: 1 }),
  ).toBe(undefined);
  resolve();
  await pending;
});

test('builds the same completion without chunks', async () => {
  const script = ['hello'];
  const out = walkRun(completionProjection({ head: HEAD, calls: KINDS, includeUsage: true, lastTextOnly: false }));
  out.open();
  const result = await runLoop({ model: scriptedModel(script), input: 'go', onItem: (item) => void out.add(item) });
  const whole = out.end({ ending: endingOf(result, { isSpent: false, failure: undefined, at: 0 }) });
  out.last();
  expect(whole).toEqual((await play(script)).whole);
});
