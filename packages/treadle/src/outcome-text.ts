import type { LoopResult, Outcome, Waiting } from '@treadle/core';
import { oneLine, printable } from './printable.ts';

/** What there is to say about how a run ended besides its answer; nothing when all is well. */
export function outcomeText(result: LoopResult): string | undefined {
  const { outcome, waiting } = result;
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

type Limit = (Outcome & { type: 'exhausted' })['limit'];
type Phase = (Outcome & { type: 'cancelled' })['phase'];

const LIMITS: Readonly<Record<Limit, string>> = {
  turns: 'the limit of turns (--max-turns)',
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

function workText({ turns, calls }: LoopResult): string {
  return `${turns} turn${turns === 1 ? '' : 's'} and ${calls} call${calls === 1 ? '' : 's'}`;
}

function waitingText(waiting: Waiting): string {
  const call = oneLine(`${waiting.call.name} ${waiting.call.arguments}`, 200);
  return waiting.type === 'approval' ? `approval of ${call}` : `the result of ${call}`;
}
