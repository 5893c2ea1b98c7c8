import type { Effect, Event, Message, Outcome, State } from '@treadle/core';
import type { Observed } from './observed.ts';
import type { World } from './world.ts';

/** All events that were fed to a run, applied or ignored, and what followed. */
export interface Trace {
  readonly world: World;
  readonly moments: readonly Moment[];
  /** The last moment: nothing more happens in the world. */
  readonly last: Moment;
  /** More than one effect could settle at some moment, so that another order was possible. */
  readonly hadChoice: boolean;
}

export interface Moment {
  readonly event: Event;
  readonly applied: boolean;
  readonly before: State;
  readonly after: State;
  readonly effects: readonly Effect[];
  readonly observed: { readonly before: Observed; readonly after: Observed };
}

export function messagesOf({ history }: Pick<State, 'history'>): readonly Message[] {
  return history.items.slice(0, history.length);
}

export function outcomeOf({ phase }: State): Outcome | undefined {
  return phase.type === 'ended' ? phase.outcome : undefined;
}

/** Throws if a property does not hold. */
export function ensure(holds: boolean, message: () => string): asserts holds {
  if (!holds) throw new Error(message());
}

export function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
