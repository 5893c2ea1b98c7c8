import { TreadleError } from '../errors.ts';
import { waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { State, Waiting } from '../machine/state.ts';
import { step } from '../machine/step.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import {
  answerEvent,
  checkValue,
  eventForAnswer,
  isAwaited,
  malformedAnswer,
  recordedAnswer,
  type Admission,
} from './answer.ts';
import type { Answer } from './options.ts';

/* Loaded when a run is resumed. */

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
      const malformed = malformedAnswer(answer);
      if (malformed) throw await malformed;
      const { verifyAnswer } = admission;
      const admitted = verifyAnswer
        ? await (await import('./answer-problem.ts')).verifiedAnswer(state, answer, verifyAnswer)
        : answer;
      if (earlier.some((other) => isAnsweredTwice(other, admitted))) {
        const why = `"${answer.effect}" is answered twice. Pass one answer for each effect.`;
        throw new TreadleError('answer-unfit', why);
      }
      earlier.push(admitted);
      const at = admission.clock.now();
      const slash = answer.effect.indexOf('/');
      if (slash === -1) {
        const given = answerEvent(current, admitted, at, admission.matchPattern);
        if (!given) throw (await import('./answer-problem.ts')).unfitAnswer(current, admitted);
        const event = await recordedAnswer(current, given, admission.examine);
        events.push(event);
        current = step(current, event).state;
        continue;
      }
      if (!fitsChild(current, admitted, admission.matchPattern))
        throw (await import('./answer-problem.ts')).unfitAnswer(current, admitted);
      const effect = answer.effect.slice(0, slash);
      const siblings = childAnswers.get(effect);
      if (!siblings) events.push({ type: 'effect-lost', at, effect, cause: 'device' });
      childAnswers.set(effect, [...(siblings ?? []), { ...admitted, effect: answer.effect.slice(slash + 1) }]);
    } catch (error) {
      throw await (
        await import('./answer-problem.ts')
      ).rejectAnswer(state.runId, answer, error as TreadleError, admission);
    }
  }
  return { events, childAnswers };
}

/** Only approvals by different people may have the same effect. */
function isAnsweredTwice(one: Answer, other: Answer): boolean {
  if (one.effect !== other.effect) return false;
  return one.type !== 'approval' || other.type !== 'approval' || one.by === other.by;
}

/**
 * Whether a child run waits for an answer. Throws `answer-unfit` for content that the child run would reject: after that, the
 * parent would not wait for it.
 */
function fitsChild(state: State, answer: Answer, matchPattern: PatternMatcher | undefined): boolean {
  if (!isAwaited(state, answer)) return false;
  const awaited = waiting(state).find(({ effect }) => effect === answer.effect);
  if (answer.type !== 'answer') eventForAnswer(answer, 0);
  else checkValue((awaited as Waiting & { type: 'question' }).question, answer, matchPattern);
  return true;
}
