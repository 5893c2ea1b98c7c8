import type { Journal, JournalEntry } from '@treadle/core';

/** When an append is durable: at once, when somebody says so, or never. */
export type Durability = 'now' | 'later' | 'never';

export interface SlowJournal extends Journal {
  readonly appended: readonly JournalEntry[];
  /** How many entries, from the first on, a crash would leave. */
  readonly durable: () => number;
}

/** A journal of one run that is durable when it likes, in any order. `wait` is called for what is durable later. */
export function slowJournal(
  kept: readonly JournalEntry[],
  next: () => Durability,
  wait: (settle: () => void) => void,
): SlowJournal {
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
    read: async () => appended.slice(0, durable),
    append(_, given) {
      // What is stored has gone through JSON, and is the journal's own.
      const entries = JSON.parse(JSON.stringify(given)) as JournalEntry[];
      appended.push(...entries);
      const durability = next();
      if (durability === 'now') return write(entries);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      promise.catch(() => {}); // a mutant may not look at it
      wait(() => {
        if (durability === 'never') return reject(new Error('the disk is full'));
        write(entries);
        resolve();
      });
      return promise;
    },
  };
}
