import type { Rules } from '../pinned.ts';
import { confirm } from './confirm.ts';
import { output } from './output.ts';
import { plain } from './plain.ts';
import type { FinishStrategy } from './strategy.ts';

const FINISH: Record<Rules['finish'], FinishStrategy> = { plain, confirm, output };

/** A later version of the code may have started the run with one that this one does not have. */
export function hasFinish({ finish }: Rules): boolean {
  return Object.hasOwn(FINISH, finish);
}

export function finishOf({ finish }: Rules): FinishStrategy {
  return FINISH[finish];
}
