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
const note = (reason: unknown): void => void unhandled.push(reason);
beforeAll(() => void process.on('unhandledRejection', note));
afterAll(() => {
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});

const USAGE = { inputTokens: 1, outputTokens: 1 };
const look = tool({ name: 'look', description: 'x', execute: async () => 'seen' });

function replies(reply: unknown): Model {
  return { id: 'broken', reply: async () => reply as ModelReply };
}

function said(text: string, more: object = {}): ModelReply {
  return { type: 'reply', content: [{ type: 'text', text }], finish: 'stop', usage: USAGE, model: 'm', ...more };
}

const cycle: { self?: unknown } = {};
cycle.self = cycle;

const PROTOCOL = {
  type: 'failed',
  error: { code: 'protocol', message: expect.stringContaining('The model "broken" broke its contract') },
};

describe('a model that breaks its contract fails the run, and no more', () => {
  test.each<[string, Model['reply']]>([
    ['rejects', () => Promise.reject(new Error('ouch'))],
    [
      'rejects with nothing',
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
    ['returns nothing', () => undefined as never],
    ['returns no promise', () => said('hello') as never],
  ])('one that %s', async (_, reply) => {
    const result = await runLoop({ model: { id: 'broken', reply }, input: 'go' });
    expect(result.outcome).toMatchObject(PROTOCOL);
    expect(result.messages).toEqual([userText('go')]);
  });

  test.each<[string, unknown]>([
    ['undefined', undefined],
    ['null', null],
    ['a text', 'hello'],
    ['an empty object', {}],
    ['a cycle', cycle],
    ['an unknown type', { type: 'answer', content: [] }],
    ['no content', { ...said('x'), content: undefined }],
    ['content that is no list', { ...said('x'), content: 'hello' }],
    ['content with holes', { ...said('x'), content: [undefined] }],
    ['content with null in it', { ...said('x'), content: [null] }],
    ['content that is texts', { ...said('x'), content: ['hello'] }],
    ['an unknown part', { ...said('x'), content: [{ type: 'video', url: 'x' }] }],
    ['a text without text', { ...said('x'), content: [{ type: 'text' }] }],
    ['a text that is a number', { ...said('x'), content: [{ type: 'text', text: 7 }] }],
    ['a thought without text', { ...said('x'), content: [{ type: 'reasoning' }, { type: 'text', text: 'x' }] }],
    ['a call without arguments', { ...said('x'), content: [{ type: 'tool-call', id: 'a', name: 'look' }] }],
    [
      'a call with an object as arguments',
      { ...said('x'), content: [{ type: 'tool-call', id: 'a', name: 'look', arguments: {} }] },
    ],
    ['a call without a name', { ...said('x'), content: [{ type: 'tool-call', id: 'a', arguments: '{}' }] }],
    ['a call without an id', { ...said('x'), content: [{ type: 'tool-call', name: 'look', arguments: '{}' }] }],
    ['no usage', { ...said('x'), usage: undefined }],
    ['a usage without numbers', { ...said('x'), usage: {} }],
    ['a usage that is no number', { ...said('x'), usage: { inputTokens: Number.NaN, outputTokens: 1 } }],
    ['a failure without an error', { type: 'failure' }],
    ['a failure without a message', { type: 'failure', error: {} }],
  ])('one that replies with %s', async (_, reply) => {
    const result = await runLoop({ model: replies(reply), tools: [look], input: 'go' });
    expect(result.outcome).toMatchObject(PROTOCOL);
    expect(result.messages).toEqual([userText('go')]);
    expect(result.usage).toMatchObject({ inputTokens: 0, outputTokens: 0 });
  });

  test('what it said instead is told, but not at length', async () => {
    const { outcome } = await runLoop({ model: replies({ oops: 'x'.repeat(100_000) }), input: 'go' });
    expect(JSON.stringify(outcome).length).toBeLessThan(1_000);
    expect(JSON.stringify(outcome)).toContain('oops');
  });

  test('in the middle of a run: what was done stays', async () => {
    using model = scriptedModel([{ calls: [{ name: 'look' }] }, () => Promise.reject(new Error('ouch'))]);
    const result = await runLoop({ model, tools: [look], input: 'go' });
    expect(result.outcome).toMatchObject({ type: 'failed' });
    expect(result.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
  });
});

describe('what a reply brings that nobody asked for', () => {
  /** As a journal on disk would: what has no JSON form makes it fail. */
  function strictJournal(): Journal {
    const inner = memoryJournal();
    return {
      append: (runId, entries, lease) => inner.append(runId, JSON.parse(JSON.stringify(entries)), lease),
      read: (runId) => inner.read(runId),
    };
  }

  test.each<[string, ModelReply]>([
    ['a reply', said('done', { raw: cycle, response: 1n, finish: 'stop' })],
    [
      'a failure',
      { type: 'failure', error: { code: 'network', message: 'gone', retryable: true }, raw: cycle } as ModelReply,
    ],
  ])('%s with something that has no JSON form does not reach the journal', async (_, reply) => {
    const journal = strictJournal();
    const result = await runLoop({ model: replies(reply), input: 'go', journal, runId: 'r' });
    expect(result.outcome).toMatchObject(
      reply.type === 'failure' ? { type: 'failed', error: { code: 'network' } } : { type: 'completed' },
    );
    expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
    expect(result.messages.length).toBe(reply.type === 'failure' ? 1 : 2);
  });
});

describe('emit', () => {
  test('never throws, and is heard only until the reply is there', async () => {
    let early: ((delta: ModelDelta) => void) | undefined;
    const heard: Item[] = [];
    using model = scriptedModel([]);
    let turn = 0;
    const chatty: Model = {
      id: 'chatty',
      reply: async (_, emit) => {
        turn++;
        early?.({ type: 'text-delta', text: 'late' });
        early = emit;
        emit({ type: 'text-delta', text: 'in time' });
        if (turn > 1) return said('done');
        return { ...said(''), content: [{ type: 'tool-call', id: 'a', name: 'look', arguments: '{}' }] } as ModelReply;
      },
    };
    const result = await runLoop({
      model: chatty,
      tools: [look],
      input: 'go',
      onItem: (item) => void heard.push(item),
    });
    early!({ type: 'text-delta', text: 'late' });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(heard.filter(({ type }) => type === 'text-delta')).toEqual([
      { type: 'text-delta', text: 'in time' },
      { type: 'text-delta', text: 'in time' },
    ]);
    expect(model.requests).toEqual([]);
  });

  test('after the run has ended is heard by nobody', async () => {
    const heard: Item[] = [];
    let late: ((delta: ModelDelta) => void) | undefined;
    const model: Model = { id: 'm', reply: (_, emit) => ((late = emit), new Promise(() => {})) };
    const live = streamLoop({ model, input: 'go', onItem: (item) => void heard.push(item) });
    await new Promise((next) => setTimeout(next, 1));
    live.cancel();
    await live.result;
    late!({ type: 'text-delta', text: 'late' });
    expect(heard.map(({ type }) => type)).toEqual(['fact', 'turn-started', 'fact']);
    expect(await Array.fromAsync(live)).toEqual(heard);
  });

  test('of garbage is not the loop’s affair', async () => {
    const heard: unknown[] = [];
    const model: Model = {
      id: 'm',
      reply: async (_, emit) => {
        for (const delta of [undefined, null, 7, {}, { type: 'smell' }]) emit(delta as unknown as ModelDelta);
        return said('done');
      },
    };
    const { outcome } = await runLoop({ model, input: 'go', onItem: (item) => void heard.push(item) });
    expect(outcome).toEqual({ type: 'completed' });
    expect(heard).toHaveLength(8);
  });
});

describe('a reply after the cancel', () => {
  test.each<[string, () => unknown]>([
    ['is ignored', () => said('too late')],
    [
      'that is a call is not performed',
      () => ({ ...said(''), content: [{ type: 'tool-call', id: 'a', name: 'work', arguments: '{}' }] }),
    ],
    ['that is garbage is ignored', () => null],
    ['that is an error is ignored', () => Promise.reject(new Error('aborted'))],
  ])('%s', async (_, late) => {
    let ran = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    const model: Model = { id: 'm', reply: async () => (await promise, (await late()) as ModelReply) };
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

describe('a model that keeps or changes what it was given', () => {
  const call = { calls: [{ name: 'look' }] };

  async function run(meddle: (request: ModelRequest) => void): Promise<readonly Message[]> {
    const journal = memoryJournal();
    using model = scriptedModel([
      (request) => (meddle(request), call),
      (request) => (meddle(request), { calls: [{ name: 'look', id: 'b' }] }),
      (request) => (meddle(request), 'done'),
    ]);
    const result = await runLoop({ model, tools: [look], input: 'go', journal, runId: 'r' });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(replay(JSON.parse(JSON.stringify(await journal.read('r'))))).toMatchObject({ type: 'replayed' });
    return result.messages;
  }

  const ROLES = ['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant'];

  test('what it adds is not in the history', async () => {
    const messages = await run(({ messages: given }) =>
      (given as Message[]).push(userText('smuggled'), userText('in')),
    );
    expect(messages.map(({ role }) => role)).toEqual(ROLES);
    expect(JSON.stringify(messages)).not.toContain('smuggled');
  });

  test('the array is the same, and longer, each time', async () => {
    const given: ModelRequest['messages'][] = [];
    const lengths: number[] = [];
    await run(({ messages }) => {
      given.push(messages);
      lengths.push(messages.length);
    });
    expect(lengths).toEqual([1, 3, 5]);
    expect(new Set(given).size).toBe(1);
  });

  test('the result is its own: what is done to it does not matter, and it does not change', async () => {
    let kept: ModelRequest['messages'] | undefined;
    const messages = await run(({ messages: given }) => (kept = given));
    const before = JSON.stringify(messages);
    (kept as Message[]).length = 0;
    expect(JSON.stringify(messages)).toBe(before);
  });

  test('two runs with one model do not mix', async () => {
    const seen = new Map<unknown, string>();
    const model: Model = {
      id: 'm',
      reply: async ({ messages, key }) => {
        const run = key.slice(0, key.indexOf('/'));
        expect(seen.get(messages) ?? run).toBe(run);
        seen.set(messages, run);
        await new Promise((next) => setTimeout(next, 1));
        if (messages.length > 4) return said(run);
        const id = `${run}-${messages.length}`;
        return { ...said(''), content: [{ type: 'tool-call', id, name: 'look', arguments: '{}' }] } as ModelReply;
      },
    };
    const results = await Promise.all(
      ['a', 'b', 'c'].map((runId) => runLoop({ model, tools: [look], input: runId, runId })),
    );
    expect(results.map(({ text }) => text)).toEqual(['a', 'b', 'c']);
  });
});
