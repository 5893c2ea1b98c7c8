import { runLoop, tool, type JournalEntry, type RunStore } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { addMetrics, HOUR_MS, metricsOf, NO_METRICS, type Metrics } from '@treadle/core/trace';
import { countNotedRuns, findMetrics, type Store } from '@treadle/store';
import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';

const quick = tool({ name: 'quick', description: '', effect: 'pure', execute: () => 'done' });
const broken = tool({
  name: 'broken',
  description: '',
  effect: 'pure',
  execute: () => Promise.reject(new Error('no')),
});
/** The client executes it: the run waits. */
const asked = tool({ name: 'asked', description: '' });

interface RunOptions {
  readonly tenant?: string;
  readonly at?: number;
  readonly calls?: readonly string[];
}

/** A run with one turn of these calls, and a reply. */
async function run(journal: RunStore, runId: string, { tenant, at = 0, calls = ['quick'] }: RunOptions = {}) {
  const principal = { subject: 'key', tenant: tenant ?? '', scopes: [] };
  const model = scriptedModel([{ calls: calls.map((name, index) => ({ name, id: `${index}` })) }, 'Done.']);
  const tools = [quick, broken, asked];
  return runLoop({
    input: 'go',
    model,
    tools,
    runId,
    journal,
    clock: manualClock(at),
    ...(tenant !== undefined && { principal }),
  });
}

const total = async (entries: readonly JournalEntry[]): Promise<Metrics> =>
  [...(await metricsOf(entries))!.values()].reduce(addMetrics, NO_METRICS);

/** What the journals say. */
async function expected(store: Store, ...runIds: readonly string[]): Promise<Metrics> {
  let sum = NO_METRICS;
  for (const runId of runIds) sum = addMetrics(sum, await total(await store.read(runId)));
  return sum;
}

export function metricsContract(tempStore: () => Promise<TempStores>): void {
  test('adds what the runs of a tenant did in a time, and nothing of others', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { tenant: 'acme', at: 5 * HOUR_MS + 17, calls: ['quick', 'broken'] });
    await run(store, 'b', { tenant: 'acme', at: 7 * HOUR_MS });
    await run(store, 'c', { tenant: 'other', at: 5 * HOUR_MS });
    await run(store, 'none', { at: 5 * HOUR_MS });
    expect(await findMetrics(store)).toEqual({ metrics: await expected(store, 'a', 'b', 'c', 'none'), waiting: 0 });
    const { metrics } = await findMetrics(store, { tenant: 'acme' });
    expect(metrics).toEqual(await expected(store, 'a', 'b'));
    expect(metrics.tools['broken']).toMatchObject({ calls: 1, errors: { execution_failed: 1 } });
    const within = (since: number, until: number): ReturnType<typeof findMetrics> =>
      findMetrics(store, { tenant: 'acme', since, until });
    expect((await within(5 * HOUR_MS, 7 * HOUR_MS)).metrics).toEqual(await expected(store, 'a'));
    expect((await within(6 * HOUR_MS, 8 * HOUR_MS)).metrics).toEqual(await expected(store, 'b'));
    expect((await within(8 * HOUR_MS, 9 * HOUR_MS)).metrics).toEqual(NO_METRICS);
    expect((await findMetrics(store, { tenant: 'unknown' })).metrics).toEqual(NO_METRICS);
  });

  test('several processes that count the same runs count each once', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open()];
    const names = Array.from({ length: 12 }, (_, index) => `run ${index}`);
    for (const name of names) await run(stores[0]!, name, { tenant: 'acme' });
    const told: Metrics[] = [];
    const onCounted = (hours: ReadonlyMap<number, Metrics>): void => void told.push(...hours.values());
    const counting = stores.flatMap((store) => [store, store]);
    const found = await Promise.all(
      counting.map((store) => findMetrics(store, { limit: 5, onCounted, countMs: 60_000 })),
    );
    const all = await expected(stores[0]!, ...names);
    expect((await findMetrics(stores[1]!, { tenant: 'acme' })).metrics).toEqual(all);
    expect(found.some(({ waiting }) => waiting === 0)).toBe(true);
    // Each was told to one of them.
    expect(told.reduce(addMetrics, NO_METRICS)).toEqual(all);
  });

  test('a process that is killed between reading and adding loses nothing, and what is added twice counts once', async () => {
    await using temp = await tempStore();
    const [dying, other] = [await temp.open(), await temp.open()];
    await run(dying, 'a');
    const [noted] = await dying.metrics.noted(10);
    const entries = await dying.read('a');
    const counted = { ...noted!, next: entries.length, tenant: undefined, hours: (await metricsOf(entries))! };
    // It has read everything, and dies.
    expect(await other.metrics.waiting()).toBe(1);
    expect(await countNotedRuns(other)).toBe(1);
    // It was only frozen.
    expect(await dying.metrics.add([counted])).toEqual([]);
    expect(await findMetrics(other)).toEqual({ metrics: await expected(other, 'a'), waiting: 0 });
  });

  test('a run that waits counts so far, and the rest of it when it stops again', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const paused = await run(store, 'a', { calls: ['quick', 'asked'] });
    expect(paused.outcome).toBeUndefined();
    const { metrics } = await findMetrics(store);
    expect(metrics).toEqual(await expected(store, 'a'));
    expect([metrics.tools['quick']!.calls, metrics.loop.runs]).toEqual([1, {}]);
    const model = scriptedModel(['Done.']);
    const tools = [quick, broken, asked];
    const answers = [{ type: 'result', effect: 't1.client.1', content: 'yes' }] as const;
    await runLoop({ model, tools, runId: 'a', journal: store, clock: manualClock(HOUR_MS), answers });
    const { metrics: after } = await findMetrics(store);
    expect(after).toEqual(await expected(store, 'a'));
    expect([after.tools['quick']!.calls, after.loop.runs]).toEqual([1, { completed: 1 }]);
  });

  test('a run that gets a part of its answers, and waits again, counts up to there', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { calls: ['quick', 'asked', 'asked'] });
    expect((await findMetrics(store)).metrics.tools['asked']).toBeUndefined();
    const [model, tools] = [scriptedModel([]), [quick, broken, asked]];
    const answers = [{ type: 'result', effect: 't1.client.1', content: 'yes' }] as const;
    await runLoop({ model, tools, runId: 'a', journal: store, clock: manualClock(HOUR_MS), answers });
    const { metrics, waiting } = await findMetrics(store);
    expect([metrics, waiting]).toEqual([await expected(store, 'a'), 0]);
    expect(metrics.tools['asked']!.calls).toBe(1);
  });

  test('sums that are made again are the same, also while another process counts', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    for (const name of ['a', 'b', 'c']) await run(one, name, { calls: ['quick', 'broken'] });
    await run(one, 'waits', { calls: ['asked'] });
    const { metrics: before } = await findMetrics(one);
    const late = await other.metrics.noted(10);
    await run(one, 'd');
    const [noted] = await one.metrics.noted(10);
    await other.metrics.restart();
    // Counted for the sums that are gone, it counts for the new ones.
    const entries = await one.read('d');
    const added = { ...noted!, next: entries.length, tenant: undefined, hours: (await metricsOf(entries))! };
    expect([late, await one.metrics.add([added])]).toEqual([[], ['d']]);
    await findMetrics(other);
    const { metrics, waiting } = await findMetrics(one);
    expect([metrics, waiting]).toEqual([addMetrics(before, await expected(one, 'd')), 0]);
  });

  test('a run with the name of a deleted one counts again, and the sums of the deleted one stay until they are made again', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a');
    const { metrics: first } = await findMetrics(store);
    await store.delete('a');
    expect((await findMetrics(store)).metrics).toEqual(first);
    await run(store, 'a', { calls: ['broken'] });
    expect((await findMetrics(store)).metrics).toEqual(addMetrics(first, await expected(store, 'a')));
    await store.metrics.restart();
    expect((await findMetrics(store)).metrics).toEqual(await expected(store, 'a'));
  });

  test('a run that does not replay counts for nothing, and keeps no others from being counted', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'whole');
    const entries = (await store.read('whole')).map((entry) =>
      entry.seq === 2 ? { ...entry, issued: ['t9.model.0'] } : entry,
    );
    await store.append('odd', entries);
    expect(await findMetrics(store)).toEqual({ metrics: await expected(store, 'whole'), waiting: 0 });
  });
}
