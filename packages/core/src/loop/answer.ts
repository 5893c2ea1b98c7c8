import { TreadleError } from '../errors.ts';
import { arePartsOf } from '../parts.ts';
import { fittedContent } from '../tools/result.ts';
import { fits } from './fits.ts';
import type { Answer } from './options.ts';
import { waiting } from './outstanding.ts';
import type { Event } from './events.ts';
import type { State, Waiting } from './state.ts';

/** The facts that answers to a paused run are, and those answers that go on to its children. */
export function answerEvents(
  state: State,
  answers: readonly Answer[],
  at: number,
): { readonly events: readonly Event[]; readonly nested: ReadonlyMap<string, readonly Answer[]> } {
  const nested = new Map<string, Answer[]>();
  const events = answers.flatMap((answer, index): Event[] => {
    if (answers.findIndex(({ effect }) => effect === answer.effect) !== index) {
      throw new TreadleError('answer-unfit', `"${answer.effect}" is answered twice. An answer counts once.`);
    }
    const slash = answer.effect.indexOf('/');
    if (slash === -1) return [answerEvent(state, answer, at)];
    if (!isWaitedFor(state, answer)) throw new TreadleError('answer-unfit', whyUnfit(state, answer));
    const effect = answer.effect.slice(0, slash);
    const inside = { ...answer, effect: answer.effect.slice(slash + 1) };
    const siblings = nested.get(effect);
    if (siblings) return (siblings.push(inside), []);
    nested.set(effect, [inside]);
    return [{ type: 'effect-lost', at, effect, cause: 'device' }];
  });
  return { events, nested };
}

/** Whether a child waits for it; what exactly it says is for the child to judge. */
function isWaitedFor(state: State, answer: Answer): boolean {
  const meant = waiting(state).find(({ effect }) => effect === answer.effect);
  if (answer.type === 'client-result') return meant?.type === 'client';
  return meant?.type === 'approval' && meant.digest === answer.digest;
}

/** The fact that an answer is. Throws `answer-unfit` if the run does not wait for it. */
export function answerEvent(state: State, answer: Answer, at: number): Event {
  const event = eventOf(answer, at);
  if (!fits(state, event)) throw new TreadleError('answer-unfit', whyUnfit(state, answer));
  if (event.type !== 'client-result-given') return event;
  return { ...event, content: fittedContent(event.content, state.rules.maxResultChars) };
}

function eventOf(answer: Answer, at: number): Event {
  // Whatever is not plainly a yes is a no.
  if (answer.type === 'approval') return { ...answer, type: 'approval-given', at, approved: answer.approved === true };
  const { effect, content, isError = false } = answer;
  const blocks = typeof content === 'string' ? ([{ type: 'text', text: content }] as const) : content;
  if (!arePartsOf('result', blocks)) {
    throw new TreadleError(
      'answer-unfit',
      `The result for "${effect}" is neither a text nor a list of whole content blocks.`,
    );
  }
  return { type: 'client-result-given', at, effect, content: blocks, isError };
}

function whyUnfit(state: State, answer: Answer): string {
  const open = waiting(state);
  const meant = open.find(({ effect }) => effect === answer.effect);
  if (!meant) {
    const names = open.map(described).join(', ');
    return `Run "${state.runId}" does not wait for "${answer.effect}". It waits for ${names || 'nothing'}.`;
  }
  if (meant.type === 'approval' && answer.type === 'approval') {
    return (
      `The approval for "${meant.effect}" is bound to other arguments: its digest is ${answer.digest}, that of the ` +
      `call is ${meant.digest}. Show the call as it is in "waiting", and decide again.`
    );
  }
  return `"${meant.effect}" waits for ${described(meant)}, which a "${answer.type}" does not answer.`;
}

function described({ type, effect, call }: Waiting): string {
  return `${type} "${effect}" (${call.name})`;
}
