import type { Limit, Rules, ToolResult } from '@treadle/core';
import type { Disposition } from './disposition.ts';
import { streakOf, type Streak } from './streak.ts';
import type { CallRecord } from './turns.ts';

/** What the model does too often, as it is counted when a turn has its results. */
export interface Tally extends Pick<Streak, 'isFull'> {
  readonly count: (call: readonly Counted[]) => void;
  /** Turns in a row with nothing but errors. */
  readonly errors: () => number;
  /** Replies of which the calls limit refused a call. */
  readonly spent: () => number;
  readonly met: (rules: Rules) => Limit | undefined;
}

export interface Counted {
  readonly call: CallRecord;
  readonly disposition: Disposition;
  readonly result: ToolResult;
  readonly polling: boolean;
}

/** The loop's own limits are no errors of the model, and neither is what a typed agent says of its own calls. */
const COUNT: readonly Disposition[] = ['runs', 'refused', 'repeated'];

export function tallyOf(): Tally {
  const { isFull, follow, refusals } = streakOf();
  let [errors, spent] = [0, 0];
  return {
    isFull,
    errors: () => errors,
    spent: () => spent,
    count(calls) {
      for (const { call, disposition, result, polling } of calls) follow(call, disposition, result, polling);
      const counted = calls.filter(({ disposition }) => COUNT.includes(disposition));
      if (counted.some(({ result }) => !result.isError)) errors = 0;
      else if (counted.length > 0) errors++;
      if (calls.some(({ disposition }) => disposition === 'spent')) spent++;
    },
    met({ errorLimit }) {
      if (refusals() >= 2) return 'repetition';
      if (errorLimit > 0 && errors >= errorLimit) return 'errors';
      return spent > 1 ? 'calls' : undefined;
    },
  };
}
