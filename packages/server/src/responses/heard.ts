import { itemsBetween, NEW, step, type Item, type Journal, type State } from '@treadle/core';

export interface Heard {
  readonly items: readonly Item[];
  /** `NEW`: it has not begun. */
  readonly state: State;
}

/** All that a run has told so far, as its journal has it. */
export async function heardOf(journal: Journal, runId: string): Promise<Heard> {
  const items: Item[] = [];
  let state = NEW;
  for (const { seq, event } of await journal.read(runId)) {
    const next = step(state, event);
    items.push({ type: 'fact', seq, event }, ...itemsBetween(state, next.state, next.effects));
    state = next.state;
  }
  return { items, state };
}
