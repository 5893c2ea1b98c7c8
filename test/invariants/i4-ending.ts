import type { Waiting } from '@treadle/core';
import { checkAgentEnd } from './agent-end.ts';
import { isAnswered } from './answered.ts';
import { expects, isAtRest, type Open } from './books.ts';
import type { Core } from './core.ts';
import { referenceOf } from './reference.ts';
import { demand, outcomeOf, same, type Moment, type Trace } from './trace.ts';
import { shares, turnsOf } from './turns.ts';

type Views = Pick<Core, 'outstanding' | 'waiting' | 'isPaused' | 'step'>;

/** I4: a run ends in exactly one outcome, or is paused on named outstanding effects. */
export function checkEnding(core: Views, trace: Trace): void {
  const { moments, last } = trace;
  for (const moment of moments) checkMoment(core, moment);

  const { after: books } = last.books;
  demand(books.phase === 'ended' || isAtRest(books), () => 'the world has answered everything, and the run goes on');
  if (books.phase === 'ended') checkEnded(core, trace);
  else checkNothingIdles(trace);
  checkCause(trace);
  if (trace.world.rules.agent) checkAgentEnd(trace, trace.world.rules.agent);
}

/** What the state says is under way is what was issued and is not settled. */
function checkMoment(
  { outstanding, waiting, isPaused }: Views,
  { after, books: { after: books }, event }: Moment,
): void {
  const { open, phase } = books;
  const ended = phase === 'ended';
  demand(ended || open.size > 0, () => `after ${event.type} the run has not ended, and nothing is under way`);
  const said = outstanding(after).map((effect) => [effect.id, effect.type]);
  const seen = [...open.values()].map(({ effect }) => [effect.id, effect.type]);
  demand(
    same(said.sort(), seen.sort()),
    () => `outstanding are ${said.join(' ')}, issued and open are ${seen.join(' ')}`,
  );

  const named = waiting(after).map((one) => JSON.stringify(one));
  const outside = [...open.values()].flatMap(waitsOf).map((one) => JSON.stringify(one));
  demand(same(named.sort(), outside.sort()), () => `it waits for ${outside.join()}, and says for ${named.join()}`);
  demand(isPaused(after) === isAtRest(books), () => `paused is ${isPaused(after)} with ${seen.join(' ')} open`);
}

/** What is waited for; of a call that goes on elsewhere what is waited for there, by the way that leads to it. */
function waitsOf({ effect, parked }: Open): readonly Waiting[] {
  if (effect.type === 'ask-approval') {
    const { id, type: _, ...shown } = effect;
    return [{ type: 'approval', effect: id, ...shown }];
  }
  if (effect.type === 'await-client') return [{ type: 'client', effect: effect.id, call: effect.call }];
  if (!parked || effect.type !== 'call-tool') return [];
  const { on, waiting } = parked;
  if (waiting.length === 0) return [{ type: 'parked', effect: effect.id, call: effect.call, on }];
  return waiting.map((inside) => ({ ...inside, effect: `${effect.id}/${inside.effect}` }));
}

/**
 * The end is the end: whatever comes changes nothing, unless it is that a failed model call is made again, or with which
 * tools that would be.
 */
function checkEnded({ step }: Views, { moments, last: { after, books } }: Trace): void {
  for (const { event, before, after: state, taken, books: then } of moments) {
    const again = expects(books.after, event);
    demand(again || step(after, event).state === after, () => `${event.type} was taken after the end`);
    const revived = then.before.failed !== undefined && event.type === 'effect-lost';
    const kept = outcomeOf(before) === undefined || same(outcomeOf(before), outcomeOf(state));
    demand(!taken || kept || revived, () => `${event.type} changed the outcome`);
  }
  for (const type of ['cancel-requested', 'deadline-passed'] as const) {
    demand(step(after, { type, at: after.at + 1e9 }).state === after, () => `${type} was taken after the end`);
  }
}

/** Each outcome has the fact that it stands for, and such a fact always has its outcome. */
function checkCause({ world, moments, last }: Trace): void {
  const outcome = outcomeOf(last.after);
  const final = moments.findLast(({ taken }) => taken)!.event;
  const some = (holds: (event: Moment['event']) => boolean): boolean =>
    moments.some(({ taken, event }) => taken && holds(event));
  const pairs = [
    ['cancelled', outcome?.type === 'cancelled', some(({ type }) => type === 'cancel-requested')],
    [
      'out of time',
      outcome?.type === 'exhausted' && outcome.limit === 'duration',
      some((event) => event.type === 'deadline-passed' && event.effect === undefined),
    ],
  ] as const;
  for (const [what, is, told] of pairs)
    demand(is === told, () => `it is ${is ? '' : 'not '}${what}, and was ${told ? '' : 'not '}told so`);
  if (outcome?.type === 'completed') {
    const { output, agent } = world.rules;
    const answered = output || agent ? valueIn(final) !== undefined : isText(final);
    demand(answered, () => `completed, though the last fact was ${JSON.stringify(final)}`);
  }
  const output = outcome?.type === 'completed' ? valueIn(final) : undefined;
  demand(same(last.after.output, output), () => `its output is ${JSON.stringify(last.after.output)}`);
}

function isText(event: Moment['event']): boolean {
  return event.type === 'model-replied' && !event.content.some(({ type }) => type === 'tool-call');
}

function valueIn(event: Moment['event']): unknown {
  return event.type === 'output-checked' && event.result.type === 'valid' ? event.result.value : undefined;
}

/** Whatever has not begun while everybody waits has to wait for one of them. */
function checkNothingIdles(trace: Trace): void {
  const { rules } = trace.world;
  const turns = turnsOf(trace);
  const { dispositions } = referenceOf(trace, turns);
  const { open } = trace.last.books.after;
  const { calls, number } = turns.at(-1)!;
  const unanswered = calls.filter((call) => dispositions.get(call) === 'runs' && !isAnswered(call, Infinity));
  for (const call of unanswered) {
    if (call.story.some((chapter) => chapter.type === 'issued' && open.has(chapter.effect.id))) continue;
    const blocked = unanswered.some((other) => other.index < call.index && (!rules.parallel || shares(other, call)));
    demand(blocked, () => `call ${call.index} of turn ${number} could run, and the run is paused`);
  }
}
