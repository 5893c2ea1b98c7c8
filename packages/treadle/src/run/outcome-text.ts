import type { LoopResult, Waiting } from '@treadle/core';
import { outcomeDetail, plural, waitingText as describeWaiting } from '@treadle/core/describe';
import { EXIT } from '../command-line/command.ts';
import { exactLine, oneLine, printable } from '../terminal/printable.ts';

export { outcomeDetail };

/** How a run ended; undefined if it completed with a whole answer. */
export function outcomeText(result: Omit<LoopResult, 'orThrow'>): string | undefined {
  const { outcome, waiting, detached } = result;
  if (detached) return `Stopped after ${workText(result)}.`;
  if (!outcome) return `Paused: waits for ${waiting.map(waitingText).join('; ')}.`;
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? `Completed, but ${outcomeDetail(outcome)}.` : undefined;
    case 'exhausted':
      return `Stopped at ${outcomeDetail(outcome)}${outcome.limit === 'turns' ? ' (--max-turns)' : ''}, after ${workText(result)}.`;
    case 'failed':
      return `Failed (${outcome.error.code}): ${printable(outcome.error.message)}`;
    case 'cancelled':
      return `Cancelled ${outcomeDetail(outcome)}, after ${workText(result)}.`;
  }
}

export function workText({ turns, calls }: Pick<LoopResult, 'turns' | 'calls'>): string {
  return `${plural(turns, 'turn')} and ${plural(calls, 'call')}`;
}

/** On one line, with everything visible: it may wait for an approval. */
export function waitingText(waiting: Waiting): string {
  return describeWaiting(waiting, (text) => oneLine(exactLine(text), 200));
}

export function exitCodeOf({ outcome, detached }: Pick<LoopResult, 'outcome' | 'detached'>): number {
  if (outcome) return EXIT[outcome.type];
  return detached ? EXIT.cancelled : EXIT.paused;
}
