import { setImmediate } from 'node:timers/promises';
import type { Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import pino from 'pino';
import { describe, expect, test, vi } from 'vitest';
import { completions } from '../apis/completions/completions.ts';
import { parseCompletion } from '../apis/completions/parse-request.ts';
import type { Caller } from '../http/admission.ts';
import { memoryLimit } from '../http/limits.ts';
import { parseRequest } from '../apis/responses/parse-request.ts';
import { responses } from '../apis/responses/responses.ts';
import { activeRuns, servedName, type Engine, type ServerStore } from './engine.ts';
import { requests } from '../requests/requests.ts';

describe('the names of models', () => {
  const model = (id: string): Model => ({ id, reply: () => new Promise(() => {}) });
  const models = new Map(['main', 'small'].map((name) => [name, model(name)]));
  const aliases = { 'claude-*': 'main', 'claude-haiku-*': 'small', gpt: 'small', lost: 'other' };

  test.each([
    ['main', 'main'],
    [undefined, 'main'],
    ['claude-opus-4-8', 'main'],
    ['claude-haiku-4-5', 'small'],
    ['gpt', 'small'],
  ])('%s is the model %s', (name, served) => {
    expect(servedName({ models: { default: 'main', models, aliases } }, name)).toBe(served);
  });

  test.each(['gpt-5', 'lost', 'toString', '__proto__', ''])('%s is unknown', (name) => {
    const find = (): unknown => servedName({ models: { default: 'main', models, aliases } }, name);
    expect(find).toThrow(expect.objectContaining({ status: 404, code: 'model_not_found' }));
  });
});

describe('activeRuns', () => {
  const tooMany = (message: string): Error =>
    expect.objectContaining({
      status: 429,
      type: 'rate_limit_error',
      code: 'too_many_runs',
      headers: { 'Retry-After': '2' },
      message: expect.stringContaining(message),
    }) as Error;

  test('rejects runs over the limit until one ends', () => {
    const runs = activeRuns({ max: 2 });
    const { release } = runs.reserve('a');
    runs.reserve('b');
    expect(() => runs.reserve('c')).toThrow(tooMany('The server has reached its limit'));
    release();
    expect(runs.reserved).toBe(1);
    runs.reserve('c');
  });

  test('limits the runs of one tenant', () => {
    const runs = activeRuns({ max: 3, maxPerTenant: 1 });
    const { release } = runs.reserve('a');
    expect(() => runs.reserve('a')).toThrow(tooMany('You have 1 runs in progress'));
    runs.reserve('b');
    release();
    runs.reserve('a');
    expect(runs.reserved).toBe(2);
  });

  test('releases capacity once, also if released twice', () => {
    const runs = activeRuns({ max: 3, maxPerTenant: 2 });
    const { release } = runs.reserve('a');
    runs.reserve('a');
    release();
    release();
    expect(runs.reserved).toBe(1);
    runs.reserve('a');
    expect(() => runs.reserve('a')).toThrow('2 runs');
  });

  test('limits the bytes of conversations, until their runs end', () => {
    const runs = activeRuns({ max: 3, memory: memoryLimit({ max: 400_000 }) });
    const first = runs.reserve('a');
    first.hold(150_000);
    const second = runs.reserve('a');
    expect(() => second.hold(100_000)).toThrow(
      expect.objectContaining({ status: 429, code: 'too_many_bytes' }) as Error,
    );
    first.release();
    second.hold(100_000);
  });

  test('has no capacity once it has detached from its runs, because the server is shutting down', async () => {
    const runs = activeRuns({ max: 3 });
    await runs.detachAll();
    expect(() => runs.reserve('a')).toThrow(
      expect.objectContaining({ status: 503, code: 'shutting_down', headers: { 'Retry-After': '1' } }) as Error,
    );
  });
});

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: '', scopes: ['agents:invoke'], requestId: '', log };
const { signal } = new AbortController();

function engineOn(store: ServerStore, more: Partial<Engine> = {}): Engine {
  return {
    models: { default: 'm', models: new Map([['m', scriptedModel([])]]) },
    store,
    serverTools: { executors: [], defaultTools: [] },
    limits: { maxTurns: 10, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    runs: activeRuns({ max: 1 }),
    driven: new Map(),
    log,
    ...more,
  };
}

test.each<[string, object, (engine: Engine) => Promise<unknown>]>([
  [
    'response',
    { response: { status: 'failed', error: { code: 'server_error' } } },
    async (engine) =>
      (await responses(engine, requests(engine)).prepare(parseRequest({ input: 'go' }), caller)).run(
        { requiresAction: false },
        signal,
      ),
  ],
  [
    'completion',
    { status: 502, code: 'server_error' },
    async (engine) =>
      (
        await completions(engine, requests(engine)).prepare(
          parseCompletion({ messages: [{ role: 'user', content: 'go' }] }),
          caller,
        )
      ).run(undefined, signal),
  ],
])('a %s whose run cannot start releases its capacity', async (_, end, run) => {
  const store = sqliteStore(':memory:');
  const runs = activeRuns({ max: 1 });
  // The loop throws for 0 turns.
  const limits = { maxTurns: 0, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 };
  expect(await run(engineOn(store, { runs, limits }))).toMatchObject(end);
  expect(runs.reserved).toBe(0);
  await store.close();
});

test('waits longer after each attempt to resume a response that cannot be stored', async () => {
  const store = sqliteStore(':memory:');
  let isFull = true;
  const finish: typeof store.requests.finish = async (...ended) => {
    if (isFull) throw new Error('The disk is full.');
    return store.requests.finish(...ended);
  };
  using model = scriptedModel(['Done.']);
  const engine = engineOn(
    { ...store, requests: { ...store.requests, finish } },
    { models: { default: 'm', models: new Map([['m', model]]) } },
  );
  const stored = requests(engine);
  const { recover } = stored;
  const { prepare, retrieve } = responses(engine, stored);
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  /** Tries to resume the response; resolves to whether it was tried. */
  const recoverAt = async (seconds: number): Promise<number> => {
    now = seconds * 1_000;
    const count = await recover();
    while (engine.runs.reserved > 0) await setImmediate();
    return count;
  };
  const prepared = await prepare(parseRequest({ input: 'go' }), caller);
  await prepared.run({ requiresAction: false }, signal);
  expect(await recoverAt(29)).toBe(0);
  expect(await recoverAt(30)).toBe(1);
  expect(await recoverAt(89)).toBe(0);
  expect(await recoverAt(90)).toBe(1);
  isFull = false;
  expect(await recoverAt(209)).toBe(0);
  expect(await recoverAt(210)).toBe(1);
  expect(await retrieve(prepared.id, caller)).toMatchObject({ status: 'completed' });
  clock.mockRestore();
  await store.close();
});
