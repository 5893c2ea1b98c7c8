import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs, { copyFileSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { runLoop, tool, type Journal } from '@treadle/core';
import { manualClock, scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { afterEach, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { response } from '../../test/responses.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { openDatabase } from './database.ts';
import { storeOn, thisMachine, type SqliteStore } from './store.ts';
import { openWal, SYSTEM } from './wal.ts';

/** What a sync does: by default it succeeds at once. */
let onSync: (() => void | Promise<void>) | undefined;
let canStartWorkers = true;

afterEach(() => {
  onSync = undefined;
  canStartWorkers = true;
});

function open({ file, adopt }: TempStore): SqliteStore {
  const db = openDatabase(file, 5_000);
  const wal = openWal(db, file, {
    syncFile: async () => onSync?.(),
    startWorker(location) {
      if (!canStartWorkers) throw new Error('no workers here');
      return SYSTEM.startWorker(location);
    },
  });
  return adopt(storeOn(db, { ...thisMachine(file), ...wal }));
}

/** Syncs that wait until the test lets them proceed. */
function heldSyncs(): { readonly proceed: (() => void)[]; readonly next: () => Promise<void> } {
  const proceed: (() => void)[] = [];
  let started = Promise.withResolvers<void>();
  onSync = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    proceed.push(resolve);
    started.resolve();
    return promise;
  };
  return {
    proceed,
    async next() {
      await started.promise;
      started = Promise.withResolvers();
    },
  };
}

async function isSettled(promise: unknown): Promise<boolean> {
  const pending = {};
  await new Promise((resolve) => setImmediate(resolve));
  return (await Promise.race([promise, pending])) !== pending;
}

test('an append resolves after a sync that started after its commit; one that is only written does not wait', async () => {
  await using temp = tempStore();
  const store = open(temp);
  const syncs = heldSyncs();
  const first = store.append('a', [entry(0)]);
  await syncs.next();
  await store.append('a', [entry(1)], undefined, 'written');
  const third = store.append('a', [entry(2)]);
  expect(await store.read('a')).toEqual(entries(2));
  expect(await isSettled(first)).toBe(false);
  syncs.proceed[0]!();
  await first;
  await syncs.next();
  expect(await store.read('a')).toEqual(entries(3));
  expect(await isSettled(third)).toBe(false);
  syncs.proceed[1]!();
  await third;
  expect(syncs.proceed).toHaveLength(2);
});

test('an append of nothing, a blob, a deletion and a response wait for a sync; a lease and a snapshot do not', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.append('a', [entry(0)]);
  await store.append('b', [entry(0)]);
  const syncs = heldSyncs();
  const lease = await store.acquire('a');
  await store.writeSnapshot('a', { seq: 1, state: 1 });
  await store.blobs.put('a', 'text', 'written');
  await lease.release();
  const waiting = [
    store.append('a', []),
    store.blobs.put('a', 'more'),
    store.delete('b'),
    store.requests.create(response('r')),
  ];
  await syncs.next();
  for (const promise of waiting) expect(await isSettled(promise)).toBe(false);
  onSync = undefined;
  syncs.proceed[0]!();
  await Promise.all(waiting);
});

test('a hundred runs share a sync', async () => {
  await using temp = tempStore();
  const store = open(temp);
  let count = 0;
  onSync = () => void count++;
  await Promise.all(Array.from({ length: 100 }, (_, i) => store.append(`run ${i}`, [entry(0)])));
  expect(count).toBe(1);
});

test('what nobody waits for is synced after a short time, and when the store is closed', async () => {
  await using temp = tempStore();
  const store = open(temp);
  let syncs = heldSyncs();
  await store.append('a', [entry(0)], undefined, 'written');
  await syncs.next();
  syncs.proceed[0]!();
  syncs = heldSyncs();
  await store.append('a', [entry(1)], undefined, 'written');
  const closed = store.close();
  await syncs.next();
  expect(await isSettled(closed)).toBe(false);
  syncs.proceed[0]!();
  await closed;
});

test('what readers have seen is durable after one sync, which all of them share', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.durable();
  let count = 0;
  onSync = () => void count++;
  await store.append('a', [entry(0)], undefined, 'written');
  expect(await store.read('a')).toEqual(entries(1));
  await Promise.all(Array.from({ length: 1_000 }, () => store.durable()));
  expect([count, store.durable()]).toEqual([1, undefined]);
});

test('readers wait for a sync that started after what they have seen', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.durable();
  const syncs = heldSyncs();
  const append = store.append('a', [entry(0)]);
  await syncs.next();
  const first = store.durable();
  await store.append('a', [entry(1)], undefined, 'written');
  const second = store.durable();
  syncs.proceed[0]!();
  await Promise.all([append, first]);
  expect(await isSettled(second)).toBe(false);
  await syncs.next();
  syncs.proceed[1]!();
  await second;
});

test('readers wait for what another process has committed, which this one cannot know to be synced', async () => {
  await using temp = tempStore();
  const other = temp.open();
  const store = open(temp);
  await store.durable();
  expect(store.durable()).toBeUndefined();
  await other.append('a', [entry(0)]);
  const syncs = heldSyncs();
  expect(await store.read('a')).toEqual(entries(1));
  const waits = [store.durable(), store.durable()];
  await syncs.next();
  expect(await isSettled(waits[0])).toBe(false);
  syncs.proceed[0]!();
  await Promise.all(waits);
  expect([syncs.proceed.length, store.durable()]).toEqual([1, undefined]);
});

test('readers who have read nothing do not wait for commits of others, unless what was written since may follow from them', async () => {
  await using temp = tempStore();
  const other = temp.open();
  const store = open(temp);
  await store.durable();
  await other.append('a', [entry(0)], undefined, 'written');
  expect(store.durable()).toBeUndefined();
  await expect(store.append('a', [entry(0)])).rejects.toMatchObject({ code: 'run-exists' });
  expect(store.durable()).toBeInstanceOf(Promise);
  await store.durable();
  await other.append('a', [entry(1)], undefined, 'written');
  const syncs = heldSyncs();
  const append = store.append('a', [entry(2)]);
  await syncs.next();
  const waits = store.durable();
  expect(await isSettled(waits)).toBe(false);
  syncs.proceed[0]!();
  await Promise.all([append, waits]);
  expect(syncs.proceed.length).toBe(1);
});

test('readers wait for the loss of a lease, also if its driver notices it while another process writes', async () => {
  await using temp = tempStore();
  const clock = manualClock();
  const store = temp.open({ clock, busyTimeoutMs: 0 });
  const { lost, ...lease } = await store.acquire('a');
  await store.durable();
  const other = temp.raw();
  other.exec('DELETE FROM leases; BEGIN IMMEDIATE');
  expect(store.durable()).toBeUndefined();
  const told = once(lost!, 'abort');
  clock.advance(10_000);
  await told;
  const waits = store.durable();
  expect(waits).toBeInstanceOf(Promise);
  await waits;
  other.exec('ROLLBACK');
  await lease.release();
});

test('readers wait for what a process has left that died before it synced', async () => {
  await using temp = tempStore();
  await temp.open().append('a', [entry(0)], undefined, 'written');
  const store = open(temp);
  let count = 0;
  onSync = () => void count++;
  expect(await store.read('a')).toEqual(entries(1));
  await store.durable();
  expect(count).toBe(1);
});

test('readers do not wait for leases and snapshots, which nobody is shown', async () => {
  await using temp = tempStore();
  const store = open(temp);
  const lease = await store.acquire('a');
  await store.append('a', [entry(0)], lease);
  await store.durable();
  await store.writeSnapshot('a', { seq: 1, state: 1 });
  await lease.release();
  expect(store.durable()).toBeUndefined();
});

test('a user who may only read the files is told what is durable', async () => {
  await using temp = tempStore();
  await temp.open().append('a', [entry(0)], undefined, 'written');
  const { openSync } = fs;
  const replace = (opening: unknown): void => {
    fs.openSync = opening as typeof openSync;
    syncBuiltinESMExports();
  };
  replace((file: string, flags: string, ...rest: never[]) => {
    if (flags === 'r+') throw Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' });
    return openSync(file, flags, ...rest);
  });
  try {
    const store = temp.open();
    expect(await store.read('a')).toEqual(entries(1));
    await store.durable();
  } finally {
    replace(openSync);
  }
});

test('a store that is closed tells nobody that something is durable: its descriptor may belong to another file', async () => {
  await using temp = tempStore();
  const other = temp.open();
  const store = open(temp);
  await store.durable();
  await store.close();
  await other.append('a', [entry(0)], undefined, 'written');
  await expect(Promise.resolve(store.durable())).rejects.toThrow('is closed. Open it again.');
});

test('after a failed sync readers are refused, except for what was durable before', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.append('a', [entry(0)]);
  await store.durable();
  onSync = () => Promise.reject(new Error('EIO: i/o error, fdatasync'));
  await store.writeSnapshot('a', { seq: 1, state: 1 });
  await expect(store.append('a', [])).rejects.toMatchObject({ code: 'store-failed' });
  expect(store.durable()).toBeUndefined();
  await store.append('a', [entry(1)], undefined, 'written');
  onSync = undefined;
  await expect(store.durable()).rejects.toMatchObject({ code: 'store-failed' });
  await expect(store.durable()).rejects.toMatchObject({ code: 'store-failed' });
});

test('after a failed sync nothing that has to be durable is written until the store is opened again', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.append('a', [entry(0)]);
  onSync = () => Promise.reject(new Error('EIO: i/o error, fdatasync'));
  const failed = {
    code: 'store-failed',
    message: `The store ${temp.file} could not be synced to the disk (EIO: i/o error, fdatasync), so the last entries may be lost in a power failure. Check the disk, then close the store and open it again.`,
  };
  await expect(store.append('a', [entry(1)])).rejects.toMatchObject(failed);
  onSync = undefined;
  await expect(store.append('a', [entry(2)])).rejects.toMatchObject(failed);
  await expect(store.append('a', [])).rejects.toMatchObject(failed);
  await expect(store.requests.create(response('r'))).rejects.toMatchObject(failed);
  // Only what was being synced is there.
  expect(await store.read('a')).toEqual(entries(2));
  expect(await store.requests.unfinished()).toEqual([]);
  await store.close();
  const again = temp.open();
  await again.append('a', [entry(2)]);
  expect(await again.read('a')).toEqual(entries(3));
});

test('a run stops if a sync fails before a call that is not pure, and the call does not start', async () => {
  await using temp = tempStore();
  const store = open(temp);
  const ran: string[] = [];
  const pay = tool({ name: 'pay', description: 'Pay', effect: 'once', execute: () => `paid ${ran.push('pay')}` });
  const model = scriptedModel([
    () => {
      onSync = () => Promise.reject(new Error('EIO'));
      return { calls: [{ name: 'pay' }] };
    },
  ]);
  await expect(runLoop({ model, tools: [pay], journal: store, runId: 'a', input: 'Pay' })).rejects.toMatchObject({
    code: 'store-failed',
  });
  expect(ran).toEqual([]);
});

/** Writes large entries as fast as possible. Returns the largest size of the log. */
async function writeMuch(store: Journal, file: string): Promise<number> {
  let largest = 0;
  const text = 'x'.repeat(20_000);
  for (let seq = 0; seq < 2_000; seq++) {
    await store.append('a', [entry(seq, `${seq} ${text}`)], undefined, 'written');
    if (seq % 10 === 0) largest = Math.max(largest, statSync(`${file}-wal`).size);
  }
  return largest;
}

test.each([
  ['a worker thread', true],
  ['this thread, where workers are not available,', false],
])(
  '%s moves the log into the database, so that it does not grow without limit',
  async (_, workers) => {
    canStartWorkers = workers;
    await using temp = tempStore();
    const store = open(temp);
    // 2,000 entries are about 75 MB of frames. The log may have 16 MB when a checkpoint starts, and grow by 16 MB during it.
    expect(await writeMuch(store, temp.file)).toBeLessThan(45_000_000);
    expect(statSync(temp.file).size).toBeGreaterThan(20_000_000);
    expect(await store.read('a', 1_999)).toHaveLength(1);
    await store.close();
    expect(() => statSync(`${temp.file}-wal`)).toThrow('ENOENT');
    expect(await temp.open().read('a')).toHaveLength(2_000);
  },
  60_000,
);

test('the log is short again after a reader, such as a backup, has made it long', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.append('b', [entry(0)]);
  const reader = new DatabaseSync(temp.file, { readOnly: true });
  reader.exec('BEGIN; SELECT count(*) FROM entries');
  expect(await writeMuch(store, temp.file)).toBeGreaterThan(60_000_000);
  reader.close();
  await store.delete('a');
  await writeMuch(store, temp.file);
  expect(statSync(`${temp.file}-wal`).size).toBeLessThan(45_000_000);
}, 60_000);

test('checkpoints do not create a file in the place of a store that was deleted', async () => {
  await using temp = tempStore();
  const store = open(temp);
  await store.append('a', [entry(0)]);
  // A sync would notice it, and nothing would be written any more.
  const syncs = heldSyncs();
  for (const suffix of ['', '-wal', '-shm']) rmSync(temp.file + suffix);
  for (let seq = 1; seq < 300; seq++) await store.append('a', [entry(seq)], undefined, 'written');
  onSync = undefined;
  for (const proceed of syncs.proceed) proceed();
  await store.close();
  expect(existsSync(temp.file)).toBe(false);
}, 60_000);

test('a process does not end before its store is closed, also during a checkpoint', async () => {
  await using temp = tempStore();
  const script = `
    import { sqliteStore } from '@treadle/store';
    const store = sqliteStore(process.argv[1]);
    const entry = (seq) => ({ v: 1, seq, event: { type: 'run-started', at: 1, runId: 'a', model: 'm', input: [] }, issued: [] });
    for (let seq = 0; seq < 200; seq++) await store.append('a', [entry(seq)], undefined, 'written');
    await store.close();
    console.log('closed');
  `;
  const args = ['--conditions=treadle-source', '--input-type=module', '--eval', script, temp.file];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { cwd: import.meta.dirname, encoding: 'utf8' });
  expect({ stdout, stderr, status }).toEqual({ stdout: 'closed\n', stderr: '', status: 0 });
  expect(existsSync(`${temp.file}-wal`)).toBe(false);
}, 60_000);

/*
 * A power failure keeps what was synced, and any part of what was written after it. Copies of the database with the log cut
 * to a length between the two are what remains.
 */
test('a power failure at any time leaves a prefix of the entries, in which every call that acted was issued', async () => {
  await using temp = tempStore();
  const store = open(temp);
  const log = `${temp.file}-wal`;
  const sizeOfLog = (): number => statSync(log).size;
  let synced = 0;
  onSync = () => {
    synced = sizeOfLog();
  };

  let copies = 0;
  async function remains(length: number): Promise<readonly { readonly issued: readonly string[] }[]> {
    const copy = path.join(temp.folder, `copy-${copies++}.db`);
    copyFileSync(temp.file, copy);
    writeFileSync(`${copy}-wal`, readFileSync(log).subarray(0, length));
    const db = new DatabaseSync(copy);
    db.exec('PRAGMA synchronous = OFF');
    const after = storeOn(db, { ...thisMachine(copy), sync() {} });
    const kept = await after.read('a');
    await after.close();
    return kept;
  }

  const acted: string[] = [];
  let cuts = 0;
  /** Checks every length of the log from the synced one on, in steps that also cut frames. */
  async function failPower(): Promise<void> {
    const issued = new Set(acted);
    const written = await store.read('a');
    const [start, end] = [synced, sizeOfLog()];
    for (let length = start; length <= end; length += Math.max(1, Math.ceil((end - start) / 4))) {
      const kept = await remains(length);
      expect(kept).toEqual(written.slice(0, kept.length));
      const known = new Set(kept.flatMap((one) => one.issued));
      expect([...issued].filter((id) => !known.has(id))).toEqual([]);
      cuts++;
    }
  }

  const pay = tool({
    name: 'pay',
    description: 'Pay',
    effect: 'once',
    async execute(_, { key }) {
      acted.push(key.slice(key.indexOf('/') + 1));
      await failPower();
      return 'paid';
    },
  });
  const look = tool({
    name: 'look',
    description: 'Look',
    effect: 'pure',
    async execute() {
      await failPower();
      return 'seen';
    },
  });
  const steps: ScriptStep[] = Array.from({ length: 9 }, (_, turn) => ({
    calls: turn % 3 === 2 ? [{ name: 'pay', arguments: { turn } }] : [{ name: 'look', arguments: { turn } }],
  }));
  const model = scriptedModel([...steps, 'Done.']);
  const result = await runLoop({ model, tools: [pay, look], journal: store, runId: 'a', input: 'Go' });
  expect(result.outcome).toEqual({ type: 'completed' });
  // The result is durable.
  expect(await remains(synced)).toEqual(await store.read('a'));
  expect(acted).toHaveLength(3);
  expect(cuts).toBeGreaterThan(20);
});
