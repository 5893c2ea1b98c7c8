import {
  NEW,
  outstanding,
  walkJournal,
  type Attempt,
  type Effect,
  type JournalEntry,
  type JournalStep,
  type Slot,
  type State,
} from '@treadle/core';
import { entryReader, type ShownEntry } from '@treadle/core/describe';

/** What a bar of the timeline shows. `check`: policies, guardrails, validation and `prepareTurn`. */
export type BarKind = 'model' | 'tool' | 'wait' | 'check';

/** Something that took time: from the entry that began it to the one that ended it. */
export interface Bar {
  /** The id of the effect. */
  readonly effect: string;
  readonly kind: BarKind;
  /** The name of the tool, or of the effect. */
  readonly label: string;
  readonly turn: number;
  /** 0: the model and checks. Calls that overlap have different lanes. */
  readonly lane: number;
  /** The `seq` of the entry that began it. */
  readonly start: number;
  /** The `seq` of the entry that ended it. Undefined: it is still open. */
  end: number | undefined;
  /** Undefined while it is open, or if it ended well. */
  problem: 'error' | 'denied' | 'lost' | undefined;
  /** The id of the child run that the call started. */
  readonly child: string | undefined;
  /** How often the effect began before this time. */
  readonly repeats: number;
  /** All attempts of a model call that had several. */
  attempts?: readonly Attempt[];
}

/** A run, replayed in this page by the same code that drove it. It grows with its journal. */
export interface RunModel {
  readonly entries: readonly JournalEntry[];
  /** The same, with their states. */
  readonly shown: readonly ShownEntry[];
  /** When each entry became a fact. Never decreases, also if a clock was set back. */
  readonly times: readonly number[];
  /** Whether the run only waited, or nobody drove it, in the time before each entry. */
  readonly idle: readonly boolean[];
  readonly bars: readonly Bar[];
  /** The number of lanes that the bars use. */
  readonly lanes: number;
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
  const bars: Bar[] = [];
  const show = entryReader();
  /** The bars that have not ended, by `keyOf`. */
  const open = new Map<string, Bar>();
  /** The lanes of the calls of the turn. */
  const laneOf = new Map<string, number>();
  const begun = new Map<string, number>();
  const tools = new Map<string, string>();
  let laneTurn = 0;
  let lanes = 1;
  let last: State = NEW;
  let problem: string | undefined;

  function laneFor(effect: string, kind: BarKind, turn: number): number {
    const call = callKey(effect);
    if (call === undefined || kind === 'model' || kind === 'check') return 0;
    if (turn !== laneTurn) laneOf.clear();
    laneTurn = turn;
    const known = laneOf.get(call);
    if (known !== undefined) return known;
    const used = new Set([...laneOf.entries()].filter(([other]) => isOpenCall(other)).map(([, lane]) => lane));
    let lane = 1;
    while (used.has(lane)) lane++;
    laneOf.set(call, lane);
    lanes = Math.max(lanes, lane + 1);
    return lane;
  }

  function isOpenCall(call: string): boolean {
    return [...open.values()].some(({ effect }) => callKey(effect) === call);
  }

  function append(entry: JournalEntry, step: JournalStep | undefined): ShownEntry {
    const isFirst = step === undefined && shown.at(-1)?.states !== undefined;
    const one = show(entry, { step, isFirst });
    entries.push(entry);
    shown.push(one);
    times.push(Math.max(times.at(-1) ?? 0, entry.event.at));
    return one;
  }

  function addBars({ entry, before, state, items }: JournalStep, { loss }: ShownEntry): void {
    const { seq, issued, event } = entry;
    const now = activeEffects(state);
    const lost = event.type === 'effect-lost' ? event.effect : undefined;
    for (const [key, bar] of open) {
      const continues = now.has(key) && !issued.includes(bar.effect);
      if (continues) continue;
      open.delete(key);
      bar.end = seq;
      if (loss === 'left-out' && bar.effect === lost) {
        // Nobody has performed it for this run.
        bars.splice(bars.indexOf(bar), 1);
        begun.delete(key);
        continue;
      }
      if ('attempts' in event && event.attempts && event.attempts.length > 1) bar.attempts = event.attempts;
      bar.problem = bar.effect === lost && loss === 'stopped' ? 'lost' : problemOf(bar, entry, items);
    }
    const slots = 'slots' in state.phase ? (state.phase.slots ?? []) : [];
    if (slots !== ('slots' in before.phase ? before.phase.slots : undefined)) {
      for (const { call } of slots) tools.set(`t${call.turn}.${call.index}`, call.name);
    }
    for (const [key, { effect, kind }] of now) {
      if (open.has(key)) continue;
      const { id } = effect;
      const turn = turnOf(id);
      const repeats = begun.get(key) ?? 0;
      begun.set(key, repeats + 1);
      const bar: Bar = {
        effect: id,
        kind,
        label: labelOf(effect, state),
        turn,
        lane: laneFor(id, kind, turn),
        start: seq,
        end: undefined,
        problem: undefined,
        child: 'call' in effect && effect.call.limits ? `${state.runId}.${id}` : undefined,
        repeats,
      };
      open.set(key, bar);
      bars.push(bar);
    }
    idle.push(isIdle(before) || (event.type === 'effect-lost' && event.cause === 'restart'));
    last = state;
  }

  return {
    entries,
    shown,
    times,
    idle,
    bars,
    get lanes() {
      return lanes;
    },
    get problem() {
      return problem;
    },
    add(more) {
      const from = entries.length;
      if (problem === undefined) {
        const walked = walkJournal(more, (step) => addBars(step, append(step.entry, step)), { state: last, seq: from });
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

interface ActiveEffect {
  readonly effect: Effect;
  readonly kind: BarKind;
}

const WAITS: ReadonlySet<Slot['type']> = new Set<Slot['type']>(['parked', 'questioning', 'asking', 'client']);
const INACTIVE: ReadonlySet<Slot['type']> = new Set<Slot['type']>(['queued', 'held', 'settled']);

/** The outstanding effects. A call that is parked, or asks, is another one than the same call while it runs. */
function activeEffects(state: State): ReadonlyMap<string, ActiveEffect> {
  const active = new Map<string, ActiveEffect>();
  const slots = state.phase.type === 'tools' ? state.phase.slots.filter(({ type }) => !INACTIVE.has(type)) : [];
  for (const [index, effect] of outstanding(state).entries()) {
    const slot = slots[index];
    const kind = slot ? (WAITS.has(slot.type) ? 'wait' : 'tool') : kindOf(effect);
    active.set(kind === 'wait' ? `${effect.id} waits` : effect.id, { effect, kind });
  }
  return active;
}

function kindOf({ type }: Effect): BarKind {
  return type === 'call-model' || type === 'compact-history' ? 'model' : 'check';
}

const LABELS: Readonly<Record<string, string>> = {
  'compact-history': 'compaction',
  'prepare-turn': 'preparation',
  'judge-calls': 'policy',
  'validate-output': 'validation',
  'check-guardrails': 'guardrails',
};

function labelOf(effect: Effect, { model, decision }: State): string {
  if (effect.type === 'call-model') return decision?.model ?? model;
  return 'call' in effect ? effect.call.name : (LABELS[effect.type] ?? effect.type);
}

/** `t3.tool.1` and `t3.approval.1` are effects of the call `t3.1`. Undefined for other effects. */
function callKey(effect: string): string | undefined {
  const [, turn, index] = /^(t\d+)\.(?:tool|verify|approval|client)\.(\d+)$/.exec(effect) ?? [];
  return turn === undefined ? undefined : `${turn}.${index}`;
}

function turnOf(effect: string): number {
  return Number(/^t(\d+)/.exec(effect)?.[1] ?? 0);
}

function isIdle({ phase }: State): boolean {
  if (phase.type === 'ended') return true;
  return phase.type === 'tools' && phase.slots.every(({ type }) => WAITS.has(type) || INACTIVE.has(type));
}

function problemOf(bar: Bar, { event }: JournalEntry, items: JournalStep['items']): Bar['problem'] {
  if (event.type === 'model-failed' || event.type === 'budget-refused') return 'error';
  const index = Number(bar.effect.slice(bar.effect.lastIndexOf('.') + 1));
  if (callKey(bar.effect) === undefined) return isRefused(event) ? 'denied' : undefined;
  const answered = items.find((item) => item.type === 'call-answered' && item.index === index);
  if (answered?.type !== 'call-answered' || !answered.result.isError) return undefined;
  return answered.result.errorType === 'denied' || event.type === 'approval-given' ? 'denied' : 'error';
}

/** A policy has denied a call, or a guardrail has stopped the run. */
export function isRefused(event: JournalEntry['event']): boolean {
  if (event.type === 'calls-judged') return event.verdicts.some(({ type }) => type === 'deny');
  return event.type === 'guardrails-checked' && event.verdicts.some(({ type }) => type === 'stop');
}
