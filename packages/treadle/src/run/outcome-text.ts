import type { LoopResult, Outcome, Waiting } from '@treadle/core';
import { plural } from '../terminal/quantities.ts';
import { oneLine, printable } from '../terminal/printable.ts';

/** What there is to say about how a run ended besides its answer; nothing when all is well. */
export function outcomeText(result: LoopResult): string | undefined {
  const { outcome, waiting, detached } = result;
  if (detached) return `Stopped after ${workText(result)}.`;
  if (!outcome) return `Paused: it waits for ${waiting.map(waitingText).join('; ')}.`;
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? "The model's answer was cut off at its length limit." : undefined;
    case 'exhausted':
      return `Stopped at ${LIMITS[outcome.limit]}, after ${workText(result)}.`;
    case 'failed':
      return `Failed (${outcome.error.code}): ${printable(outcome.error.message)}`;
    case 'cancelled':
      return `Cancelled ${CANCELLED[outcome.phase]}, after ${workText(result)}.`;
  }
}

/** What there is to say beside the name of an outcome. */
export function outcomeDetail(outcome: Outcome): string | undefined {
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? 'the answer was cut off at its length limit' : undefined;
    case 'exhausted':
      return LIMITS[outcome.limit];
    case 'failed':
      return `${outcome.error.code}: ${outcome.error.message}`;
    case 'cancelled':
      return CANCELLED[outcome.phase];
  }
}

type Limit = (Outcome & { type: 'exhausted' })['limit'];
type Phase = (Outcome & { type: 'cancelled' })['phase'];

const LIMITS: Readonly<Record<Limit, string>> = {
  turns: 'the limit of turns (--max-turns)',
  attempts: 'the limit of attempts',
  calls: 'the limit of calls',
  tokens: 'the limit of tokens',
  cost: 'the limit of cost',
  duration: 'the limit of time',
  errors: 'too many turns in a row with nothing but errors',
  repetition: 'the same call made again and again',
};

const CANCELLED: Readonly<Record<Phase, string>> = {
  model: 'while the model was answering',
  tool: 'while a tool was running',
  approval: 'while an approval was awaited',
  client: 'while a result from outside was awaited',
  validation: 'while the answer was being checked',
};

export function workText({ turns, calls }: Pick<LoopResult, 'turns' | 'calls'>): string {
  return `${plural(turns, 'turn')} and ${plural(calls, 'call')}`;
}

export function waitingText(waiting: Waiting): string {
  const call = oneLine(`${waiting.call.name} ${waiting.call.arguments}`, 200);
  return waiting.type === 'approval' ? `approval of ${call}` : `the result of ${call}`;
}
