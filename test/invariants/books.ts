import type { Effect, Event, Outcome, Rules, Waiting } from '@treadle/core';

/**
 * What a witness knows of a run who sees only the facts that were taken and the effects that were issued. The
 * properties expect by this, never by what the state says about itself.
 */
export interface Books {
  readonly phase: 'new' | 'live' | 'ended';
  /** Issued and not settled, by id. */
  readonly open: ReadonlyMap<string, Open>;
  /** When the last fact was, and how long the run has worked until then. */
  readonly at: number;
  readonly activeMs: number;
  readonly rules: Rules | undefined;
  /** The model call by whose failure the run ended: given up for lost, it is made again, and the run goes on. */
  readonly failed: string | undefined;
  /** The model call that is made again if the conversation gets shorter, and has failed if not. */
  readonly refused: string | undefined;
}

export interface Open {
  readonly effect: Effect;
  /** Where it goes on, and what it waits for there. */
  readonly parked: { readonly on: string; readonly waiting: readonly Waiting[] } | undefined;
}

export const BLANK: Books = {
  phase: 'new',
  open: new Map(),
  at: 0,
  activeMs: 0,
  rules: undefined,
  failed: undefined,
  refused: undefined,
};

/** Whether a fact should be taken. */
export function expects(books: Books, event: Event): boolean {
  const live = books.phase === 'live';
  const open = 'effect' in event && event.effect !== undefined ? books.open.get(event.effect) : undefined;
  const kind = open?.effect.type;
  switch (event.type) {
    case 'run-started':
      return books.phase === 'new';
    case 'input-added':
      return live && event.messages.length > 0;
    case 'tools-changed':
      return live || books.failed !== undefined;
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
    case 'calls-judged':
      return kind === 'judge-calls';
    case 'tool-settled':
      return kind === 'verify-tool' || (kind === 'call-tool' && event.result.type === 'result');
    case 'tool-parked':
      return kind === 'call-tool' && !open!.parked;
    case 'client-result-given':
      return kind === 'await-client';
    case 'approval-given':
      return open?.effect.type === 'ask-approval' && open.effect.digest === event.digest;
    case 'effect-lost':
      if (books.failed !== undefined) return event.effect === books.failed;
      return kind !== undefined && kind !== 'ask-approval' && kind !== 'await-client';
    case 'deadline-passed':
      if (event.effect !== undefined) return open?.effect.type === 'ask-approval' && event.at >= open.effect.expiresAt;
      return live && activeMsAt(books, event.at) >= (books.rules!.limits.durationMs ?? Infinity);
    default:
      return event satisfies never;
  }
}

/** The books after a fact was taken. */
export function entered(books: Books, event: Event, effects: readonly Effect[], outcome: Outcome | undefined): Books {
  const restarted = event.type === 'effect-lost' && event.cause === 'restart';
  const began = event.type === 'run-started';
  const open = new Map(books.open);
  if ('effect' in event && event.effect !== undefined) {
    const told = open.get(event.effect);
    if (event.type !== 'tool-parked') open.delete(event.effect);
    else if (told) open.set(event.effect, { ...told, parked: { on: event.on, waiting: event.waiting ?? [] } });
  }
  for (const effect of effects) open.set(effect.id, { effect, parked: undefined });
  if (outcome) open.clear();
  return {
    phase: outcome ? 'ended' : 'live',
    open,
    at: Math.max(books.at, event.at),
    activeMs: restarted || began ? books.activeMs : activeMsAt(books, event.at),
    rules: began ? event.rules : books.rules,
    failed: outcome?.type === 'failed' ? (refusedAfter(books, event) ?? failedStill(books, event)) : undefined,
    refused: outcome || event.type === 'history-compacted' ? undefined : refusedAfter(books, event),
  };
}

/** A change of tools does not mend it. */
function failedStill({ failed }: Books, { type }: Event): string | undefined {
  return type === 'tools-changed' ? failed : undefined;
}

function refusedAfter({ refused }: Books, event: Event): string | undefined {
  return event.type === 'model-failed' ? event.effect : refused;
}

/** Nothing works, and everything waits for somebody outside. */
export function isAtRest({ phase, open }: Books): boolean {
  return phase === 'live' && open.size > 0 && [...open.values()].every((one) => isOutside(one));
}

export function isOutside({ effect, parked }: Open): boolean {
  return parked !== undefined || effect.type === 'ask-approval' || effect.type === 'await-client';
}

/** Time in which nothing works does not count, and a clock that goes back takes nothing away. */
export function activeMsAt(books: Books, at: number): number {
  return books.activeMs + (isAtRest(books) || books.phase === 'ended' ? 0 : Math.max(0, at - books.at));
}
