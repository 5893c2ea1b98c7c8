import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { forkRun, tool, TreadleError, type Model, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey, type ServerStore } from '@treadle/server';
import { sqliteStore, type SqliteStore, type Store } from '@treadle/store';
import OpenAI from 'openai';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { waitForRequests } from './support/fixture.ts';
import { eventTypesIn, responseIdIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { limitedStore, type LimitedStore } from './support/limited-store.ts';
import { textIn, responsesClient, type WireResponse } from './support/responses-client.ts';
import { modelOf, startServer } from './support/server-process.ts';
import { streamClient } from './support/stream-client.ts';
import { openTestStore, queryStored } from './support/test-store.ts';

let folder: string;
let file: string;
let stores: Store[];

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-recovery-'));
  file = path.join(folder, 'runs.db');
  stores = [];
});
afterEach(async () => {
  for (const store of stores) await store.close();
  await rm(folder, { recursive: true });
});

async function openStore(): Promise<Store> {
  const store = await openTestStore(file);
  stores.push(store);
  return store;
}

/** For what SQLite does on a full disk. */
function openSqliteStore(): SqliteStore {
  const store = sqliteStore(file);
  stores.push(store);
  return store;
}

/** A store that other methods of its `responses` replace. */
function withResponses(store: Store, responses: Partial<Store['requests']>): ServerStore {
  return { ...store, requests: { ...store.requests, ...responses } };
}

/** A step at which a test holds a call until it releases it. */
interface Gate {
  readonly reached: Promise<void>;
  readonly release: () => void;
  readonly pass: () => Promise<void>;
}

function gate(): Gate {
  const reached = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  return {
    reached: reached.promise,
    release: released.resolve,
    pass() {
      reached.resolve();
      return released.promise;
    },
  };
}

const look: Tool = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'seen' });
const tools = [{ type: 'mcp', server_label: 'treadle' }];
const LOOKING: ScriptStep = { text: 'Looking.', calls: [{ name: 'look' }] };

/** Leaves responses in progress, of which four items are stored, and that no process drives. Returns their ids. */
async function leaveInProgress(store: ServerStore, count: number): Promise<readonly string[]> {
  const hanging = Array.from({ length: count }, () => gate());
  const script = hanging.flatMap(({ pass }): ScriptStep[] => [LOOKING, LOOKING, () => pass().then(() => 'Too late.')]);
  const server = await startInProcess(scriptedModel(script), { store, tools: [look] });
  const posted: ReturnType<InProcessServer['post']>[] = [];
  for (const { reached } of hanging) {
    posted.push(server.post({ input: 'go', tools, stream: true }));
    await reached;
  }
  await server[Symbol.asyncDispose]();
  return (await Promise.all(posted)).map(({ text }) => responseIdIn(text));
}

const REST: readonly ScriptStep[] = [LOOKING, LOOKING, 'Done.'];

describe('two servers that recover the same response', () => {
  test('store all items, also if one of them is slow to read the journal', async () => {
    const [id = ''] = await leaveInProgress(await openStore(), 1);
    const { reached, release, pass } = gate();
    const slow = await openStore();
    let isFound = false;
    const slowStore: ServerStore = {
      ...withResponses(slow, {
        get(...response) {
          isFound = true;
          return slow.requests.get(...response);
        },
      }),
      async read(...from) {
        const entries = await slow.read(...from);
        if (isFound) await pass();
        return entries;
      },
    };
    const starting = startInProcess(scriptedModel(REST), { store: slowStore, tools: [look] });
    await reached;
    await using other = await startInProcess(scriptedModel(REST), { store: await openStore(), tools: [look] });
    if (other.recovered > 0) await other.getEnded(id);
    release();
    const server = await starting;
    await server.getEnded(id);
    await server[Symbol.asyncDispose]();
    const response = await other.get(id);
    expect(response).toMatchObject({ status: 'completed' });
    expect(response['output']).toHaveLength(9);
    expect(server.recovered + other.recovered).toBe(1);
  });

  test('leave it to the server that is creating it, also if their clocks differ', async () => {
    const { reached, release, pass } = gate();
    const slow = await openStore();
    const slowStore = withResponses(slow, {
      async create(record) {
        await slow.requests.create({ ...record, createdAt: record.createdAt - 60_000 });
        await pass();
      },
    });
    await using server = await startInProcess(scriptedModel(['Done.']), { store: slowStore });
    const posted = server.post({ input: 'x' });
    await reached;
    await using other = await startInProcess(scriptedModel([]), { store: await openStore() });
    expect(other.recovered).toBe(0);
    release();
    const response = JSON.parse((await posted).text) as WireResponse;
    expect(response.status).toBe('completed');
    expect((await other.get(response.id))['output']).toEqual(response.output);
  });

  test('leave it to the server that is storing its end', async () => {
    const { reached, release, pass } = gate();
    const slow = await openStore();
    const slowStore = withResponses(slow, {
      async finish(...ended) {
        await pass();
        return slow.requests.finish(...ended);
      },
    });
    await using server = await startInProcess(scriptedModel(['Done.']), { store: slowStore });
    const posted = server.post({ input: 'x' });
    await reached;
    await using other = await startInProcess(scriptedModel([]), { store: await openStore() });
    expect(other.recovered).toBe(0);
    release();
    const response = JSON.parse((await posted).text) as WireResponse;
    expect(response.status).toBe('completed');
    expect(await other.get(response.id)).toEqual(response);
    expect((await fetch(`${other.url}/v1/responses/${response.id}`, { method: 'DELETE' })).status).toBe(200);
  });

  test('report the response that was stored first', async () => {
    const store = await openStore();
    const first = { output: ['stored first'] };
    await using server = await startInProcess(scriptedModel(['Second.', 'Second.']), {
      store: withResponses(store, {
        async finish(id, ending) {
          await store.requests.finish(id, { ...ending, response: { ...(ending.response as object), ...first } });
          return store.requests.finish(id, ending);
        },
      }),
    });
    const { text } = await server.post({ input: 'x', stream: true });
    const terminal = text.split('\n\n').find((frame) => frame.startsWith('event: response.completed'))!;
    expect(terminal).toContain('stored first');
    expect(terminal).not.toContain('Second.');
    expect(await server.get(responseIdIn(text))).toMatchObject(first);
    expect(JSON.parse((await server.post({ input: 'x' })).text)).toMatchObject(first);
  });
});

describe('a response that was killed between its id and its first event', () => {
  test('is resumed, with the conversation that it continues', async () => {
    await using provider = await startProvider();
    const script = await provider.script([{ text: 'One.' }, { text: 'Two.' }]);
    const before = await startServer(provider, { store: file });
    const first = await responsesClient(() => before.url).respond({ model: modelOf(script), input: 'First' });
    await before.close();

    const killed = await startServer(provider, { store: file, hangsOnAppend: true });
    const { received, events, ended } = streamClient(killed.url, {
      model: modelOf(script),
      instructions: 'Be brief.',
      input: 'Second',
      previous_response_id: first.id,
    });
    await received(1);
    const { id } = events[0]!.response!;
    await killed.kill();
    expect(await ended).toBe(false);

    await using server = await startServer(provider, { store: file });
    expect(server.recovered).toBe(1);
    const response = await responsesClient(() => server.url).retrieveEnded(id);
    expect([response.status, textIn(response)]).toEqual(['completed', 'Two.']);
    await waitForRequests(script, 2);
    const { messages } = (await script.requests())[1]!.body as { messages: readonly object[] };
    expect(messages).toMatchObject([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'First' },
      { role: 'assistant', content: 'One.' },
      { role: 'user', content: 'Second' },
    ]);
  }, 60_000);

  test('can be cancelled at another server', async () => {
    await using provider = await startProvider();
    const script = await provider.script([]);
    await using other = await startServer(provider, { store: file });
    const killed = await startServer(provider, { store: file, hangsOnAppend: true });
    const { received, events } = streamClient(killed.url, { model: modelOf(script), input: 'Go' });
    await received(1);
    await killed.kill();
    const cancelled = await responsesClient(() => other.url).cancel(events[0]!.response!.id);
    expect(cancelled.status).toBe('cancelled');
    expect(await script.requests()).toEqual([]);
  }, 60_000);
});

test.each(['response', 'conversation'])('a %s whose end was told is deleted, whoever still drives it', async (what) => {
  const [own, others] = [await openStore(), await openStore()];
  const [release, refusal] = [gate(), Promise.withResolvers<void>()];
  const slow: ServerStore = {
    ...own,
    async acquire(...given) {
      const lease = await own.acquire(...given);
      return { ...lease, release: () => release.pass().then(() => lease.release()) };
    },
  };
  const refused = (error: unknown): never => {
    refusal.resolve();
    throw error;
  };
  const { requests, conversations } = others;
  const watched: ServerStore = {
    ...others,
    requests: { ...requests, delete: (...given) => requests.delete(...given).catch(refused) },
    conversations: { ...conversations, delete: (...given) => conversations.delete(...given).catch(refused) },
  };
  await using driving = await startInProcess(scriptedModel(['Done.']), { store: slow });
  await using other = await startInProcess(scriptedModel([]), { store: watched });
  const made = what === 'response' ? undefined : (await driving.send('POST', '/v1/conversations', {})).body.id;
  const asked = { input: 'Hi', background: true, ...(made && { conversation: made }) };
  const { body } = await driving.send('POST', '/v1/responses', asked);
  await release.reached;
  expect((await other.send('GET', `/v1/responses/${body.id}`)).body.status).toBe('completed');
  const deleted = other.send('DELETE', made ? `/v1/conversations/${made}` : `/v1/responses/${body.id}`);
  await refusal.promise;
  release.release();
  expect(await deleted).toMatchObject({ status: 200, body: { deleted: true } });
});

describe('a response that was interrupted while it ended with max_output_tokens', () => {
  const spent: ScriptStep = { calls: [{ name: 'look' }], usage: { inputTokens: 1, outputTokens: 16 } };
  const cutOff: ScriptStep = { calls: [{ name: 'look' }], finish: 'length' };
  const clientCall: ScriptStep = { calls: [{ name: 'ask' }], finish: 'length' };
  const ask = { type: 'function', name: 'ask', parameters: { type: 'object', properties: {} } };

  test.each([
    ['its tokens were used up', 'before the end of the run', { max_output_tokens: 16, tools }, spent],
    ['its tokens were used up', 'after the end of the run', { max_output_tokens: 16, tools }, spent],
    ['a reply was cut off', 'before the end of the run', { tools }, cutOff],
    ['a reply was cut off', 'after the end of the run', { tools }, cutOff],
    ['a call for the client was cut off', 'before the end of the run', { tools: [ask] }, clientCall],
    ['a call for the client was cut off', 'after the end of the run', { tools: [ask] }, clientCall],
  ])('ends the same way when it is resumed (%s, interrupted %s)', async (_, when, request, step) => {
    const store = await openStore();
    const fail = async (): Promise<never> => {
      throw new TreadleError('store-full', 'The disk is full.');
    };
    const broken: ServerStore =
      when === 'after the end of the run'
        ? withResponses(store, { finish: fail })
        : {
            ...store,
            append: (runId, entries, lease) =>
              entries.some(({ event }) => event.type === 'cancel-requested')
                ? fail()
                : store.append(runId, entries, lease),
          };
    const server = await startInProcess(scriptedModel([step]), { store: broken, tools: [look] });
    expect((await server.post({ input: 'x', ...request })).status).toBe(503);
    await server[Symbol.asyncDispose]();
    const { id } = (await store.requests.unfinished())[0]!;
    await using next = await startInProcess(scriptedModel([]), { store, tools: [look] });
    expect(await next.getEnded(id)).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
    });
  });
});

describe('a full disk in the middle of a response', () => {
  const LONG = 'x'.repeat(14_000);

  test.each([
    ['a tool', [LOOKING, 'Done.'] as const, 'Looking.Done.'],
    ['the last reply', [LONG, LONG] as const, LONG],
  ])(
    'in %s is reported as an interruption, and the response completes when there is space',
    async (_, script, whole) => {
      const { store, fill, free } = limitedStore(openSqliteStore);
      const [first, ...rest] = script;
      const filling: Model = scriptedModel([
        () => {
          if (first === LONG) fill();
          return first;
        },
      ]);
      const longLook = tool({
        name: 'look',
        description: 'Looks',
        effect: 'pure',
        execute() {
          fill();
          return LONG;
        },
      });
      const server = await startInProcess(filling, { store, tools: [longLook] });
      const { text } = await server.post({ input: 'x', tools, stream: true });
      expect(eventTypesIn(text).at(-1)).toBe('error');
      expect(text).toContain('"code":"response_interrupted"');
      expect(text).not.toContain('"status":"failed"');
      expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
      const id = responseIdIn(text);
      expect(await server.get(id)).toMatchObject({ status: 'in_progress' });
      await server[Symbol.asyncDispose]();

      free();
      await using next = await startInProcess(scriptedModel(rest), { store, tools: [look] });
      const response = (await next.getEnded(id)) as WireResponse;
      expect(response.status).toBe('completed');
      expect(textIn(response)).toBe(whole);
    },
  );

  test('at the next start leaves the response in progress', async () => {
    const store = await openStore();
    const [id = ''] = await leaveInProgress(store, 1);
    for (const broken of ['acquire', 'append', 'read'] as const) {
      const fail = async (): Promise<never> => {
        throw new TreadleError('store-full', 'The disk is full.');
      };
      const server = await startInProcess(scriptedModel([]), { store: { ...store, [broken]: fail }, tools: [look] });
      await server[Symbol.asyncDispose]();
      expect(await store.requests.get('default', id)).toMatchObject({ status: 'in_progress' });
      expect(await store.isDriven(id)).toBe(false);
    }
    await using next = await startInProcess(scriptedModel(REST), { store, tools: [look] });
    expect((await next.getEnded(id))['output']).toHaveLength(9);
  });

  test('is a 503 for a client that waits for JSON, which does not send the request again', async () => {
    const { store, fill, free } = limitedStore(openSqliteStore);
    const { reached, release, pass } = gate();
    const model = scriptedModel([
      async () => {
        fill();
        await pass();
        return LONG;
      },
      'Done.',
    ]);
    await using server = await startInProcess(model, { store });
    // It would send the request again after an ordinary 503, and then the same would be done twice.
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 2 });
    const waiting = client.responses.create({ input: 'x' });
    await reached;
    const { id } = (await store.requests.unfinished())[0]!;
    release();
    await expect(waiting).rejects.toMatchObject({ status: 503, code: 'response_interrupted' });
    await expect(waiting).rejects.toThrow(id);
    expect(await store.requests.unfinished()).toHaveLength(1);
    free();
    const cancelled = await fetch(`${server.url}/v1/responses/${id}/cancel`, { method: 'POST' });
    expect(await cancelled.json()).toMatchObject({ status: 'cancelled' });
  });
});

test('a stream reports a failure only when it is stored', async () => {
  const store = await openStore();
  const { reached, release, pass } = gate();
  const error = { code: 'network', message: 'No connection.', retryable: false } as const;
  const model: Model = { id: 'm', reply: async () => ({ type: 'failure', error }) };
  const held = withResponses(store, {
    async finish(...ended) {
      await pass();
      return store.requests.finish(...ended);
    },
  });
  await using server = await startInProcess(model, { store: held });
  const { events, received, ended } = streamClient(server.url, { input: 'x', stream: true });
  await reached;
  await received(2);
  // A round trip on another connection: events sent before it have arrived.
  await fetch(`${server.url}/healthz`);
  expect(events.map(({ type }) => type)).toEqual(['response.created', 'response.in_progress']);
  release();
  expect(await ended).toBe(true);
  expect(events.slice(2).map(({ type }) => type)).toEqual(['error', 'response.failed']);
  expect(await server.get(events[0]!.response!.id)).toMatchObject({ status: 'failed' });
});

test('a tenant at its limit does not keep the responses of others from being resumed', async () => {
  const store = await openStore();
  const keys = ['ann', 'bob'].map((name) => ({ name, hash: hashKey(`tk_${name}`), tenant: name }));
  const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });
  let requests = 0;
  const hanging: Model = { id: 'm', reply: () => new Promise(() => void requests++) };
  const first = await startInProcess(hanging, { store, keys });
  const posted: ReturnType<InProcessServer['post']>[] = [];
  for (const name of ['ann', 'ann', 'bob']) {
    posted.push(first.post({ input: name, stream: true }, as(name)));
    while (requests < posted.length) await setImmediate();
  }
  await first[Symbol.asyncDispose]();
  await Promise.all(posted);

  const second = await startInProcess(hanging, { store, keys, maxConcurrentRunsPerTenant: 1 });
  expect(second.recovered).toBe(2);
  while (requests < 5) await setImmediate();
  const running = await Promise.all((await store.requests.unfinished()).map(({ runId }) => store.isDriven(runId)));
  expect(running).toEqual([true, false, true]);
  await second[Symbol.asyncDispose]();
});

test('a response with a damaged journal fails, and the others are resumed', async () => {
  const store = await openStore();
  const [damaged = '', intact = ''] = await leaveInProgress(store, 2);
  await queryStored(
    file,
    `UPDATE entries SET entry = '{' WHERE seq = 1 AND run = (SELECT id FROM runs WHERE run = '${damaged}')`,
  );
  await using server = await startInProcess(scriptedModel(REST), { store, tools: [look] });
  expect(await server.getEnded(intact)).toMatchObject({ status: 'completed' });
  expect(await server.get(damaged)).toMatchObject({ status: 'failed', error: { code: 'server_error' } });
});

test('a fork whose name starts with the id of a response is not deleted with it', async () => {
  const store = await openStore();
  await using server = await startInProcess(scriptedModel(['Hello.']), { store });
  const { id } = JSON.parse((await server.post({ input: 'x' })).text) as { id: string };
  const fork = await forkRun({ journal: store, runId: id, at: 1, newRunId: `${id}.what-if` });
  expect((await fetch(`${server.url}/v1/responses/${id}`, { method: 'DELETE' })).status).toBe(200);
  expect(await store.read(id)).toEqual([]);
  expect(await store.read(fork)).not.toEqual([]);
});

test.each([
  ['on a full disk', ({ fill }: LimitedStore) => fill()],
  ['that is read-only', ({ db }: LimitedStore) => db.exec('PRAGMA query_only = ON')],
])('/readyz reports a store %s, which can still be read', async (_, breakStore) => {
  const limited = limitedStore(openSqliteStore);
  const { store, db, free } = limited;
  await using server = await startInProcess(scriptedModel([]), { store });
  const ready = async (): Promise<number> => (await fetch(`${server.url}/readyz`)).status;
  expect(await ready()).toBe(200);
  // Without free pages from the first check.
  db.exec('VACUUM');
  breakStore(limited);
  expect(await ready()).toBe(503);
  free();
  db.exec('PRAGMA query_only = OFF');
  expect(await ready()).toBe(200);
  expect(await store.requests.prune(Infinity)).toBe(0);
});
