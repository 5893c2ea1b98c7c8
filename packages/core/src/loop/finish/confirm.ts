import { wordingOf } from '../wording.ts';
import type { FinishStrategy } from './strategy.ts';

/**
 * The first reply without calls is met with the question whether everything is done. Calls in answer to it go on as
 * usual; the next reply without calls, which restates the answer, ends the run.
 */
export const confirm: FinishStrategy = {
  onText: (state) =>
    state.confirmed
      ? { type: 'end' }
      : { type: 'ask', words: wordingOf(state.rules).confirm, note: { confirmed: true } },
};
