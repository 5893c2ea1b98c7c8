import { checkCall, type Checked } from '../../tools/execute.ts';
import type { Call } from '../state.ts';
import type { Stage } from './stage.ts';

/** The validated inputs of the calls of the last reply, as their tools get them. After a crash they are made again. */
export interface Inputs {
  keep(turn: number, checked: readonly Checked[]): void;
  of(call: Call): Checked | Promise<Checked>;
}

/** For a call of a tool for which there is no code here. */
export const ABSENT: Checked = { check: { problem: 'It is not available in this process.' } };

export function inputs({ tools }: Stage): Inputs {
  let last: { readonly turn: number; readonly checked: readonly Checked[] } = { turn: 0, checked: [] };
  return {
    keep(turn, checked) {
      last = { turn, checked };
    },
    of(call) {
      if (last.turn === call.turn) return last.checked[call.index]!;
      const tool = tools.get(call.name);
      return tool ? checkCall(tool, call.arguments, false) : ABSENT;
    },
  };
}
