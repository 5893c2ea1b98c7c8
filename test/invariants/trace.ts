import type { Effect, Event, Message, Outcome, State } from '@treadle/core';
import type { Books } from './books.ts';
import type { World } from './world.ts';

/** All that was fed to a run, taken or not, and what came of it. */
export interface Trace {
  readonly world: World;
  readonly moments: readonly Moment[];
  /** The world had nothing more to say. */
  readonly last: Moment;
  /** More than one effect could settle at some moment, so that another order was possible. */
  readonly hadChoice: boolean;
}

export interface Moment {
  readonly event: Event;
  readonly taken: boolean;
  readonly before: State;
  readonly after: State;
  readonly effects: readonly Effect[];
  readonly books: { readonly before: Books; readonly after: Books };
}

export function messagesOf({ history }: Pick<State, 'history'>): readonly Message[] {
  return history.items.slice(0, history.length);
}

export function outcomeOf({ phase }: State): Outcome | undefined {
  return phase.type === 'ended' ? phase.outcome : undefined;
}

/** Says that a property does not hold. */
export function demand(holds: boolean, otherwise: () => string): asserts holds {
  if (!holds) throw new Error(otherwise());
}

export function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
