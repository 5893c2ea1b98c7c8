import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test, vi } from 'vitest';
import { entry } from '../entries.ts';
import { holderOf, type TempStores } from './temp-stores.ts';

/** See also `test/journal/contract/leases.ts`. */
export function leasesContract(tempStore: () => Promise<TempStores>): void {
  // Starting processes is slow on a busy machine.
  vi.setConfig({ testTimeout: 60_000 });

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
}
