import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import pino from 'pino';
import { expect, test } from 'vitest';
import { chats } from '../chat/chats.ts';
import { parseChat } from '../chat/parse.ts';
import type { Caller } from '../http/env.ts';
import { runLimit } from '../http/run-limit.ts';
import { parseRequest } from '../responses/parse.ts';
import { responses } from '../responses/responses.ts';
import { engine, type Engine } from './engine.ts';

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: '', scopes: ['agents:invoke'], requestId: '', log };
const { signal } = new AbortController();

test.each<[string, (on: Engine) => Promise<unknown>]>([
  [
    'response',
    async (on) =>
      (await responses(on).prepare(parseRequest({ input: 'go' }), caller)).run({ requiresAction: false }, signal),
  ],
  [
    'completion',
    async (on) =>
      (await chats(on).prepare(parseChat({ messages: [{ role: 'user', content: 'go' }] }), caller)).run(
        undefined,
        signal,
      ),
  ],
])('a %s whose run cannot begin gives its place back', async (_, ask) => {
  const store = sqliteStore(':memory:');
  const admission = runLimit({ runs: 1 });
  const on = engine({
    models: { default: 'm', models: new Map([['m', scriptedModel([])]]) },
    store,
    offer: { executors: [], defaultTools: [] },
    // The loop throws for that.
    limits: { maxTurns: 0, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    admission,
    log,
  });
  await ask(on).then(
    (finished) => expect(finished).toMatchObject({ response: { status: 'failed', error: { code: 'server_error' } } }),
    (error: Error) => expect(error.message).toContain('maxTurns'),
  );
  expect(admission.running).toBe(0);
  await store.close();
});
