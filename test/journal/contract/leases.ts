import { describe, expect, test } from 'vitest';
import { said, started } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** One driver for a run. */
export function leasesContract(subject: Subject): void {
  describe('leases', () => {
    test('make their holder the only one who can append', async () => {
      const lease = await subject.store.acquire('a');
      expect(lease).toMatchObject({ runId: 'a', token: expect.any(Number) });
      await subject.append('a', [started('a')], lease);
      await expect(subject.append('a', [said(1)])).rejects.toEqual(code('run-driven'));
      await subject.append('a', [said(1)], lease);
      expect(await subject.store.read('a')).toEqual([started('a'), said(1)]);
    });

    test('are refused while there is one, and after that are given again, with a higher token', async () => {
      const first = await subject.store.acquire('a');
      await expect(subject.store.acquire('a')).rejects.toEqual(code('run-driven'));
      await first.release();
      const second = await subject.store.acquire('a');
      expect(second.token).toBeGreaterThan(first.token);
      await expect(subject.append('a', [started('a')], first)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [started('a')], second);
    });

    test('show whether somebody drives a run', async () => {
      expect(await subject.store.isDriven('a')).toBe(false);
      const lease = await subject.store.acquire('a');
      expect(await subject.store.isDriven('a')).toBe(true);
      expect(await subject.store.isDriven('b')).toBe(false);
      await lease.release();
      expect(await subject.store.isDriven('a')).toBe(false);
    });

    test('of one run are nothing to another', async () => {
      const [a, b] = await Promise.all([subject.store.acquire('a'), subject.store.acquire('b')]);
      await expect(subject.append('b', [started('b')], a)).rejects.toEqual(code('lease-lost'));
      await subject.append('b', [started('b')], b);
      await subject.append('c', [started('c')]);
    });

    test('asked for twice at the same time are given once', async () => {
      const both = await Promise.allSettled([subject.store.acquire('a'), subject.store.acquire('a')]);
      expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    });

    test('that were given back let anybody append', async () => {
      const lease = await subject.store.acquire('a');
      await subject.append('a', [started('a')], lease);
      await lease.release();
      await expect(subject.append('a', [said(1)], lease)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [said(1)]);
    });

    test('can be given back twice, and late, without harm to the next', async () => {
      const first = await subject.store.acquire('a');
      await first.release();
      await first.release();
      const second = await subject.store.acquire('a');
      await first.release();
      await expect(subject.store.acquire('a')).rejects.toEqual(code('run-driven'));
      await subject.append('a', [started('a')], second);
    });

    test('given back at once come after what was appended before', async () => {
      const lease = await subject.store.acquire('a');
      const added = subject.append('a', [started('a')], lease);
      await Promise.all([added, lease.release()]);
      expect(await subject.store.read('a')).toEqual([started('a')]);
    });

    test('alone are no run', async () => {
      const lease = await subject.store.acquire('a');
      expect(await subject.store.list()).toEqual([]);
      expect(await subject.store.read('a')).toEqual([]);
      expect(await subject.store.delete('a')).toBe(false);
      await subject.append('a', [started('a')], lease);
    });

    test('that are not held do not come to life when the run is made anew', async () => {
      const old = await subject.store.acquire('a');
      await subject.append('a', [started('a')], old);
      await old.release();
      await subject.store.delete('a');
      const lease = await subject.store.acquire('a');
      await expect(subject.append('a', [started('a')], old)).rejects.toEqual(code('lease-lost'));
      await subject.append('a', [started('a')], lease);
    });

    test('a wrong position is refused under a lease too', async () => {
      const lease = await subject.store.acquire('a');
      await expect(subject.append('a', [said(1)], lease)).rejects.toEqual(code('run-exists'));
      await subject.append('a', [started('a')], lease);
    });
  });
}
