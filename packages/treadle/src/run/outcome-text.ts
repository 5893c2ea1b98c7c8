import type { LoopResult, Outcome, Waiting } from '@treadle/core';
import { EXIT } from '../command-line/command.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';

/** How a run ended; undefined if it completed with a whole answer. */
export function outcomeText(result: Omit<LoopResult, 'orThrow'>): string | undefined {
  const { outcome, waiting, detached } = result;
  if (detached) return `Stopped after ${workText(result)}.`;
  if (!outcome) return `Paused: waits for ${waiting.map(waitingText).join('; ')}.`;
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? `Completed, but ${TRUNCATED}.` : undefined;
    case 'exhausted':
      return `Stopped at ${LIMITS[outcome.limit]}, after ${workText(result)}.`;
    case 'failed':
      return `Failed (${outcome.error.code}): ${printable(outcome.error.message)}`;
    case 'cancelled':
      return `Cancelled ${CANCELLED[outcome.phase]}, after ${workText(result)}.`;
  }
}

/** What to print beside the type of an outcome. */
export function outcomeDetail(outcome: Outcome): string | undefined {
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? TRUNCATED : undefined;
    case 'exhausted':
      return LIMITS[outcome.limit];
    case 'failed':
      return errorText(outcome.error);
    case 'cancelled':
      return CANCELLED[outcome.phase];
  }
}

export function errorText({ code, message }: { readonly code: string; readonly message: string }): string {
  return `${code}: ${message}`;
}

const TRUNCATED = 'the answer was cut off at the length limit of the model';

const LIMITS: Readonly<Record<(Outcome & { type: 'exhausted' })['limit'], string>> = {
  turns: 'the turn limit (--max-turns)',
  attempts: 'the attempt limit',
  calls: 'the call limit',
  tokens: 'the token limit',
  cost: 'the cost limit',
  duration: 'the time limit',
  errors: 'the limit of consecutive turns with only errors',
  repetition: 'the limit of repeated identical calls',
  budget: 'the limit of a budget',
};

const CANCELLED: Readonly<Record<(Outcome & { type: 'cancelled' })['phase'], string>> = {
  model: 'while the model was replying',
  tool: 'while a tool was running',
  approval: 'while waiting for approval',
  client: 'while waiting for a client result',
  validation: 'while the answer was being validated',
};

export function workText({ turns, calls }: Pick<LoopResult, 'turns' | 'calls'>): string {
  return `${plural(turns, 'turn')} and ${plural(calls, 'call')}`;
}

export function waitingText(waiting: Waiting): string {
  const call = oneLine(`${waiting.call.name} ${waiting.call.arguments}`, 200);
  if (waiting.type === 'question') return `the answer to "${oneLine(waiting.question.prompt, 200)}" of ${call}`;
  return waiting.type === 'approval' ? `approval of ${call}` : `the result of ${call}`;
}

export function exitCodeOf({ outcome, detached }: Pick<LoopResult, 'outcome' | 'detached'>): number {
  if (outcome) return EXIT[outcome.type];
  return detached ? EXIT.cancelled : EXIT.paused;
}
