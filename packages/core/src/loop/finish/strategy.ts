import type { ToolCall } from '../../messages.ts';
import type { Event } from '../events.ts';
import type { Slot, State } from '../state.ts';

/** When a run is done, as pure functions over the state. A closed set, named in the rules. */
export interface FinishStrategy {
  /** What a reply without calls means; it is in the history already, unless it is empty. */
  readonly onText: (state: State) => Move;
  /** Only calls will do: `onText` decides, and neither the standing tool choice nor an empty reply does. */
  readonly byCalls?: true;
  /** What becomes of calls that it takes for itself. */
  readonly claim?: (state: State, calls: readonly ToolCall[]) => (index: number) => Claim | undefined;
  /** What it means that all calls of a turn but the held ones have their results. */
  readonly onResults?: (state: State, slots: readonly Slot[]) => Move;
  /** What it means that an output was checked; the calls of its turn are answered. */
  readonly onChecked?: (state: State, result: CheckedOutput) => Move;
}

export type CheckedOutput = Extract<Event, { type: 'output-checked' }>['result'];

/** `run`: as any call, but counted for no limit. `hold`: until the output is validated. `answer`: at once, so. */
export type Claim =
  | { readonly type: 'run' }
  | { readonly type: 'hold' }
  | { readonly type: 'answer'; readonly text: string; readonly isError: boolean };

/** Where it goes from here. `ask`: on, after these words to the model. */
export type Move = { readonly note?: Note } & (
  | { readonly type: 'end' | 'go-on' }
  | { readonly type: 'exhaust'; readonly limit: 'attempts' }
  | { readonly type: 'fail'; readonly code: string; readonly message: string }
  | { readonly type: 'ask'; readonly words: string }
  | { readonly type: 'validate'; readonly text: string }
);

/** What it wants to know later. */
export type Note = Partial<Pick<State, 'agent' | 'confirmed'>>;
