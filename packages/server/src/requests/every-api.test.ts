import { setImmediate } from 'node:timers/promises';
import { defineAgent, tool, type Model } from '@treadle/core';
import { agentRegistry } from '@treadle/core/named-agents';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import pino from 'pino';
import { describe, expect, test, vi } from 'vitest';
import { invocations } from '../apis/agents/invocations.ts';
import { completions } from '../apis/completions/completions.ts';
import { parseCompletion } from '../apis/completions/parse-request.ts';
import { conversations } from '../apis/chat/conversations.ts';
import type { Caller } from '../http/admission.ts';
import { hashKey, SCOPES, serverKeys, type ApiKey } from '../http/keys.ts';
import { CONVERSATION_PREFIX, newResponseId } from '../ids.ts';
import { mcpCalls } from '../apis/mcp/calls.ts';
import { mcpAgent } from '../apis/mcp/options.ts';
import { messages } from '../apis/messages/messages.ts';
import { parseMessageRequest } from '../apis/messages/parse-request.ts';
import { parseRequest } from '../apis/responses/parse-request.ts';
import { responses } from '../apis/responses/responses.ts';
import { runs } from '../apis/runs/runs.ts';
import { activeRuns, type Engine } from '../engine/engine.ts';
import { registeredTools, type ToolExecutor } from '../engine/executors.ts';
import { KEY_MS, requestKey } from './idempotency.ts';
import { requests } from './requests.ts';

/* What holds for the requests of every API. */

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: 'ann', scopes: SCOPES, requestId: '', log };
const CONVERSATION = `${CONVERSATION_PREFIX}${'0'.repeat(32)}`;
const EMPTY = { type: 'object' } as const;
const ACT = { name: 'act', description: '', effect: 'pure' } as const;

/** The services of a server on one engine. */
function servicesOn(engine: Engine) {
  const stored = requests(engine);
  const stopping = new AbortController().signal;
  const service = responses(engine, stored, stopping);
  const allRuns = runs(engine, stored);
  const onResponseDeleted = service.forget;
  const chatting = conversations({
    engine,
    stored,
    runs: allRuns,
    histories: service.histories,
    onResponseDeleted,
    stopping,
  });
  const agent = defineAgent({
    name: 'agent',
    description: '',
    model: engine.models.models.get('m')!,
    prompts: { user: 'go' },
    tools: { output: { name: 'report', description: '' } },
    validation: { outputSchema: EMPTY, maxAttempts: 1 },
  });
  const agents = [mcpAgent({ agent, input: EMPTY })];
  const tools = [tool({ ...ACT, execute: () => '' })];
  const calls = mcpCalls(() => engine, stored, { tools: () => tools, agents });
  stored.register('mcp-call', calls.api);
  const chats = completions(engine, stored);
  const invoking = invocations({ engine, stored });
  const sent = messages(engine, stored);
  return { engine, stored, responses: service, chats, messages: sent, conversations: chatting, calls, invoking };
}

type Services = ReturnType<typeof servicesOn>;

/** Sends a request and waits for its end. `signal` aborts when the client disconnects. */
type Send = (services: Services, signal: AbortSignal) => Promise<unknown>;

interface SendOptions {
  readonly key?: string;
  readonly isStreamed?: boolean;
}

function response(given: object, { key, isStreamed = false }: SendOptions = {}): Send {
  return async (services, signal) => {
    const body = { input: 'go', ...given };
    const used = key === undefined ? undefined : requestKey(key, 'responses', body);
    const prepared = await services.responses.prepare(parseRequest(body), caller, used);
    return prepared.run({ requiresAction: false, ...(isStreamed && { emit: () => {} }) }, signal);
  };
}

/** A response that is not stored, of a server that records its run. */
const recorded: Send = ({ engine }, signal) =>
  response({ store: false })(servicesOn({ ...engine, recordsUnstored: true }), signal);

function completion({ key, isStreamed = false }: SendOptions = {}): Send {
  return async (services, signal) => {
    const body = { messages: [{ role: 'user', content: 'go' }] };
    const used = key === undefined ? undefined : requestKey(key, 'chat', body);
    const prepared = await services.chats.prepare(parseCompletion(body), caller, used);
    return prepared.run(isStreamed ? () => {} : undefined, signal);
  };
}

function message(given: object, { key, isStreamed = false }: SendOptions = {}): Send {
  return async (services, signal) => {
    const body = { model: 'm', max_tokens: 1_000, messages: [{ role: 'user', content: 'go' }], ...given };
    const used = key === undefined ? undefined : requestKey(key, 'messages', body);
    const prepared = await services.messages.prepare(parseMessageRequest(body), caller, { key: used });
    return prepared.run(isStreamed ? () => {} : undefined, signal);
  };
}

function chat(onDisconnect: 'cancel' | 'continue', conversation?: string): Send {
  return async (services, signal) => {
    const message = { role: 'user' as const, content: [{ type: 'text' as const, text: 'go' }] };
    const request = { message, onDisconnect, ...(conversation !== undefined && { conversation }) };
    return (await services.conversations.start(request, caller)).run(() => {}, signal);
  };
}

function mcpCall(name: string): Send {
  return (services, signal) =>
    services.calls.call(
      { name, arguments: {}, state: undefined, responses: undefined, capabilities: {}, signal, emit: () => {} },
      caller,
    );
}

function invocation(): Send {
  return async ({ invoking }, signal) => {
    const request = { agent: 'helper', mode: 'iterative', inputs: {}, options: {}, background: false } as const;
    return (await invoking.prepare(request, caller)).run(undefined, signal);
  };
}

/** Those that are resumed after a restart. */
const STORED: readonly (readonly [name: string, send: Send])[] = [
  ['a response', response({})],
  ['a streamed response', response({}, { isStreamed: true })],
  ['a background response', response({ background: true }, { isStreamed: true })],
  ['a response of a conversation', response({ conversation: CONVERSATION })],
  ['a completion with a key', completion({ key: 'k' })],
  ['a message with a key', message({}, { key: 'k' })],
  ['a message of a thread with a key', message({ thread: { type: 'create' } }, { key: 'k' })],
  ['a chat', chat('continue')],
  ['a message of a conversation', chat('continue', CONVERSATION)],
  ['a call over MCP', mcpCall('act')],
];

const ALL: typeof STORED = [
  ...STORED,
  ['a response that is not stored', response({ store: false })],
  ['a response of which only the run is recorded', recorded],
  ['a completion', completion()],
  ['a streamed completion', completion({ isStreamed: true })],
  ['a message', message({})],
  ['a streamed message of a thread', message({ thread: { type: 'create' } }, { isStreamed: true })],
  ['a chat that ends with its connection', chat('cancel')],
];

/** They open no connections. */
const AGENTS: typeof STORED = [
  ['a call of an agent over MCP', mcpCall('agent')],
  ['an invocation of an agent', invocation()],
];

interface Setting extends AsyncDisposable {
  readonly engine: Engine;
  readonly services: Services;
}

async function setting(more: Partial<Engine> & Pick<Engine, 'store'>): Promise<Setting> {
  const model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
  const engine: Engine = {
    models: { default: 'm', models: new Map([['m', model]]) },
    serverTools: { executors: [registeredTools([tool({ ...ACT, execute: () => 'done' })])], defaultTools: ['act'] },
    limits: { maxTurns: 10, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    runs: activeRuns({ max: 9 }),
    driven: new Map(),
    namedAgents: { registry: agentRegistry([{ name: 'helper', description: 'Helps.' }]), tools: [], bounds: {} },
    log,
    ...more,
  };
  return {
    engine,
    services: servicesOn(engine),
    async [Symbol.asyncDispose]() {
      await engine.runs.detachAll();
    },
  };
}

async function newStore(): Promise<SqliteStore> {
  const store = sqliteStore(':memory:');
  await store.conversations.create({ id: CONVERSATION, tenant: 't', title: '', createdAt: 0 });
  return store;
}

/** Resolves when the runs of an engine have ended or were interrupted. */
async function idle({ runs: active, driven }: Engine): Promise<void> {
  while (active.reserved > 0 || driven.size > 0) await setImmediate();
}

describe('the connections of a request', () => {
  /** Opens a connection for each request, and counts those that are open. */
  function counting() {
    let opened = 0;
    let closed = 0;
    const executor: ToolExecutor = {
      kind: 'mcp',
      canExecute: () => true,
      functions: () => {
        opened += 1;
        return [ACT];
      },
      execute: () => 'done',
      close: () => void (closed += 1),
    };
    return {
      serverTools: { executors: [executor], defaultTools: ['act'] },
      counts: () => ({ opened, closed }),
      isOpened: () => opened > 0,
    };
  }

  /** The same store, until call number `at` since `isCounted`: that fails. `calls`: how many there were. */
  function failingStore(store: SqliteStore, at: number, isCounted: () => boolean) {
    let calls = 0;
    const failing = (part: object): object =>
      new Proxy(part, {
        get(target, name, receiver) {
          const value: unknown = Reflect.get(target, name, receiver);
          if (typeof value === 'object' && value !== null) return failing(value);
          if (typeof value !== 'function' || /^(watch|watchRuns|onCommit)$/.test(String(name))) return value;
          return (...args: unknown[]) => {
            if (isCounted() && ++calls === at) return Promise.reject(new Error(`${String(name)} fails.`));
            return (value as (...all: unknown[]) => unknown).apply(target, args);
          };
        },
      });
    return { store: failing(store) as SqliteStore, calls: () => calls };
  }

  /** Acts with a store whose first call fails after the connection was opened, then with one whose second does, and so on. */
  async function eachFailure(
    prepare: (store: SqliteStore) => Promise<unknown>,
    act: (setting: Setting, signal: AbortSignal) => Promise<unknown>,
  ): Promise<void> {
    for (let at = 1; ; at++) {
      await using opened = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => opened.close() });
      await prepare(opened);
      const { serverTools, counts, isOpened } = counting();
      const { store, calls } = failingStore(opened, at, isOpened);
      const made = await setting({ store, serverTools });
      const client = new AbortController();
      let isDone = false;
      const acted = act(made, client.signal).then(
        () => (isDone = true),
        () => (isDone = true),
      );
      while (!isDone) {
        await setImmediate();
        // What is interrupted is resumed later, and its reader waits for that.
        if (isOpened() && made.engine.driven.size === 0 && made.engine.runs.reserved === 0) client.abort();
      }
      await acted;
      await made[Symbol.asyncDispose]();
      await idle(made.engine);
      const { opened: all, closed } = counts();
      expect([at, closed]).toEqual([at, all]);
      if (calls() < at) return;
    }
  }

  test.each(ALL)('are closed if the store fails at any call: %s', async (_, send) => {
    await eachFailure(
      async () => {},
      ({ services }, signal) => send(services, signal),
    );
  });

  test.each(STORED)('are closed if the store fails at any call while it is resumed: %s', async (_, send) => {
    await eachFailure(
      (store) => leaveInterrupted(store, send),
      async ({ engine, services }) => {
        await services.stored.recover();
        await idle(engine);
      },
    );
  });

  test.each(ALL.filter(([name]) => name.includes('of a conversation')))(
    'are closed if another request was first: %s',
    async (_, send) => {
      await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
      const { serverTools, counts } = counting();
      const extend: typeof store.conversations.extend = async () => false;
      const busy = { ...store, conversations: { ...store.conversations, extend } };
      await using at = await setting({ store: busy, serverTools });
      const sent = send(at.services, new AbortController().signal);
      await expect(sent).rejects.toMatchObject({ status: 409, code: 'conversation_busy' });
      expect(counts()).toEqual({ opened: 1, closed: 1 });
    },
  );
});

test.each([
  ['a response', response({}, { key: 'k' })],
  ['a completion', completion({ key: 'k' })],
  ['a message', message({}, { key: 'k' })],
])('the key of %s can be used again if it expires while the next request is created', async (_, send) => {
  await using stored = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => stored.close() });
  let isExpiring = false;
  const findKey: typeof stored.requests.findKey = async (tenant, key) => {
    if (isExpiring) vi.advanceTimersByTime(KEY_MS);
    isExpiring = false;
    return stored.requests.findKey(tenant, key, Date.now());
  };
  const model = scriptedModel(['One.', 'Two.']);
  const models = { default: 'm', models: new Map([['m', model]]) };
  const store = { ...stored, requests: { ...stored.requests, findKey } };
  await using at = await setting({ store, models });
  const { signal } = new AbortController();
  try {
    vi.useFakeTimers({ toFake: ['Date'] });
    expect(JSON.stringify(await send(at.services, signal))).toContain('One.');
    vi.advanceTimersByTime(1);
    isExpiring = true;
    expect(JSON.stringify(await send(at.services, signal))).toContain('Two.');
  } finally {
    vi.useRealTimers();
  }
});

describe('a server that shuts down', () => {
  test.each(ALL)('does not run what it has not started yet: %s', async (_, send) => {
    await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
    const [asked, listed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let calls = 0;
    const executor: ToolExecutor = {
      kind: 'mcp',
      canExecute: () => true,
      async functions() {
        asked.resolve();
        await listed.promise;
        return [ACT];
      },
      execute: () => void (calls += 1),
    };
    const at = await setting({ store, serverTools: { executors: [executor], defaultTools: ['act'] } });
    const client = new AbortController();
    const sent = send(at.services, client.signal).catch(() => {});
    await asked.promise;
    await at[Symbol.asyncDispose]();
    listed.resolve();
    await idle(at.engine);
    client.abort();
    await sent;
    expect(calls).toBe(0);
    for (const { runId } of await store.requests.unfinished()) expect(await store.isDriven(runId)).toBe(false);
  });
});

/** A model and a tool that hang until their run is cancelled or detached. `begun` resolves when one of them is used. */
function hanging(): { readonly options: Pick<Engine, 'models' | 'serverTools'>; readonly begun: Promise<void> } {
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const reply: Model['reply'] = (_request, _emit, aborted) =>
    new Promise((end) => {
      begin();
      const error = { code: 'cancelled', message: 'cancelled', retryable: false } as const;
      aborted.addEventListener('abort', () => end({ type: 'failure', error }));
    });
  const act = tool({ ...ACT, execute: () => (begin(), new Promise(() => {})) });
  const models = { default: 'm', models: new Map([['m', { id: 'm', reply }]]) };
  return { options: { models, serverTools: { executors: [registeredTools([act])], defaultTools: ['act'] } }, begun };
}

/** Leaves a request that a process has detached from. */
async function leaveInterrupted(store: SqliteStore, send: Send): Promise<void> {
  const { options, begun } = hanging();
  const before = await setting({ store, ...options });
  const client = new AbortController();
  const sent = send(before.services, client.signal).catch(() => {});
  await begun;
  await before[Symbol.asyncDispose]();
  await idle(before.engine);
  client.abort();
  await sent;
}

/** What the records of a store contain. */
async function recordsIn(store: SqliteStore): Promise<readonly [status: string, response: string][]> {
  const found: [string, string][] = [];
  for (const { runId } of await store.list({ limit: 9 })) {
    const head = await store.requests.headOfRun(runId);
    const record = head && (await store.requests.get(head.tenant, head.id));
    if (record) found.push([record.status, JSON.stringify(record.response)]);
  }
  return found;
}

/** A model and a tool that must not be used. */
function unused() {
  let uses = 0;
  const use = (): never => {
    uses += 1;
    throw new Error('It is used.');
  };
  const model: Model = { id: 'm', reply: use };
  const models = { default: 'm', models: new Map([['m', model]]) };
  const executors = [registeredTools([tool({ ...ACT, execute: use })])];
  return { models, serverTools: { executors, defaultTools: ['act'] }, uses: () => uses };
}

test.each([...STORED, ...AGENTS])('is cancelled by another process without being continued: %s', async (_, send) => {
  await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
  await leaveInterrupted(store, send);
  const { uses, ...nothing } = unused();
  await using at = await setting({ store, ...nothing });
  const [record] = await store.requests.unfinished();
  expect(await at.services.stored.resume(record!, { cancel: true })).toBe(true);
  expect(await at.services.stored.resume(record!, { cancel: true })).toBe(false);
  expect(await recordsIn(store)).toHaveLength(1);
  expect(await store.requests.unfinished()).toEqual([]);
  expect(uses()).toBe(0);
});

test.each<[string, Send, string]>([
  ['a message without a key', message({}), 'failed'],
  ['a response of which only the run is recorded', recorded, 'cancelled'],
])('%s is cancelled after a restart: nobody can get it', async (_, send, status) => {
  await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
  const { options, begun } = hanging();
  const crashed = await setting({ store, ...options });
  const sent = send(crashed.services, new AbortController().signal).catch(() => {});
  await begun;
  // As if the process had died: the run is detached, and its record stays in progress.
  for (const run of crashed.engine.driven.values()) await run.detach();
  await sent;
  const { uses, ...nothing } = unused();
  await using at = await setting({ store, ...nothing });
  expect(await at.services.stored.recover()).toBe(1);
  await idle(at.engine);
  expect([(await recordsIn(store)).map(([ended]) => ended), uses()]).toEqual([[status], 0]);
  expect(await store.list({ limit: 9 })).toMatchObject([{ status: 'cancelled' }]);
});

test('only a response is found by its id, whatever the id of another request looks like', async () => {
  await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
  await using at = await setting({ store });
  const id = newResponseId();
  const request = { key: 'ann', scopes: [] };
  const owner = { tenant: 't', runId: id, status: 'completed', createdAt: 0, updatedAt: 0 };
  await store.requests.create({ id, kind: 'mcp-call', ...owner, request, response: {} });
  const missing = { status: 404, code: 'response_not_found' };
  await expect(at.services.responses.retrieve(id, caller)).rejects.toMatchObject(missing);
  await expect(at.services.responses.cancel(id, caller)).rejects.toMatchObject(missing);
  await expect(at.services.responses.delete(id, caller)).rejects.toMatchObject(missing);
  const continued = response({ previous_response_id: id })(at.services, new AbortController().signal);
  await expect(continued).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' });
});

describe('the key of a request', () => {
  const key = (name: string): ApiKey => ({ name, hash: hashKey(name), tenant: 't', scopes: SCOPES });
  const REMOVED = 'The run may not continue. The key that started it was removed.';

  test.each([...STORED, ...AGENTS])('was removed before it is resumed: %s fails', async (_, send) => {
    await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
    await leaveInterrupted(store, send);
    const { uses, ...nothing } = unused();
    await using at = await setting({ store, ...nothing, keys: serverKeys([key('bob')]) });
    expect(await at.services.stored.recover()).toBe(1);
    await idle(at.engine);
    expect(await recordsIn(store)).toEqual([['failed', expect.stringContaining(REMOVED)]]);
    expect(uses()).toBe(0);
  });

  test.each(STORED)('is valid when it is resumed: %s is completed', async (_, send) => {
    await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
    await leaveInterrupted(store, send);
    await using at = await setting({ store, keys: serverKeys([key('ann')]) });
    expect(await at.services.stored.recover()).toBe(1);
    await idle(at.engine);
    expect(await recordsIn(store)).toEqual([['completed', expect.not.stringContaining(REMOVED)]]);
  });

  test.each([...ALL, ...AGENTS])('was removed before its run starts: %s does nothing', async (_, send) => {
    await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
    const { uses, ...nothing } = unused();
    await using at = await setting({ store, ...nothing, keys: serverKeys([key('bob')]) });
    await send(at.services, new AbortController().signal);
    await idle(at.engine);
    expect(uses()).toBe(0);
  });

  test.each([...ALL, ...AGENTS])('is removed while it runs: %s is stopped', async (_, send) => {
    await using store = Object.assign(await newStore(), { [Symbol.asyncDispose]: () => store.close() });
    const keys = serverKeys([key('ann'), key('bob')]);
    const { options, begun } = hanging();
    await using at = await setting({ store, ...options, keys });
    const sent = send(at.services, new AbortController().signal);
    await begun;
    // It is still valid.
    keys.replace([key('ann')]);
    expect(at.engine.driven.size).toBe(1);
    keys.replace([key('bob')]);
    const result = await sent;
    await idle(at.engine);
    const seen = JSON.stringify([result instanceof Error ? result.message : result, await recordsIn(store)]);
    expect(seen).toContain(REMOVED);
  });
});
