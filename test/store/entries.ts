import type { JournalEntry, Message } from '@treadle/core';
import { messageEntry, startEntry } from '../journal/entries.ts';

/** An entry with a text, also for seq 0: a store does not interpret events. */
export function entry(seq: number, text = `entry ${seq}`, status?: JournalEntry['status']): JournalEntry {
  return messageEntry(seq, { text, ...(status && { status }) });
}

export function entries(count: number): JournalEntry[] {
  return Array.from({ length: count }, (_, seq) => entry(seq));
}

/** The first entry of a run with this input. */
export function startedWith(input: readonly Message[], runId = 'run'): JournalEntry {
  return startEntry(runId, { input });
}
