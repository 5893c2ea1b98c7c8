import type { JournalEntry, RunStore } from '@treadle/core';

/** Something that was made durable. */
export type Logged =
  /** `batch`: those that came together, and are there together or not at all. */
  | { readonly type: 'entry'; readonly runId: string; readonly entry: JournalEntry; readonly batch: number }
  | { readonly type: 'blob'; readonly runId: string; readonly text: string };

/** A store that notes in which order things became durable, over all runs. */
export function logged(store: RunStore, log: Logged[]): RunStore {
  return {
    ...store,
    append(runId, entries, lease) {
      const note = (): void => {
        const batch = log.length;
        for (const entry of entries) log.push({ type: 'entry', runId, entry, batch });
      };
      const appended = store.append(runId, entries, lease);
      return appended ? appended.then(note) : note();
    },
    blobs: {
      ...store.blobs,
      async put(runId, text) {
        const id = await store.blobs.put(runId, text);
        log.push({ type: 'blob', runId, text });
        return id;
      },
    },
  };
}

/** Writes what a log says into a new store, as JSON has it: what is read after a crash are not the same objects. */
export async function restore(log: readonly Logged[], store: RunStore): Promise<RunStore> {
  for (const item of log) {
    if (item.type === 'entry') await store.append(item.runId, [JSON.parse(JSON.stringify(item.entry))]);
    else await store.blobs.put(item.runId, item.text);
  }
  return store;
}

export function entriesOf(log: readonly Logged[], runId: string): readonly JournalEntry[] {
  return log.flatMap((item) => (item.type === 'entry' && item.runId === runId ? item.entry : []));
}

export function runsOf(log: readonly Logged[]): readonly string[] {
  return [...new Set(log.map(({ runId }) => runId))];
}
