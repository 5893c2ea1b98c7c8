import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Parked, tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import type { ServerStore } from '@treadle/server';
import type { Store } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { call, SERVER_TOOLS } from './support/fixture.ts';
import { responseIdIn, startInProcess } from './support/in-process.ts';
import { modelOf, startServer } from './support/server-process.ts';
import { openTestStore } from './support/test-store.ts';

let folder: string;
let store: Store;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-sleeping-'));
  store = await openTestStore(path.join(folder, 'runs.db'));
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true });
});

const CALL = { calls: [{ name: 'report' }] };
const BODY = { input: 'go', tools: [{ type: 'mcp', server_label: 'treadle' }] };

/** A tool that waits until a time, and counts how often it is called. */
function waitingUntil(time: () => number): { readonly report: Tool; calls: number } {
  const counted = {
    calls: 0,
    report: tool({
      name: 'report',
      description: 'Waits for the report',
      effect: 'idempotent',
      execute: (): unknown => {
        counted.calls++;
        return Date.now() >= time() ? 'ready' : new Parked('the report', [], { wakeAt: time() });
      },
    }),
  };
  return counted;
}

test('a response whose tool waits is interrupted, and continues when its time has come', async () => {
  let time: number | undefined;
  const tools = waitingUntil(() => (time ??= Date.now() + 1));
  await using server = await startInProcess(scriptedModel([CALL, 'The report is ready.']), {
    store,
    tools: [tools.report],
  });
  const { status, text } = await server.post({ ...BODY, stream: true });
  expect(status).toBe(200);
  expect(text).toContain('"code":"response_waiting"');
  const response = await server.getEnded(responseIdIn(text));
  expect(response).toMatchObject({ status: 'completed' });
  expect(JSON.stringify(response)).toContain('The report is ready.');
  expect(tools.calls).toBe(2);
});

test('a client that waits for JSON gets a 503 that says how to fetch the response', async () => {
  const time = Date.now() + 3_600_000;
  await using server = await startInProcess(scriptedModel([CALL]), { store, tools: [waitingUntil(() => time).report] });
  const { status, text } = await server.post(BODY);
  expect(status).toBe(503);
  expect(text).toContain('A tool waits for something that takes long.');
  expect(text).toContain('Fetch it by its id, resp_');
});

test('a server that starts leaves responses asleep, and wakes those that are due', async () => {
  const later = waitingUntil(() => Date.now() + 3_600_000);
  const first = await startInProcess(scriptedModel([CALL, CALL]), { store, tools: [later.report] });
  const asleep = responseIdIn((await first.post({ ...BODY, stream: true })).text);
  await first[Symbol.asyncDispose]();
  const soon: Tool = { ...later.report, execute: () => new Parked('the report', [], { wakeAt: Date.now() + 1 }) };
  const other = await startInProcess(scriptedModel([CALL]), { store, tools: [soon] });
  const due = responseIdIn((await other.post({ ...BODY, stream: true })).text);
  await other[Symbol.asyncDispose]();

  const tools = waitingUntil(() => 0);
  await using server = await startInProcess(scriptedModel(['Done.']), { store, tools: [tools.report] });
  expect(server.recovered).toBe(1);
  expect(await server.getEnded(due)).toMatchObject({ status: 'completed' });
  expect(await server.get(asleep)).toMatchObject({ status: 'in_progress' });
  expect(tools.calls).toBe(1);
  expect((await store.requests.unfinished()).map(({ id }) => id)).toEqual([asleep]);
});

test('a response that another server has woken since it was listed is not woken early', async () => {
  const { report } = waitingUntil(() => 0);
  const dueAtOnce: Tool = { ...report, execute: () => new Parked('the report', [], { wakeAt: Date.now() }) };
  const first = await startInProcess(scriptedModel([CALL]), { store, tools: [dueAtOnce] });
  const id = responseIdIn((await first.post({ ...BODY, stream: true })).text);
  await first[Symbol.asyncDispose]();

  const time = Date.now() + 3_600_000;
  const tools = waitingUntil(() => time);
  /** Between the list and what follows, another server wakes the response, and it falls asleep again. */
  const undriven: ServerStore['requests']['undriven'] = async (now) => {
    const listed = await store.requests.undriven(now);
    await using other = await startInProcess(scriptedModel([]), { store, tools: [tools.report] });
    expect([listed.length, other.recovered]).toEqual([1, 1]);
    const isAwake = async () => (await store.list({ due: { to: time - 1 } })).length > 0 || (await store.isDriven(id));
    while (await isAwake()) await setImmediate();
    return listed;
  };
  await using server = await startInProcess(scriptedModel([]), {
    store: { ...store, requests: { ...store.requests, undriven } },
    tools: [tools.report],
  });
  expect([server.recovered, tools.calls]).toEqual([0, 1]);
  expect(await server.get(id)).toMatchObject({ status: 'in_progress' });
  expect(await store.isDriven(id)).toBe(false);
});

test('a request that is sent again with its key does not wake its response early', async () => {
  const time = Date.now() + 3_600_000;
  const tools = waitingUntil(() => time);
  await using server = await startInProcess(scriptedModel([CALL]), { store, tools: [tools.report] });
  const headers = { 'idempotency-key': 'k' };
  for (let sent = 1; sent <= 3; sent++) {
    const { status, text } = await server.post(BODY, headers);
    expect([status, text]).toEqual([503, expect.stringContaining('"code":"response_waiting"')]);
  }
  expect(tools.calls).toBe(1);
});

test('a response that sleeps is in progress, has no driver, and can be cancelled', async () => {
  const time = Date.now() + 3_600_000;
  await using server = await startInProcess(scriptedModel([CALL]), { store, tools: [waitingUntil(() => time).report] });
  const id = responseIdIn((await server.post({ ...BODY, stream: true })).text);
  expect(await server.get(id)).toMatchObject({ status: 'in_progress' });
  expect(await store.isDriven(id)).toBe(false);
  const cancelled = await fetch(`${server.url}/v1/responses/${id}/cancel`, { method: 'POST' });
  expect(await cancelled.json()).toMatchObject({ id, status: 'cancelled' });
  expect(await store.list({ due: { to: Infinity } })).toEqual([]);
});

test('a response that was due at once wakes, also while others fall asleep all the time', async () => {
  let calls = 0;
  let isWoken = false;
  const report = tool({
    name: 'report',
    description: 'Waits for the report',
    effect: 'idempotent',
    execute: (_, { parked }) => {
      isWoken ||= parked !== undefined;
      return new Parked('the report', [], { wakeAt: Date.now() + (calls++ === 0 ? 0 : 3_600_000) });
    },
  });
  const model = scriptedModel(Array.from({ length: 1_000 }, () => CALL));
  await using server = await startInProcess(model, { store, tools: [report] });
  while (!isWoken && calls < 1_000) await server.post({ ...BODY, stream: true });
  expect(isWoken).toBe(true);
});

test('of two server processes on one store, one wakes each response', { timeout: 60_000 }, async () => {
  const settings = { store: path.join(folder, 'shared.db') };
  await using provider = await startProvider();
  await using one = await startServer(provider, settings);
  await using two = await startServer(provider, settings);
  // Both servers have responses that are due at this time, so both look at it, and find those of the other one, too.
  const time = Date.now() + 2_000;
  const sleeping = await Promise.all(
    Array.from({ length: 20 }, async (_, index) => {
      const file = path.join(folder, `calls-${index}`);
      const script = await provider.script([{ calls: [call('wait_until', { time, file })] }, { text: 'Done.' }]);
      const body = { model: modelOf(script), input: 'Go', tools: [SERVER_TOOLS], stream: true };
      const answer = await fetch(`${(index % 2 === 0 ? one : two).url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      const text = await answer.text();
      expect(text).toContain('"code":"response_waiting"');
      return { id: responseIdIn(text), file, script };
    }),
  );
  for (const { id, file, script } of sleeping) {
    const status = async () => {
      const response = await fetch(`${two.url}/v1/responses/${id}`);
      return ((await response.json()) as { readonly status: string }).status;
    };
    await expect.poll(status, { interval: 20, timeout: 30_000 }).not.toBe('in_progress');
    expect(await status()).toBe('completed');
    expect(await script.requests()).toHaveLength(2);
    // The first call, and one when it was woken.
    expect((await readFile(file, 'utf8')).trim().split('\n')).toHaveLength(2);
  }
});

test('a response that waits for a device continues when the device is back, before its time', async () => {
  const wakeAt = Date.now() + 3_600_000;
  const report: Tool = tool({
    name: 'report',
    description: 'Waits for a device',
    effect: 'idempotent',
    execute: (_, { parked }) => (parked ? 'ready' : new Parked('device:pi', [], { wakeAt })),
  });
  let status: 'online' | 'offline' = 'offline';
  let changed = (_name: string): void => {};
  const view = () =>
    ({ name: 'pi', tenant: 'default', status, isPlain: false, calls: [], capabilities: { tools: [] } }) as never;
  await using server = await startInProcess(scriptedModel([CALL, 'The report is ready.']), {
    store,
    tools: [report],
    devices: {
      devices: () => [view()],
      device: view,
      ping: () => Promise.reject(new Error('It is not asked.')),
      onChange(listener) {
        changed = listener;
        return () => {};
      },
    },
  });
  const id = responseIdIn((await server.post({ ...BODY, stream: true })).text);
  changed('pi');
  status = 'online';
  changed('pi');
  expect(await server.getEnded(id)).toMatchObject({ status: 'completed' });
});
