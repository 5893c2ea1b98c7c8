import { TreadleError } from '../errors.ts';
import type { Journal, JournalEntry } from './port.ts';

/** Keeps runs as long as it lives itself. */
export function memoryJournal(): Journal {
  const runs = new Map<string, JournalEntry[]>();
  return {
    append(runId, entries) {
      const run = runs.get(runId) ?? [];
      const next = entries[0]?.seq ?? run.length;
      if (next !== run.length) {
        throw new TreadleError('run-exists', `Run "${runId}" has ${run.length} entries, so entry ${next} cannot be added.`);
      }
      run.push(...entries);
      runs.set(runId, run);
    },
    read: async (runId, from = 0) => runs.get(runId)?.slice(from) ?? [],
  };
}
