import fs, { closeSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entry, startedWith } from '../../test/entries.ts';
import { response } from '../../test/responses.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { backupStore } from './backup.ts';
import type { StoreProblem, StoreProgress } from '../check.ts';
import { checkStore } from './check.ts';
import type { SqliteStore } from './store.ts';

// Starting a thread is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

/** A run of 5 entries with a long result and a snapshot. */
async function addRun(store: SqliteStore, runId: string, text = 'x'.repeat(60_000)): Promise<void> {
  const long = tool({ name: 'long', description: '', execute: () => text });
  const model = scriptedModel([{ calls: [{ name: 'long' }] }, 'Done.']);
  await runLoop({ model, tools: [long], input: `task ${runId}`, journal: { ...store, snapshotFrom: 2 }, runId });
}

/** A store with the runs `a` and `b`, which share a long result, and the response `r`. It is closed. */
async function fullStore(temp: TempStore): Promise<void> {
  const store = temp.open();
  await addRun(store, 'a');
  await addRun(store, 'b');
  await store.requests.create(response('r'));
  await store.close();
}

const problemsAfter = async (damage: string): Promise<readonly StoreProblem[]> => {
  await using temp = tempStore();
  await fullStore(temp);
  const raw = temp.raw();
  raw.exec(damage);
  raw.close();
  return (await checkStore(temp.file)).problems;
};

describe('checkStore', () => {
  test('counts what it has read, reports its progress, and changes nothing', async () => {
    await using temp = tempStore();
    await fullStore(temp);
    const { mtimeMs } = statSync(temp.file);
    const progress: StoreProgress[] = [];
    expect(await checkStore(temp.file, { onProgress: (step) => progress.push(step) })).toEqual({
      runs: 2,
      entries: 10,
      snapshots: 2,
      blobs: 1,
      responses: 1,
      problems: [],
    });
    expect(progress).toEqual([1, 2, 3].map((done) => ({ step: 'check', done, total: 3 })));
    expect(statSync(temp.file).mtimeMs).toBe(mtimeMs);
  });

  test('reports what is durable: nobody else may have synced it', async () => {
    await using temp = tempStore();
    await fullStore(temp);
    const { fdatasync } = fs;
    let syncs = 0;
    const replace = (syncing: unknown): void => {
      fs.fdatasync = syncing as typeof fdatasync;
      syncBuiltinESMExports();
    };
    replace((...args: Parameters<typeof fdatasync>) => (syncs++, fdatasync(...args)));
    try {
      await checkStore(temp.file);
    } finally {
      replace(fdatasync);
    }
    expect(syncs).toBe(1);
  });

  test('does not change a backup, which has no -wal', async () => {
    await using temp = tempStore();
    await fullStore(temp);
    const file = path.join(temp.folder, 'backup.db');
    const report = await backupStore(temp.file, file);
    const before = readFileSync(file);
    expect(await checkStore(file)).toEqual(report);
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test.each([
    [
      'changed',
      "UPDATE entries SET entry = replace(entry, 'long', 'LONG') WHERE run = 1 AND seq = 1",
      'Entry 1 of run "a" is damaged',
    ],
    ['missing', 'DELETE FROM entries WHERE run = 1 AND seq = 4', 'Entry 4 of run "a" is missing'],
  ])('names the run with an entry that is %s, and what to do', async (_, damage, text) => {
    const problems = await problemsAfter(damage);
    expect(problems).toEqual([{ part: 'entries', runId: 'a', message: expect.stringContaining(text) }]);
    expect(problems[0]!.message).toContain('Restore the store from a backup, or delete the run');
  });

  test('names every run with a long result that is damaged', async () => {
    const problems = await problemsAfter(
      "UPDATE blob_parts SET content = replace(content, 'xxx', 'xyx') WHERE part = 1",
    );
    const message = expect.stringMatching(
      /^The long result \w{64} of run "[ab]" is damaged: part 1 is damaged\. Restore/,
    );
    expect(problems).toEqual(['b', 'a'].map((runId) => ({ part: 'blob', runId, message })));
  });

  test('names a run whose long result is gone', async () => {
    const problems = await problemsAfter('DELETE FROM blobs');
    expect(problems).toEqual(
      ['b', 'a'].map((runId) => ({ part: 'blob', runId, message: expect.stringContaining('is missing') })),
    );
  });

  test('names a run with a damaged snapshot', async () => {
    const problems = await problemsAfter("UPDATE snapshots SET state = '{}' WHERE run = 2");
    expect(problems).toEqual([
      { part: 'snapshot', runId: 'b', message: expect.stringContaining('nothing has to be done') },
    ]);
  });

  test('names a damaged response', async () => {
    const problems = await problemsAfter("UPDATE requests SET request = '{}'");
    expect(problems).toEqual([
      { part: 'response', response: 'r', message: expect.stringContaining('Response "r" is damaged') },
    ]);
  });

  test.each([
    ["status = 'failed'", 'is listed with a wrong status'],
    ["tenant = 'other'", 'is listed with a wrong tenant'],
    ["parent = 'b'", 'is listed with a wrong parent'],
    ["status = 'complete'", 'is not listed'],
    ['started_at = 9e999', 'is not listed'],
  ])('names a run that is listed with wrong data: %s', async (change, text) => {
    const problems = await problemsAfter(`UPDATE runs SET ${change} WHERE run = 'a'`);
    expect(problems).toEqual([{ part: 'summary', runId: 'a', message: expect.stringContaining(text) }]);
  });

  test('names entries whose run is not listed', async () => {
    const problems = await problemsAfter("DELETE FROM runs WHERE run = 'a'");
    expect(problems).toEqual([
      { part: 'file', message: expect.stringContaining('entries of a run that is not in the list of runs (number 1)') },
    ]);
  });

  test('names a run that cannot be replayed', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)]);
    expect((await checkStore(temp.file)).problems).toEqual([
      {
        part: 'replay',
        runId: 'a',
        message: expect.stringMatching(/^Run "a" cannot be resumed .*: at entry 0, .*delete/),
      },
    ]);
  });

  test('names a run with events that replay cannot read, and checks the other runs', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [startedWith([])]);
    await addRun(store, 'b');
    expect(await checkStore(temp.file)).toMatchObject({
      runs: 2,
      problems: [{ part: 'replay', runId: 'a', message: expect.stringContaining('Run "a" cannot be resumed') }],
    });
  });

  test('reports a damaged page, and checks the other runs', async () => {
    await using temp = tempStore();
    const store = temp.open();
    for (const runId of ['a', 'b', 'c']) await addRun(store, runId, runId.repeat(60_000));
    await store.close();
    const raw = temp.raw();
    const { page } = raw
      .prepare("SELECT pageno AS page FROM dbstat WHERE name = 'blob_parts' AND pagetype = 'leaf' LIMIT 1")
      .get() as { page: number };
    raw.close();
    const file = openSync(temp.file, 'r+');
    writeSync(file, Buffer.alloc(4_096, 0xff), 0, 4_096, (page - 1) * 4_096);
    closeSync(file);
    const report = await checkStore(temp.file);
    expect(report).toMatchObject({ runs: 3, entries: 15 });
    expect(report.problems[0]).toMatchObject({ part: 'file', message: expect.stringContaining('SQLite reports: ') });
    expect(report.problems.some(({ part }) => part === 'blob')).toBe(true);
  });

  test('finds no problem in runs that are written or deleted meanwhile', async () => {
    await using temp = tempStore();
    const store = temp.open();
    for (let i = 0; i < 20; i++) await addRun(store, `run ${i}`);
    const writing: Promise<unknown>[] = [];
    const { problems } = await checkStore(temp.file, {
      onProgress({ done }) {
        writing.push(addRun(store, `new ${done}`), store.delete(`run ${done}`));
      },
    });
    expect(problems).toEqual([]);
    await Promise.all(writing);
  });

  test('rejects a missing file and does not create it', async () => {
    await using temp = tempStore();
    await expect(checkStore(temp.file)).rejects.toThrow(`There is no store ${temp.file}. Check the path.`);
    expect(statSync(temp.file, { throwIfNoEntry: false })).toBeUndefined();
  });

  test('stops when it is aborted', async () => {
    await using temp = tempStore();
    await fullStore(temp);
    const controller = new AbortController();
    const stopped = checkStore(temp.file, {
      signal: controller.signal,
      onProgress: () => controller.abort(new Error('enough')),
    });
    await expect(stopped).rejects.toThrow('enough');
  });
});
