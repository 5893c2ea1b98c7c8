import { TreadleError } from '../errors.ts';
import { waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { State, Waiting } from '../machine/state.ts';
import { fits } from '../machine/step.ts';
import { arePartsOf } from '../messages.ts';
import { truncateContent } from '../tools/result.ts';
import type { Answer } from './options.ts';

/** The events for the answers to a paused run, and the answers to pass on to its child runs. */
export function answerEvents(
  state: State,
  answers: readonly Answer[],
  at: number,
): { readonly events: readonly Event[]; readonly childAnswers: ReadonlyMap<string, readonly Answer[]> } {
  const childAnswers = new Map<string, Answer[]>();
  const events = answers.flatMap((answer, index): Event[] => {
    if (answers.findIndex(({ effect }) => effect === answer.effect) !== index) {
      throw new TreadleError('answer-unfit', `"${answer.effect}" is answered twice. Pass one answer for each effect.`);
    }
    const slash = answer.effect.indexOf('/');
    if (slash === -1) return [answerEvent(state, answer, at)];
    if (!isAwaited(state, answer)) throw new TreadleError('answer-unfit', whyRejected(state, answer));
    const effect = answer.effect.slice(0, slash);
    const inside = { ...answer, effect: answer.effect.slice(slash + 1) };
    const siblings = childAnswers.get(effect);
    if (siblings) return (siblings.push(inside), []);
    childAnswers.set(effect, [inside]);
    return [{ type: 'effect-lost', at, effect, cause: 'device' }];
  });
  return { events, childAnswers };
}

/** Whether a child run waits for an answer of this kind. The child checks the content. */
function isAwaited(state: State, answer: Answer): boolean {
  const awaited = waiting(state).find(({ effect }) => effect === answer.effect);
  if (answer.type === 'client-result') return awaited?.type === 'client';
  return awaited?.type === 'approval' && awaited.digest === answer.digest;
}

/** The event for an answer. Throws `answer-unfit` if the run does not wait for it. */
export function answerEvent(state: State, answer: Answer, at: number): Event {
  const event = eventForAnswer(answer, at);
  if (!fits(state, event)) throw new TreadleError('answer-unfit', whyRejected(state, answer));
  if (event.type !== 'client-result-given') return event;
  return { ...event, content: truncateContent(event.content, state.rules.maxResultChars) };
}

function eventForAnswer(answer: Answer, at: number): Event {
  // Anything except `true` is a refusal.
  if (answer.type === 'approval') return { ...answer, type: 'approval-given', at, approved: answer.approved === true };
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
  if (awaited.type === 'approval' && answer.type === 'approval') {
    return (
      `The approval for "${awaited.effect}" is bound to other arguments: its digest is ${answer.digest}, that of the ` +
      `call is ${awaited.digest}. Show the call as it is in "waiting", and decide again.`
    );
  }
  return `"${awaited.effect}" waits for ${describeWaiting(awaited)}, which a "${answer.type}" does not answer.`;
}

function describeWaiting({ type, effect, call }: Waiting): string {
  return `${type} "${effect}" (${call.name})`;
}
