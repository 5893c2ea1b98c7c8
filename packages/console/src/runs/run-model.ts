import { NEW, walkJournal, type JournalEntry, type JournalStep, type State } from '@treadle/core';
import { entryReader, type ShownEntry } from '@treadle/core/describe';
import { callKey, isIdle, traceReader, type Span, type Trace } from '@treadle/core/trace';

/** A run, replayed in this page by the same code that drove it. It grows with its journal. */
export interface RunModel {
  readonly entries: readonly JournalEntry[];
  /** The same, with their states. */
  readonly shown: readonly ShownEntry[];
  /** When each entry became a fact. Never decreases, also if a clock was set back. */
  readonly times: readonly number[];
  /** Whether the run only waited, or nobody drove it, in the time before each entry. */
  readonly idle: readonly boolean[];
  readonly spans: readonly Span[];
  /** The number of lanes that the spans use. */
  readonly lanes: number;
  /** What the entries that have a state add up to; undefined before the first one. */
  trace(): Trace | undefined;
  /** Why the entries from some point on have no state. */
  readonly problem: string | undefined;
  /** Adds the entries that follow. */
  add(entries: readonly JournalEntry[]): void;
  /** The state after an entry; undefined if it does not replay. */
  stateAt(seq: number): State | undefined;
  /** The name of the tool that an effect of a call calls. */
  toolOf(effect: string): string | undefined;
}

export function runModel(): RunModel {
  const entries: JournalEntry[] = [];
  const shown: ShownEntry[] = [];
  const times: number[] = [];
  const idle: boolean[] = [];
  const show = entryReader();
  const reader = traceReader();
  const tools = new Map<string, string>();
  let last: State = NEW;
  let problem: string | undefined;

  function append(entry: JournalEntry, step: JournalStep | undefined): void {
    const isFirst = step === undefined && shown.at(-1)?.states !== undefined;
    entries.push(entry);
    shown.push(show(entry, { step, isFirst }));
    times.push(Math.max(times.at(-1) ?? 0, entry.event.at));
  }

  function addSpans(step: JournalStep): void {
    const { entry, before, state } = step;
    reader.add(step);
    const slots = 'slots' in state.phase ? (state.phase.slots ?? []) : [];
    if (slots !== ('slots' in before.phase ? before.phase.slots : undefined)) {
      for (const { call } of slots) tools.set(`t${call.turn}.${call.index}`, call.name);
    }
    idle.push(isIdle(before) || (entry.event.type === 'effect-lost' && entry.event.cause === 'restart'));
    last = state;
  }

  return {
    entries,
    shown,
    times,
    idle,
    spans: reader.spans.spans,
    get lanes() {
      return reader.spans.lanes;
    },
    trace: () => reader.trace(),
    get problem() {
      return problem;
    },
    add(more) {
      const from = entries.length;
      if (problem === undefined) {
        const visit = (step: JournalStep): void => {
          append(step.entry, step);
          addSpans(step);
        };
        const walked = walkJournal(more, visit, { state: last, seq: from });
        if (walked.type === 'diverged') problem = `At entry ${walked.seq}, ${walked.difference}.`;
      }
      for (const entry of more.slice(entries.length - from)) {
        append(entry, undefined);
        idle.push(false);
      }
    },
    stateAt: (seq) => shown[seq]?.states?.state,
    toolOf: (effect) => tools.get(callKey(effect) ?? ''),
  };
}
