import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import type { Journal } from '../../journal/port.ts';
import { userText, type Message } from '../../messages.ts';
import type { Model, ModelDelta, ModelReply, ModelRequest } from '../../model.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop, streamLoop } from '../run.ts';

const unhandled: unknown[] = [];
const recordUnhandled = (reason: unknown): void => void unhandled.push(reason);
beforeAll(() => void process.on('unhandledRejection', recordUnhandled));
afterAll(() => {
  process.off('unhandledRejection', recordUnhandled);
  expect(unhandled).toEqual([]);
});

const USAGE = { inputTokens: 1, outputTokens: 1 };
const look = tool({ name: 'look', description: 'x', execute: async () => 'seen' });

function modelReplying(reply: unknown): Model {
  return { id: 'broken', reply: async () => reply as ModelReply };
}

function replyOf(text: string, more: object = {}): ModelReply {
  return { type: 'reply', content: [{ type: 'text', text }], finish: 'stop', usage: USAGE, model: 'm', ...more };
}

const cycle: { self?: unknown } = {};
cycle.self = cycle;

const PROTOCOL = {
  type: 'failed',
  error: { code: 'protocol', message: expect.stringContaining('The model "broken" broke its contract') },
};

describe('a model that breaks its contract fails the run', () => {
  test.each<[string, Model['reply']]>([
    ['rejects', () => Promise.reject(new Error('ouch'))],
    [
      'rejects with undefined',
      async () => {
        throw undefined;
      },
    ],
    [
      'throws',
      () => {
        throw new Error('ouch');
      },
    ],
    ['returns undefined', () => undefined as never],
    ['returns a reply instead of a promise', () => replyOf('hello') as never],
  ])('if it %s', async (_, reply) => {
    const result = await runLoop({ model: { id: 'broken', reply }, input: 'go' });
    expect(result.outcome).toMatchObject(PROTOCOL);
    expect(result.messages).toEqual([userText('go')]);
  });

  test.each<[string, unknown, string?]>([
    ['undefined', undefined, 'it is undefined, not an object'],
    ['null', null, 'it is null, not an object'],
    ['a string', 'hello', 'it is "hello", not an object'],
    ['an empty object', {}, 'type is undefined. Use "reply" or "failure"'],
    ['a cycle', cycle],
    ['an unknown type', { type: 'answer', content: [] }, 'type is "answer". Use "reply" or "failure"'],
    ['missing content', { ...replyOf('x'), content: undefined }, 'content is undefined, not an array'],
    ['content that is not an array', { ...replyOf('x'), content: 'hello' }],
    ['content with undefined', { ...replyOf('x'), content: [undefined] }],
    ['content with null', { ...replyOf('x'), content: [null] }],
    ['content with strings', { ...replyOf('x'), content: ['hello'] }],
    [
      'an unknown part',
      { ...replyOf('x'), content: [{ type: 'video', url: 'x' }] },
      'content[0].type is "video". Use text, reasoning, tool-call',
    ],
    ['a text part without text', { ...replyOf('x'), content: [{ type: 'text' }] }],
    ['a text part with a number', { ...replyOf('x'), content: [{ type: 'text', text: 7 }] }],
    [
      'a reasoning part without text',
      { ...replyOf('x'), content: [{ type: 'reasoning' }, { type: 'text', text: 'x' }] },
    ],
    ['a call without arguments', { ...replyOf('x'), content: [{ type: 'tool-call', id: 'a', name: 'look' }] }],
    [
      'a call with an object as arguments',
      { ...replyOf('x'), content: [{ type: 'tool-call', id: 'a', name: 'look', arguments: {} }] },
      'content[0].arguments is an object, not a string',
    ],
    ['a call without a name', { ...replyOf('x'), content: [{ type: 'tool-call', id: 'a', arguments: '{}' }] }],
    ['a call without an id', { ...replyOf('x'), content: [{ type: 'tool-call', name: 'look', arguments: '{}' }] }],
    ['missing usage', { ...replyOf('x'), usage: undefined }],
    ['usage without numbers', { ...replyOf('x'), usage: {} }, 'usage.inputTokens is undefined, not a number'],
    ['usage with NaN', { ...replyOf('x'), usage: { inputTokens: Number.NaN, outputTokens: 1 } }],
    ['a failure without an error', { type: 'failure' }],
    ['a failure without a message', { type: 'failure', error: {} }, 'error.message is undefined, not a string'],
  ])('if it replies with %s', async (_, reply, problem = '') => {
    const result = await runLoop({ model: modelReplying(reply), tools: [look], input: 'go' });
    expect(result.outcome).toMatchObject(PROTOCOL);
    expect(() => result.orThrow()).toThrow(problem);
    expect(result.messages).toEqual([userText('go')]);
    expect(result.usage).toMatchObject({ inputTokens: 0, outputTokens: 0 });
  });

  test('and the error contains the beginning of its reply', async () => {
    const { outcome } = await runLoop({ model: modelReplying({ oops: 'x'.repeat(100_000) }), input: 'go' });
    expect(JSON.stringify(outcome).length).toBeLessThan(1_000);
    expect(JSON.stringify(outcome)).toContain('oops');
  });

  test('and the messages before it are kept', async () => {
    using model = scriptedModel([{ calls: [{ name: 'look' }] }, () => Promise.reject(new Error('ouch'))]);
    const result = await runLoop({ model, tools: [look], input: 'go' });
    expect(result.outcome).toMatchObject({ type: 'failed' });
    expect(result.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
  });
});

describe('additional fields', () => {
  /** A journal that stores JSON, and fails for values without a JSON form. */
  function strictJournal(): Journal {
    const inner = memoryJournal();
    return {
      append: (runId, entries, lease) => inner.append(runId, JSON.parse(JSON.stringify(entries)), lease),
      read: (runId) => inner.read(runId),
    };
  }

  test.each<[string, ModelReply]>([
    ['of a reply', replyOf('done', { raw: cycle, response: 1n, finish: 'stop' })],
    [
      'of a failure',
      { type: 'failure', error: { code: 'network', message: 'closed', retryable: true }, raw: cycle } as ModelReply,
    ],
  ])('%s are not journaled', async (_, reply) => {
    const journal = strictJournal();
    const result = await runLoop({ model: modelReplying(reply), input: 'go', journal, runId: 'r' });
    expect(result.outcome).toMatchObject(
      reply.type === 'failure' ? { type: 'failed', error: { code: 'network' } } : { type: 'completed' },
    );
    expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
    expect(result.messages.length).toBe(reply.type === 'failure' ? 1 : 2);
  });
});

describe('emit', () => {
  test('never throws, and is ignored after the reply', async () => {
    let previousEmit: ((delta: ModelDelta) => void) | undefined;
    const received: Item[] = [];
    using model = scriptedModel([]);
    let turn = 0;
    const chatty: Model = {
      id: 'chatty',
      reply: async (_, emit) => {
        turn++;
        previousEmit?.({ type: 'text-delta', text: 'late' });
        previousEmit = emit;
        emit({ type: 'text-delta', text: 'in time' });
        if (turn > 1) return replyOf('done');
        return {
          ...replyOf(''),
          content: [{ type: 'tool-call', id: 'a', name: 'look', arguments: '{}' }],
        } as ModelReply;
      },
    };
    const result = await runLoop({
      model: chatty,
      tools: [look],
      input: 'go',
      onItem: (item) => void received.push(item),
    });
    previousEmit!({ type: 'text-delta', text: 'late' });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(received.filter(({ type }) => type === 'text-delta')).toEqual([
      { type: 'text-delta', text: 'in time' },
      { type: 'text-delta', text: 'in time' },
    ]);
    expect(model.requests).toEqual([]);
  });

  test('is ignored after the run has ended', async () => {
    const received: Item[] = [];
    let lateEmit: ((delta: ModelDelta) => void) | undefined;
    const model: Model = { id: 'm', reply: (_, emit) => ((lateEmit = emit), new Promise(() => {})) };
    const live = streamLoop({ model, input: 'go', onItem: (item) => void received.push(item) });
    await new Promise((next) => setTimeout(next, 1));
    live.cancel();
    await live.result;
    lateEmit!({ type: 'text-delta', text: 'late' });
    expect(received.map(({ type }) => type)).toEqual(['fact', 'turn-started', 'fact', 'run-failed']);
    expect(await Array.fromAsync(live)).toEqual(received);
  });

  test('passes invalid deltas on to the listener', async () => {
    const received: unknown[] = [];
    const model: Model = {
      id: 'm',
      reply: async (_, emit) => {
        for (const delta of [undefined, null, 7, {}, { type: 'video' }]) emit(delta as unknown as ModelDelta);
        return replyOf('done');
      },
    };
    const { outcome } = await runLoop({ model, input: 'go', onItem: (item) => void received.push(item) });
    expect(outcome).toEqual({ type: 'completed' });
    expect(received).toHaveLength(8);
  });
});

describe('a reply after cancel', () => {
  test.each<[string, () => unknown]>([
    ['with text', () => replyOf('too late')],
    [
      'with a call',
      () => ({ ...replyOf(''), content: [{ type: 'tool-call', id: 'a', name: 'work', arguments: '{}' }] }),
    ],
    ['that is null', () => null],
    ['that is a rejection', () => Promise.reject(new Error('aborted'))],
  ])('%s is ignored', async (_, lateReply) => {
    let ran = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    const model: Model = { id: 'm', reply: async () => (await promise, (await lateReply()) as ModelReply) };
    const journal = memoryJournal();
    const work = tool({ name: 'work', description: 'x', execute: () => (ran = true) });
    const live = streamLoop({ model, tools: [work], input: 'go', journal, runId: 'r' });
    await new Promise((next) => setTimeout(next, 1));
    live.cancel();
    const result = await live.result;
    resolve();
    await new Promise((next) => setTimeout(next, 1));
    expect(result.outcome).toEqual({ type: 'cancelled', phase: 'model' });
    expect(ran).toBe(false);
    expect((await journal.read('r')).map(({ event }) => event.type)).toEqual(['run-started', 'cancel-requested']);
  });
});

describe('a model that keeps or changes the messages of its request', () => {
  const call = { calls: [{ name: 'look' }] };

  async function run(onRequest: (request: ModelRequest) => void): Promise<readonly Message[]> {
    const journal = memoryJournal();
    using model = scriptedModel([
      (request) => (onRequest(request), call),
      (request) => (onRequest(request), { calls: [{ name: 'look', id: 'b' }] }),
      (request) => (onRequest(request), 'done'),
    ]);
    const result = await runLoop({ model, tools: [look], input: 'go', journal, runId: 'r' });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(replay(JSON.parse(JSON.stringify(await journal.read('r'))))).toMatchObject({ type: 'replayed' });
    return result.messages;
  }

  const ROLES = ['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant'];

  test('does not add messages to the history', async () => {
    const messages = await run(({ messages: requested }) =>
      (requested as Message[]).push(userText('foreign'), userText('more')),
    );
    expect(messages.map(({ role }) => role)).toEqual(ROLES);
    expect(JSON.stringify(messages)).not.toContain('foreign');
  });

  test('gets the same, growing array each time', async () => {
    const arrays: ModelRequest['messages'][] = [];
    const lengths: number[] = [];
    await run(({ messages }) => {
      arrays.push(messages);
      lengths.push(messages.length);
    });
    expect(lengths).toEqual([1, 3, 5]);
    expect(new Set(arrays).size).toBe(1);
  });

  test('does not change the messages of the result', async () => {
    let retained: ModelRequest['messages'] | undefined;
    const messages = await run(({ messages: requested }) => (retained = requested));
    const before = JSON.stringify(messages);
    (retained as Message[]).length = 0;
    expect(JSON.stringify(messages)).toBe(before);
  });

  test('gets separate messages for concurrent runs', async () => {
    const seen = new Map<unknown, string>();
    const model: Model = {
      id: 'm',
      reply: async ({ messages, key }) => {
        const run = key.slice(0, key.indexOf('/'));
        expect(seen.get(messages) ?? run).toBe(run);
        seen.set(messages, run);
        await new Promise((next) => setTimeout(next, 1));
        if (messages.length > 4) return replyOf(run);
        const id = `${run}-${messages.length}`;
        return { ...replyOf(''), content: [{ type: 'tool-call', id, name: 'look', arguments: '{}' }] } as ModelReply;
      },
    };
    const results = await Promise.all(
      ['a', 'b', 'c'].map((runId) => runLoop({ model, tools: [look], input: runId, runId })),
    );
    expect(results.map(({ text }) => text)).toEqual(['a', 'b', 'c']);
  });
});

test.each([
  ['is not an object', 'x'],
  ['has no protocol', { data: 1 }],
  ['has no data', { protocol: 'p' }],
  ['is not plain JSON', { protocol: 'p', data: new Date(0) }],
])('a call with provider data that %s breaks the contract of the model', async (_, provider) => {
  const content = [{ type: 'tool-call', id: 'a', name: 'x', arguments: '{}', provider }] as never;
  const usage = { inputTokens: 1, outputTokens: 1 };
  const model = scriptedModel([{ type: 'reply', content, finish: 'tool-calls', usage, model: 'm' }]);
  const { outcome } = await runLoop({ model, input: 'Go.' });
  expect(outcome).toMatchObject({ type: 'failed', error: { code: 'protocol' } });
});
