import type { AssistantPart, Event, Message, ToolCall } from '@treadle/core';
import type { Claim } from './attempts.ts';
import { checkClaimed, checkTalk } from './agent-results.ts';
import { epochsOf, shorteningOf, taskOf, type Epoch, type Shortening } from './epochs.ts';
import { referenceOf } from './reference.ts';
import { demand, messagesOf, same, type Moment, type Trace } from './trace.ts';
import { answerIn, turnsOf, type CallRecord, type Turn } from './turns.ts';

/** I1: every call in the history has exactly one result, in call order, before the next model turn. */
export function checkResults(trace: Trace): void {
  const { moments, last } = trace;
  const epochs = epochsOf(trace);
  const ended = last.books.after.phase === 'ended';
  for (const [at, moment] of moments.entries()) {
    const shortening = shorteningOf(moment);
    if (shortening) checkShortening(shortening, taskOf(moments), trace.world.rules.compaction!.keepTurns);
    checkLanding(moment);
    for (const effect of moment.effects) {
      if (!('history' in effect)) continue;
      const seen = messagesOf(effect);
      checkPairs(seen);
      demand(seen.length === moment.after.history.length, () => `${effect.id} does not get the whole history`);
      const { messages } = epochOf(epochs, at);
      demand(same(seen, messages.slice(0, seen.length)), () => `what ${effect.id} was shown changed afterwards`);
    }
  }
  if (ended) checkPairs(epochs.at(-1)!.messages);
  const turns = turnsOf(trace);
  const { claims } = referenceOf(trace, turns);
  for (const turn of turns) {
    const epoch = epochOf(epochs, turn.repliedAt);
    checkTurn(turn, epoch.messages, ended || epoch !== epochs.at(-1), claims);
    if (claims.size > 0) checkClaimed(trace, turn, claims, epoch.messages);
  }
  if (trace.world.rules.agent) checkTalk(trace);
  checkInput(trace, epochs);
}

function epochOf(epochs: readonly Epoch[], at: number): Epoch {
  return epochs.findLast(({ from }) => from <= at)!;
}

/** When a turn begins, nothing that was said to the run waits any more. */
function checkLanding({ before, after }: Moment): void {
  const lands = after.turn === before.turn || after.pending.length === 0;
  demand(lands, () => `turn ${after.turn} begins, and input still waits`);
}

/** The task stays, and the newest turns; what is between them is whole turns, and its summary stands in its place. */
function checkShortening(
  { moment: { before, after }, summary, effect }: Shortening,
  task: readonly Message[],
  keepTurns: number,
): void {
  const { id, from, to } = effect;
  const [was, is] = [messagesOf(before), messagesOf(after)];
  const kept = was.slice(to);
  demand(same(was.slice(0, from), task), () => `${id} spares something else than the task`);
  demand(to > from + 1, () => `${id} makes nothing shorter`);
  checkPairs(was.slice(from, to));
  checkPairs(kept);
  const turns = kept.filter(({ role }) => role === 'assistant').length;
  demand(turns === keepTurns && kept[0]!.role === 'assistant', () => `${id} keeps ${turns} turns, not ${keepTurns}`);
  demand(same(is.slice(0, from), task), () => `after ${id} the task is another`);
  const told = is[from];
  demand(
    told?.role === 'user' && told.content.some((part) => part.type === 'text' && part.text.includes(summary)),
    () => `after ${id} there is no summary`,
  );
  demand(same(is.slice(from + 1, from + 1 + kept.length), kept), () => `after ${id} the newest turns are others`);
  demand(
    is.slice(from + 1 + kept.length).every(({ role }) => role === 'user'),
    () => `after ${id} there is something that nobody said`,
  );
}

/** A conversation that every provider takes: after a message with calls comes one with their results. */
export function checkPairs(messages: readonly Message[]): void {
  const ids = new Set<string>();
  for (const [place, message] of messages.entries()) {
    if (message.role === 'tool') {
      demand(callsIn(messages[place - 1]).length > 0, () => `message ${place} has results of no calls`);
      continue;
    }
    const calls = callsIn(message);
    for (const { id, name } of calls) {
      demand(id !== '' && !ids.has(id), () => `the call id "${id}" of message ${place} is empty or not its own`);
      demand(NAME.test(name), () => `no provider takes the name "${name}" of message ${place}`);
      ids.add(id);
    }
    if (calls.length === 0) continue;
    const next = messages[place + 1];
    const answered = next?.role === 'tool' ? next.content.map(({ callId, name }) => [callId, name]) : [];
    demand(
      same(
        answered,
        calls.map(({ id, name }) => [id, name]),
      ),
      () => `the calls of message ${place} are not answered one by one: ${JSON.stringify(answered)}`,
    );
  }
}

/** The reply is there as the model gave it, and each result is what the facts say. */
function checkTurn(
  turn: Turn,
  final: readonly Message[],
  ended: boolean,
  claims: ReadonlyMap<CallRecord, Claim>,
): void {
  const { number, reply, position, calls } = turn;
  if (reply.finish === 'content-filter') return;
  const said = final[position];
  if (calls.length === 0) {
    const words = reply.content.some((part) => part.type === 'text' && part.text.trim() !== '');
    demand(!words || same(said?.content, reply.content), () => `the text of turn ${number} is not in the history`);
    return;
  }
  const earlier = new Set(final.slice(0, position).flatMap((message) => callsIn(message).map(({ id }) => id)));
  const kept = said?.role === 'assistant' ? said.content : [];
  demand(kept.length === reply.content.length, () => `parts of turn ${number} are missing in the history`);
  for (const [place, part] of kept.entries()) {
    demand(isKept(part, reply.content[place]!, earlier), () => `part ${place} of turn ${number} is not as it came`);
    if (part.type === 'tool-call') earlier.add(part.id);
  }
  const message = final[position + 1];
  if (message?.role !== 'tool') {
    demand(!ended, () => `turn ${number} has no results`);
    return;
  }
  for (const call of calls) {
    const result = message.content[call.index];
    const answer = answerIn(call);
    // Those that a typed agent takes for itself are looked at elsewhere; but what it is shown runs like any other.
    if (claims.has(call) && claims.get(call) !== 'shown') continue;
    if (!answer) demand(result!.isError, () => `call ${call.index} of turn ${number} got a success from nowhere`);
    else {
      const { content, isError } = resultIn(answer);
      demand(
        same([result!.content, result!.isError], [content, isError]),
        () => `call ${call.index} of turn ${number} has not the result that it got`,
      );
    }
  }
}

const NAME = /^[\w-]{1,64}$/;

/** A call keeps its id if that is one and is new, and its name if it is one. */
function isKept(part: AssistantPart, came: AssistantPart, earlier: ReadonlySet<string>): boolean {
  if (part.type !== 'tool-call' || came.type !== 'tool-call') return same(part, came);
  const { id, name } = came;
  const kept = {
    ...came,
    ...((id === '' || earlier.has(id)) && { id: part.id }),
    ...(!NAME.test(name) && { name: part.name }),
  };
  return same(part, kept);
}

/** Nothing that was said to the run is lost, said twice, or out of order. */
function checkInput({ moments, last }: Trace, epochs: readonly Epoch[]): void {
  const said = moments.flatMap(({ event, taken }) => (taken ? inputOf(event) : []));
  const known = new Set(said.map((message) => JSON.stringify(message)));
  const all = epochs.flatMap(({ messages, kept }) => messages.slice(kept));
  const heard = all.filter((message) => message.role === 'user' && known.has(JSON.stringify(message)));
  const waits = last.books.after.phase === 'ended' ? 0 : last.after.pending.length;
  demand(same(heard, said.slice(0, said.length - waits)), () => 'input is lost, doubled or out of order');
}

function inputOf(event: Event): readonly Message[] {
  if (event.type === 'input-added') return event.messages;
  return event.type === 'run-started' ? event.input.filter(({ role }) => role === 'user') : [];
}

function resultIn(event: NonNullable<ReturnType<typeof answerIn>>): { content: unknown; isError: boolean } {
  if (event.type === 'client-result-given') return event;
  return event.result as Extract<typeof event.result, { type: 'result' }>;
}

function callsIn(message: Message | undefined): readonly ToolCall[] {
  if (message?.role !== 'assistant') return [];
  return message.content.filter((part): part is ToolCall => part.type === 'tool-call');
}
