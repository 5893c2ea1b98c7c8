import { TreadleError } from '../errors.ts';
import { approvalProblem } from '../machine/approvals.ts';
import { slotFor, waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import { findQuestion, type Question } from '../machine/questions.ts';
import type { State } from '../machine/state.ts';
import { fits } from '../machine/step.ts';
import type { ErrorFacts } from '../messages.ts';
import { isPlain } from '../plain.ts';
import type { Clock } from '../platform.ts';
import { blocksOf, ERROR_KEYS, errorFactsOf, truncateResult } from '../tools/result.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import { validateJson } from '../tools/schema.ts';
import { isAnsweredBy } from './make-answer.ts';
import type { Answer, ContinueOptions } from './options.ts';

/*
 * Answers from outside, one at a time. `answer-paused.ts` takes those to a paused run, and `answer-problem.ts` verifies and
 * rejects them.
 */

/** What checks answers from outside before they become events. */
export interface Admission extends Pick<ContinueOptions, 'verifyAnswer' | 'audit' | 'matchPattern'> {
  readonly clock: Clock;
  /** Examines a result as one of a tool; undefined if nothing has to be examined. */
  readonly examine?: (state: State, event: ClientResult) => Promise<ClientResult> | undefined;
}

export type ClientResult = Extract<Event, { type: 'client-result-given' }>;

/** What each type of answer has besides its effect. */
const REQUIRED_FIELDS: Readonly<Record<Answer['type'], readonly string[]>> = {
  approval: ['digest', 'approved'],
  result: ['content'],
  answer: ['value'],
};

/** `answer-unfit` for something that is not a complete answer; undefined for one that is. */
export function malformedAnswer(answer: Answer): Promise<TreadleError> | undefined {
  const fields = Object.hasOwn(REQUIRED_FIELDS, answer?.type) && REQUIRED_FIELDS[answer.type];
  const given = answer as unknown as Readonly<Record<string, unknown>>;
  if (fields && typeof answer.effect === 'string' && fields.every((field) => given[field] !== undefined))
    return undefined;
  return import('./answer-problem.ts').then(
    ({ whyMalformed }) => new TreadleError('answer-unfit', whyMalformed(answer, REQUIRED_FIELDS)),
  );
}

/** Whether the run, or a child run, waits for an answer of this kind. */
export function isAwaited(state: State, answer: Answer): boolean {
  const awaited = waiting(state).find(({ effect }) => effect === answer.effect);
  if (answer.type !== 'approval') return awaited !== undefined && isAnsweredBy(awaited, answer);
  return awaited?.type === 'approval' && approvalProblem(awaited, answer) === undefined;
}

/** The event for an answer; undefined if the run does not wait for it. Throws `answer-unfit` if its content is invalid. */
export function answerEvent(
  state: State,
  answer: Answer,
  at: number,
  matchPattern?: PatternMatcher,
): Event | undefined {
  const event =
    answer.type === 'answer' ? questionAnswered(state, answer, at, matchPattern) : eventForAnswer(answer, at);
  if (!event || !fits(state, event) || (event.type === 'client-result-given' && !isAwaited(state, answer))) {
    return undefined;
  }
  const slot = slotFor(state, answer.effect);
  const raises = state.phase.type === 'raising' || (slot?.type === 'asking' && slot.raises);
  return raises ? ({ ...event, raises: state.runId } as Event) : event;
}

/** The event as it is recorded: a result is examined, then cut. */
export function recordedAnswer(state: State, event: Event, examine: Admission['examine']): Event | Promise<Event> {
  if (event.type !== 'client-result-given') return event;
  const cut = (given: ClientResult): Event => {
    return { ...given, ...truncateResult({ ...given, type: 'result' }, state.rules.maxResultChars), type: event.type };
  };
  return examine?.(state, event)?.then(cut) ?? cut(event);
}

type QuestionAnswer = Extract<Answer, { type: 'answer' }>;

/** The event for the answer to a question. Throws `answer-unfit` if the value does not fit the question. */
function questionAnswered(
  state: State,
  answer: QuestionAnswer,
  at: number,
  matchPattern: PatternMatcher | undefined,
): Event | undefined {
  const found = findQuestion(state, answer.effect);
  if (!found) return undefined;
  const { effect, question, asked } = found;
  checkValue(asked.question, answer, matchPattern);
  const { value, by } = answer;
  return { type: 'question-answered', at, effect, question, value, ...(by !== undefined && { by }) };
}

export function checkValue(
  question: Question,
  { effect, value }: QuestionAnswer,
  matchPattern: PatternMatcher | undefined,
): void {
  const problem = valueProblem(question, value, matchPattern);
  if (problem === undefined) return;
  throw new TreadleError('answer-unfit', `The answer for "${effect}" does not fit: ${problem}.`);
}

/** Why a value does not answer a question, with what would. */
function valueProblem(
  { choices, schema }: Question,
  value: unknown,
  matchPattern: PatternMatcher | undefined,
): string | undefined {
  if (value === undefined || !isPlain(value)) return 'it is not plain JSON';
  if (choices) {
    return choices.some((one) => one === value) ? undefined : `it is not one of ${choices.map(quoted).join(', ')}`;
  }
  if (!schema) return typeof value === 'string' ? undefined : 'it is not a text';
  const checked = validateJson(schema, value, matchPattern);
  return checked.type === 'invalid' ? checked.problems.join('; ') : undefined;
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

export function eventForAnswer(answer: Exclude<Answer, QuestionAnswer>, at: number): Event {
  if (answer.type === 'approval') {
    const { signature: _, forRun, ...given } = answer;
    // Anything except `true` is a refusal.
    const approved = answer.approved === true;
    return { ...given, type: 'approval-given', at, approved, ...(approved && forRun === true && { forRun }) };
  }
  const { effect, isError = false } = answer;
  const content = blocksOf(answer.content);
  const facts: ErrorFacts = isError ? errorFactsOf(answer) : {};
  const wrong = ERROR_KEYS.find((key) => answer[key] !== undefined && facts[key] === undefined);
  if (content && !wrong) return { type: 'client-result-given', at, effect, content, isError, ...facts };
  const problem = content
    ? `has no valid "${wrong}", or has one without "isError"`
    : 'is neither a text nor an array of complete content blocks';
  throw new TreadleError('answer-unfit', `The result for "${effect}" ${problem}.`);
}
