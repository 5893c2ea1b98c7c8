import { isPaused, outstanding } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import { EMPTY_HASH, hashTexts, mapped, stableJson } from '../machine/history.ts';
import { wakeAtOf } from '../machine/parking.ts';
import type { Outcome, State } from '../machine/state.ts';
import { isKnownRules, NEW, step, type Next } from '../machine/step.ts';
import { nextLoopTurn } from '../platform.ts';
import { itemsBetween, type Item } from './items.ts';
import type { JournalEntry, RunStatus } from './port.ts';

export type Replayed = { readonly type: 'replayed'; readonly state: State } | Divergence;

/** An entry led to something other than what the journal recorded. `state` is the state before that entry. */
export interface Divergence {
  readonly type: 'diverged';
  readonly state: State;
  readonly seq: number;
  /** The type of the entry's event. */
  readonly event: string;
  /** The effect that differs, or that the event refers to. */
  readonly effect?: string;
  /** A description of what differs. */
  readonly difference: string;
}

/** The state after `seq` entries. */
export interface Start {
  readonly state: State;
  readonly seq: number;
}

/** One entry of a journal, and what it led to. */
export interface JournalStep {
  readonly entry: JournalEntry;
  readonly before: State;
  readonly state: State;
  /** What a listener received with this entry. */
  readonly items: readonly Item[];
}

/**
 * Walks a journal: applies each entry, checks that it leads to what was recorded, and calls `visit` with the states and
 * items. Performs no effects, and stops at the first entry that leads to something else.
 */
export function walkJournal(
  entries: readonly JournalEntry[],
  visit?: (step: JournalStep) => void,
  from: Start = START,
): Replayed {
  let { state } = from;
  for (let index = 0; index < entries.length; index++) {
    const entry = entries[index]!;
    const seq = from.seq + index;
    const next = entry.v === 1 && entry.seq === seq ? step(state, entry.event) : undefined;
    const different = next ? differenceOf(entry, next, state) : misplaced(entry, seq);
    if (different) return { type: 'diverged', state, seq, event: entry.event.type, ...different };
    const before = state;
    state = next!.state;
    if (!visit) continue;
    const fact: Item = { type: 'fact', seq, event: entry.event };
    visit({ entry, before, state, items: [fact, ...itemsBetween(before, next!, entry.event)] });
  }
  return { type: 'replayed', state };
}

/** The number of entries after which work on a long run lets the event loop turn. */
export const SLICE_ENTRIES = 500;

/** Does the same as `walkJournal`, but does not block the event loop if the run is long. */
export async function walkInSlices(
  entries: readonly JournalEntry[],
  visit?: (step: JournalStep) => void,
  from: Start = START,
): Promise<Replayed> {
  let start = from;
  for (let index = 0; entries.length - index > SLICE_ENTRIES; index += SLICE_ENTRIES) {
    const walked = walkJournal(entries.slice(index, index + SLICE_ENTRIES), visit, start);
    if (walked.type === 'diverged') return walked;
    start = { state: walked.state, seq: start.seq + SLICE_ENTRIES };
    await nextLoopTurn();
  }
  return walkJournal(start === from ? entries : entries.slice(start.seq - from.seq), visit, start);
}

const START: Start = { state: NEW, seq: 0 };

/** Rebuilds the state of a run from its journal, in one go; `walkInSlices` is better for long runs. */
export function replay(entries: readonly JournalEntry[], from: Start = START): Replayed {
  return walkJournal(entries, undefined, from);
}

type Difference = Pick<Divergence, 'effect' | 'difference'>;

function misplaced(entry: JournalEntry, seq: number): Difference {
  if (entry.v !== 1) return { difference: `the entry has version ${String(entry.v)}; this code reads version 1` };
  return { difference: `the entry at position ${seq} has the number ${entry.seq}` };
}

function differenceOf(entry: JournalEntry, next: Next, before: State): Difference | undefined {
  if (next.state === before) return inapplicable(before, entry.event);
  const made = entryOf(entry.seq, entry.event, next);
  // Entries of older versions have no digest of what they pin.
  if (entry.pinned !== undefined && entry.pinned !== made.pinned) {
    return { difference: `what "${entry.event.type}" pins has the digest ${made.pinned}; it was ${entry.pinned}` };
  }
  const at = made.issued.findIndex((id, index) => id !== entry.issued[index]);
  const effect = at === -1 ? entry.issued[made.issued.length] : (entry.issued[at] ?? made.issued[at]);
  if (effect !== undefined) {
    const [was, is] = [entry.issued, made.issued].map((ids) => ids.join(', ') || 'nothing');
    return { effect, difference: `it issued ${was}; now it issues ${is}` };
  }
  if (entry.status !== made.status) {
    const [was, is] = [entry, made].map(({ status }) => status ?? 'running');
    return { difference: `the run was ${was} after it; now it is ${is}` };
  }
  // Entries of older versions do not have the time.
  if (entry.wakeAt !== undefined && entry.wakeAt !== made.wakeAt) {
    return { difference: `the run was to be woken at ${entry.wakeAt}; now it is at ${made.wakeAt ?? 'no time'}` };
  }
  if (entry.digest === made.digest) return undefined;
  const [asked] = made.issued;
  const what = asked === undefined ? 'history and outcome have' : `history for ${asked} has`;
  const difference = `the ${what} digest ${made.digest}; it was ${entry.digest}`;
  return asked === undefined ? { difference } : { effect: asked, difference };
}

/** An event that does not apply to the state. */
function inapplicable(state: State, event: Event): Difference {
  const effect = 'effect' in event ? event.effect : undefined;
  const difference = `the event "${event.type}" no longer applies: ${whyInapplicable(state, event)}`;
  return effect === undefined ? { difference } : { effect, difference };
}

function whyInapplicable(state: State, event: Event): string {
  if (event.type === 'run-started' && state.phase.type === 'new' && !isKnownRules(event.rules)) {
    const { wording, finish } = event.rules;
    return `this version does not support its rules (wording ${String(wording)}, finish "${finish}")`;
  }
  const open = outstanding(state).map(({ id }) => id);
  const now =
    open.length > 0
      ? `outstanding are ${open.join(', ')}`
      : `no effect is outstanding, and the phase is ${state.phase.type}`;
  return 'effect' in event && event.effect !== undefined ? `it refers to ${event.effect}; ${now}` : now;
}

/** The status of a run: `running`, `paused`, or how it ended. */
export function statusOf(state: State): RunStatus {
  if (state.phase.type === 'ended') return state.phase.outcome.type;
  return isPaused(state) ? 'paused' : 'running';
}

/** The journal entry for a step. */
export function entryOf(seq: number, event: Event, next: Next): JournalEntry {
  const entry = unpinnedEntry(seq, event, next);
  const pinned = pinnedDigest(event);
  return pinned === undefined ? entry : { ...entry, pinned };
}

/** A digest of what an event pins for later turns. The history does not contain it, so its digest does not cover it. */
function pinnedDigest(event: Event): number | undefined {
  const values = pinnedBy(event);
  return values && hashTexts(EMPTY_HASH, [stableJson(values)]);
}

/** Without `runId` and `parent`, so that a run can be imported under another id. */
function pinnedBy(event: Event): object | undefined {
  switch (event.type) {
    case 'run-started': {
      // In the order of the digest: sorting keys that are sorted costs little.
      const { definition, exposure, grants, instructions, labels, memory, model, narrow, policy, principal } = event;
      const { program, rules, session, settings, task, tools, trace } = event;
      const named = { definition, exposure, grants, instructions, labels, memory, model, narrow, policy, principal };
      return { ...named, program, rules, session, settings, task, tools, trace };
    }
    case 'run-forked': {
      const { model, instructions, tools } = event;
      return { model, instructions, tools };
    }
    case 'tools-changed':
      return { tools: event.tools, from: event.from };
    case 'policy-changed':
      return { rules: event.rules, limits: event.limits };
    case 'program-changed':
      return { program: event.program };
    case 'turn-prepared':
      return { decision: event.decision };
    case 'tool-settled': {
      const { result } = event;
      if (result.type !== 'result' || !(result.narrow ?? result.handoff ?? result.exposes)) return undefined;
      return { narrow: result.narrow, handoff: result.handoff, exposes: result.exposes };
    }
    case 'client-result-given':
    case 'input-added':
      return event.exposes && { exposes: event.exposes };
    default:
      return undefined;
  }
}

/** An entry without the digest of what its event pins, for a journal that nobody will replay. */
export function unpinnedEntry(seq: number, event: Event, { state, effects }: Next): JournalEntry {
  const issued = mapped(effects, ({ id }) => id);
  if (effects[0]?.type === 'call-model') return { v: 1, seq, event, issued, digest: state.history.rolling };
  if (state.phase.type === 'ended') {
    const { outcome } = state.phase;
    return {
      v: 1,
      seq,
      event,
      issued,
      digest: hashTexts(state.history.rolling, outcomeTexts(outcome)),
      status: outcome.type,
      ...(state.phase.wakeAt !== undefined && { wakeAt: state.phase.wakeAt }),
    };
  }
  if (isPaused(state)) {
    const wakeAt = wakeAtOf(state);
    return { v: 1, seq, event, issued, status: 'paused', ...(wakeAt !== undefined && { wakeAt }) };
  }
  return { v: 1, seq, event, issued };
}

/** Without messages for people, because they may be reworded. */
function outcomeTexts(outcome: Outcome): readonly string[] {
  switch (outcome.type) {
    case 'completed':
      return [outcome.type, outcome.truncated ? 'truncated' : ''];
    case 'exhausted':
      return [outcome.type, outcome.limit];
    case 'failed':
      return [outcome.type, outcome.error.code];
    case 'cancelled':
      return [outcome.type, outcome.phase];
    default:
      return outcome satisfies never;
  }
}
