import { checkCall, type Checked } from '../../tools/check.ts';
import type { Call } from '../types.ts';
import type { Stage } from './stage.ts';

/** The validated inputs of the calls of the last reply, as their tools get them. After a crash they are made again. */
export interface Inputs {
  keep(turn: number, checked: readonly Checked[]): void;
  /** `problem`: why there is no input. */
  use<T>(call: Call, take: (input: unknown, problem?: string) => T): T | Promise<T>;
}

export const ABSENT = 'It is not available in this process.';

export function inputs({ tools }: Stage): Inputs {
  let last: { readonly turn: number; readonly checked: readonly Checked[] } = { turn: 0, checked: [] };
  return {
    keep(turn, checked) {
      last = { turn, checked };
    },
    use(call, take) {
      if (last.turn === call.turn) return take(last.checked[call.index]!.input);
      const tool = tools.get(call.name);
      if (!tool) return take(undefined, ABSENT);
      const checked = checkCall(tool, call.arguments, false);
      const read = ({ check, input }: Checked): ReturnType<typeof take> => take(input, check.problem);
      return checked instanceof Promise ? checked.then(read) : read(checked);
    },
  };
}
