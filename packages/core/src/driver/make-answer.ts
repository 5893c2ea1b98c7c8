import { TreadleError } from '../errors.ts';
import type { Waiting } from '../machine/state.ts';
import { errorFactsOf, resultOf } from '../tools/result.ts';
import type { Answer } from './options.ts';

type Approval = Extract<Answer, { type: 'approval' }>;

/** Who gave an answer, and the signature for `verifyAnswer`. */
export type AnswerFacts = Pick<Approval, 'by' | 'signature'>;

/** The answer that approves a call. `wait` is an entry of `waiting`. Throws if it does not wait for an approval. */
export function approve(wait: Waiting, facts: AnswerFacts & Pick<Approval, 'forRun'> = {}): Answer {
  return approvalOf(wait, { ...facts, approved: true });
}

/** The answer that denies a call. The model is told the reason. */
export function deny(wait: Waiting, reason?: string, facts: AnswerFacts = {}): Answer {
  return approvalOf(wait, { ...facts, approved: false, ...(reason !== undefined && { reason }) });
}

/**
 * The answer to a question, or the result of a call that the client executes or that is parked: any value that a tool may
 * return, also `{ content, isError: true }`. Throws for a call that waits for an approval.
 */
export function answer(wait: Waiting, value: unknown, facts: AnswerFacts = {}): Answer {
  const { type, effect } = wait;
  if (type === 'question') return { ...facts, type: 'answer', effect, value };
  if (type === 'approval') throw wrongKind(wait, 'approve(wait) or deny(wait, reason)');
  const result = resultOf(wait.call.name, value) as Extract<Answer, { type: 'result' }>;
  const { content, isError = false } = result;
  const { signature } = facts;
  const about = { ...(isError && errorFactsOf(result)), ...(signature !== undefined && { signature }) };
  return { type: 'result', effect, content, isError, ...about };
}

/** Whether an answer is of the right type for what the run waits for. */
export function isAnsweredBy({ type }: Waiting, answer: Answer): boolean {
  if (type === 'question') return answer.type === 'answer';
  return (type === 'client' || type === 'parked') && answer.type === 'result';
}

function approvalOf(wait: Waiting, given: Omit<Approval, 'type' | 'effect' | 'digest'>): Answer {
  if (wait.type !== 'approval') throw wrongKind(wait, 'answer(wait, value)');
  const { type, effect, digest } = wait;
  return { ...given, type, effect, digest };
}

function wrongKind({ type, call }: Waiting, use: string): TreadleError {
  return new TreadleError('answer-unfit', `The call of "${call.name}" waits for: ${type}. Use ${use}.`);
}
