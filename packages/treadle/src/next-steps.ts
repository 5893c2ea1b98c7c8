import type { LoopResult, Waiting } from '@treadle/core';
import { again, againThere, type RepeatedValues } from './again.ts';
import { shortId } from './runs/run-id.ts';

/** What the user can do about a run that has not come to its end; nothing when it has. */
export function nextSteps(
  result: LoopResult,
  about: {
    /** It is in a store, so it can be gone on with. */
    readonly kept: boolean;
    /** It ended because the model could not be asked. */
    readonly canRetry: boolean;
    /** There is a terminal to ask on. */
    readonly canAsk: boolean;
    /** What was given, so that the commands find the same store and model. */
    readonly values: RepeatedValues;
  },
): readonly string[] {
  const { outcome, detached, waiting, turns } = result;
  const { kept, canRetry, canAsk, values } = about;
  const id = shortId(result.runId);
  if (outcome) {
    return kept && outcome.type === 'failed' && canRetry
      ? [`Try again with: ${again(['runs', 'resume', id], values)}`]
      : [];
  }
  if (detached) {
    if (turns === 0) return ['Nothing had begun.'];
    return [
      `Go on with: ${again(['runs', 'resume', id], values)}`,
      `End it with: ${againThere(['runs', 'cancel', id], values)}`,
    ];
  }
  const asks = waiting.some(({ type }) => type === 'approval');
  const reason = asks && !canAsk ? ['There is no terminal to ask on.'] : [];
  if (!kept) return [...reason, 'Run it in a terminal, without --ask, or with a store to go on with it later.'];
  return [...reason, `Go on with: ${again(['runs', 'resume', id, ...waiting.flatMap(answerFlags)], values)}`];
}

/** The flags of `runs resume` that it waits for. */
export function answerFlags(waiting: Waiting): readonly string[] {
  if (waiting.type === 'approval') return ['--approve', waiting.effect];
  return waiting.type === 'client' ? ['--answer', `${waiting.effect}=RESULT`] : [];
}
