import type { Journal, JournalEntry } from './port.ts';

/** Keeps runs as long as it lives itself. */
export function memoryJournal(): Journal {
  const runs = new Map<string, JournalEntry[]>();
  return {
    append(runId, entries) {
      const run = runs.get(runId);
      if (run) run.push(...entries);
      else runs.set(runId, [...entries]);
    },
    read: async (runId) => runs.get(runId)?.slice() ?? [],
  };
}
