import { outstanding } from '../machine/effects.ts';
import type { Effect } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { Slot, State } from '../machine/state.ts';
import type { Attempt } from '../model.ts';
import { lossReader, type AppliedEntry } from './steps.ts';

/** What takes time in a run. `check`: policies, guardrails, validation and `prepareTurn`. `wait`: for people, clients and devices. */
export type SpanKind = 'model' | 'tool' | 'wait' | 'check';

/** Something that took time: from the entry that began it to the one that ended it. */
export interface Span {
  /** The id of the effect. */
  readonly effect: string;
  readonly kind: SpanKind;
  /** The name of the tool, of the model, or of the check. */
  readonly label: string;
  readonly turn: number;
  /** 0: the model and checks. Calls that overlap have different lanes. */
  readonly lane: number;
  /** The `seq` of the entry that began it. */
  readonly start: number;
  readonly startedAt: number;
  /** The `seq` of the entry that ended it. Undefined: it is still open. */
  end: number | undefined;
  endedAt: number | undefined;
  /** Undefined while it is open, or if it ended well. */
  problem: 'error' | 'denied' | 'lost' | undefined;
  /** The id of the child run that the call started. */
  readonly child: string | undefined;
  /** How often the effect began before this time. */
  readonly repeats: number;
  /** All attempts of a model call that had several. */
  attempts?: readonly Attempt[];
}

/** The spans of a run, which grow with its journal. */
export interface SpanReader {
  /** In the order in which they began. */
  readonly spans: readonly Span[];
  /** The number of lanes that they use. */
  readonly lanes: number;
  /** When the last entry became a fact. Never decreases, also if a clock was set back. */
  readonly at: number;
  /** Adds the entry that follows. Returns the spans that it ended and began. */
  add(step: AppliedEntry): { readonly ended: readonly Span[]; readonly begun: readonly Span[] };
}

export function spanReader(): SpanReader {
  const spans: Span[] = [];
  const lossOf = lossReader();
  /** The spans that have not ended, by the key of `activeEffects`. */
  const open = new Map<string, Span>();
  const begun = new Map<string, number>();
  const lanes = laneReader();
  let at = 0;

  function endSpans(
    { entry, items }: AppliedEntry,
    now: ReadonlyMap<string, ActiveEffect>,
    loss: Loss,
  ): readonly Span[] {
    const { seq, issued, event } = entry;
    const lost = event.type === 'effect-lost' ? event.effect : undefined;
    const ended: Span[] = [];
    for (const [key, span] of open) {
      if (now.has(key) && !issued.includes(span.effect)) continue;
      open.delete(key);
      lanes.leave(span.effect);
      [span.end, span.endedAt] = [seq, at];
      if (loss === 'left-out' && span.effect === lost) {
        // Nobody has performed it for this run.
        spans.splice(spans.indexOf(span), 1);
        begun.delete(key);
        continue;
      }
      if ('attempts' in event && event.attempts && event.attempts.length > 1) span.attempts = event.attempts;
      span.problem = span.effect === lost && loss === 'stopped' ? 'lost' : problemOf(span, event, items);
      ended.push(span);
    }
    return ended;
  }

  function beginSpans({ entry, state }: AppliedEntry, now: ReadonlyMap<string, ActiveEffect>): readonly Span[] {
    const first = spans.length;
    for (const [key, { effect, kind }] of now) {
      if (open.has(key)) continue;
      const { id } = effect;
      const turn = turnOf(id);
      const repeats = begun.get(key) ?? 0;
      begun.set(key, repeats + 1);
      const span: Span = {
        effect: id,
        kind,
        label: labelOf(effect, state),
        turn,
        lane: kind === 'model' || kind === 'check' ? 0 : lanes.enter(id, turn),
        start: entry.seq,
        startedAt: at,
        end: undefined,
        endedAt: undefined,
        problem: undefined,
        child: 'call' in effect && effect.call.limits ? `${state.runId}.${id}` : undefined,
        repeats,
      };
      open.set(key, span);
      spans.push(span);
    }
    return first === spans.length ? NO_SPANS : spans.slice(first);
  }

  return {
    spans,
    get lanes() {
      return lanes.count();
    },
    get at() {
      return at;
    },
    add(step) {
      at = Math.max(at, step.entry.event.at);
      const now = activeEffects(step.state);
      const ended = endSpans(step, now, lossOf(step.entry, step.before));
      return { ended, begun: beginSpans(step, now) };
    },
  };
}

const NO_SPANS: readonly Span[] = [];

type Loss = ReturnType<ReturnType<typeof lossReader>>;

/** Gives the calls of a turn lanes, from 1 on. A call keeps its lane while it is open, and in its turn. */
function laneReader(): {
  enter(effect: string, turn: number): number;
  leave(effect: string): void;
  count(): number;
} {
  const laneOf = new Map<string, number>();
  const open = new Map<string, number>();
  let turnNow = 0;
  let lanes = 1;
  return {
    enter(effect, turn) {
      const call = callKey(effect);
      if (call === undefined) return 0;
      if (turn !== turnNow) laneOf.clear();
      turnNow = turn;
      open.set(call, (open.get(call) ?? 0) + 1);
      const known = laneOf.get(call);
      if (known !== undefined) return known;
      const used = new Set([...laneOf].filter(([other]) => other !== call && open.has(other)).map(([, lane]) => lane));
      let lane = 1;
      while (used.has(lane)) lane++;
      laneOf.set(call, lane);
      lanes = Math.max(lanes, lane + 1);
      return lane;
    },
    leave(effect) {
      const call = callKey(effect);
      const count = call === undefined ? 0 : (open.get(call) ?? 0);
      if (count > 1) open.set(call!, count - 1);
      else if (count === 1) open.delete(call!);
    },
    count: () => lanes,
  };
}

interface ActiveEffect {
  readonly effect: Effect;
  readonly kind: SpanKind;
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

function kindOf({ type }: Effect): SpanKind {
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
export function callKey(effect: string): string | undefined {
  const [, turn, index] = /^(t\d+)\.(?:tool|verify|approval|client)\.(\d+)$/.exec(effect) ?? [];
  return turn === undefined ? undefined : `${turn}.${index}`;
}

function turnOf(effect: string): number {
  return Number(/^t(\d+)/.exec(effect)?.[1] ?? 0);
}

/** Whether a run only waits, or nobody has to do anything for it. */
export function isIdle({ phase }: State): boolean {
  if (phase.type === 'ended') return true;
  return phase.type === 'tools' && phase.slots.every(({ type }) => WAITS.has(type) || INACTIVE.has(type));
}

function problemOf({ effect }: Span, event: Event, items: AppliedEntry['items']): Span['problem'] {
  if (event.type === 'model-failed' || event.type === 'budget-refused') return 'error';
  const index = Number(effect.slice(effect.lastIndexOf('.') + 1));
  if (callKey(effect) === undefined) return isRefused(event) ? 'denied' : undefined;
  const answered = items.find((item) => item.type === 'call-answered' && item.index === index);
  if (answered?.type !== 'call-answered' || !answered.result.isError) return undefined;
  return answered.result.errorType === 'denied' || event.type === 'approval-given' ? 'denied' : 'error';
}

/** A policy has denied a call, or a guardrail has stopped the run. */
export function isRefused(event: Event): boolean {
  if (event.type === 'calls-judged') return event.verdicts.some(({ type }) => type === 'deny');
  return event.type === 'guardrails-checked' && event.verdicts.some(({ type }) => type === 'stop');
}
