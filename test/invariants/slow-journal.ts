import type { Journal, JournalEntry, Snapshot } from '@treadle/core';

/** When an append becomes durable: at once, when the test settles it, or never. */
export type Durability = 'now' | 'later' | 'never';

export interface SlowJournal extends Journal {
  readonly appended: readonly JournalEntry[];
  /** How many entries from the first on are durable without a gap. */
  readonly durable: () => number;
}

export interface SlowJournalOptions {
  readonly kept: readonly JournalEntry[];
  readonly snapshot: Snapshot | undefined;
  readonly next: () => Durability;
  /** Called for an append that becomes durable later. */
  readonly wait: (settle: () => void) => void;
  /** Called with each snapshot, which is durable at once. */
  readonly keep: (snapshot: Snapshot) => void;
}

/** A journal of one run whose appends become durable at any time and in any order. */
export function slowJournal({ kept, snapshot, next, wait, keep }: SlowJournalOptions): SlowJournal {
  const appended = [...kept];
  const written = new Set(kept.map(({ seq }) => seq));
  let durable = kept.length;

  function write(entries: readonly JournalEntry[]): void {
    for (const { seq } of entries) written.add(seq);
    while (written.has(durable)) durable++;
  }

  return {
    appended,
    durable: () => durable,
    read: async (_, from = 0) => appended.slice(from, durable),
    snapshotFrom: 5,
    readSnapshot: async () => snapshot,
    writeSnapshot: async (_, given) => keep(stored(given)),
    append(_, given) {
      const entries = stored(given);
      appended.push(...entries);
      const durability = next();
      if (durability === 'now') return write(entries);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      promise.catch(() => {}); // a mutant may ignore it
      wait(() => {
        if (durability === 'never') return reject(new Error('the disk is full'));
        write(entries);
        resolve();
      });
      return promise;
    },
  };
}

/** A copy by JSON, as a journal on disk returns it. */
function stored<T>(given: T): T {
  return JSON.parse(JSON.stringify(given)) as T;
}
