import type { Effect, Event, Handoff, Narrowing, Outcome, Rules, Waiting } from '@treadle/core';

/**
 * What can be derived about a run from the events that were applied and the effects that were issued. The properties
 * compare with this, and never rely on the state itself.
 */
export interface Observed {
  readonly phase: 'new' | 'live' | 'ended';
  /** Issued and not settled, by id. */
  readonly open: ReadonlyMap<string, Open>;
  /** Calls whose child run has started, by the id of their effect. */
  readonly begun: ReadonlySet<string>;
  /** The time of the last event, and the active time until then. */
  readonly at: number;
  readonly activeMs: number;
  readonly rules: Rules | undefined;
  /** Something has narrowed what the run may do. */
  readonly narrowed: boolean;
  /** The model call whose failure ended the run. If it is marked as lost, it is repeated, and the run continues. */
  readonly failed: string | undefined;
  /** The model call that is repeated if the compaction succeeds, and has failed otherwise. */
  readonly refused: string | undefined;
}

export interface Open {
  readonly effect: Effect;
  /** Where the call is parked, and what it waits for there. */
  readonly parked: { readonly on: string; readonly waiting: readonly Waiting[] } | undefined;
}

export const NOTHING_OBSERVED: Observed = {
  phase: 'new',
  open: new Map(),
  begun: new Set(),
  at: 0,
  activeMs: 0,
  rules: undefined,
  narrowed: false,
  failed: undefined,
  refused: undefined,
};

/** Whether an event must be applied. */
export function shouldApply(observed: Observed, event: Event): boolean {
  const live = observed.phase === 'live';
  const open = 'effect' in event && event.effect !== undefined ? observed.open.get(event.effect) : undefined;
  const kind = open?.effect.type;
  switch (event.type) {
    case 'run-started':
      return observed.phase === 'new';
    case 'input-added':
      return live && event.messages.length > 0;
    case 'tools-changed':
      return live || observed.failed !== undefined;
    case 'narrowing-lifted':
      return live && observed.narrowed;
    case 'run-forked':
    case 'cancel-requested':
      return live;
    case 'turn-prepared':
      return kind === 'prepare-turn';
    case 'history-compacted':
      return kind === 'compact-history';
    case 'output-checked':
      return kind === 'validate-output';
    case 'model-replied':
    case 'model-failed':
      return kind === 'call-model';
    case 'guardrails-checked':
      return kind === 'check-guardrails';
    case 'calls-judged':
      return kind === 'judge-calls';
    case 'tool-settled':
      return kind === 'verify-tool' || (kind === 'call-tool' && event.result.type === 'result');
    case 'child-started':
      return kind === 'call-tool' && !open!.parked && !observed.begun.has(event.effect);
    case 'tool-parked':
      return kind === 'call-tool' && !open!.parked;
    case 'client-result-given':
      return kind === 'await-client';
    case 'approval-given':
      return open?.effect.type === 'ask-approval' && open.effect.digest === event.digest;
    case 'effect-lost':
      if (observed.failed !== undefined) return event.effect === observed.failed;
      return kind !== undefined && kind !== 'ask-approval' && kind !== 'await-client';
    case 'deadline-passed':
      if (event.effect !== undefined) return open?.effect.type === 'ask-approval' && event.at >= open.effect.expiresAt;
      return live && activeMsAt(observed, event.at) >= (observed.rules!.limits.durationMs ?? Infinity);
    default:
      return event satisfies never;
  }
}

/** What is observed after an event was applied. */
export function observedAfter(
  observed: Observed,
  event: Event,
  effects: readonly Effect[],
  outcome: Outcome | undefined,
): Observed {
  const restarted = event.type === 'effect-lost' && event.cause === 'restart';
  const began = event.type === 'run-started';
  const open = new Map(observed.open);
  const begun = new Set(observed.begun);
  if ('effect' in event && event.effect !== undefined) {
    const outstanding = open.get(event.effect);
    if (event.type === 'child-started') begun.add(event.effect);
    else if (event.type !== 'tool-parked') open.delete(event.effect);
    else if (outstanding)
      open.set(event.effect, { ...outstanding, parked: { on: event.on, waiting: event.waiting ?? [] } });
  }
  if (event.type === 'effect-lost') {
    const lost = observed.open.get(event.effect);
    // Only a call that may be repeated resumes what it has started; a parked one has started something.
    if (!mayRepeat(lost?.effect)) begun.delete(event.effect);
    else if (lost?.parked) begun.add(event.effect);
  }
  for (const effect of effects) open.set(effect.id, { effect, parked: undefined });
  if (outcome) open.clear();
  return {
    phase: outcome ? 'ended' : 'live',
    open,
    begun,
    at: Math.max(observed.at, event.at),
    activeMs: restarted || began ? observed.activeMs : activeMsAt(observed, event.at),
    rules: began ? event.rules : observed.rules,
    narrowed: event.type !== 'narrowing-lifted' && (observed.narrowed || narrowIn(event) !== undefined),
    failed: outcome?.type === 'failed' ? (refusedAfter(observed, event) ?? failedStill(observed, event)) : undefined,
    refused: outcome || event.type === 'history-compacted' ? undefined : refusedAfter(observed, event),
  };
}

/** How an event narrows the run. */
export function narrowIn(event: Event): Narrowing | undefined {
  if (event.type === 'run-started') return event.narrow;
  return event.type === 'tool-settled' && event.result.type === 'result' ? event.result.narrow : undefined;
}

/** The agent that an event hands the run over to, and the index of the call. */
export function handoffIn(event: Event): (Handoff & { readonly index: number }) | undefined {
  if (event.type !== 'tool-settled' || event.result.type !== 'result' || !event.result.handoff) return undefined;
  return { ...event.result.handoff, index: Number(event.effect.split('.').at(-1)) };
}

function mayRepeat(effect: Effect | undefined): boolean {
  return effect?.type === 'call-tool' && (effect.call.effect === 'pure' || effect.call.effect === 'idempotent');
}

/** A change of tools does not repeat the failed call. */
function failedStill({ failed }: Observed, { type }: Event): string | undefined {
  return type === 'tools-changed' ? failed : undefined;
}

function refusedAfter({ refused }: Observed, event: Event): string | undefined {
  return event.type === 'model-failed' ? event.effect : refused;
}

/** No effect is in progress, and all outstanding ones wait for something external. */
export function isWaiting({ phase, open }: Observed): boolean {
  return phase === 'live' && open.size > 0 && [...open.values()].every((one) => isExternal(one));
}

export function isExternal({ effect, parked }: Open): boolean {
  return parked !== undefined || effect.type === 'ask-approval' || effect.type === 'await-client';
}

/** The active time: it excludes the time in which no effect is in progress, and never decreases. */
export function activeMsAt(observed: Observed, at: number): number {
  return observed.activeMs + (isWaiting(observed) || observed.phase === 'ended' ? 0 : Math.max(0, at - observed.at));
}
