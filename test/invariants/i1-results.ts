import type { AssistantPart, Event, Message, ToolCall } from '@treadle/core';
import { demand, messagesOf, same, type Trace } from './trace.ts';
import { answerIn, turnsOf, type Turn } from './turns.ts';

/** I1: every call in the history has exactly one result, in call order, before the next model turn. */
export function checkResults(trace: Trace): void {
  const final = messagesOf(trace.last.after);
  for (const { after, effects } of trace.moments) {
    for (const effect of effects) {
      if (effect.type !== 'call-model') continue;
      const seen = messagesOf(effect);
      checkPairs(seen);
      demand(seen.length === after.history.length, () => `${effect.id} does not get the whole history`);
      demand(same(seen, final.slice(0, seen.length)), () => `what ${effect.id} was shown changed afterwards`);
    }
  }
  if (trace.last.books.after.phase === 'ended') checkPairs(final);
  for (const turn of turnsOf(trace)) checkTurn(turn, final, trace.last.books.after.phase === 'ended');
  checkInput(trace, final);
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
    for (const { id } of calls) {
      demand(id !== '' && !ids.has(id), () => `the call id "${id}" of message ${place} is empty or not its own`);
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
function checkTurn(turn: Turn, final: readonly Message[], ended: boolean): void {
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

/** A call keeps its id if that is one and is new. */
function isKept(part: AssistantPart, came: AssistantPart, earlier: ReadonlySet<string>): boolean {
  if (part.type !== 'tool-call' || came.type !== 'tool-call') return same(part, came);
  const renamed = came.id === '' || earlier.has(came.id);
  return same({ ...part, id: '' }, { ...came, id: '' }) && (renamed || part.id === came.id);
}

/** Nothing that was said to the run is lost, said twice, or out of order. */
function checkInput({ moments, last }: Trace, final: readonly Message[]): void {
  const said = moments.flatMap(({ event, taken }) => (taken ? inputOf(event) : []));
  const known = new Set(said.map((message) => JSON.stringify(message)));
  const heard = final.filter((message) => message.role === 'user' && known.has(JSON.stringify(message)));
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
