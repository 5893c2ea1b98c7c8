import { setImmediate } from 'node:timers/promises';
import { tool, type NewRun, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import pino from 'pino';
import { expect, test } from 'vitest';
import { activeRuns, type Engine } from '../../engine/engine.ts';
import { registeredTools } from '../../engine/executors.ts';
import type { Caller } from '../../http/admission.ts';
import { hashKey, SCOPES, serverKeys, type ApiKey } from '../../http/keys.ts';
import { requests, type Requests } from '../../requests/requests.ts';
import { parseRequest } from './parse-request.ts';
import { responses, type Responses } from './responses.ts';
import { runStarter } from './start-run.ts';

/* A tool starts a run that outlives its call. */

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: 'ann', scopes: SCOPES, requestId: '', log };
const ANN: ApiKey = { name: 'ann', tenant: 't', hash: hashKey('a'.repeat(32)), scopes: SCOPES };

interface Served extends AsyncDisposable {
  readonly engine: Engine;
  readonly responses: Responses;
  readonly stored: Requests;
  /** Sends a request, and resolves when it has ended or was interrupted. */
  readonly send: (given?: object, by?: Caller) => Promise<unknown>;
}

/** A server on a store. Its model calls `spawn`, and its other requests are answered. */
function serve(store: SqliteStore, spawn: Tool, more: Partial<Engine> = {}): Served {
  const script: readonly ScriptStep[] = [{ calls: [{ name: 'spawn' }] }, 'Done.', 'Done.', 'Done.'];
  const engine: Engine = {
    models: { default: 'm', models: new Map([['m', scriptedModel(script)]]) },
    serverTools: { executors: [registeredTools([spawn])], defaultTools: ['spawn'] },
    limits: { maxTurns: 10, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    runs: activeRuns({ max: 9 }),
    driven: new Map(),
    log,
    store,
    startRun: (...call) => startRun(...call),
    ...more,
  };
  const stored = requests(engine);
  const service = responses(engine, stored);
  const startRun = runStarter(engine, service);
  return {
    engine,
    stored,
    responses: service,
    async send(given = {}, by = caller) {
      const prepared = await service.prepare(parseRequest({ input: 'go', ...given }), by);
      return prepared.run({ requiresAction: false }, new AbortController().signal);
    },
    [Symbol.asyncDispose]: () => engine.runs.detachAll(),
  };
}

/** Starts a run in each call, notes its id, and then does what is given. */
function spawning(then: (started: string, signal: AbortSignal) => unknown, run: NewRun = { input: 'Later.' }) {
  const started: string[] = [];
  const spawn = tool({
    name: 'spawn',
    description: 'Starts a run',
    effect: 'idempotent',
    async execute(_, { startRun, signal }) {
      if (!startRun) return 'It starts none.';
      const { runId } = await startRun(run);
      started.push(runId);
      await then(runId, signal);
      return runId;
    },
  });
  return { started, spawn };
}

function newStore(): SqliteStore & AsyncDisposable {
  const store = sqliteStore(':memory:');
  return Object.assign(store, { [Symbol.asyncDispose]: () => store.close() });
}

async function idle({ runs, driven }: Engine): Promise<void> {
  while (runs.reserved > 0 || driven.size > 0) await setImmediate();
}

async function runIds(store: SqliteStore): Promise<readonly string[]> {
  return (await store.list({})).map(({ runId }) => runId);
}

const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));

test('the run belongs to the caller, has limits of its own, and is not a child', async () => {
  await using store = newStore();
  const { started, spawn } = spawning(() => {}, { input: 'Later.', maxCalls: 2, maxOutputTokens: 50 });
  await using server = serve(store, spawn);
  await server.send();
  await idle(server.engine);
  const [id] = started as [string];
  expect(await server.responses.retrieve(id, caller)).toMatchObject({ status: 'completed', background: true });
  await expect(server.responses.retrieve(id, { ...caller, tenant: 'u' })).rejects.toMatchObject({ status: 404 });
  const [entry] = await store.read(id);
  expect(entry!.event).toMatchObject({
    type: 'run-started',
    principal: { subject: 'ann', tenant: 't' },
    rules: { limits: { calls: 2 } },
  });
  expect(entry!.event).not.toHaveProperty('parent');
});

test('a call that is repeated by another server gets the run that it has started', async () => {
  await using store = newStore();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const first = spawning((_, signal) => {
    begin();
    return untilAborted(signal);
  });
  const dying = serve(store, first.spawn);
  const sent = dying.send().catch(() => {});
  await begun;
  await dying[Symbol.asyncDispose]();
  await sent;
  const second = spawning(() => {});
  await using server = serve(store, second.spawn, {
    models: { default: 'm', models: new Map([['m', scriptedModel(['Done.', 'Done.'])]]) },
  });
  await server.stored.recover();
  await idle(server.engine);
  expect(second.started).toEqual(first.started);
  expect(await runIds(store)).toHaveLength(2);
  for (const { status } of await store.list({})) expect(status).toBe('completed');
});

test('of two servers that start it at the same time, one does', async () => {
  await using store = newStore();
  const { spawn } = spawning(() => {});
  const models = { default: 'm', models: new Map([['m', scriptedModel([{ calls: [{ name: 'spawn' }] }, 'Done.'])]]) };
  await using one = serve(store, spawn, { models });
  await using other = serve(store, spawn, { models });
  const call = { caller, key: 'run/t1.tool.0', runId: 'run' };
  const both = await Promise.all([one, other].map(({ engine }) => engine.startRun!({ input: 'Later.' }, call)));
  expect(both[0]).toEqual(both[1]);
  await Promise.all([one, other].map(({ engine }) => idle(engine)));
  // Its own tools start no runs.
  expect(JSON.stringify(await store.read(both[0]!.runId))).toContain('It starts none.');
  expect(await runIds(store)).toHaveLength(1);
  await expect(one.engine.startRun!({ input: 'Something else.' }, call)).rejects.toMatchObject({ status: 409 });
});

test('it goes on when its caller is cancelled', async () => {
  await using store = newStore();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const { started, spawn } = spawning((_, signal) => {
    begin();
    return untilAborted(signal);
  });
  await using server = serve(store, spawn);
  const prepared = await server.responses.prepare(parseRequest({ input: 'go' }), caller);
  const ended = prepared.run({ requiresAction: false }, new AbortController().signal);
  await begun;
  await server.responses.cancel(prepared.id, caller);
  await ended;
  await idle(server.engine);
  expect(await server.responses.retrieve(prepared.id, caller)).toMatchObject({ status: 'cancelled' });
  expect(await server.responses.retrieve(started[0]!, caller)).toMatchObject({ status: 'completed' });
});

test('a key that was removed or lacks the scope starts nothing', async () => {
  await using store = newStore();
  const { spawn } = spawning(() => {});
  const keys = serverKeys([ANN]);
  await using server = serve(store, spawn, { keys });
  const call = { key: 'run/t1.tool.0', runId: 'run' };
  const reading = { ...caller, scopes: ['agents:read'] as const };
  await expect(server.engine.startRun!({ input: 'Later.' }, { ...call, caller: reading })).rejects.toMatchObject({
    status: 403,
  });
  keys.replace([{ ...ANN, name: 'bob' }]);
  await expect(server.engine.startRun!({ input: 'Later.' }, { ...call, caller })).rejects.toMatchObject({
    status: 403,
  });
  expect(await runIds(store)).toEqual([]);
});

test('it begins with what its caller has seen, also if another server starts it from its record', async () => {
  await using store = newStore();
  const { spawn } = spawning(() => {});
  const exposure = { outside: { what: 'a page', from: 'run/t0.tool.0' } };
  const call = { caller, key: 'run/t1.tool.0', runId: 'run', exposure };
  await using server = serve(store, spawn);
  const { runId } = await server.engine.startRun!({ input: 'Later.' }, call);
  await idle(server.engine);
  expect((await store.read(runId))[0]!.event).toMatchObject({ type: 'run-started', exposure });

  // As a process leaves it that dies before the run is stored.
  const record = (await store.requests.get('t', runId))!;
  await store.requests.create({ ...record, id: 'resp_2', runId: 'resp_2', status: 'in_progress' });
  await server.stored.recover();
  await idle(server.engine);
  expect((await store.read('resp_2'))[0]!.event).toMatchObject({ type: 'run-started', exposure });
});
