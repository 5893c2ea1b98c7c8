import type { Lease, Stored } from '@treadle/core';
import type { Store } from '@treadle/store';
import { messageEntry, startEntry } from '../../test/journal/entries.ts';

const MS = 1_500;
let names = 0;

/** Appends a second. Each run appends an entry when the one before is stored. `begin`: awaited before the first one. */
export async function appends(store: Store, runs: number, until: Stored, begin?: () => Promise<void>): Promise<number> {
  const open = await Promise.all(
    Array.from({ length: runs }, async () => {
      const runId = `bench ${process.pid} ${names++}`;
      const lease: Lease = await store.acquire(runId);
      await store.append(runId, [startEntry(runId)], lease);
      return { runId, lease };
    }),
  );
  await begin?.();
  let count = 0;
  const from = performance.now();
  await Promise.all(
    open.map(async ({ runId, lease }) => {
      for (let seq = 1; performance.now() - from < MS; seq++, count++) {
        await store.append(runId, [messageEntry(seq)], lease, until);
      }
    }),
  );
  const rate = (count * 1_000) / (performance.now() - from);
  await Promise.all(open.map(({ lease }) => lease.release()));
  return rate;
}
