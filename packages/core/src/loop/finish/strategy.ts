import type { Rules } from '../pinned.ts';
import type { State } from '../state.ts';

/** When a run is done, as pure functions over the state. A closed set, named in the rules. */
export interface FinishStrategy {
  /** What a reply without calls means; it is in the history already. */
  readonly onText: (state: State) => Move;
}

export type Move = { readonly type: 'end' } | { readonly type: 'confirm'; readonly ask: string };

/** All there are. */
export const FINISHES: readonly Rules['finish'][] = ['plain', 'confirm'];
