import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { JournalEntry } from '@treadle/core';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../entries.ts';
import { DEAD, holderOf, type TempStores } from './temp-stores.ts';
import type { Store } from '@treadle/store';

/** See also `test/journal/contract/leases.ts`. */
export function leasesContract(tempStore: () => Promise<TempStores>): void {
  // Starting processes is slow on a busy machine.
  vi.setConfig({ testTimeout: 60_000 });

  const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

  test('whoever watches drivers is told when the process of one has died, and its runs can be taken over at once', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const child = spawn('sleep', ['600']);
    try {
      await once(child, 'spawn');
      const dying = await temp.open({ holder: holderOf(child.pid!)!, leaseTtlMs: 600_000 });
      const lease = await dying.acquire('a');
      await dying.append('a', [entry(0)], lease);
      const told = vi.fn<() => void>();
      const stop = store.watchDrivers(told);
      await expect(store.acquire('a')).rejects.toMatchObject({ code: 'run-driven' });
      child.kill('SIGKILL');
      await once(child, 'exit');
      await vi.waitUntil(() => told.mock.calls.length > 0, { timeout: 30_000 });
      expect(await store.acquire('a')).toMatchObject({ takenOver: true });
      stop();
    } finally {
      child.kill('SIGKILL');
    }
  });

  describe('leases of different hosts', () => {
    test('the error of a refused acquire names the driver', async () => {
      await using temp = await tempStore();
      const { here, there } = await temp.hosts();
      await here.acquire('a');
      const refused = there.acquire('a');
      await expect(refused).rejects.toEqual(code('run-driven'));
      await expect(refused).rejects.toThrow(
        /^Run "a" is driven by process 4711 on host here since 20[-\d]+T[:\d.]+Z\. Wait until it is done\. If it has died, this process can take over in \d+ s: retry then\.$/,
      );
      await expect(there.append('a', [entry(0)])).rejects.toEqual(code('run-driven'));
    });

    test('an expired lease is taken over, and its driver can write nothing and release nothing', async () => {
      await using temp = await tempStore();
      const { here, there, frozen, pass } = await temp.hosts();
      const old = await frozen.acquire('a');
      await frozen.append('a', [entry(0)], old);
      await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
      await pass();
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
      await using temp = await tempStore();
      const { there, frozen, pass } = await temp.hosts();
      const lease = await frozen.acquire('a');
      expect(await there.isDriven('a')).toBe(true);
      await pass();
      await frozen.append('a', [entry(0)], lease);
      await there.acquire('a');
      await expect(frozen.append('a', [entry(1)], lease)).rejects.toEqual(code('lease-lost'));
    });

    test('an append without a lease invalidates an expired lease', async () => {
      await using temp = await tempStore();
      const { there, frozen, pass } = await temp.hosts();
      const lease = await frozen.acquire('a');
      await expect(there.append('a', [entry(0)])).rejects.toEqual(code('run-driven'));
      await pass();
      await there.append('a', [entry(0)]);
      await expect(frozen.append('a', [entry(1)], lease)).rejects.toThrow('It was released, or the run was deleted.');
    });

    test('delete and prune remove an expired lease', async () => {
      await using temp = await tempStore();
      const { there, frozen, pass } = await temp.hosts();
      const leases = [];
      for (const runId of ['a', 'b']) {
        const lease = await frozen.acquire(runId);
        await frozen.append(runId, [entry(0, '', 'completed')], lease);
        leases.push(lease);
      }
      await expect(there.delete('a')).rejects.toEqual(code('run-driven'));
      expect(await there.prune(Infinity)).toBe(0);
      await pass();
      expect(await there.delete('a')).toBe(true);
      expect(await there.prune(Infinity)).toBe(1);
      for (const lease of leases) {
        await expect(frozen.append(lease.runId, [entry(0)], lease)).rejects.toEqual(code('lease-lost'));
      }
      expect([await there.isDriven('a'), await there.isDriven('b')]).toEqual([false, false]);
    });
  });

  describe('releaseRun', () => {
    test('ends no lease of a live process of this host, except by force', async () => {
      await using temp = await tempStore();
      const [first, second] = [await temp.open(), await temp.open()];
      const lease = await first.acquire('a');
      await expect(second.releaseRun('a')).rejects.toEqual(code('run-driven'));
      expect(await second.releaseRun('a', { force: true })).toBe(true);
      expect(await second.releaseRun('a', { force: true })).toBe(false);
      await second.acquire('a');
      await expect(first.append('a', [entry(0)], lease)).rejects.toEqual(code('lease-lost'));
    });

    test('ends the leases of child runs too, and no others', async () => {
      await using temp = await tempStore();
      const [driver, store] = [await temp.open(), await temp.open()];
      const names = ['a', 'a.t1.tool.0', 'a.t1.tool.0.t2.tool.11', 'a.fork', 'ab', 'a.t1.tool.x'];
      for (const runId of names) await driver.acquire(runId);
      expect(await store.releaseRun('a', { force: true })).toBe(true);
      const left = await Promise.all(names.map((runId) => store.isDriven(runId)));
      expect(left).toEqual([false, false, false, true, true, true]);
    });

    test('ends the leases of a dead process at once', async () => {
      await using temp = await tempStore();
      const dead = await temp.open({ holder: DEAD });
      await dead.append('a', [entry(0)], await dead.acquire('a'));
      const store = await temp.open();
      expect(await store.releaseRun('a')).toBe(true);
      expect(await store.releaseRun('a')).toBe(false);
    });

    test.each(['accepted', 'durable'] as const)(
      'ends a lease of its own store at once, after the entries that were appended: %s',
      async (until) => {
        await using temp = await tempStore();
        const store = await temp.open();
        const lease = await store.acquire('a');
        const appended = store.append('a', [entry(0)], lease, until);
        await store.releaseRun('a', { force: true });
        expect(lease.lost!.aborted).toBe(true);
        await appended;
        expect(await store.read('a')).toEqual([entry(0)]);
      },
    );
  });

  describe('release', () => {
    test('takes effect at once', async () => {
      await using temp = await tempStore();
      const { here, there } = await temp.hosts();
      await (await here.acquire('a')).release();
      await there.acquire('a');
    });

    test('takes effect after earlier appends, also while another acquire is waiting', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const lease = await store.acquire('a');
      const refused = store.acquire('a');
      const added = store.append('a', [entry(0)], lease);
      const released = lease.release();
      const next = store.acquire('a');
      await expect(refused).rejects.toEqual(code('run-driven'));
      await Promise.all([added, released]);
      await store.append('a', [entry(1)], await next);
    });

    test('closing the store releases all leases, also one that is being acquired, and aborts what was held', async () => {
      await using temp = await tempStore();
      const { here, there } = await temp.hosts();
      const held = await here.acquire('a');
      const pending = here.acquire('b');
      await here.close();
      await pending;
      expect(held.lost!.reason).toEqual(code('lease-lost'));
      await expect((async () => held.confirm!())()).rejects.toEqual(code('lease-lost'));
      for (const runId of ['a', 'b']) await there.acquire(runId);
    });
  });

  describe('leases of one host', () => {
    test('a second store of the same process is refused until the first is closed', async () => {
      await using temp = await tempStore();
      const [first, second] = [await temp.open(), await temp.open()];
      await first.acquire('a');
      await expect(second.acquire('a')).rejects.toThrow(`driven by process ${process.pid} on host ${DEAD.host} since`);
      await first.close();
      await second.acquire('a');
    });

    test.each([
      ['of a dead process', DEAD],
      ['whose pid was reused by another process', { ...DEAD, pid: process.pid, startedAt: 'before this one' }],
    ])('a lease %s can be taken over at once', async (_, holder) => {
      await using temp = await tempStore();
      const dead = await temp.open({ holder });
      const lease = await dead.acquire('a');
      await dead.append('a', entries(2), lease);
      const store = await temp.open();
      const mine = await store.acquire('a');
      await expect(dead.append('a', [entry(2)], lease)).rejects.toEqual(code('lease-lost'));
      await store.append('a', [entry(2)], mine);
    });

    test('a dead driver does not prevent appends without a lease, delete or prune', async () => {
      await using temp = await tempStore();
      const dead = await temp.open({ holder: DEAD });
      for (const runId of ['a', 'b', 'c']) {
        await dead.append(runId, [entry(0, '', 'failed')], await dead.acquire(runId));
      }
      const store = await temp.open();
      await store.append('a', [entry(1)]);
      expect(await store.delete('b')).toBe(true);
      expect(await store.prune(Infinity)).toBe(1);
    });
  });

  describe('recovered runs', () => {
    const recoveryOf = async (store: Store, runId: string): Promise<unknown> =>
      (await store.list()).find((run) => run.runId === runId)?.recovered;

    /** A host that appends an entry to each run and then never renews its leases again. */
    async function dieDriving(frozen: Store, runs: Readonly<Record<string, JournalEntry>>): Promise<void> {
      for (const [runId, first] of Object.entries(runs)) {
        await frozen.append(runId, [first], await frozen.acquire(runId));
      }
    }

    test('are counted each time that the lease of a dead driver is taken over, and stay counted', async () => {
      await using temp = await tempStore();
      const { here, there, frozen, pass } = await temp.hosts();
      await dieDriving(frozen, { a: entry(0), b: entry(0) });
      await expect(there.acquire('a')).rejects.toEqual(code('run-driven'));
      expect(await recoveryOf(there, 'a')).toBeUndefined();
      await pass();
      await there.acquire('a').then((lease) => lease.release());
      expect(await recoveryOf(here, 'a')).toEqual({ times: 1, at: expect.any(Number) });
      await (await here.acquire('a')).release();

      // Hosts whose clocks have not moved.
      const later = await temp.hosts();
      const lease = await later.frozen.acquire('a');
      await expect(later.there.acquire('a')).rejects.toEqual(code('run-driven'));
      await later.pass();
      await later.there.append('a', [entry(1, 'end', 'completed')], await later.there.acquire('a'));
      await expect(here.append('a', [entry(2)], lease)).rejects.toEqual(code('lease-lost'));
      const recovered = { times: 2, at: expect.any(Number) };
      expect(await here.list({ recovered: true })).toMatchObject([{ runId: 'a', status: 'completed', recovered }]);
      expect(await here.list({ recovered: true, status: ['running'] })).toEqual([]);
      expect(await recoveryOf(here, 'b')).toBeUndefined();
    });

    test('are not those that had paused or ended when their driver died', async () => {
      await using temp = await tempStore();
      const { there, frozen, pass } = await temp.hosts();
      await dieDriving(frozen, { a: entry(0, 'x', 'completed'), b: entry(0, 'x', 'paused') });
      for (const runId of ['a', 'b']) await expect(there.acquire(runId)).rejects.toEqual(code('run-driven'));
      await pass();
      for (const runId of ['a', 'b']) expect(await there.acquire(runId)).toMatchObject({ takenOver: true });
      expect(await there.list({ recovered: true })).toEqual([]);
    });

    test('are not those whose driver released its lease, or was forced to', async () => {
      await using temp = await tempStore();
      const { here, there } = await temp.hosts();
      const lease = await here.acquire('a');
      await here.append('a', [entry(0)], lease);
      await lease.release();
      await here.acquire('a');
      await there.releaseRun('a', { force: true });
      await there.acquire('a');
      expect(await there.list({ recovered: true })).toEqual([]);
    });

    test('are those whose dead driver was found by releaseRun', async () => {
      await using temp = await tempStore();
      const dead = await temp.open({ holder: DEAD });
      await dieDriving(dead, { a: entry(0) });
      const store = await temp.open();
      expect(await store.releaseRun('a')).toBe(true);
      await store.acquire('a');
      expect(await recoveryOf(store, 'a')).toMatchObject({ times: 1 });
    });
  });
}
