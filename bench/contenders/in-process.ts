import { callArguments } from '../server/script.ts';

/** The replies of every in-process model, the same for all contenders. */
export const DELTA = 'word ';
export const ANSWER = 'done';
export const CALL_ARGUMENTS: readonly string[] = Array.from({ length: 100 }, (_, index) => callArguments(index));

export function callId(turn: number): string {
  return `call_${turn}`;
}
