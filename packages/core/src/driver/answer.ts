import { messageOf, TreadleError } from '../errors.ts';
import { approvalProblem } from '../machine/approvals.ts';
import { waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { State, Waiting } from '../machine/state.ts';
import { fits, step } from '../machine/step.ts';
import { arePartsOf } from '../messages.ts';
import type { Clock } from '../platform.ts';
import { truncateContent } from '../tools/result.ts';
import type { Answer, ContinueOptions } from './options.ts';

/** What checks answers from outside before they become events. */
interface Admission extends Pick<ContinueOptions, 'verifyAnswer' | 'audit'> {
  readonly clock: Clock;
}

/** The events for the answers to a paused run, and the answers to pass on to its child runs. */
export async function answerEvents(
  state: State,
  answers: readonly Answer[],
  admission: Admission,
): Promise<{ readonly events: readonly Event[]; readonly childAnswers: ReadonlyMap<string, readonly Answer[]> }> {
  const childAnswers = new Map<string, Answer[]>();
  const events: Event[] = [];
  // Several people may answer the same approval, so each answer is checked in the state after those before it.
  let current = state;
  const earlier: Answer[] = [];
  for (const answer of answers) {
    try {
      const { verifyAnswer } = admission;
      const admitted = verifyAnswer ? await verifiedAnswer(state, answer, verifyAnswer) : answer;
      if (earlier.some((other) => isAnsweredTwice(other, admitted))) {
        const why = `"${answer.effect}" is answered twice. Pass one answer for each effect.`;
        throw new TreadleError('answer-unfit', why);
      }
      earlier.push(admitted);
      const at = admission.clock.now();
      const slash = answer.effect.indexOf('/');
      if (slash === -1) {
        const event = answerEvent(current, admitted, at);
        events.push(event);
        current = step(current, event).state;
        continue;
      }
      if (!isAwaited(current, admitted)) throw new TreadleError('answer-unfit', whyRejected(current, admitted));
      const effect = answer.effect.slice(0, slash);
      const siblings = childAnswers.get(effect);
      if (!siblings) events.push({ type: 'effect-lost', at, effect, cause: 'device' });
      childAnswers.set(effect, [...(siblings ?? []), { ...admitted, effect: answer.effect.slice(slash + 1) }]);
    } catch (error) {
      throw await rejectAnswer(state.runId, answer, error as TreadleError, admission);
    }
  }
  return { events, childAnswers };
}

/** Only approvals by different people may have the same effect. */
function isAnsweredTwice(one: Answer, other: Answer): boolean {
  if (one.effect !== other.effect) return false;
  return one.type !== 'approval' || other.type !== 'approval' || one.by === other.by;
}

/** Whether the run, or a child run, waits for an answer of this kind. The child checks the content. */
function isAwaited(state: State, answer: Answer): boolean {
  const awaited = waiting(state).find(({ effect }) => effect === answer.effect);
  if (answer.type !== 'approval') return awaited !== undefined && isAnsweredBy(awaited, answer);
  return awaited?.type === 'approval' && approvalProblem(awaited, answer) === undefined;
}

/** Whether a result is of the right type for what the run waits for. */
function isAnsweredBy({ type }: Waiting, answer: Answer): boolean {
  return type === 'client' ? answer.type !== 'approval' : type === 'parked' && answer.type === 'result';
}

/**
 * The answer with the name of the person that the port has verified. Throws if the run does not wait for it, or if the
 * port refuses it or fails.
 */
export async function verifiedAnswer(
  state: State,
  answer: Answer,
  verify: NonNullable<Admission['verifyAnswer']>,
): Promise<Answer> {
  const awaited = waiting(state).find(({ effect }) => effect === answer.effect);
  if (!awaited) throw new TreadleError('answer-unfit', whyRejected(state, answer));
  const verified = await (async () => verify(answer, awaited))().catch((thrown: unknown) => {
    return { type: 'refused', reason: `it could not be verified (${messageOf(thrown)}).` } as const;
  });
  if (verified?.type !== 'verified') {
    const why = verified?.type === 'refused' ? verified.reason : 'it was not verified.';
    throw new TreadleError('answer-refused', `The answer for "${answer.effect}" was refused: ${why}`);
  }
  if (answer.type !== 'approval') return answer;
  const { by: _, ...unnamed } = answer;
  return verified.by === undefined ? unnamed : { ...unnamed, by: verified.by };
}

/** Reports an answer that is rejected to the audit port. Returns the error for the caller. */
export async function rejectAnswer(
  runId: string,
  answer: Answer,
  error: TreadleError,
  { audit, clock }: Admission,
): Promise<TreadleError> {
  try {
    await audit?.rejectedAnswer({ runId, at: clock.now(), answer, code: error.code, reason: error.message });
  } catch {}
  return error;
}

/** The event for an answer. Throws `answer-unfit` if the run does not wait for it. */
export function answerEvent(state: State, answer: Answer, at: number): Event {
  const event = eventForAnswer(answer, at);
  if (!fits(state, event) || (answer.type !== 'approval' && !isAwaited(state, answer)))
    throw new TreadleError('answer-unfit', whyRejected(state, answer));
  if (event.type !== 'client-result-given') return event;
  return { ...event, content: truncateContent(event.content, state.rules.maxResultChars) };
}

function eventForAnswer(answer: Answer, at: number): Event {
  if (answer.type === 'approval') {
    const { signature: _, forRun, ...given } = answer;
    // Anything except `true` is a refusal.
    const approved = answer.approved === true;
    return { ...given, type: 'approval-given', at, approved, ...(approved && forRun === true && { forRun }) };
  }
  const { effect, content, isError = false } = answer;
  const blocks = typeof content === 'string' ? ([{ type: 'text', text: content }] as const) : content;
  if (!arePartsOf('result', blocks)) {
    throw new TreadleError(
      'answer-unfit',
      `The result for "${effect}" is neither a text nor an array of complete content blocks.`,
    );
  }
  return { type: 'client-result-given', at, effect, content: blocks, isError };
}

function whyRejected(state: State, answer: Answer): string {
  const open = waiting(state);
  const awaited = open.find(({ effect }) => effect === answer.effect);
  if (!awaited) {
    const names = open.map(describeWaiting).join(', ');
    return `Run "${state.runId}" does not wait for "${answer.effect}". It waits for ${names || 'nothing'}.`;
  }
  if (awaited.type === 'approval' && answer.type === 'approval') return whyUnapproved(awaited, answer);
  if (isAnsweredBy(awaited, answer) && awaited.expiresAt !== undefined) {
    return `The deadline of "${awaited.effect}" has passed (${awaited.expiresAt}). Resume the run without an answer.`;
  }
  return `"${awaited.effect}" waits for ${describeWaiting(awaited)}, which a "${answer.type}" does not answer.`;
}

function whyUnapproved(
  awaited: Extract<Waiting, { type: 'approval' }>,
  answer: Extract<Answer, { type: 'approval' }>,
): string {
  const { effect, digest, approvers = [], required } = awaited;
  switch (approvalProblem(awaited, answer)) {
    case 'approver':
      return (
        `${answer.by === undefined ? 'An answer without a name' : `"${answer.by}"`} may not answer "${effect}". ` +
        `Those who may are ${approvers.join(', ') || 'nobody'}.`
      );
    case 'anonymous':
      return `"${effect}" needs the approval of ${required} different people, so each answer has to say who gave it ("by").`;
    case 'repeated':
      return `"${answer.by}" has already approved "${effect}", which needs the approval of ${required} different people.`;
    default:
      return (
        `The approval for "${effect}" is bound to other arguments: its digest is ${answer.digest}, that of the call is ` +
        `${digest}. Show the call as it is in "waiting", and decide again.`
      );
  }
}

function describeWaiting({ type, effect, call }: Waiting): string {
  return `${type} "${effect}" (${call.name})`;
}
