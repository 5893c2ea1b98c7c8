import type { Event, JournalEntry, Rules } from '@treadle/core';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** Changes a journal in one place. Undefined if it has no such place. */
export type Tampering = (entries: readonly JournalEntry[], pick: number) => readonly JournalEntry[] | undefined;

/** Replaces one event of a type. */
function changing<Type extends Event['type']>(type: Type, change: (event: Of<Type>) => Event | undefined): Tampering {
  return (entries, pick) => {
    const places = entries.flatMap((entry, at) => {
      const event = entry.event.type === type ? change(entry.event as Of<Type>) : undefined;
      return event ? [entries.with(at, { ...entry, event })] : [];
    });
    return places[pick % Math.max(1, places.length)];
  };
}

function renumbered(entries: readonly JournalEntry[]): readonly JournalEntry[] {
  return entries.map((entry, seq) => ({ ...entry, seq }));
}

const OTHER_RULES: readonly ((rules: Rules) => Rules)[] = [
  (rules) => ({ ...rules, maxParallel: rules.maxParallel === 1 ? 5 : 1 }),
  (rules) => ({ ...rules, parallel: !rules.parallel }),
  (rules) => ({ ...rules, maxTurns: 1 }),
  (rules) => ({ ...rules, finish: rules.finish === 'plain' ? 'confirm' : 'plain' }),
  (rules) => ({ ...rules, repeatLimit: rules.repeatLimit === 1 ? 0 : 1 }),
  (rules) => ({ ...rules, errorLimit: 1 }),
  (rules) => ({ ...rules, toolChoice: 'none' }),
  (rules) => ({ ...rules, judged: !rules.judged }),
  (rules) => ({ ...rules, allowedTools: ['look'] }),
  (rules) => ({ ...rules, maxCallsPerTurn: 1 }),
  (rules) => ({ ...rules, limits: { calls: 1 } }),
  (rules) => ({ ...rules, closingTurn: !rules.closingTurn }),
  ({ prepared, ...rules }) => (prepared ? rules : { ...rules, prepared: true }),
  ({ output, ...rules }) => (output ? rules : { ...rules, output: {} }),
  ({ compaction, ...rules }) => (compaction ? rules : { ...rules, compaction: { tokens: 1, keepTurns: 1 } }),
];

/** Changes of text in the conversation: always found, because the digest covers it. */
export const TEXTS: Readonly<Record<string, Tampering>> = {
  input: changing('run-started', (event) => ({ ...event, input: [...event.input, ...event.input] })),
  'tool result': changing('tool-settled', (event) => {
    const { result } = event;
    if (result.type !== 'result') return undefined;
    return { ...event, result: { ...result, content: [...result.content, { type: 'text', text: '!' }] } };
  }),
  'result turned into an error': changing('tool-settled', (event) => {
    const { result } = event;
    return result.type === 'result' ? { ...event, result: { ...result, isError: !result.isError } } : undefined;
  }),
  "client's result": changing('client-result-given', (event) => ({ ...event, content: [] })),
  'text of a reply': changing('model-replied', (event) => ({
    ...event,
    content: [{ type: 'text', text: '!' }, ...event.content],
  })),
  'arguments of a call': changing('model-replied', (event) => {
    const at = event.content.findIndex(({ type }) => type === 'tool-call');
    const part = event.content[at];
    if (part?.type !== 'tool-call') return undefined;
    return { ...event, content: event.content.with(at, { ...part, arguments: `${part.arguments} ` }) };
  }),
  summary: changing('history-compacted', (event) => {
    const { result } = event;
    return result.type === 'summary' ? { ...event, result: { ...result, summary: '!' } } : undefined;
  }),
};

/** Changes of what an event pins for later turns: always found. */
export const PINNED: Readonly<Record<string, Tampering>> = {
  rules: (entries, pick) =>
    changing('run-started', (event) => ({ ...event, rules: OTHER_RULES[pick % OTHER_RULES.length]!(event.rules) }))(
      entries,
      0,
    ),
  limits: changing('run-started', (event) => ({
    ...event,
    rules: { ...event.rules, limits: { ...event.rules.limits, durationMs: 1e12 } },
  })),
  instructions: changing('run-started', (event) => ({ ...event, instructions: `${event.instructions ?? ''}!` })),
  principal: changing('run-started', (event) => ({
    ...event,
    principal: { subject: 'other', tenant: 'other', scopes: [] },
  })),
  settings: changing('run-started', (event) => ({ ...event, settings: { ...event.settings, seed: 4_711 } })),
  model: changing('run-started', (event) => ({ ...event, model: `${event.model}!` })),
  program: changing('run-started', (event) => ({ ...event, program: { version: 4_711 } })),
  definition: changing('run-started', (event) => ({ ...event, definition: { version: 4_711 } })),
  tools: changing('run-started', (event) =>
    event.tools.length === 0 ? undefined : { ...event, tools: event.tools.slice(1) },
  ),
  'tool effect': changing('run-started', (event) =>
    event.tools.length === 0
      ? undefined
      : { ...event, tools: event.tools.map((facts) => ({ ...facts, client: !facts.client })) },
  ),
  'changed tools': changing('tools-changed', (event) => ({ ...event, tools: event.tools.slice(1) })),
  decision: changing('turn-prepared', (event) => ({
    ...event,
    decision: { ...event.decision, instructions: `${event.decision.instructions ?? ''}!` },
  })),
};

/** Other changes: found if they change the course of the run. */
export const COURSE: Readonly<Record<string, Tampering>> = {
  finish: changing('model-replied', (event) => ({ ...event, finish: event.finish === 'length' ? 'stop' : 'length' })),
  'checks of a reply': changing('model-replied', (event) => ({
    ...event,
    checks: event.checks.map(() => ({ problem: 'No.' })),
  })),
  failure: changing('model-failed', (event) => ({ ...event, error: { ...event.error, code: 'auth' } })),
  verdicts: changing('calls-judged', (event) => ({ ...event, verdicts: event.verdicts.slice(1) })),
  approval: changing('approval-given', (event) => ({ ...event, approved: !event.approved })),
  'digest of an approval': changing('approval-given', (event) => ({ ...event, digest: 'of something else' })),
  problem: changing('turn-prepared', (event) => ({ ...event, problem: 'No.' })),
  output: changing('output-checked', (event) => ({
    ...event,
    result: event.result.type === 'valid' ? { type: 'invalid', problems: ['No.'] } : { type: 'valid', value: 1 },
  })),
  'missing entry': (entries, pick) => {
    // Without the last entry, the journal is only shorter.
    return entries.length < 2 ? undefined : renumbered(entries.toSpliced(pick % (entries.length - 1), 1));
  },
  'duplicate entry': (entries, pick) => {
    const at = pick % entries.length;
    return renumbered(entries.toSpliced(at, 0, entries[at]!));
  },
  'swapped entries': (entries, pick) => {
    if (entries.length < 2) return undefined;
    const at = pick % (entries.length - 1);
    return renumbered(entries.with(at, entries[at + 1]!).with(at + 1, entries[at]!));
  },
  'effect of an event': (entries, pick) => {
    const at = pick % entries.length;
    const { event } = entries[at]!;
    return 'effect' in event
      ? entries.with(at, { ...entries[at]!, event: { ...event, effect: `${event.effect}0` } as Event })
      : undefined;
  },
};

/** Changes of the metadata of an entry: always found. */
export const MARKS: Readonly<Record<string, Tampering>> = {
  version: (entries, pick) =>
    entries.with(pick % entries.length, { ...entries[pick % entries.length]!, v: 2 as never }),
  number: (entries, pick) =>
    entries.with(pick % entries.length, { ...entries[pick % entries.length]!, seq: entries.length }),
  'effects that it issued': (entries, pick) => {
    const entry = entries[pick % entries.length]!;
    return entries.with(entry.seq, { ...entry, issued: [...entry.issued, 't1.tool.99'] });
  },
  digest: (entries, pick) => {
    const entry = entries[pick % entries.length]!;
    return entries.with(entry.seq, { ...entry, digest: (entry.digest ?? 0) + 1 });
  },
  'digest of what an event pins': (entries) => [
    { ...entries[0]!, pinned: entries[0]!.pinned! + 1 },
    ...entries.slice(1),
  ],
  status: (entries, pick) => {
    const entry = entries[pick % entries.length]!;
    return entries.with(entry.seq, { ...entry, status: entry.status === 'paused' ? 'failed' : 'paused' });
  },
};
