import type { RunStore } from '@treadle/core';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { place, type Place } from '../../test/place.ts';
import { thisProcess, type Holder } from '../holder.ts';

const TTL = 30_000;
const START = Date.parse('2026-11-15T10:00:00Z');
const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** As two hosts see one store, at the same time. */
function hosts(at: Place): { readonly clock: ManualClock; readonly here: RunStore; readonly there: RunStore } {
  const clock = manualClock(START);
  const open = (host: string, pid: number): RunStore =>
    at.open({ clock, leaseTtlMs: TTL, holder: { host, pid, startedAt: '1' } });
  return { clock, here: open('here', 4_711), there: open('there', 42) };
}

describe('between hosts', () => {
  test('a run is refused with the name of its driver', async () => {
    await using at = place();
    const { here, there } = hosts(at);
    await here.acquire('a');
    const refused = there.acquire('a');
    await expect(refused).rejects.toEqual(code('run-driven'));
    await expect(refused).rejects.toThrow(
      'Run "a" is driven by process 4711 on host here since 2026-11-15T10:00:00.000Z. Wait until it is done, or end that process, and try again.',
    );
    await expect(there.append('a', [entry(0)])).rejects.toEqual(code('run-driven'));
  });

  test('what is driven stays so for as long as it takes', async () => {
    await using at = place();
    const { clock, here, there } = hosts(at);
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

  test('a lease that is not renewed can be taken when it has expired, not before', async () => {
    await using at = place();
    const { clock, here, there } = hosts(at);
    const frozen = at.open({
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

    await expect(frozen.append('a', [entry(1)], old)).rejects.toEqual(code('lease-lost'));
    await expect(frozen.append('a', [entry(1)], old)).rejects.toThrow(
      'The lease of run "a" is lost, so nothing was written. It is driven by process 42 on host there now.',
    );
    await old.release();
    await expect(here.acquire('a')).rejects.toEqual(code('run-driven'));
    await there.append('a', [entry(1, 'there')], lease);
    expect(await here.read('a')).toEqual([entry(0), entry(1, 'there')]);
  });

  test('whoever comes back late to what nobody has taken still has it', async () => {
    await using at = place();
    const { clock, there } = hosts(at);
    const frozen = at.open({
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

  test('an append without a lease ends one that has expired', async () => {
    await using at = place();
    const { clock, there } = hosts(at);
    const frozen = at.open({
      clock: { now: clock.now, timer: () => () => {} },
      leaseTtlMs: TTL,
      holder: { host: 'frozen', pid: 1 },
    });
    const lease = await frozen.acquire('a');
    await clock.advance(TTL);
    await there.append('a', [entry(0)]);
    await expect(frozen.append('a', [entry(1)], lease)).rejects.toThrow('It was given back, or the run was deleted.');
  });

  test('delete and prune end one that has expired', async () => {
    await using at = place();
    const { clock, there } = hosts(at);
    const frozen = at.open({
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
    expect(at.raw().prepare('SELECT * FROM leases').all()).toEqual([]);
  });
});

describe('renewing', () => {
  test('goes on while something is held, and only then', async () => {
    await using at = place();
    const { clock, here } = hosts(at);
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

  test('that fails is tried again', async () => {
    await using at = place();
    const clock = manualClock(START);
    const here = at.open({ clock, leaseTtlMs: TTL, busyTimeoutMs: 0, holder: { host: 'here', pid: 1 } });
    const there = at.open({ clock, leaseTtlMs: TTL, holder: { host: 'there', pid: 2 } });
    const lease = await here.acquire('a');
    const raw = at.raw();
    raw.exec('BEGIN IMMEDIATE');
    await clock.advance(TTL / 2);
    raw.exec('ROLLBACK');
    await clock.advance(TTL / 3);
    await clock.advance(TTL / 3);
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
    await here.append('a', [entry(0)], lease);
  });

  test('forgets what somebody has taken over', async () => {
    await using at = place();
    const { clock, here, there } = hosts(at);
    const old = await here.acquire('a');
    at.raw().exec('DELETE FROM leases');
    const lease = await there.acquire('a');
    await clock.advance(2 * TTL);
    await expect(here.append('a', [entry(0)], old)).rejects.toEqual(code('lease-lost'));
    await expect(here.acquire('a')).rejects.toEqual(code('run-driven'));
    await lease.release();
    await here.acquire('a');
  });
});

describe('giving back', () => {
  test('is at once', async () => {
    await using at = place();
    const { here, there } = hosts(at);
    await (await here.acquire('a')).release();
    await there.acquire('a');
  });

  test('never rejects, and is made up for when it could not be written', async () => {
    await using at = place();
    const clock = manualClock(START);
    const here = at.open({ clock, leaseTtlMs: TTL, busyTimeoutMs: 0, holder: { host: 'here', pid: 1 } });
    const there = at.open({ clock, leaseTtlMs: TTL, holder: { host: 'there', pid: 2 } });
    const [a, b] = [await here.acquire('a'), await here.acquire('b')];
    const raw = at.raw();
    raw.exec('BEGIN IMMEDIATE');
    await Promise.all([a.release(), b.release()]);
    raw.exec('ROLLBACK');
    const again = await here.acquire('a');
    expect(again.token).toBeGreaterThan(a.token);
    await clock.advance(TTL / 3);
    await there.acquire('b');
    await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
  });

  test('comes after what was appended before, also when somebody else was already waiting', async () => {
    await using at = place();
    const { here } = hosts(at);
    const lease = await here.acquire('a');
    const refused = here.acquire('a');
    const added = here.append('a', [entry(0)], lease);
    const released = lease.release();
    const next = here.acquire('a');
    await expect(refused).rejects.toEqual(code('run-driven'));
    await Promise.all([added, released]);
    await here.append('a', [entry(1)], await next);
  });

  test('is done on closing also for what was asked for just before', async () => {
    await using at = place();
    const { here, there } = hosts(at);
    const asked = here.acquire('a');
    await here.close();
    await asked;
    await there.acquire('a');
  });

  test('is done for all when the store is closed', async () => {
    await using at = place();
    const { here, there } = hosts(at);
    for (const runId of ['a', 'b', 'c']) await here.acquire(runId);
    await here.close();
    for (const runId of ['a', 'b', 'c']) await there.acquire(runId);
  });
});

describe('on one host', () => {
  /** A clock on which every lease has expired long since. */
  const later = { ...manualClock(Date.now() + 3_600_000) };

  test('another store of the same process is refused, and not after it was closed', async () => {
    await using at = place();
    const [first, second] = [at.open(), at.open()];
    await first.acquire('a');
    await expect(second.acquire('a')).rejects.toThrow(
      `driven by process ${process.pid} on host ${thisProcess().host} since`,
    );
    await first.close();
    await second.acquire('a');
  });

  test('what a dead process has left is taken over at once', async () => {
    await using at = place();
    const gone: Holder = { ...thisProcess(), pid: 2 ** 22 + 1 };
    const dead = at.open({ holder: gone });
    const lease = await dead.acquire('a');
    await dead.append('a', entries(2), lease);
    const store = at.open();
    const mine = await store.acquire('a');
    await expect(dead.append('a', [entry(2)], lease)).rejects.toEqual(code('lease-lost'));
    await store.append('a', [entry(2)], mine);
  });

  test('so is what a process has left whose pid is in use again', async () => {
    await using at = place();
    const before = at.open({ holder: { ...thisProcess(), startedAt: 'before this one' } });
    await before.acquire('a');
    await at.open().acquire('a');
  });

  test('a dead driver keeps nobody from appending without a lease, deleting and pruning', async () => {
    await using at = place();
    const dead = at.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1 } });
    for (const runId of ['a', 'b', 'c']) await dead.append(runId, [entry(0, '', 'failed')], await dead.acquire(runId));
    const store = at.open();
    await store.append('a', [entry(1)]);
    expect(await store.delete('b')).toBe(true);
    expect(await store.prune(Infinity)).toBe(1);
  });

  test('one of which nothing but the pid is known has until its lease expires', async () => {
    await using at = place();
    const { host, pid } = thisProcess();
    const other = at.open({ holder: { host, pid: process.ppid } });
    await other.acquire('a');
    const self = { host, pid };
    await expect(at.open({ holder: self }).acquire('a')).rejects.toEqual(code('run-driven'));
    await at.open({ holder: self, clock: later }).acquire('a');
  });
});

test('a lease that is held keeps no process alive', async () => {
  await using at = place();
  await at.open().acquire('a');
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout');
  const before = timers.length;
  await at.open().acquire('b');
  expect(process.getActiveResourcesInfo().filter((name) => name === 'Timeout')).toHaveLength(before);
});
