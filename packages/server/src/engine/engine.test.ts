import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import pino from 'pino';
import { describe, expect, test } from 'vitest';
import { chats } from '../chat/chats.ts';
import { parseChat } from '../chat/parse-request.ts';
import type { Caller } from '../http/admission.ts';
import { parseRequest } from '../responses/parse-request.ts';
import { responses } from '../responses/responses.ts';
import { activeRuns, type Engine } from './engine.ts';

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
    const release = runs.reserve('a');
    runs.reserve('b');
    expect(() => runs.reserve('c')).toThrow(tooMany('The server has reached its limit'));
    release();
    expect(runs.reserved).toBe(1);
    runs.reserve('c');
  });

  test('limits the runs of one tenant', () => {
    const runs = activeRuns({ max: 3, maxPerTenant: 1 });
    const release = runs.reserve('a');
    expect(() => runs.reserve('a')).toThrow(tooMany('You have 1 runs in progress'));
    runs.reserve('b');
    release();
    runs.reserve('a');
    expect(runs.reserved).toBe(2);
  });

  test('releases capacity once, also if released twice', () => {
    const runs = activeRuns({ max: 3, maxPerTenant: 2 });
    const release = runs.reserve('a');
    runs.reserve('a');
    release();
    release();
    expect(runs.reserved).toBe(1);
    runs.reserve('a');
    expect(() => runs.reserve('a')).toThrow('2 runs');
  });
});

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: '', scopes: ['agents:invoke'], requestId: '', log };
const { signal } = new AbortController();

test.each<[string, (engine: Engine) => Promise<unknown>]>([
  [
    'response',
    async (engine) =>
      (await responses(engine).prepare(parseRequest({ input: 'go' }), caller)).run({ requiresAction: false }, signal),
  ],
  [
    'completion',
    async (engine) =>
      (await chats(engine).prepare(parseChat({ messages: [{ role: 'user', content: 'go' }] }), caller)).run(
        undefined,
        signal,
      ),
  ],
])('a %s whose run cannot start releases its capacity', async (_, run) => {
  const store = sqliteStore(':memory:');
  const runs = activeRuns({ max: 1 });
  const engine: Engine = {
    models: { default: 'm', models: new Map([['m', scriptedModel([])]]) },
    store,
    serverTools: { executors: [], defaultTools: [] },
    // The loop throws for 0 turns.
    limits: { maxTurns: 0, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    runs,
    log,
  };
  await run(engine).then(
    (finished) => expect(finished).toMatchObject({ response: { status: 'failed', error: { code: 'server_error' } } }),
    (error: Error) => expect(error.message).toContain('maxTurns'),
  );
  expect(runs.reserved).toBe(0);
  await store.close();
});
