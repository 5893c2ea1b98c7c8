import type { JournalEntry, Message } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
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

/** A response in progress of the tenant "acme"; its run has the same id. */
export function response(id: string, more: Partial<RequestRecord> = {}): RequestRecord {
  return {
    id,
    kind: 'response',
    tenant: 'acme',
    runId: id,
    status: 'in_progress',
    createdAt: 1_000,
    updatedAt: 1_000,
    request: { model: 'm', input: `asked in ${id}` },
    ...more,
  };
}
