import type { Journal, JournalEntry, Snapshot } from '@treadle/core';

/** When an append is stored: at once, when the test settles it, or never. */
export type Durability = 'now' | 'later' | 'never';

export interface SlowJournal extends Journal {
  readonly appended: readonly JournalEntry[];
  /** How many entries from the first on are accepted, or written, without a gap. */
  readonly accepted: () => number;
  /** How many of them are durable. A crash loses all others. */
  readonly durable: () => number;
}

export interface SlowJournalOptions {
  readonly kept: readonly JournalEntry[];
  readonly snapshot: Snapshot | undefined;
  readonly next: () => Durability;
  /** Called for an append that is stored later. */
  readonly wait: (settle: () => void) => void;
  /** Called with each snapshot. */
  readonly keep: (snapshot: Snapshot) => void;
}

/**
 * A journal of one run whose appends are accepted or written at any time and in any order. Entries become durable as late as
 * the port allows: when an append is stored that waits for it.
 */
export function slowJournal({ kept, snapshot, next, wait, keep }: SlowJournalOptions): SlowJournal {
  const appended = [...kept];
  const stored = new Set(kept.map(({ seq }) => seq));
  const failing = new Set<number>();
  let accepted = kept.length;
  let durable = kept.length;

  function write(entries: readonly JournalEntry[]): void {
    for (const { seq } of entries) stored.add(seq);
    while (stored.has(accepted)) accepted++;
  }

  /** Everything before an append that is durable is durable too. */
  function sync(count: number): void {
    write(appended.slice(0, count).filter(({ seq }) => !failing.has(seq)));
    durable = accepted;
  }

  return {
    appended,
    accepted: () => accepted,
    durable: () => durable,
    read: async (_, from = 0) => appended.slice(from, accepted),
    snapshotFrom: 5,
    readSnapshot: async () => snapshot,
    writeSnapshot: async (_, given) => keep(stringified(given)),
    append(_, given, __, until) {
      const entries = stringified(given);
      appended.push(...entries);
      const count = appended.length;
      const store = (): void => (until === 'accepted' || until === 'written' ? write(entries) : sync(count));
      const durability = next();
      if (durability === 'now') return store();
      if (durability === 'never') for (const { seq } of entries) failing.add(seq);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      promise.catch(() => {}); // a mutant may ignore it
      wait(() => {
        if (durability === 'never') return reject(new Error('the disk is full'));
        store();
        resolve();
      });
      return promise;
    },
  };
}

/** A copy by JSON, as a journal on disk returns it. */
function stringified<T>(given: T): T {
  return JSON.parse(JSON.stringify(given)) as T;
}
