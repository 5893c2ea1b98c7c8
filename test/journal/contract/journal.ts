import type { RunStore } from '@treadle/core';
import { describe, test } from 'vitest';
import { startEntry } from '../entries.ts';
import { dueContract } from './due.ts';
import { entriesContract } from './entries.ts';
import { leasesContract } from './leases.ts';
import { runsContract } from './runs.ts';
import { snapshotsAndBlobsContract } from './snapshots-and-blobs.ts';
import { subjectOf } from './subject.ts';

/** The tests that every journal has to pass. */
export function journalContract(name: string, open: () => RunStore | Promise<RunStore>): void {
  describe(`${name}`, () => {
    const subject = subjectOf(open);
    entriesContract(subject);
    leasesContract(subject);
    runsContract(subject);
    dueContract(subject);
    snapshotsAndBlobsContract(subject);

    test('close can be called twice, and a lease can be released after it', async () => {
      const lease = await subject.store.acquire('a');
      const added = subject.append('a', [startEntry('a')], lease);
      await subject.store.close();
      await added;
      await subject.store.close();
      await lease.release();
    });
  });
}
