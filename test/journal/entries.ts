import { userText, type Event, type JournalEntry, type Message, type Rules } from '@treadle/core';

type Started = Extract<Event, { type: 'run-started' }>;

const RULES: Rules = {
  wording: 1,
  finish: 'plain',
  maxTurns: 20,
  maxParallel: 5,
  parallel: true,
  errorLimit: 3,
  repeatLimit: 3,
  maxResultChars: 50_000,
  toolTimeoutMs: 60_000,
  limits: {},
  closingTurn: false,
  toolChoice: 'auto',
  judged: false,
};

/** The first entry of a run. Of an entry, a store reads only this event, `seq`, `status` and `at`. */
export function startEntry(runId: string, fields: Partial<Started> & { readonly parent?: object } = {}): JournalEntry {
  const event: Started = {
    type: 'run-started',
    at: 1_000,
    runId,
    rules: RULES,
    tools: [],
    model: 'scripted',
    settings: {},
    input: [userText(`Task of ${runId}`)],
    ...fields,
  };
  return { v: 1, seq: 0, event, issued: ['t1.model.0'], digest: 4_711 };
}

/** A later entry of a run: a message. */
export function messageEntry(
  seq: number,
  fields: { readonly at?: number; readonly text?: string; readonly status?: JournalEntry['status'] } = {},
): JournalEntry {
  const { at = 1_000 + seq, text = `message ${seq}`, status } = fields;
  const messages = [userText(text)] satisfies Message[];
  return { v: 1, seq, event: { type: 'input-added', at, messages }, issued: [], ...(status && { status }) };
}
