import { tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type TreadleServerOptions } from '@treadle/server';
import { sqliteStore, type Store } from '@treadle/store';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { testDatabase, type TestDatabase } from '../store/shared-postgres.ts';
import { SERVER_TOOLS } from './support/fixture.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket } from './support/socket-client.ts';

/* Requests about a run reach the server that does not drive it. */

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-two-servers-'));
});
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;
afterEach(() => database.clear());

interface Shared {
  readonly name: string;
  /** Returns a function that opens the same empty store again. */
  readonly shared: () => () => Promise<Store>;
}

const STORES: readonly Shared[] = [
  {
    name: 'an SQLite file',
    shared() {
      const file = path.join(folder, `${files++}.db`);
      return async () => sqliteStore(file);
    },
  },
  { name: 'PostgreSQL', shared: () => () => database.open() },
];

interface TwoServers extends AsyncDisposable {
  readonly one: InProcessServer;
  readonly other: InProcessServer;
  readonly store: Store;
}

/** Servers with the same options, and the same script of the model. */
async function twoServers(
  open: () => Promise<Store>,
  model: ReturnType<typeof scriptedModel>,
  options: (store: Store) => Partial<TreadleServerOptions> = () => ({}),
): Promise<TwoServers> {
  const stores = [await open(), await open()] as const;
  const [one, other] = await Promise.all(
    stores.map((store) => startInProcess(model, { waitForAnswers: true, ...options(store), store })),
  );
  return {
    one: one!,
    other: other!,
    store: stores[0],
    async [Symbol.asyncDispose]() {
      await Promise.all([one, other].map((server) => server![Symbol.asyncDispose]()));
      await Promise.all(stores.map((store) => store.close()));
    },
  };
}

/** A tool that waits until it is released. */
function holding(): { readonly hold: Tool; readonly called: Promise<void>; readonly release: () => void } {
  const [called, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const hold = tool({
    name: 'hold',
    description: 'Waits',
    input: { type: 'object', properties: {} },
    touches: () => [],
    async execute(_, { signal }) {
      called.resolve();
      const aborted = new Promise<never>((__, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
      await Promise.race([released.promise, aborted]);
      return 'Held.';
    },
  });
  return { hold, called: called.promise, release: released.resolve };
}

const erase = tool({
  name: 'erase',
  description: 'Needs an approval',
  input: { type: 'object', properties: {} },
  needsApproval: true,
  execute: () => 'Erased.',
});

const BODY = { input: 'Go', background: true, tools: [SERVER_TOOLS] };

async function create({ one }: TwoServers): Promise<string> {
  const { status, body } = await one.send('POST', '/v1/responses', BODY);
  expect(status).toBe(200);
  return body.id;
}

describe.each(STORES)('two servers with $name', ({ shared }) => {
  test('a run is followed and steered at the other server', async () => {
    const { hold, called, release } = holding();
    const model = scriptedModel([{ calls: [{ name: 'hold' }] }, 'Done.']);
    await using both = await twoServers(shared(), model, () => ({ tools: [hold] }));
    const { other } = both;
    const id = await create(both);
    await called;
    const followed = fetch(`${other.url}/v1/responses/${id}?stream=true`).then((answer) => answer.text());
    const entries = fetch(`${other.url}/v1/runs/${id}/events`, { headers: { accept: 'text/event-stream' } }).then(
      (answer) => answer.text(),
    );
    const steered = await other.send('POST', `/v1/runs/${id}/input`, { input: 'Also this.' });
    expect(steered.status).toBe(200);
    release();
    expect(await followed).toContain('response.completed');
    expect(await entries).toContain('Also this.');
    expect(JSON.stringify(model.requests[1]!.messages)).toContain('Also this.');
    expect(await other.get(id)).toMatchObject({ status: 'completed' });
  });

  test('a run is cancelled at the other server', async () => {
    const { hold, called } = holding();
    await using both = await twoServers(shared(), scriptedModel([{ calls: [{ name: 'hold' }] }]), () => ({
      tools: [hold],
    }));
    const id = await create(both);
    await called;
    expect((await both.other.send('POST', `/v1/responses/${id}/cancel`)).body).toMatchObject({ status: 'cancelled' });
    expect(await both.one.get(id)).toMatchObject({ status: 'cancelled' });
  });

  test('a run is approved at the other server, which goes on with it, and forked', async () => {
    const model = scriptedModel([{ calls: [{ name: 'erase' }] }, 'Done.', 'Again.']);
    await using both = await twoServers(shared(), model, () => ({ tools: [erase] }));
    const { one, other } = both;
    const id = await create(both);
    const run = async (): Promise<{ readonly waiting: { effect: string; digest: string }[] }> =>
      (await other.send('GET', `/v1/runs/${id}`)).body;
    const [wait] = await vi.waitFor(
      async () => {
        const { waiting } = await run();
        expect(waiting).toHaveLength(1);
        return waiting;
      },
      { timeout: 10_000 },
    );
    const { effect, digest } = wait!;
    const answers = [{ type: 'approval', effect, digest, approved: true }];
    expect((await other.send('POST', `/v1/runs/${id}/answers`, { answers })).status).toBe(200);
    expect(await one.getEnded(id)).toMatchObject({ status: 'completed' });
    const forked = await other.send('POST', `/v1/runs/${id}/fork`, { at: 2 });
    expect({ status: forked.status, body: forked.body }).toMatchObject({ status: 200 });
  });

  test('an idempotency key that is repeated at the other server gets the same response', async () => {
    const model = scriptedModel(['Once.']);
    await using both = await twoServers(shared(), model);
    const { one, other } = both;
    const key = { 'idempotency-key': 'k' };
    const answers = await Promise.all([one.post({ input: 'Go' }, key), other.post({ input: 'Go' }, key)]);
    const again = await other.post({ input: 'Go' }, key);
    expect(new Set([...answers, again].filter(({ status }) => status === 200).map(({ text }) => text)).size).toBe(1);
    expect(again.status).toBe(200);
    expect(model.requests).toHaveLength(1);
  });

  test('the limits of a key count the requests to both', async () => {
    const { hold, called, release } = holding();
    const scopes = ['agents:invoke', 'tools:execute'] as const;
    const keys = [
      { name: 'rate', hash: hashKey('rate'), scopes, requestsPerMinute: 4 },
      { name: 'slots', hash: hashKey('slots'), scopes, maxConcurrentRequests: 1 },
    ];
    const model = scriptedModel([{ calls: [{ name: 'hold' }] }, 'Done.']);
    await using both = await twoServers(shared(), model, () => ({ tools: [hold], keys }));
    const { one, other } = both;
    const rate = { authorization: 'Bearer rate' };
    const statuses: number[] = [];
    for (let i = 0; i < 12; i++) {
      statuses.push((await [one, other][i % 2]!.send('GET', '/v1/models', undefined, rate)).status);
    }
    expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(4);
    expect(statuses).toContain(429);
    const slots = { authorization: 'Bearer slots' };
    const first = one.post({ input: 'Go', tools: [SERVER_TOOLS] }, slots);
    await called;
    expect((await other.send('GET', '/v1/models', undefined, slots)).status).toBe(429);
    release();
    expect((await first).status).toBe(200);
  });

  test('runs of both draw on one budget', async () => {
    const usage = { inputTokens: 60, outputTokens: 0 };
    const model = scriptedModel([
      { text: 'One.', usage },
      { text: 'Two.', usage },
    ]);
    await using both = await twoServers(shared(), model, (store) => ({ ledger: () => store.budgets.ledger(['team']) }));
    const { one, other, store } = both;
    await store.budgets.setLimits('team', { tokens: 50 });
    expect((await one.send('POST', '/v1/responses', { input: 'Go' })).body).toMatchObject({ status: 'completed' });
    expect((await other.send('POST', '/v1/responses', { input: 'Go' })).body).not.toMatchObject({
      status: 'completed',
    });
    expect(model.requests).toHaveLength(1);
  });

  test('a socket continues a stored response of the other server', async () => {
    const model = scriptedModel(['Copper.', 'It was copper.']);
    await using both = await twoServers(shared(), model);
    const first = await both.one.send('POST', '/v1/responses', { input: 'Remember copper.' });
    using socket = await openSocket(both.other.url);
    const last = await socket.create({ previous_response_id: first.body.id, input: 'Which?' });
    expect(last).toMatchObject({ type: 'response.completed' });
    expect(JSON.stringify(model.requests[1]!.messages)).toContain('Remember copper.');
  });
});
