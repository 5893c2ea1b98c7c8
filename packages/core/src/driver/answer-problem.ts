import { messageOf, TreadleError } from '../errors.ts';
import { approvalProblem } from '../machine/approvals.ts';
import { waiting } from '../machine/effects.ts';
import type { State, Waiting } from '../machine/state.ts';
import { described } from '../messages.ts';
import type { Admission } from './answer.ts';
import { isAnsweredBy } from './make-answer.ts';
import type { Answer } from './options.ts';

/* Whether an answer is from who it says, and why one cannot be used. Loaded for an answer that is verified or rejected. */

/** Why something is not an answer: which fields it lacks. `required`: those of each type, besides the effect. */
export function whyMalformed(answer: unknown, required: Readonly<Record<Answer['type'], readonly string[]>>): string {
  const remedy = 'Make it with approve(wait), deny(wait, reason) or answer(wait, value) from an entry of "waiting".';
  if (typeof answer !== 'object' || answer === null) return `${described(answer)} is not an answer. ${remedy}`;
  const { type, effect } = answer as Partial<Answer>;
  const known = Object.keys(required).map((one) => JSON.stringify(one));
  const name = typeof effect === 'string' ? `The answer for ${JSON.stringify(effect)}` : 'An answer';
  const fields = Object.hasOwn(required, String(type)) ? required[type!] : undefined;
  if (!fields) {
    const what = type === undefined ? 'lacks "type"' : `has the type ${JSON.stringify(type)}`;
    return `${name} ${what}. Use ${known.join(', ')}. ${remedy}`;
  }
  const given = answer as Readonly<Record<string, unknown>>;
  const missing = ['effect', ...fields].filter((field) => given[field] === undefined);
  if (missing.length === 0) return `${name} has an "effect" that is not a text. ${remedy}`;
  return `${name} lacks ${missing.map((field) => `"${field}"`).join(', ')}. ${remedy}`;
}

/** `answer-unfit` for an answer that the run does not wait for. */
export function unfitAnswer(state: State, answer: Answer): TreadleError {
  return new TreadleError('answer-unfit', whyUnfit(state, answer));
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
  if (!awaited) throw unfitAnswer(state, answer);
  const verified = await (async () => verify(answer, awaited))().catch((thrown: unknown) => {
    return { type: 'refused', reason: `it could not be verified (${messageOf(thrown)}).` } as const;
  });
  if (verified?.type !== 'verified') {
    const why = verified?.type === 'refused' ? verified.reason : 'it was not verified.';
    throw new TreadleError('answer-refused', `The answer for "${answer.effect}" was refused: ${why}`);
  }
  if (answer.type === 'result') return answer;
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

/** Why a run does not take an answer. */
function whyUnfit(state: State, answer: Answer): string {
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
