import type { Event, Message } from '@treadle/core';
import { historyProblem } from '../provider/rules/messages.ts';
import { isAnswered, resultsOf, type CallRecord, type Turn } from './turns.ts';
import type { Claim } from './agent-attempts.ts';
import { ensure, messagesOf, type Trace } from './trace.ts';

/**
 * Checks the calls that a typed agent claims: at most one call of a reply is held. It is answered after all others, with
 * the verdict on the output. The others are answered without a verdict.
 */
export function checkClaimed(
  { moments }: Trace,
  turn: Turn,
  claims: ReadonlyMap<CallRecord, Claim>,
  final: readonly Message[],
): void {
  const { number, position, calls } = turn;
  const verdict = verdictIn(
    moments.flatMap(({ event, applied }) => (applied ? event : [])),
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
      ensure(isError === !fine, () => `${where} has ${isError ? 'an error' : 'a success'} as its result`);
      const text = content.map((block) => ('text' in block ? block.text : '')).join('');
      const complete =
        claim !== 'held' || verdict?.type !== 'invalid' || verdict.problems.every((one) => text.includes(one));
      ensure(complete, () => `${where} has the result "${text}", which does not contain the problems`);
    }
  }
  for (const [at, moment] of moments.entries()) {
    if (!moment.effects.some(({ id }) => id === `t${number}.validate.0`)) continue;
    const late = calls.filter((call) => (claims.get(call) ?? 'shown') === 'shown' && isOpen(call, at));
    ensure(
      late.length === 0,
      () => `the output of turn ${number} is validated before call ${late[0]?.index} is answered`,
    );
    ensure(!resultsOf(turn, moment), () => `turn ${number} has its results before its output is validated`);
  }
  const said = verdict?.type === 'invalid' ? verdict.prompt : undefined;
  const next = final[position + 2];
  if (said === undefined || next?.role !== 'user' || !moments.some(({ after }) => after.turn > number)) return;
  ensure(
    next.content.length === 1 && next.content[0]!.type === 'text' && next.content[0]!.text === said,
    () => `after turn ${number} the prompt "${said}" is not sent to the model`,
  );
}

function isOpen(call: CallRecord, at: number): boolean {
  return call.log.some((record) => record.type === 'issued' && record.at <= at) && !isAnswered(call, at);
}

function verdictIn(events: readonly Event[], turn: number) {
  const event = events.find((one) => one.type === 'output-checked' && one.effect === `t${turn}.validate.0`);
  return event?.type === 'output-checked' ? event.result : undefined;
}

/**
 * Checks that a provider accepts every history that a typed agent sends, and the final one. Input of users and summaries
 * are messages of their own, so runs with those are not checked.
 */
export function checkTalk({ moments, last }: Trace): void {
  const others = moments.some(
    ({ event, applied }) => applied && (event.type === 'input-added' || event.type === 'history-compacted'),
  );
  if (others) return;
  for (const { effects } of moments) {
    for (const effect of effects) if (effect.type === 'call-model') checkTaken(messagesOf(effect), effect.id);
  }
  if (last.observed.after.phase === 'ended') checkTaken(messagesOf(last.after), 'the end');
}

function checkTaken(messages: readonly Message[], when: string): void {
  const problem = historyProblem(messages);
  ensure(problem === undefined, () => `providers reject the history at ${when}: ${problem}`);
}
