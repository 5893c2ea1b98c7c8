import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { runLoop, startLoop, tool, type Journal, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';

/** A store on disk whose rows a test damages between two processes. */
function damagedStore(): Disposable & {
  readonly open: () => ReturnType<typeof sqliteStore>;
  readonly exec: (sql: string) => void;
} {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-damaged-'));
  const file = path.join(folder, 'runs.db');
  return {
    open: () => sqliteStore(file),
    exec(sql) {
      const db = new DatabaseSync(file);
      db.exec(sql);
      db.close();
    },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true }),
  };
}

/** A `once` tool whose external system has not processed the payment yet when it is asked. */
function payment(paid: string[]): Tool {
  return tool({
    name: 'pay',
    description: 'Pays a bill',
    effect: 'once',
    verify: () => ({ type: 'not-done' }),
    execute(_, { key }) {
      paid.push(key);
      return 'paid';
    },
  });
}

const calls = { calls: [{ name: 'pay' }] };

/** Drives a run until the tool has settled and the model is called again: the result is the last entry. */
async function payAndStop(journal: Journal, paid: string[]): Promise<void> {
  const asked = Promise.withResolvers<void>();
  const model = scriptedModel([
    calls,
    () => {
      asked.resolve();
      return new Promise(() => {});
    },
  ]);
  const live = startLoop({ model, tools: [payment(paid)], journal, runId: 'bill', input: 'Pay the bill' });
  await asked.promise;
  await live.detach();
}

async function resume(journal: Journal, paid: string[], model: ScriptedModel): Promise<unknown> {
  return runLoop({ model, tools: [payment(paid)], journal, runId: 'bill' });
}

const LAST = 'seq = (SELECT max(seq) FROM entries)';
const damages = {
  missing: `DELETE FROM entries WHERE ${LAST}`,
  torn: `UPDATE entries SET entry = substr(entry, 1, 20) WHERE ${LAST}`,
  changed: `UPDATE entries SET entry = replace(entry, 'paid', 'PAID') WHERE ${LAST}`,
};

describe.each(Object.entries(damages))('a last entry that is %s', (_, damage) => {
  test('stops the run, and the tool is not executed again', async () => {
    using rows = damagedStore();
    const paid: string[] = [];
    const before = rows.open();
    await payAndStop(before, paid);
    await before.close();
    rows.exec(damage);

    const store = rows.open();
    const model = scriptedModel([]);
    const resumed = resume(store, paid, model);
    await expect(resumed).rejects.toMatchObject({ code: 'journal-damaged' });
    await expect(resumed).rejects.toThrow('Entry 2 of run "bill"');
    await store.close();
    expect(paid).toHaveLength(1);
    expect(model.requests).toEqual([]);
  });
});

test('a completed run whose last entry is missing is not resumed', async () => {
  using rows = damagedStore();
  const before = rows.open();
  const started = { tools: [payment([])], journal: before, runId: 'bill', input: 'Pay the bill' };
  await runLoop({ ...started, model: scriptedModel([calls, 'It is paid.']) });
  await before.close();
  rows.exec(damages.missing);

  const store = rows.open();
  const model = scriptedModel([]);
  await expect(resume(store, [], model)).rejects.toThrow('Entry 3 of run "bill"');
  await store.close();
  expect(model.requests).toEqual([]);
});

test.each([
  ['missing', 'DELETE FROM entries WHERE seq = 1'],
  ['changed', "UPDATE entries SET entry = replace(entry, 'pay', 'buy') WHERE seq = 1"],
])('an entry before the snapshot that is %s stops the run', async (_, damage) => {
  using rows = damagedStore();
  const before = rows.open();
  await payAndStop({ ...before, snapshotFrom: 3 }, []);
  expect(await before.readSnapshot('bill')).toMatchObject({ seq: 3 });
  await before.close();
  rows.exec(damage);

  const store = rows.open();
  const model = scriptedModel([]);
  await expect(resume(store, [], model)).rejects.toThrow('Entry 1 of run "bill"');
  await store.close();
  expect(model.requests).toEqual([]);
});
