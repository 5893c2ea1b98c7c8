import { describe, expect, test } from 'vitest';
import { messageEntry, startEntry } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** One driver per run. */
export function leasesContract(subject: Subject): void {
  describe('leases', () => {
    test('let only their holder append', async () => {
      const lease = await subject.store.acquire('a');
      expect(lease).toMatchObject({ runId: 'a', token: expect.any(Number) });
      await subject.append('a', [startEntry('a')], lease);
      await expect(subject.append('a', [messageEntry(1)])).rejects.toEqual(code('run-driven'));
      await subject.append('a', [messageEntry(1)], lease);
      expect(await subject.store.read('a')).toEqual([startEntry('a'), messageEntry(1)]);
    });

    test('that are copied are the same lease, as a caller makes one with another release', async () => {
      const lease = { ...(await subject.store.acquire('a')), release: async () => {} };
      await subject.append('a', [startEntry('a')], lease);
      await subject.append('a', [messageEntry(1)], lease);
      expect(await subject.store.read('a')).toEqual([startEntry('a'), messageEntry(1)]);
    });

    test('are refused while one is held; the next one has a higher token', async () => {
      const first = await subject.store.acquire('a');
      await expect(subject.store.acquire('a')).rejects.toEqual(code('run-driven'));
      await first.release();
      const second = await subject.store.acquire('a');
      expect(second.token).toBeGreaterThan(first.token);
      await expect(subject.append('a', [startEntry('a')], first)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [startEntry('a')], second);
    });

    test('are reported by isDriven', async () => {
      expect(await subject.store.isDriven('a')).toBe(false);
      const lease = await subject.store.acquire('a');
      expect(await subject.store.isDriven('a')).toBe(true);
      expect(await subject.store.isDriven('b')).toBe(false);
      await lease.release();
      expect(await subject.store.isDriven('a')).toBe(false);
    });

    test('of one run do not affect another', async () => {
      const [a, b] = await Promise.all([subject.store.acquire('a'), subject.store.acquire('b')]);
      await expect(subject.append('b', [startEntry('b')], a)).rejects.toEqual(code('lease-lost'));
      await subject.append('b', [startEntry('b')], b);
      await subject.append('c', [startEntry('c')]);
    });

    test('requested twice at the same time are granted once', async () => {
      const both = await Promise.allSettled([subject.store.acquire('a'), subject.store.acquire('a')]);
      expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    });

    test('do not restrict appends after their release', async () => {
      const lease = await subject.store.acquire('a');
      await subject.append('a', [startEntry('a')], lease);
      await lease.release();
      await expect(subject.append('a', [messageEntry(1)], lease)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [messageEntry(1)]);
    });

    test('can be released twice and late without affecting the next one', async () => {
      const first = await subject.store.acquire('a');
      await first.release();
      await first.release();
      const second = await subject.store.acquire('a');
      await first.release();
      await expect(subject.store.acquire('a')).rejects.toEqual(code('run-driven'));
      await subject.append('a', [startEntry('a')], second);
    });

    test('released without waiting take effect after earlier appends', async () => {
      const lease = await subject.store.acquire('a');
      const added = subject.append('a', [startEntry('a')], lease);
      await Promise.all([added, lease.release()]);
      expect(await subject.store.read('a')).toEqual([startEntry('a')]);
    });

    test('released without waiting are released before what follows on the run', async () => {
      const first = await subject.store.acquire('a');
      await subject.append('a', [startEntry('a')], first);
      const [, second] = await Promise.all([first.release(), subject.store.acquire('a')]);
      expect(second.token).toBeGreaterThan(first.token);
      await Promise.all([second.release(), subject.append('a', [messageEntry(1)])]);
      expect(await subject.store.read('a')).toEqual([startEntry('a'), messageEntry(1)]);
    });

    test('do not create a run', async () => {
      const lease = await subject.store.acquire('a');
      expect(await subject.store.list()).toEqual([]);
      expect(await subject.store.read('a')).toEqual([]);
      expect(await subject.store.delete('a')).toBe(false);
      await subject.append('a', [startEntry('a')], lease);
    });

    test('that were released stay invalid when the run is created again', async () => {
      const old = await subject.store.acquire('a');
      await subject.append('a', [startEntry('a')], old);
      await old.release();
      await subject.store.delete('a');
      const lease = await subject.store.acquire('a');
      await expect(subject.append('a', [startEntry('a')], old)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [startEntry('a')], lease);
    });

    test('are lost when the journal is closed, unless they were released', async () => {
      const [held, released] = [await subject.store.acquire('a'), await subject.store.acquire('b')];
      await released.release();
      await subject.store.close();
      expect(held.lost!.reason).toEqual(code('lease-lost'));
      expect(released.lost!.aborted).toBe(false);
    });

    test('do not allow a wrong position', async () => {
      const lease = await subject.store.acquire('a');
      await expect(subject.append('a', [messageEntry(1)], lease)).rejects.toEqual(code('run-exists'));
      await subject.append('a', [startEntry('a')], lease);
    });
  });
}
