import { copyFileSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { remote } from '../../test/remote.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { backupStore, restoreStore } from './backup.ts';
import type { StoreProgress } from '../check.ts';
import { sqliteStore, type SqliteStore } from './store.ts';

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

async function addRun(store: SqliteStore, runId: string): Promise<void> {
  await runLoop({ model: scriptedModel(['Done.']), input: runId, journal: store, runId });
}

/** Opens a store of that file for `use`, and closes it afterwards. */
async function inStore<T>(file: string, use: (store: SqliteStore) => Promise<T>): Promise<T> {
  const store = sqliteStore(file);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

const runsOf = (file: string): Promise<readonly string[]> =>
  inStore(file, async (store) => (await store.list()).map(({ runId }) => runId).toSorted());

const backupOf = (temp: TempStore): string => path.join(temp.folder, 'backup.db');

/** A closed store with the run `new`, and a backup that has `old` in its place. */
async function storeAndBackup(temp: TempStore): Promise<void> {
  await inStore(temp.file, (store) => addRun(store, 'old'));
  await backupStore(temp.file, backupOf(temp));
  await inStore(temp.file, async (store) => {
    await addRun(store, 'new');
    await store.delete('old');
  });
}

describe('backupStore', () => {
  test('copies a store that is in use to one file with access for its owner only', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await addRun(store, 'a');
    const progress: StoreProgress[] = [];
    const report = await backupStore(temp.file, backupOf(temp), { onProgress: (step) => progress.push(step) });
    expect(report).toMatchObject({ runs: 1, entries: 2, problems: [] });
    expect(readdirSync(temp.folder).toSorted()).toEqual(['backup.db', 'runs.db', 'runs.db-shm', 'runs.db-wal']);
    expect(statSync(backupOf(temp)).mode & 0o777).toBe(0o600);
    const { size } = statSync(backupOf(temp));
    expect(progress.findLast(({ step }) => step === 'copy')).toEqual({ step: 'copy', done: size, total: size });
    expect(progress.at(-1)).toEqual({ step: 'check', done: 1, total: 1 });
    await addRun(store, 'b');
    expect(await runsOf(backupOf(temp))).toEqual(['a']);
  });

  test('contains what only the -wal file has, which a copy of the main file lacks', async () => {
    await using temp = tempStore();
    await addRun(temp.open(), 'a');
    await backupStore(temp.file, backupOf(temp));
    const copied = path.join(temp.folder, 'copied.db');
    copyFileSync(temp.file, copied);
    expect([await runsOf(backupOf(temp)), await runsOf(copied)]).toEqual([['a'], []]);
  });

  test('is not started again by writers, and does not contain what they write', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await addRun(store, 'a');
    await store.blobs.put('a', 'x'.repeat(10_000_000));
    const raw = temp.raw();
    const copied: number[] = [];
    await backupStore(temp.file, backupOf(temp), {
      onProgress({ step, done }) {
        if (step !== 'copy') return;
        copied.push(done);
        if (copied.length > 100) throw new Error('It starts again and again.');
        raw.exec("UPDATE runs SET title = title || ' changed'");
      },
    });
    expect(copied).toEqual(copied.toSorted((a, b) => a - b));
    expect(copied.length).toBeGreaterThanOrEqual(3);
    expect(await inStore(backupOf(temp), (copy) => copy.list())).toMatchObject([{ title: 'a' }]);
    expect(await store.list()).toMatchObject([{ title: `a${' changed'.repeat(copied.length)}` }]);
  });

  test('replaces an existing file only with force', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    await expect(backupStore(temp.file, backupOf(temp))).rejects.toEqual(code('invalid-options'));
    await expect(backupStore(temp.file, backupOf(temp))).rejects.toThrow('backup.db exists. Choose another name');
    expect(await runsOf(backupOf(temp))).toEqual(['old']);
    await backupStore(temp.file, backupOf(temp), { force: true });
    expect(await runsOf(backupOf(temp))).toEqual(['new']);
  });

  test('never replaces a file that appears while it copies', async () => {
    await using temp = tempStore();
    await inStore(temp.file, (store) => addRun(store, 'a'));
    const onProgress = (): void => writeFileSync(backupOf(temp), 'mine');
    await expect(backupStore(temp.file, backupOf(temp), { onProgress })).rejects.toThrow('backup.db exists');
    expect(readFileSync(backupOf(temp), 'utf8')).toBe('mine');
    expect(readdirSync(temp.folder).toSorted()).toEqual(['backup.db', 'runs.db']);
  });

  test('replaces no other file than a store that nobody uses, even with force', async () => {
    await using temp = tempStore();
    await inStore(temp.file, (store) => addRun(store, 'a'));
    await expect(backupStore(temp.file, temp.file, { force: true })).rejects.toThrow('is the store itself');
    writeFileSync(backupOf(temp), 'a text of somebody, which is not a database at all\n'.repeat(20));
    await expect(backupStore(temp.file, backupOf(temp), { force: true })).rejects.toThrow('is not an SQLite database');
    const used = path.join(temp.folder, 'used.db');
    await inStore(used, async (store) => {
      await addRun(store, 'used');
      await expect(backupStore(temp.file, used, { force: true })).rejects.toEqual(code('store-locked'));
    });
    expect(await runsOf(used)).toEqual(['used']);
  });

  test('is not combined with a -wal file that is left beside its name', async () => {
    await using temp = tempStore();
    await inStore(temp.file, (store) => addRun(store, 'a'));
    writeFileSync(`${backupOf(temp)}-wal`, '');
    await expect(backupStore(temp.file, backupOf(temp))).rejects.toThrow(/backup\.db-wal belongs to another database/);
  });

  test('copies a damaged store, and reports what is damaged', async () => {
    await using temp = tempStore();
    await inStore(temp.file, async (store) => {
      await addRun(store, 'a');
      await addRun(store, 'b');
    });
    const raw = temp.raw();
    raw.exec('DELETE FROM entries WHERE run = 1 AND seq = 1');
    raw.close();
    expect(await backupStore(temp.file, backupOf(temp))).toMatchObject({
      runs: 2,
      entries: 2,
      problems: [{ part: 'entries', runId: 'a' }],
    });
    expect(await inStore(backupOf(temp), (store) => store.read('b'))).toHaveLength(2);
  });

  test('leaves nothing behind when it is aborted', async () => {
    await using temp = tempStore();
    await inStore(temp.file, (store) => addRun(store, 'a'));
    const controller = new AbortController();
    const onProgress = (): void => controller.abort(new Error('enough'));
    const options = { signal: controller.signal, onProgress };
    await expect(backupStore(temp.file, backupOf(temp), options)).rejects.toThrow('enough');
    expect(readdirSync(temp.folder)).toEqual(['runs.db']);
  });
});

describe('restoreStore', () => {
  test('replaces the content of the store, and keeps the replaced content beside it', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const { report, replaced } = await restoreStore(temp.file, backupOf(temp));
    expect(report).toMatchObject({ runs: 1, entries: 2, problems: [] });
    expect(replaced).toMatch(/runs\.db\.replaced-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$/);
    expect(statSync(replaced!).mode & 0o777).toBe(0o600);
    expect(readdirSync(temp.folder).toSorted()).toEqual(['backup.db', 'runs.db', path.basename(replaced!)]);
    expect([await runsOf(temp.file), await runsOf(replaced!)]).toEqual([['old'], ['new']]);
  });

  test('creates a store that does not exist, with its folder', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const file = path.join(temp.folder, 'some', 'where', 'runs.db');
    expect(await restoreStore(file, backupOf(temp))).toEqual({ report: expect.objectContaining({ runs: 1 }) });
    expect(readdirSync(path.dirname(file))).toEqual(['runs.db']);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(await runsOf(file)).toEqual(['old']);
  });

  test('refuses while another process has the store open', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    await using other = await remote(temp.file);
    await expect(restoreStore(temp.file, backupOf(temp))).rejects.toEqual(code('store-locked'));
    await expect(restoreStore(temp.file, backupOf(temp))).rejects.toThrow(
      `The store ${temp.file} is open in another process, so nothing was replaced. Stop all processes`,
    );
    await other.append('x', entries(1));
    await other.kill();
    await restoreStore(temp.file, backupOf(temp));
    expect(await runsOf(temp.file)).toEqual(['old']);
  });

  test('refuses while this process has the store open', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const store = temp.open();
    await expect(restoreStore(temp.file, backupOf(temp))).rejects.toEqual(code('store-locked'));
    await store.append('x', entries(1));
    expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual(['new', 'x']);
  });

  test('replaces nothing if somebody writes to the store after the copy that is kept', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    let late: void | Promise<void> = undefined;
    const restored = restoreStore(temp.file, backupOf(temp), {
      onProgress({ step, done, total }) {
        if (step === 'keep' && done === total) late = temp.open().append('late', entries(1));
      },
    });
    await expect(restored).rejects.toEqual(code('store-locked'));
    await late;
    expect((await temp.open().list()).map(({ runId }) => runId).toSorted()).toEqual(['late', 'new']);
    expect(readdirSync(temp.folder).filter((name) => /partial|replaced/.test(name))).toEqual([]);
  });

  test('refuses a damaged backup, or restores what is intact with force', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const raw = new DatabaseSync(backupOf(temp));
    raw.exec('DELETE FROM entries WHERE seq = 1');
    raw.close();
    const refused = restoreStore(temp.file, backupOf(temp));
    await expect(refused).rejects.toEqual(code('store-failed'));
    await expect(refused).rejects.toThrow(/backup\.db is damaged, so nothing was replaced.*\n {2}Entry 1 of run "old"/);
    expect(await runsOf(temp.file)).toEqual(['new']);
    await restoreStore(temp.file, backupOf(temp), { force: true });
    expect(await runsOf(temp.file)).toEqual(['old']);
  });

  test.each([
    ['missing', undefined, 'There is no store'],
    ['empty', '', 'is empty'],
    ['not a database', 'no database at all, but long enough to look like one '.repeat(20), 'is not an SQLite database'],
  ])('refuses a file that is %s', async (_, content, message) => {
    await using temp = tempStore();
    await inStore(temp.file, (store) => addRun(store, 'a'));
    if (content !== undefined) writeFileSync(backupOf(temp), content);
    await expect(restoreStore(temp.file, backupOf(temp))).rejects.toThrow(message);
    expect(await runsOf(temp.file)).toEqual(['a']);
  });

  test('refuses a -wal file that is left of a deleted store', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const file = path.join(temp.folder, 'gone.db');
    writeFileSync(`${file}-wal`, '');
    await expect(restoreStore(file, backupOf(temp))).rejects.toThrow(/gone\.db-wal belongs to another database/);
  });

  test('migrates the backup of an earlier version', async () => {
    await using temp = tempStore();
    const old = new DatabaseSync(backupOf(temp));
    old.exec(readFileSync(new URL('../../test/version-1.sql', import.meta.url), 'utf8'));
    old.close();
    await restoreStore(temp.file, backupOf(temp), { force: true });
    expect(await runsOf(temp.file)).toEqual(['a']);
    const backup = new DatabaseSync(backupOf(temp));
    expect(backup.prepare('PRAGMA user_version').get()).toEqual({ user_version: 1 });
    backup.close();
  });
});

describe('leases in a restored store', () => {
  test('of drivers at the time of the backup do not block, although their process lives', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)], await store.acquire('a'));
    await backupStore(temp.file, backupOf(temp));
    await store.close();
    await restoreStore(temp.file, backupOf(temp), { force: true });
    const lease = await temp.open().acquire('a');
    // A restore is not a death: it counts neither for `crashLimit` nor as a recovery.
    expect(lease.takenOver).toBeUndefined();
    expect(await temp.open().list({ recovered: true })).toEqual([]);
  });

  test('have higher tokens than the replaced store', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    const far = Number.MAX_SAFE_INTEGER - 1_000;
    const raw = temp.raw();
    raw.exec(`UPDATE sqlite_sequence SET seq = ${far} WHERE name = 'leases'`);
    raw.close();
    await restoreStore(temp.file, backupOf(temp));
    expect((await temp.open().acquire('a')).token).toBe(far + 1);
  });

  test('have higher tokens than a store that was lost, after each restore of the same backup', async () => {
    await using temp = tempStore();
    await storeAndBackup(temp);
    let highest = 1_000_000;
    for (const name of ['first.db', 'second.db']) {
      const file = path.join(temp.folder, name);
      await restoreStore(file, backupOf(temp));
      await inStore(file, async (store) => {
        for (let i = 0; i < 10; i++) {
          const lease = await store.acquire('a');
          expect(lease.token).toBeGreaterThan(highest);
          highest = lease.token;
          await lease.release();
        }
      });
    }
  });
});
