import type { FinishStrategy } from './strategy.ts';

/** A reply without calls is the answer. */
export const plain: FinishStrategy = {
  onText: () => ({ type: 'end' }),
};
