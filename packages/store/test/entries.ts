import { userText, type JournalEntry, type Message } from '@treadle/core';

/** An entry with a text, also for seq 0: a store does not interpret events. */
export function entry(seq: number, text = `entry ${seq}`, status?: JournalEntry['status']): JournalEntry {
  const event = { type: 'input-added', at: 1_000 + seq, messages: [userText(text)] } as const;
  return { v: 1, seq, event, issued: [], ...(status && { status }) };
}

export function entries(count: number): JournalEntry[] {
  return Array.from({ length: count }, (_, seq) => entry(seq));
}

/** The first entry of a run with this input: a store needs neither rules nor tools. */
export function startedWith(input: readonly Message[], runId = 'run'): JournalEntry {
  const event = { type: 'run-started', at: 1_000, runId, tools: [], model: 'm', input, settings: {} };
  return { v: 1, seq: 0, event: event as unknown as JournalEntry['event'], issued: [] };
}
