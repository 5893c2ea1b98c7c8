import type { JsonSchema } from '../model.ts';
import type { Event } from './events.ts';
import type { Call, Phase, Slot, State, Waiting } from './state.ts';

/*
 * Questions that a tool asks while it runs (`context.ask`). The call waits until all of its questions have answers, then it
 * is issued again, with the answers.
 */

/** What a tool wants to know. Without `choices` and `schema` the answer is a text. */
export interface Question {
  readonly prompt: string;
  /** The answer is one of these. */
  readonly choices?: readonly string[];
  /** The answer is a value that this JSON Schema accepts. */
  readonly schema?: JsonSchema;
}

/** A question that a call has asked. */
export interface AskedQuestion {
  /** The `id` that the tool gave it; by default, how many questions the tool asked before it. */
  readonly key: string;
  readonly question: Question;
  /** Nobody can answer it from this time on. Absent: never. */
  readonly expiresAt?: number;
  readonly answer?: { readonly value: unknown; readonly by?: string };
  readonly expired?: true;
}

export type QuestioningSlot = Extract<Slot, { type: 'questioning' }>;

type QuestionEvent = Extract<Event, { type: 'questions-asked' | 'question-answered' | 'deadline-passed' }>;

/** Whether an event about the questions of a call applies to it. */
export function fitsQuestions(slot: Slot | undefined, event: QuestionEvent): boolean {
  if (event.type === 'questions-asked') {
    const asks = slot?.type === 'running' || slot?.type === 'questioning';
    return asks && Array.isArray(event.questions) && event.questions.length > 0 && event.questions.every(isObject);
  }
  const { question } = event;
  const asked = slot?.type === 'questioning' && typeof question === 'number' ? slot.asked[question] : undefined;
  if (!asked || !isOpen(asked)) return false;
  return event.type === 'question-answered' || event.at >= (asked.expiresAt ?? Infinity);
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** A call after it has asked something. */
export function askingQuestions(slot: Slot, { questions }: Extract<QuestionEvent, { type: 'questions-asked' }>): Slot {
  const begun = 'begun' in slot && slot.begun;
  const parked = 'parked' in slot && slot.parked;
  const asked = [...questionsOf(slot), ...questions];
  return { type: 'questioning', call: slot.call, ...(begun && { begun }), ...(parked && { parked }), asked };
}

/** A call after one of its questions was answered or has expired. When none is open, it runs again. */
export function withQuestionSettled(
  slot: QuestioningSlot,
  event: Exclude<QuestionEvent, { type: 'questions-asked' }>,
): Slot {
  const asked = slot.asked.map((one, index) => (index === event.question ? settledQuestion(one, event) : one));
  return { ...slot, type: asked.some(isOpen) ? 'questioning' : 'queued', asked };
}

/** An answer that comes too late does not count. */
function settledQuestion(
  asked: AskedQuestion,
  event: Exclude<QuestionEvent, { type: 'questions-asked' }>,
): AskedQuestion {
  if (event.type === 'deadline-passed' || event.at >= (asked.expiresAt ?? Infinity)) return { ...asked, expired: true };
  const { value, by } = event;
  return { ...asked, answer: { value, ...(by !== undefined && { by }) } };
}

function isOpen({ answer, expired }: AskedQuestion): boolean {
  return answer === undefined && !expired;
}

/** The open questions of a call, as what the run waits for. */
export function openQuestions({ call, asked }: QuestioningSlot): readonly Waiting[] {
  return asked.flatMap((one, index): Waiting | readonly Waiting[] => {
    const { question, expiresAt } = one;
    if (!isOpen(one)) return [];
    const deadline = expiresAt !== undefined && { expiresAt };
    return { type: 'question', effect: questionId(call, index), call, question, ...deadline };
  });
}

/** What a run waits for that is paused on a budget. The call stands for that of the model. */
export function raisingWait(
  { turn, model, decision }: State,
  { of, question, expiresAt }: Extract<Phase, { type: 'raising' }>,
): Waiting {
  const call: Call = {
    turn,
    index: 0,
    id: of.effect,
    name: decision?.model ?? model,
    arguments: '{}',
    resources: [],
    effect: 'pure',
    exclusive: false,
    client: false,
    verifiable: false,
  };
  return { type: 'question', effect: `${of.effect}.budget`, call, question, expiresAt, raises: true };
}

function questionId({ turn, index }: Call, question: number): string {
  return `t${turn}.question.${index}.${question}`;
}

/** The open question with this id, the effect of the call that asked it, and its position among those of the call. */
export function findQuestion(
  { phase }: State,
  id: string,
): { readonly effect: string; readonly question: number; readonly asked: AskedQuestion } | undefined {
  if (phase.type === 'raising') {
    const { of, question, expiresAt } = phase;
    if (id !== `${of.effect}.budget`) return undefined;
    return { effect: of.effect, question: 0, asked: { key: 'budget', question, expiresAt } };
  }
  const [, turn, index, question] = /^t(\d+)\.question\.(\d+)\.(\d+)$/.exec(id)?.map(Number) ?? [];
  if (phase.type !== 'tools' || turn === undefined || index === undefined || question === undefined) return undefined;
  const slot = phase.slots[index];
  const asked = slot?.type === 'questioning' && slot.call.turn === turn ? slot.asked[question] : undefined;
  return asked && isOpen(asked) ? { effect: `t${turn}.tool.${index}`, question, asked } : undefined;
}

/** What a call has asked so far, with the answers. */
export function questionsOf(slot: Slot | undefined): readonly AskedQuestion[] {
  return (slot && 'asked' in slot && slot.asked) || NO_QUESTIONS;
}

const NO_QUESTIONS: readonly AskedQuestion[] = [];
