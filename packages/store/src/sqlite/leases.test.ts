import type { Clock, JournalEntry } from '@treadle/core';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { entry } from '../../test/entries.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { thisProcess } from '../holder.ts';
import { openDatabase } from './database.ts';
import { storeOn, thisMachine, type SqliteStore } from './store.ts';

// What holds on every store is in `test/store/contract/leases.ts`. Here: the clocks of processes, which decide about leases in a file
// (in PostgreSQL the clock of the database does), locks of the file, and earlier versions.

const TTL = 30_000;
const START = Date.parse('2026-11-15T10:00:00Z');
const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** One store, opened on two hosts with the same clock. */
function hosts(temp: TempStore): {
  readonly clock: ManualClock;
  readonly here: SqliteStore;
  readonly there: SqliteStore;
  /** Opens the store on a third host, which does not renew its leases. */
  readonly frozen: () => SqliteStore;
} {
  const clock = manualClock(START);
  const open = (host: string, pid: number, own: Clock = clock): SqliteStore =>
    temp.open({ clock: own, leaseTtlMs: TTL, holder: { host, pid, startedAt: '1' } });
  return {
    clock,
    here: open('here', 4_711),
    there: open('there', 42),
    frozen: () => open('frozen', 1, { ...clock, timer: () => () => {} }),
  };
}

describe('leases of different hosts', () => {
  test('a renewed lease never expires', async () => {
    await using temp = tempStore();
    const { clock, here, there } = hosts(temp);
    const lease = await here.acquire('a');
    await here.append('a', [entry(0, '', 'completed')], lease);
    for (let i = 0; i < 20; i++) {
      await clock.advance(TTL / 2);
      await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
      await expect(there.delete('a')).rejects.toEqual(code('run-driven'));
      expect(await there.prune(Infinity)).toBe(0);
    }
    await here.append('a', [entry(1)], lease);
  });

  test('a lease is taken over after a store has seen it unchanged for a lease time, not before', async () => {
    await using temp = tempStore();
    const { clock, here, there, frozen: open } = hosts(temp);
    const frozen = open();
    const old = await frozen.acquire('a');
    await frozen.append('a', [entry(0)], old);
    await clock.advance(10 * TTL);
    await expect(there.acquire('a')).rejects.toThrow('can take over in 30 s');
    await clock.advance(TTL - 1);
    await expect(there.acquire('a')).rejects.toThrow('can take over in 1 s');
    await expect(here.acquire('a')).rejects.toThrow('can take over in 30 s');
    await clock.advance(1);
    const lease = await there.acquire('a');
    expect(lease.token).toBeGreaterThan(old.token);
    expect([old.takenOver, lease.takenOver]).toEqual([undefined, true]);

    await expect(frozen.append('a', [entry(1)], old)).rejects.toEqual(code('lease-lost'));
    await expect(frozen.append('a', [entry(1)], old)).rejects.toThrow(
      'The lease of run "a" is lost, so nothing was written. The run is now driven by process 42 on host there.',
    );
    await old.release();
    await expect(here.acquire('a')).rejects.toEqual(code('run-driven'));
    await there.append('a', [entry(1, 'there')], lease);
    expect(await here.read('a')).toEqual([entry(0), entry(1, 'there')]);
  });
});

describe('the clock of a store', () => {
  /** A store whose wall clock is a day ahead of the others. */
  const ahead = (clock: ManualClock): Clock => ({ ...clock, now: () => clock.now() + 86_400_000 });

  test('may be ahead: a renewed lease is not taken over', async () => {
    await using temp = tempStore();
    const { clock, here } = hosts(temp);
    const other = temp.open({ clock: ahead(clock), leaseTtlMs: TTL, holder: { host: 'ahead', pid: 1 } });
    const lease = await here.acquire('a');
    for (let i = 0; i < 10; i++) {
      await expect(other.acquire('a')).rejects.toEqual(code('run-driven'));
      await clock.advance(TTL / 2);
    }
    await here.append('a', [entry(0)], lease);
  });

  test('may be set back by the driver: each renewal still changes the row', async () => {
    await using temp = tempStore();
    const { clock, there } = hosts(temp);
    const stuck = temp.open({ clock: { ...clock, now: () => 5 }, leaseTtlMs: TTL, holder: { host: 'stuck', pid: 1 } });
    await stuck.acquire('a');
    for (let i = 0; i < 10; i++) {
      await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
      await clock.advance(TTL / 2);
    }
  });
});

describe('a driver', () => {
  const noTimers = (clock: ManualClock): Clock => ({ ...clock, timer: () => () => {} });

  test('needs no confirmation for two thirds of a lease time, then renews its lease', async () => {
    await using temp = tempStore();
    const { clock, there, frozen: open } = hosts(temp);
    const lease = await open().acquire('a');
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    await clock.advance((TTL * 2) / 3 - 1);
    expect(lease.confirm!()).toBeUndefined();
    await clock.advance(1);
    const confirming = lease.confirm!();
    expect(confirming).toBeInstanceOf(Promise);
    await confirming;
    expect(lease.confirm!()).toBeUndefined();
    // The renewal changed the row, so the other host has to wait again.
    await clock.advance(TTL / 3);
    await expect(there.acquire('a')).rejects.toThrow('can take over in 30 s');
    expect(lease.lost!.aborted).toBe(false);
  });

  test('confirms its lease after the machine was suspended, which stops the monotonic clock', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    let asleep = 0;
    const suspended = { ...noTimers(clock), now: () => clock.now() + asleep };
    const lease = await temp.open({ clock: suspended, leaseTtlMs: TTL, holder: { host: 'here', pid: 1 } }).acquire('a');
    expect(lease.confirm!()).toBeUndefined();
    asleep = TTL;
    await lease.confirm!();
    expect(lease.confirm!()).toBeUndefined();
  });

  test('is told that its lease was taken over when it confirms it', async () => {
    await using temp = tempStore();
    const { clock, there, frozen: open } = hosts(temp);
    const lease = await open().acquire('a');
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    await clock.advance(TTL);
    await there.acquire('a');
    await expect(lease.confirm!()).rejects.toThrow('The run is now driven by process 42 on host there.');
    expect(lease.lost!.reason).toEqual(code('lease-lost'));
    await expect(lease.confirm!()).rejects.toEqual(code('lease-lost'));
  });

  test('is told that its lease was taken over at the next renewal', async () => {
    await using temp = tempStore();
    const { clock, here, there } = hosts(temp);
    const lease = await here.acquire('a');
    const other = await here.acquire('b');
    await there.releaseRun('a', { force: true });
    await there.acquire('a');
    expect(lease.lost!.aborted).toBe(false);
    await clock.advance(TTL / 3);
    expect(lease.lost!.reason).toEqual(code('lease-lost'));
    expect(other.lost!.aborted).toBe(false);
  });

  test('is told about a takeover although it cannot write', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    const here = temp.open({ clock, leaseTtlMs: TTL, busyTimeoutMs: 0, holder: { host: 'here', pid: 1 } });
    const there = temp.open({ clock, leaseTtlMs: TTL, holder: { host: 'there', pid: 2 } });
    const [a, b] = [await here.acquire('a'), await here.acquire('b')];
    await there.releaseRun('a', { force: true });
    temp.raw().exec('BEGIN IMMEDIATE');
    await clock.advance(TTL / 3);
    expect([a.lost!.aborted, b.lost!.aborted]).toEqual([true, false]);
    await clock.advance(TTL);
    await expect(b.confirm!()).rejects.toEqual(code('store-locked'));
  });

  test('loses its lease after a lease time in which the store can be neither written nor read', async () => {
    await using temp = tempStore();
    const { clock, here } = hosts(temp);
    const lease = await here.acquire('a');
    const raw = temp.raw();
    raw.exec('ALTER TABLE leases RENAME TO unreachable');
    await clock.advance(TTL - 1);
    expect(lease.lost!.aborted).toBe(false);
    await clock.advance(1);
    expect(lease.lost!.reason).toEqual(code('lease-lost'));
    raw.exec('ALTER TABLE unreachable RENAME TO leases');
    await here.acquire('a');
  });

  test('that released its lease does not lose it', async () => {
    await using temp = tempStore();
    const { clock, here } = hosts(temp);
    const lease = await here.acquire('a');
    await lease.release();
    await clock.advance(TTL);
    await here.close();
    expect(lease.lost!.aborted).toBe(false);
  });
});

describe('releaseRun', () => {
  test('waits a lease time for a process of another host', async () => {
    await using temp = tempStore();
    const { clock, here, there, frozen: open } = hosts(temp);
    const lost = await open().acquire('a');
    await here.acquire('b');
    let released: unknown;
    const dead = there.releaseRun('a').then((value) => (released = value));
    const alive = there.releaseRun('b');
    alive.catch(() => {});
    await clock.advance(TTL - 1);
    expect(released).toBeUndefined();
    await clock.advance(TTL);
    expect(await dead).toBe(true);
    await expect(alive).rejects.toEqual(code('run-driven'));
    await expect(lost.confirm!()).rejects.toEqual(code('lease-lost'));
  });
});

describe('renewal', () => {
  test('runs only while a lease is held', async () => {
    await using temp = tempStore();
    const { clock, here } = hosts(temp);
    expect(clock.pending).toBe(0);
    const [a, b] = [await here.acquire('a'), await here.acquire('b')];
    expect(clock.pending).toBe(1);
    await a.release();
    await clock.advance(TTL);
    expect(clock.pending).toBe(1);
    await b.release();
    await clock.advance(TTL);
    expect(clock.pending).toBe(0);
    await here.acquire('a');
    expect(clock.pending).toBe(1);
    await here.close();
    expect(clock.pending).toBe(0);
  });

  test('is retried after a failure', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    const here = temp.open({ clock, leaseTtlMs: TTL, busyTimeoutMs: 0, holder: { host: 'here', pid: 1 } });
    const there = temp.open({ clock, leaseTtlMs: TTL, holder: { host: 'there', pid: 2 } });
    const lease = await here.acquire('a');
    const raw = temp.raw();
    raw.exec('BEGIN IMMEDIATE');
    await clock.advance(TTL / 2);
    raw.exec('ROLLBACK');
    await clock.advance(TTL / 3);
    await clock.advance(TTL / 3);
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    await here.append('a', [entry(0)], lease);
  });

  test('forgets leases that were taken over', async () => {
    await using temp = tempStore();
    const { clock, here, there } = hosts(temp);
    const old = await here.acquire('a');
    temp.raw().exec('DELETE FROM leases');
    const lease = await there.acquire('a');
    await clock.advance(2 * TTL);
    await expect(here.append('a', [entry(0)], old)).rejects.toEqual(code('lease-lost'));
    await expect(here.acquire('a')).rejects.toEqual(code('run-driven'));
    await lease.release();
    await here.acquire('a');
  });
});

describe('release', () => {
  test('never rejects, and is retried when it could not be written', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    const here = temp.open({ clock, leaseTtlMs: TTL, busyTimeoutMs: 0, holder: { host: 'here', pid: 1 } });
    const there = temp.open({ clock, leaseTtlMs: TTL, holder: { host: 'there', pid: 2 } });
    const [a, b] = [await here.acquire('a'), await here.acquire('b')];
    const raw = temp.raw();
    raw.exec('BEGIN IMMEDIATE');
    await Promise.all([a.release(), b.release()]);
    raw.exec('ROLLBACK');
    const again = await here.acquire('a');
    expect(again.token).toBeGreaterThan(a.token);
    expect(again.takenOver).toBeUndefined();
    await clock.advance(TTL / 3);
    await there.acquire('b');
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
  });
});

describe('leases of one host', () => {
  test('a live process keeps its lease under another host name, and loses it when it dies', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    let state: 'alive' | 'dead' = 'alive';
    const [first, second] = ['old-name', 'new-name'].map((host) => {
      const holder = { host, pid: host.length, startedAt: '1', place: 'boot-1' };
      const db = openDatabase(temp.file, 5_000);
      const machine = { ...thisMachine(temp.file), holder, clock: { ...clock, timer: () => () => {} }, sync() {} };
      return temp.adopt(storeOn(db, { ...machine, processState: () => state }));
    });
    await first!.acquire('a');
    for (let i = 0; i < 3; i++) {
      await expect(second!.acquire('a')).rejects.toThrow('on host old-name');
      await clock.advance(10 * TTL);
    }
    state = 'dead';
    await second!.acquire('a');
  });

  test.each([
    ['this host', thisProcess().host, Infinity],
    ['another host', 'old-name', TTL],
  ])('a lease of an earlier version, of %s, is compared by the host name', async (_, host, ms) => {
    await using temp = tempStore();
    const clock = manualClock(START);
    const store = temp.open({ clock });
    const { pid, startedAt } = thisProcess();
    // As an earlier version writes it, which may still have the store open.
    const insert = 'INSERT INTO leases (run, host, pid, process_start, since, expires_at) VALUES (?, ?, ?, ?, 0, 0)';
    temp.raw().prepare(insert).run('a', host, pid, startedAt!);
    await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
    await clock.advance(TTL);
    if (ms === Infinity) await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
    else await store.acquire('a');
  });

  test('a holder without a start time keeps its lease while a process with its pid exists', async () => {
    await using temp = tempStore();
    const clock = manualClock(START);
    const { host, pid } = thisProcess();
    const other = temp.open({ holder: { host, pid: process.ppid }, clock: { ...clock, timer: () => () => {} } });
    await other.acquire('a');
    const store = temp.open({ holder: { host, pid }, clock });
    for (let i = 0; i < 3; i++) {
      await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
      await clock.advance(TTL);
    }
    expect(await store.releaseRun('a', { force: true })).toBe(true);
    await store.acquire('a');
  });
});

test('a held lease does not keep the process alive', async () => {
  await using temp = tempStore();
  await temp.open().acquire('a');
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout');
  const before = timers.length;
  await temp.open().acquire('b');
  expect(process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length).toBeLessThanOrEqual(before);
});

describe('recovered runs', () => {
  const recoveryOf = async (store: SqliteStore, runId: string): Promise<unknown> =>
    (await store.list()).find((run) => run.runId === runId)?.recovered;

  /** A host that appends an entry to each run and then never renews its leases again. */
  async function dieDriving(frozen: SqliteStore, runs: Readonly<Record<string, JournalEntry>>): Promise<void> {
    for (const [runId, first] of Object.entries(runs)) await frozen.append(runId, [first], await frozen.acquire(runId));
  }

  test('are counted each time that the lease of a dead driver is taken over, and stay counted', async () => {
    await using temp = tempStore();
    const { clock, here, there, frozen } = hosts(temp);
    await dieDriving(frozen(), { a: entry(0), b: entry(0) });
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    expect(await recoveryOf(there, 'a')).toBeUndefined();
    await clock.advance(TTL);
    await there.acquire('a').then((lease) => lease.release());
    expect(await recoveryOf(here, 'a')).toEqual({ times: 1, at: START + TTL });
    await (await here.acquire('a')).release();

    const lease = await frozen().acquire('a');
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    await clock.advance(TTL);
    await there.append('a', [entry(1, 'end', 'completed')], await there.acquire('a'));
    await expect(here.append('a', [entry(2)], lease)).rejects.toEqual(code('lease-lost'));
    const recovered = { times: 2, at: START + 2 * TTL };
    expect(await temp.open().list({ recovered: true })).toMatchObject([{ runId: 'a', status: 'completed', recovered }]);
    expect(await here.list({ recovered: true, status: ['running'] })).toEqual([]);
    expect(await recoveryOf(here, 'b')).toBeUndefined();
  });

  test('are those whose dead driver was found by releaseRun', async () => {
    await using temp = tempStore();
    const { clock, there, frozen } = hosts(temp);
    await dieDriving(frozen(), { a: entry(0) });
    const released = there.releaseRun('a');
    await new Promise(setImmediate);
    await clock.advance(2 * TTL);
    expect(await released).toBe(true);
    await there.acquire('a');
    expect(await recoveryOf(there, 'a')).toMatchObject({ times: 1 });
  });
});
