import { manualClock } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { remote } from '../../test/remote.ts';
import { thisProcess } from '../holder.ts';

// What holds on every store is in `test/store/contract/leases.ts` and `processes.test.ts`. Here: processes that share a file. What PostgreSQL does
// when processes are killed or frozen is in `test/store/postgres-crash.test.ts`.

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

describe('another process', () => {
  test('that drives a run is named in the error of a refused acquire', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
    await expect(store.acquire('a')).rejects.toThrow(
      `Run "a" is driven by process ${other.pid} on host ${thisProcess().host} since 20`,
    );
    await expect(store.append('a', [entry(2)])).rejects.toEqual(code('run-driven'));
    await expect(store.delete('a')).rejects.toEqual(code('run-driven'));
    expect(await store.read('a')).toEqual(entries(2));

    await other.release(token);
    const lease = await store.acquire('a');
    await expect(other.acquire('a')).rejects.toThrow(`process ${process.pid} on host`);
    await store.append('a', [entry(2)], lease);
    await expect(other.append('a', [entry(3)], token)).rejects.toEqual(code('lease-lost'));
  });

  test('that was killed loses its leases at once', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    await other.kill();
    const lease = await store.acquire('a');
    expect(lease.token).toBeGreaterThan(token);
    await store.append('a', [entry(2)], lease);
    expect(await store.read('a')).toEqual(entries(3));
    expect(await store.list({ recovered: true })).toMatchObject([{ runId: 'a', recovered: { times: 1 } }]);
  });

  test('that is suspended keeps its lease, however long', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file);
    const token = await other.acquire('a');
    await other.append('a', entries(1), token);
    other.signal('SIGSTOP');
    const clock = manualClock(Date.now());
    const store = temp.open({ clock });
    for (let i = 0; i < 5; i++) {
      await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
      await clock.advance(3_600_000);
    }
    other.signal('SIGCONT');
    await other.append('a', [entry(1)], token);
    expect(await store.read('a')).toEqual(entries(2));
  });

  test('that is suspended cannot write after its lease was ended by force', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file);
    const token = await other.acquire('a');
    other.signal('SIGSTOP');
    const store = temp.open();
    await store.releaseRun('a', { force: true });
    const lease = await store.acquire('a');
    await store.append('a', [entry(0, 'here')], lease);
    other.signal('SIGCONT');
    await expect(other.append('a', [entry(1)], token)).rejects.toEqual(code('lease-lost'));
    expect(await store.read('a')).toEqual([entry(0, 'here')]);
  });

  test('of another host that is suspended loses its lease after expiry, and cannot write when it continues', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file, { store: { holder: { host: 'elsewhere', pid: 1 } } });
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    other.signal('SIGSTOP');
    const clock = manualClock(Date.now());
    const store = temp.open({ clock });
    await expect(store.acquire('a')).rejects.toThrow('driven by process 1 on host elsewhere');
    await clock.advance(30_000);
    const lease = await store.acquire('a');
    await store.append('a', [entry(2, 'here')], lease);
    other.signal('SIGCONT');
    await expect(other.append('a', [entry(3)], token)).rejects.toEqual(code('lease-lost'));
    await expect(other.append('a', [entry(3)])).rejects.toEqual(code('run-driven'));
    expect(await store.read('a')).toEqual([...entries(2), entry(2, 'here')]);
  });

  test('acquiring a run at the same moment succeeds in one of two processes', async () => {
    await using temp = tempStore();
    temp.open();
    await using one = await remote(temp.file);
    await using two = await remote(temp.file);
    for (let round = 0; round < 30; round++) {
      const both = [one, two];
      const settled = await Promise.allSettled(both.map((process) => process.acquire('a')));
      expect(settled.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
      const winner = settled.findIndex(({ status }) => status === 'fulfilled');
      await both[winner]!.release((settled[winner] as PromiseFulfilledResult<number>).value);
    }
  });
});
