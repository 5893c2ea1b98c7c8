import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { agentTool, runLoop, tool, Parked, type RunStore } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { resumeDue, sleepTool } from '@treadle/core/timers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sqliteStore } from './store.ts';

// What holds on every store is in `test/journal/contract/due.ts`. Here: the plan of the query, and a file that is opened again.

const DAY = 86_400_000;
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-due-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const file = (): string => path.join(folder, 'runs.db');

/** Starts a run that sleeps, a run that waits for a client, and one whose child run sleeps. */
async function startRuns(journal: RunStore): Promise<void> {
  const clock = manualClock(0);
  const sleep = (seconds: number) => scriptedModel([{ calls: [{ name: 'sleep', arguments: { seconds } }] }]);
  const tools = [sleepTool({ clock }), tool({ name: 'pick', description: '' })];
  const common = { tools, journal, clock, input: 'Go.' };
  await runLoop({ ...common, model: sleep(20), runId: 'later' });
  await runLoop({ ...common, model: sleep(10), runId: 'sooner' });
  await runLoop({ ...common, model: scriptedModel([{ calls: [{ name: 'pick' }] }]), runId: 'client' });
  const child = agentTool({ name: 'child', description: '', model: sleep(15), tools });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'x' } }] }]);
  await runLoop({ ...common, model, tools: [child], runId: 'parent' });
}

test('the index of the times answers which runs are due', async () => {
  const store = sqliteStore(file());
  await startRuns(store);
  await store.close();
  const db = new DatabaseSync(file());
  const plan = db
    .prepare(
      `EXPLAIN QUERY PLAN SELECT run FROM runs
       WHERE +status = ? AND +started_at < ? AND wake_at BETWEEN ? AND ? ORDER BY wake_at, id DESC LIMIT ?`,
    )
    .all('paused', Infinity, 0, 1, 1);
  db.close();
  expect(JSON.stringify(plan)).toContain('USING INDEX runs_by_wake');
});

test('a run that is parked for weeks continues after ten restarts', async () => {
  const acted: string[] = [];
  let isArrived = false;
  const parcel = tool({
    name: 'order',
    description: 'Orders a parcel',
    execute: (_, { key }) => (acted.push(key), new Parked('in transit', [], { wakeAt: 3 * DAY, ttlMs: 60 * DAY })),
    verify: (_, { parked }) =>
      isArrived
        ? { type: 'done', result: 'arrived' }
        : new Parked('in transit', [], { wakeAt: (parked?.wakeAt ?? 0) + 3 * DAY }),
  });
  const started = sqliteStore(file());
  const model = scriptedModel([{ calls: [{ name: 'order' }] }]);
  await runLoop({
    model,
    tools: [parcel],
    journal: started,
    clock: manualClock(0),
    runId: 'parcel',
    input: 'Order it.',
  });
  await started.close();
  const woken: string[] = [];
  for (let restart = 1; restart <= 10; restart++) {
    // Each process starts three days later, and wakes what is due by then.
    const clock = manualClock(restart * 3 * DAY);
    isArrived = restart === 10;
    const store = sqliteStore(file());
    for (const run of await resumeDue(store, () => ({ model: scriptedModel(['It is here.']), tools: [parcel] }), {
      clock,
    }))
      woken.push(run.type === 'resumed' ? `${run.result.outcome?.type ?? run.result.wakeAt! / DAY}` : run.type);
    await store.close();
  }
  expect(woken).toEqual(['6', '9', '12', '15', '18', '21', '24', '27', '30', 'completed']);
  expect(acted).toEqual(['parcel/t1.tool.0']);
});
