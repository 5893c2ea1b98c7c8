import type { RunStore } from '@treadle/core';

/** How an append fails: at once; later; or only the news of it gets lost. */
export type Failing = 'throws' | 'rejects' | 'unacknowledged';

export interface Death {
  /** The append that fails, from 0; those after it fail as well. */
  readonly at: number;
  readonly how: Failing;
  /** Only those of this run. */
  readonly only?: string;
}

/** A disk that is gone from one append on: what it does to a store. */
export function dyingDisk({ at, how, only }: Death): (store: RunStore) => RunStore {
  const gone = new Error('the disk is gone');
  let appends = 0;

  async function fail(write?: () => void | Promise<void>): Promise<void> {
    await write?.();
    throw gone;
  }

  return (store) => ({
    ...store,
    append(runId, entries, lease) {
      const write = (): void | Promise<void> => store.append(runId, entries, lease);
      if (only !== undefined && only !== runId) return write();
      const count = appends++;
      if (count < at) return write();
      if (how === 'throws') throw gone;
      return fail(how === 'unacknowledged' && count === at ? write : undefined);
    },
  });
}
