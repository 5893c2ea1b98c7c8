import { itemsBetween, NEW, step, type Item, type JournalEntry, type State } from '@treadle/core';

/** One entry of a journal, and what it meant. */
export interface Moment {
  readonly entry: JournalEntry;
  /** Absent from where on the journal does not replay any more. */
  readonly states: { readonly before: State; readonly after: State } | undefined;
  /** It is the first that does not. */
  readonly departs: boolean;
  readonly items: readonly Item[];
  /** From when the effect that it settles was issued, or was issued again after a loss. */
  readonly tookMs: number | undefined;
}

/** A run as its journal tells it. The whole of it, also where the conversation was made shorter later. */
export function momentsOf(entries: readonly JournalEntry[]): readonly Moment[] {
  const issuedAt = new Map<string, number>();
  let state: State | undefined = NEW;
  return entries.map((entry): Moment => {
    const { event, issued } = entry;
    const began = 'effect' in event && event.effect !== undefined ? issuedAt.get(event.effect) : undefined;
    for (const effect of issued) issuedAt.set(effect, event.at);
    const before: State | undefined = state;
    const next = before && step(before, event);
    state = next && next.state !== before ? next.state : undefined;
    return {
      entry,
      states: before && state && { before, after: state },
      departs: before !== undefined && state === undefined,
      items: before && state && next ? itemsBetween(before, state, next.effects) : [],
      tookMs: began === undefined ? undefined : Math.max(0, event.at - began),
    };
  });
}
