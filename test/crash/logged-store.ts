import type { BlobContent, JournalEntry, RunStore } from '@treadle/core';

/** Something that became durable. */
export type Logged =
  /** `batch`: entries that were appended together, and are stored together or not at all. */
  | { readonly type: 'entry'; readonly runId: string; readonly entry: JournalEntry; readonly batch: number }
  | { readonly type: 'blob'; readonly runId: string; readonly content: BlobContent };

/** A store that logs the order in which entries and blobs were stored, over all runs. Entries of a run are logged in order. */
export function logged(store: RunStore, log: Logged[]): RunStore {
  const pending = new Map<string, Promise<void>>();
  return {
    ...store,
    append(runId, entries, lease, until) {
      const note = (): void => {
        const batch = log.length;
        for (const entry of entries) log.push({ type: 'entry', runId, entry, batch });
      };
      const appended = store.append(runId, entries, lease, until);
      const before = pending.get(runId);
      if (!appended && !before) return note();
      const noted = Promise.all([before, appended]).then(note);
      noted.catch(() => {}); // the caller gets it, unless the entries were accepted
      pending.set(runId, noted);
      return appended && noted;
    },
    blobs: {
      ...store.blobs,
      async put(runId, content, until) {
        const id = await store.blobs.put(runId, content, until);
        log.push({ type: 'blob', runId, content });
        return id;
      },
    },
  };
}

/** Writes a log into a new store. Entries are copied by JSON, because a process reads new objects after a crash. */
export async function restore(log: readonly Logged[], store: RunStore): Promise<RunStore> {
  for (const item of log) {
    if (item.type === 'entry') await store.append(item.runId, [JSON.parse(JSON.stringify(item.entry))]);
    else await store.blobs.put(item.runId, item.content);
  }
  return store;
}

export function entriesOf(log: readonly Logged[], runId: string): readonly JournalEntry[] {
  return log.flatMap((item) => (item.type === 'entry' && item.runId === runId ? item.entry : []));
}

export function runsOf(log: readonly Logged[]): readonly string[] {
  return [...new Set(log.map(({ runId }) => runId))];
}
