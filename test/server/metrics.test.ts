import { setImmediate } from 'node:timers/promises';
import { agentTool, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type ApiKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startInProcess } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

let store: Store;
beforeEach(async () => {
  store = await openTestStore();
});
afterEach(() => store.close());

const KEYS: readonly ApiKey[] = [
  { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: ['agents:invoke', 'tools:execute', 'runs:read'] },
  { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: ['agents:invoke', 'tools:execute', 'runs:read'] },
  { name: 'ops', hash: hashKey('tk_ops'), tenant: 'acme', scopes: ['metrics:read'] },
];
const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });

let fails = 0;
let arrived = 0;
let overlapped = Promise.withResolvers<void>();

/** Resolves when three calls have run at once, for long enough that their times show it. */
async function overlap(): Promise<void> {
  if (++arrived === 3) {
    const now = Date.now();
    while (Date.now() <= now) await setImmediate();
    overlapped.resolve();
  }
  return overlapped.promise;
}

const echo = tool({
  name: 'echo',
  description: 'Repeats',
  effect: 'pure',
  async execute() {
    await overlap();
    return 'said';
  },
});
const shaky = tool({
  name: 'shaky',
  description: 'Fails at first',
  async execute() {
    await overlap();
    if (fails++ === 0) throw new Error('broken');
    return 'done';
  },
});
const slow = tool({ name: 'slow', description: 'Hangs', timeoutMs: 5, execute: () => new Promise(() => {}) });
const helper = agentTool({
  name: 'helper',
  description: 'Helps',
  model: scriptedModel([{ calls: [{ name: 'echo' }] }, 'Helped.']),
  tools: [echo],
});
const tools = [echo, shaky, slow, helper];
const options = { tools, defaultTools: tools.map(({ name }) => name) };

test('what tools and the loop did is counted for a tenant and a time, and for Prometheus', async () => {
  [fails, arrived, overlapped] = [0, 0, Promise.withResolvers<void>()];
  const model = scriptedModel([
    { calls: [{ name: 'echo' }, { name: 'shaky' }, { name: 'slow' }, { name: 'helper', arguments: { task: 'x' } }] },
    { calls: [{ name: 'shaky' }, { name: 'nothing' }] },
    'Done.',
  ]);
  await using server = await startInProcess(model, { store, keys: KEYS, ...options });
  await server.post({ input: 'go' }, as('ann'));
  const of = (key: string, query = ''): ReturnType<typeof server.send> =>
    server.send('GET', `/v1/metrics/tools${query}`, undefined, as(key));
  const { body } = await of('ann');
  expect(body).toMatchObject({
    object: 'metrics',
    since: null,
    until: null,
    waiting: 0,
    // The run, and its child run.
    loop: { runs: { completed: 2 }, turns: 5, calls: 7, average_turns: 2.5, calls_per_turn: 1.4 },
  });
  const named = Object.fromEntries(body.tools.map((one: { tool: string }) => [one.tool, one]));
  expect(Object.keys(named).toSorted()).toEqual(['(unknown)', 'echo', 'helper', 'shaky', 'slow']);
  expect(named['echo']).toMatchObject({ calls: 2, successes: 2, errors: {}, error_rate: 0, recovery_rate: null });
  expect(named['shaky']).toMatchObject({
    calls: 2,
    successes: 1,
    errors: { execution_failed: 1 },
    error_rate: 0.5,
    recovery_rate: 1,
    last_error: { type: 'execution_failed', message: 'The tool "shaky" failed: broken' },
  });
  expect(named['slow']).toMatchObject({ calls: 1, successes: 0, timeouts: 1, latency_ms: { p50: expect.any(Number) } });

  // The hours that contain these times.
  const now = Date.now();
  const within = (await of('ann', `?since=${now - 3_600_000}&until=${now + 1}`)).body;
  expect([within.tools, within.since % 3_600_000, within.until % 3_600_000]).toEqual([body.tools, 0, 0]);
  expect((await of('ann', '?until=2026-01-01')).body).toMatchObject({ tools: [], loop: { turns: 0 } });
  expect((await of('ann', '?since=yesterday')).status).toBe(400);
  expect((await of('ann', '?tool=echo')).status).toBe(400);

  expect((await of('bob')).body).toMatchObject({ tools: [], loop: { turns: 0, average_turns: null } });
  expect((await of('ops')).status).toBe(403);

  const scrape = await (await fetch(`${server.url}/metrics`, { headers: as('ops') })).text();
  for (const line of [
    'treadle_tool_errors_by_type_total{tool="shaky",type="execution_failed"} 1',
    'treadle_tool_errors_by_type_total{tool="slow",type="timeout"} 1',
    'treadle_tool_recovered_total{tool="shaky"} 1',
    'treadle_tool_duration_seconds_count{tool="slow"} 1',
    'treadle_runs_ended_total{status="completed"} 2',
    'treadle_turns_total 5',
    'treadle_calls_total 7',
    'treadle_parallel_batches_total 1',
  ]) {
    expect(scrape).toContain(`${line}\n`);
  }
  expect(scrape).toMatch(/^treadle_tool_last_error_timestamp_seconds\{tool="shaky"\} \d{10}/m);
  expect(scrape).toMatch(/^treadle_max_concurrency [34]$/m);
});

test('a server counts what others left, once, and its own metrics have only what it counted', async () => {
  const model = scriptedModel([{ calls: [{ name: 'echo' }] }, 'Done.', { calls: [{ name: 'echo' }] }, 'Done.']);
  {
    await using first = await startInProcess(model, { store, ...options });
    await first.post({ input: 'one' });
  }
  await using one = await startInProcess(model, { store, ...options });
  await using other = await startInProcess(scriptedModel([]), { store, ...options });
  await one.post({ input: 'two' });
  const turns = async ({ url }: { readonly url: string }): Promise<number> =>
    Number(/^treadle_turns_total (\d+)$/m.exec(await (await fetch(`${url}/metrics`)).text())![1]);
  expect((await turns(one)) + (await turns(other))).toBe(4);
  const { body } = await other.send('GET', '/v1/metrics/tools');
  expect([body.loop.turns, body.tools[0].calls]).toEqual([4, 2]);
});

test('sums that are made again do not count once more in the metrics of a server', async () => {
  await using server = await startInProcess(scriptedModel(['One.', 'Two.']), { store, ...options });
  const turns = async (): Promise<string | undefined> =>
    /^treadle_turns_total (\d+)$/m.exec(await (await fetch(`${server.url}/metrics`)).text())?.[1];
  await server.post({ input: 'one' });
  expect(await turns()).toBe('1');
  await store.metrics.restart();
  await server.post({ input: 'two' });
  expect(await turns()).toBe('2');
  expect((await server.send('GET', '/v1/metrics/tools')).body).toMatchObject({ waiting: 0, loop: { turns: 2 } });
});

test('the status of a server says what it serves, and whether its store can be written', async () => {
  await using server = await startInProcess(scriptedModel([]), { store, keys: KEYS, ...options });
  const { status, body } = await server.send('GET', '/v1/status', undefined, as('ops'));
  expect([status, body]).toEqual([
    200,
    {
      object: 'status',
      ready: true,
      started_at: expect.any(Number),
      runs_in_progress: 0,
      max_runs: 1_000,
      models: ['m'],
      tools: ['echo', 'shaky', 'slow', 'helper'],
    },
  ]);
  expect((await server.send('GET', '/v1/status', undefined, as('ann'))).status).toBe(403);
});
