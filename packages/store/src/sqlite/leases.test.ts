import type { RunStore } from '@treadle/core';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { thisProcess, type Holder } from '../holder.ts';

const TTL = 30_000;
const START = Date.parse('2026-11-15T10:00:00Z');
const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** One store, opened on two hosts with the same clock. */
function hosts(temp: TempStore): { readonly clock: ManualClock; readonly here: RunStore; readonly there: RunStore } {
  const clock = manualClock(START);
  const open = (host: string, pid: number): RunStore =>
    temp.open({ clock, leaseTtlMs: TTL, holder: { host, pid, startedAt: '1' } });
  return { clock, here: open('here', 4_711), there: open('there', 42) };
}

describe('leases of different hosts', () => {
  test('the error of a refused acquire names the driver', async () => {
    await using temp = tempStore();
    const { here, there } = hosts(temp);
    await here.acquire('a');
    const refused = there.acquire('a');
    await expect(refused).rejects.toEqual(code('run-driven'));
    await expect(refused).rejects.toThrow(
      'Run "a" is driven by process 4711 on host here since 2026-11-15T10:00:00.000Z. Wait until it is done, or end that process, and retry.',
    );
    await expect(there.append('a', [entry(0)])).rejects.toEqual(code('run-driven'));
  });

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

  test('a lease that is not renewed can be taken over after it expired, not before', async () => {
    await using temp = tempStore();
    const { clock, here, there } = hosts(temp);
    const frozen = temp.open({
      clock: { now: clock.now, timer: () => () => {} },
      leaseTtlMs: TTL,
      holder: { host: 'frozen', pid: 1 },
    });
    const old = await frozen.acquire('a');
    await frozen.append('a', [entry(0)], old);
    await clock.advance(TTL - 1);
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
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

  test('an expired lease that nobody took over is still valid', async () => {
    await using temp = tempStore();
    const { clock, there } = hosts(temp);
    const frozen = temp.open({
      clock: { now: clock.now, timer: () => () => {} },
      leaseTtlMs: TTL,
      holder: { host: 'frozen', pid: 1 },
    });
    const lease = await frozen.acquire('a');
    await clock.advance(10 * TTL);
    await frozen.append('a', [entry(0)], lease);
    await there.acquire('a');
    await expect(frozen.append('a', [entry(1)], lease)).rejects.toEqual(code('lease-lost'));
  });

  test('an append without a lease invalidates an expired lease', async () => {
    await using temp = tempStore();
    const { clock, there } = hosts(temp);
    const frozen = temp.open({
      clock: { now: clock.now, timer: () => () => {} },
      leaseTtlMs: TTL,
      holder: { host: 'frozen', pid: 1 },
    });
    const lease = await frozen.acquire('a');
    await clock.advance(TTL);
    await there.append('a', [entry(0)]);
    await expect(frozen.append('a', [entry(1)], lease)).rejects.toThrow('It was released, or the run was deleted.');
  });

  test('delete and prune remove an expired lease', async () => {
    await using temp = tempStore();
    const { clock, there } = hosts(temp);
    const frozen = temp.open({
      clock: { now: clock.now, timer: () => () => {} },
      leaseTtlMs: TTL,
      holder: { host: 'frozen', pid: 1 },
    });
    const leases = [];
    for (const runId of ['a', 'b']) {
      const lease = await frozen.acquire(runId);
      await frozen.append(runId, [entry(0, '', 'completed')], lease);
      leases.push(lease);
    }
    await clock.advance(TTL);
    expect(await there.delete('a')).toBe(true);
    expect(await there.prune(Infinity)).toBe(1);
    for (const lease of leases) {
      await expect(frozen.append(lease.runId, [entry(0)], lease)).rejects.toEqual(code('lease-lost'));
    }
    expect(temp.raw().prepare('SELECT * FROM leases').all()).toEqual([]);
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
  test('takes effect at once', async () => {
    await using temp = tempStore();
    const { here, there } = hosts(temp);
    await (await here.acquire('a')).release();
    await there.acquire('a');
  });

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

  test('takes effect after earlier appends, also while another acquire is waiting', async () => {
    await using temp = tempStore();
    const { here } = hosts(temp);
    const lease = await here.acquire('a');
    const refused = here.acquire('a');
    const added = here.append('a', [entry(0)], lease);
    const released = lease.release();
    const next = here.acquire('a');
    await expect(refused).rejects.toEqual(code('run-driven'));
    await Promise.all([added, released]);
    await here.append('a', [entry(1)], await next);
  });

  test('closing the store also releases a lease that is being acquired', async () => {
    await using temp = tempStore();
    const { here, there } = hosts(temp);
    const pending = here.acquire('a');
    await here.close();
    await pending;
    await there.acquire('a');
  });

  test('closing the store releases all leases', async () => {
    await using temp = tempStore();
    const { here, there } = hosts(temp);
    for (const runId of ['a', 'b', 'c']) await here.acquire(runId);
    await here.close();
    for (const runId of ['a', 'b', 'c']) await there.acquire(runId);
  });
});

describe('leases of one host', () => {
  /** A clock on which every lease has expired. */
  const later = { ...manualClock(Date.now() + 3_600_000) };

  test('a second store of the same process is refused until the first is closed', async () => {
    await using temp = tempStore();
    const [first, second] = [temp.open(), temp.open()];
    await first.acquire('a');
    await expect(second.acquire('a')).rejects.toThrow(
      `driven by process ${process.pid} on host ${thisProcess().host} since`,
    );
    await first.close();
    await second.acquire('a');
  });

  test('the lease of a dead process can be taken over at once', async () => {
    await using temp = tempStore();
    const ended: Holder = { ...thisProcess(), pid: 2 ** 22 + 1 };
    const dead = temp.open({ holder: ended });
    const lease = await dead.acquire('a');
    await dead.append('a', entries(2), lease);
    const store = temp.open();
    const mine = await store.acquire('a');
    await expect(dead.append('a', [entry(2)], lease)).rejects.toEqual(code('lease-lost'));
    await store.append('a', [entry(2)], mine);
  });

  test('a lease can be taken over at once if its pid was reused by another process', async () => {
    await using temp = tempStore();
    const before = temp.open({ holder: { ...thisProcess(), startedAt: 'before this one' } });
    await before.acquire('a');
    await temp.open().acquire('a');
  });

  test('a dead driver does not prevent appends without a lease, delete or prune', async () => {
    await using temp = tempStore();
    const dead = temp.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1 } });
    for (const runId of ['a', 'b', 'c']) await dead.append(runId, [entry(0, '', 'failed')], await dead.acquire(runId));
    const store = temp.open();
    await store.append('a', [entry(1)]);
    expect(await store.delete('b')).toBe(true);
    expect(await store.prune(Infinity)).toBe(1);
  });

  test('a holder without a start time keeps its lease until it expires', async () => {
    await using temp = tempStore();
    const { host, pid } = thisProcess();
    const other = temp.open({ holder: { host, pid: process.ppid } });
    await other.acquire('a');
    const self = { host, pid };
    await expect(temp.open({ holder: self }).acquire('a')).rejects.toEqual(code('run-driven'));
    await temp.open({ holder: self, clock: later }).acquire('a');
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
