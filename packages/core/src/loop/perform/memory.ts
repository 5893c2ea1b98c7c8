import { messageOf } from '../../errors.ts';
import type { Execution, Settled } from '../../tools/execute.ts';
import { errorResult } from '../../tools/result.ts';
import { isPlain } from '../../plain.ts';
import type { Memory } from '../pinned.ts';

/** What the helpers of a typed agent remember, for one of them to read and change: a copy, kept if it succeeds. */
export function draftOf(memory: Memory | undefined): Memory | undefined {
  return memory && (JSON.parse(JSON.stringify(memory)) as Memory);
}

/**
 * The result with what the helper has changed, as plain JSON, so that it is the same after a crash. `was` is what it
 * began with: what others have written meanwhile is theirs, and stays.
 */
export function remembering(was: Memory | undefined, { memory: draft }: Execution, result: Settled): Settled {
  if (!draft || !('type' in result) || result.type !== 'result' || result.isError) return result;
  try {
    if (!isPlain(draft)) throw new Error('it holds more than JSON can say, such as a Date, a Set or a class');
    const changed = (['run', 'attempt'] as const).flatMap((part): [string, unknown][] => {
      const now = JSON.stringify(draft[part]);
      return now === undefined || now === JSON.stringify(was?.[part]) ? [] : [[part, JSON.parse(now)]];
    });
    return changed.length === 0 ? result : { ...result, memory: Object.fromEntries(changed) };
  } catch (thrown) {
    return errorResult(`What it left in the state of the agent cannot be kept as JSON: ${messageOf(thrown)}`);
  }
}
