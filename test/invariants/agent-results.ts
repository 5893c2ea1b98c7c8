import type { Event, Message } from '@treadle/core';
import { historyProblem } from '../provider/rules/messages.ts';
import { isAnswered } from './answered.ts';
import type { Claim } from './attempts.ts';
import { demand, messagesOf, type Trace } from './trace.ts';
import { resultsOf, type CallRecord, type Turn } from './turns.ts';

/**
 * Of the calls that a typed agent takes for itself: at most one of a reply is held, it is answered after all others and
 * by what became of the output; the others are answered without it.
 */
export function checkClaimed(
  { moments }: Trace,
  turn: Turn,
  claims: ReadonlyMap<CallRecord, Claim>,
  final: readonly Message[],
): void {
  const { number, position, calls } = turn;
  const verdict = verdictIn(
    moments.flatMap(({ event, taken }) => (taken ? event : [])),
    number,
  );
  const message = final[position + 1];
  if (message?.role === 'tool') {
    for (const call of calls) {
      const claim = claims.get(call);
      if (claim === undefined || claim === 'shown') continue;
      const { isError, content } = message.content[call.index]!;
      const fine = claim === 'superseded' || (claim === 'held' && verdict?.type === 'valid');
      const where = `the ${claim} call ${call.index} of turn ${number}`;
      demand(isError === !fine, () => `${where} is ${isError ? 'an error' : 'fine'}`);
      const text = content.map((block) => ('text' in block ? block.text : '')).join('');
      const told =
        claim !== 'held' || verdict?.type !== 'invalid' || verdict.problems.every((one) => text.includes(one));
      demand(told, () => `${where} is not told what is wrong, but "${text}"`);
    }
  }
  for (const [at, moment] of moments.entries()) {
    if (!moment.effects.some(({ id }) => id === `t${number}.validate.0`)) continue;
    const late = calls.filter((call) => (claims.get(call) ?? 'shown') === 'shown' && isOpen(call, at));
    demand(
      late.length === 0,
      () => `the output of turn ${number} is checked before call ${late[0]?.index} is answered`,
    );
    demand(!resultsOf(turn, moment), () => `turn ${number} has its results before its output was checked`);
  }
  const said = verdict?.type === 'invalid' ? verdict.prompt : undefined;
  const next = final[position + 2];
  if (said === undefined || next?.role !== 'user' || !moments.some(({ after }) => after.turn > number)) return;
  demand(
    next.content.length === 1 && next.content[0]!.type === 'text' && next.content[0]!.text === said,
    () => `after turn ${number} the model is not told "${said}"`,
  );
}

function isOpen(call: CallRecord, at: number): boolean {
  return call.story.some((chapter) => chapter.type === 'issued' && chapter.at <= at) && !isAnswered(call, at);
}

function verdictIn(events: readonly Event[], turn: number) {
  const event = events.find((one) => one.type === 'output-checked' && one.effect === `t${turn}.validate.0`);
  return event?.type === 'output-checked' ? event.result : undefined;
}

/**
 * Any provider takes what a typed agent says to its model, whenever it says it, and all that was said in the end. What
 * people say in between comes in a message of its own, and so does a summary.
 */
export function checkTalk({ moments, last }: Trace): void {
  const others = moments.some(
    ({ event, taken }) => taken && (event.type === 'input-added' || event.type === 'history-compacted'),
  );
  if (others) return;
  for (const { effects } of moments) {
    for (const effect of effects) if (effect.type === 'call-model') checkTaken(messagesOf(effect), effect.id);
  }
  if (last.books.after.phase === 'ended') checkTaken(messagesOf(last.after), 'the end');
}

function checkTaken(messages: readonly Message[], when: string): void {
  const problem = historyProblem(messages);
  demand(problem === undefined, () => `at ${when} no provider takes the history: ${problem}`);
}
