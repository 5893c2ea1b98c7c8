import type { Rules } from '../pinned.ts';
import { confirm } from './confirm.ts';
import { output } from './output.ts';
import { plain } from './plain.ts';
import type { FinishStrategy } from './strategy.ts';

const FINISH: Record<Rules['finish'], FinishStrategy> = { plain, confirm, output };

export function finishOf({ finish }: Rules): FinishStrategy {
  return FINISH[finish];
}
