import type { ToolCall } from '../../messages.ts';
import type { Event } from '../events.ts';
import type { Rules } from '../rules.ts';
import type { Slot, State } from '../state.ts';
import { wordingOf } from '../wording.ts';
import { output } from './output.ts';

/** Decides when a run is done, as pure functions over the state. A closed set, named in the rules. */
export interface FinishStrategy {
  /** Decides what a reply without calls means. The history already has the reply, unless it is empty. */
  readonly onText: (state: State) => Move;
  /** Only calls can complete the run. `onText` handles every other reply, also an empty one or if a call is required. */
  readonly byCalls?: true;
  /** Returns what happens to the calls that the strategy claims. */
  readonly claim?: (state: State, calls: readonly ToolCall[]) => (index: number) => Claim | undefined;
  /** Called when all calls of a turn except held ones have results. */
  readonly onResults?: (state: State, slots: readonly Slot[]) => Move;
  /** Called when an output was checked. The verdict answers the held calls of its turn. */
  readonly onChecked?: (state: State, result: CheckedOutput) => Move;
}

export type CheckedOutput = Extract<Event, { type: 'output-checked' }>['result'];

/** `run`: like any call, but without counting for limits. `hold`: until the output is validated. `answer`: at once. */
export type Claim =
  | { readonly type: 'run' }
  | { readonly type: 'hold' }
  | { readonly type: 'answer'; readonly text: string; readonly isError: boolean };

/** What to do next. `ask` continues after sending a text to the model. */
export type Move = { readonly changes?: StrategyState } & (
  | { readonly type: 'end' | 'continue' }
  | { readonly type: 'exhaust'; readonly limit: 'attempts' }
  | { readonly type: 'fail'; readonly code: string; readonly message: string }
  | { readonly type: 'ask'; readonly text: string }
  | { readonly type: 'validate'; readonly text: string }
);

/** The part of the state that a strategy may change. */
type StrategyState = Partial<Pick<State, 'agent' | 'confirmed'>>;

/** A reply without calls is the answer. */
const plain: FinishStrategy = {
  onText: () => ({ type: 'end' }),
};

/**
 * After the first reply without calls the model is asked once whether everything is done. It may call tools in reply;
 * its next reply without calls restates the answer and ends the run. Without tools there is nothing left to do, so it is
 * not asked, except in runs of earlier versions, which have no marks.
 */
const confirm: FinishStrategy = {
  onText: (state) =>
    state.confirmed || (state.rules.marks && state.tools.length === 0)
      ? { type: 'end' }
      : { type: 'ask', text: wordingOf(state.rules).confirm, changes: { confirmed: true } },
};

const FINISH: Record<Rules['finish'], FinishStrategy> = { plain, confirm, output };

/** False for a strategy of a later version. */
export function hasFinish({ finish }: Rules): boolean {
  return Object.hasOwn(FINISH, finish);
}

export function finishOf({ finish }: Rules): FinishStrategy {
  return FINISH[finish];
}
