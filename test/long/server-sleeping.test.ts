import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sleepTool } from '@treadle/core/timers';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { startServer, type ResourceUsage } from '../server/support/server-process.ts';

const RUNS = 10_000;
/** Long enough for two looks for responses to resume. */
const REST_MS = 65_000;

/** Stores responses whose runs sleep for a day. */
async function storeSleeping(file: string, count: number): Promise<void> {
  const store = sqliteStore(file);
  const tools = [sleepTool()];
  async function storeOne(index: number): Promise<void> {
    const [runId, now] = [`resp_${index}`, Date.now()];
    const times = { createdAt: now, updatedAt: now };
    const record = { id: runId, kind: 'response', tenant: 'default', runId, status: 'in_progress', ...times };
    await store.requests.create({ ...record, request: { input: 'x'.repeat(500) }, response: { id: runId } });
    const model = scriptedModel([{ calls: [{ name: 'sleep', arguments: { seconds: 86_400 } }] }]);
    await runLoop({ model, tools, journal: store, runId, input: 'Wait.' });
  }
  for (let from = 0; from < count; from += 500) {
    await Promise.all(Array.from({ length: Math.min(500, count - from) }, (_, index) => storeOne(from + index)));
  }
  expect(await store.list({ due: { to: Infinity }, limit: Infinity })).toHaveLength(count);
  await store.close();
}

/** The CPU time of a server at rest, and the memory that it has then. */
async function atRest(file: string): Promise<ResourceUsage> {
  await using provider = await startProvider();
  await using server = await startServer(provider, { store: file });
  expect(server.recovered).toBe(0);
  const before = await server.usage();
  await setTimeout(REST_MS);
  const after = await server.usage();
  return { ...after, cpuMs: after.cpuMs - before.cpuMs };
}

test('10,000 sleeping runs cost a server neither memory nor CPU', { timeout: 600_000 }, async ({ annotate }) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-asleep-'));
  try {
    await storeSleeping(path.join(folder, 'full.db'), RUNS);
    const [full, empty] = await Promise.all([
      atRest(path.join(folder, 'full.db')),
      atRest(path.join(folder, 'empty.db')),
    ]);
    const text = ({ heap, rss, cpuMs }: ResourceUsage): string =>
      `heap ${(heap / 1024 ** 2).toFixed(2)} MB, process ${(rss / 1024 ** 2).toFixed(0)} MB, ` +
      `CPU ${((cpuMs / REST_MS) * 100).toFixed(3)} %`;
    await annotate(`${RUNS} asleep: ${text(full)}; none: ${text(empty)}`);
    expect(full.heap - empty.heap).toBeLessThan(1024 ** 2);
    expect(full.cpuMs / REST_MS).toBeLessThan(0.01);
  } finally {
    await rm(folder, { recursive: true });
  }
});
