import type { RunStore } from '@treadle/core';
import { describe, test } from 'vitest';
import { started } from '../entries.ts';
import { entriesContract } from './entries.ts';
import { keptContract } from './kept.ts';
import { leasesContract } from './leases.ts';
import { runsContract } from './runs.ts';
import { subjectOf } from './subject.ts';

/** What every journal promises, whatever it keeps its runs in. */
export function journalContract(name: string, open: () => RunStore): void {
  describe(`${name}`, () => {
    const subject = subjectOf(open);
    entriesContract(subject);
    leasesContract(subject);
    runsContract(subject);
    keptContract(subject);

    test('close can be called twice, and giving a lease back after it does no harm', async () => {
      const lease = await subject.store.acquire('a');
      const added = subject.append('a', [started('a')], lease);
      await subject.store.close();
      await added;
      await subject.store.close();
      await lease.release();
    });
  });
}
