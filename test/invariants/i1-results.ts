import type { AssistantPart, Event, Message, ToolCall } from '@treadle/core';
import type { Claim } from './agent-attempts.ts';
import { checkClaimed, checkTalk } from './agent-results.ts';
import { checkErrorTypes } from './error-types.ts';
import { sectionsOf, compactionOf, taskOf, type Section, type Compaction } from './compactions.ts';
import { referenceOf } from './reference.ts';
import { ensure, messagesOf, same, type Moment, type Trace } from './trace.ts';
import { answerIn, turnsOf, type CallRecord, type Turn } from './turns.ts';

/** I1: every call in the history has exactly one result, in call order, before the next model turn. */
export function checkResults(trace: Trace): void {
  const { moments, last } = trace;
  const sections = sectionsOf(trace);
  const ended = last.observed.after.phase === 'ended';
  for (const [at, moment] of moments.entries()) {
    const compaction = compactionOf(moment);
    if (compaction) checkShortening(compaction, taskOf(moments), trace.world.rules.compaction!.keepTurns);
    checkLanding(moment);
    for (const effect of moment.effects) {
      if (!('history' in effect)) continue;
      const seen = messagesOf(effect);
      checkPairs(seen);
      ensure(seen.length === moment.after.history.length, () => `${effect.id} does not receive the whole history`);
      const { messages } = sectionAt(sections, at);
      ensure(
        same(seen, messages.slice(0, seen.length)),
        () => `the history that ${effect.id} received changed afterwards`,
      );
    }
  }
  if (ended) checkPairs(sections.at(-1)!.messages);
  const turns = turnsOf(trace);
  const reference = referenceOf(trace, turns);
  const { claims } = reference;
  for (const turn of turns) {
    const section = sectionAt(sections, turn.repliedAt);
    checkTurn(turn, section.messages, ended || section !== sections.at(-1), claims);
    checkErrorTypes(turn, section.messages, trace.world.rules, reference);
    if (claims.size > 0) checkClaimed(trace, turn, claims, section.messages);
  }
  if (trace.world.rules.agent) checkTalk(trace);
  checkInput(trace, sections);
}

function sectionAt(sections: readonly Section[], at: number): Section {
  return sections.findLast(({ from }) => from <= at)!;
}

/** No input waits when a turn starts. */
function checkLanding({ before, after }: Moment): void {
  const lands = after.turn === before.turn || after.pending.length === 0;
  ensure(lands, () => `turn ${after.turn} starts while input still waits`);
}

/** A compaction keeps the task and the newest turns, and replaces whole turns between them by a summary. */
function checkShortening(
  { moment: { before, after }, summary, effect }: Compaction,
  task: readonly Message[],
  keepTurns: number,
): void {
  const { id, from, to } = effect;
  const [was, is] = [messagesOf(before), messagesOf(after)];
  const kept = was.slice(to);
  ensure(same(was.slice(0, from), task), () => `${id} does not start after the task`);
  ensure(to > from + 1, () => `${id} replaces too little to gain anything`);
  checkPairs(was.slice(from, to));
  checkPairs(kept);
  const turns = kept.filter(({ role }) => role === 'assistant').length;
  ensure(turns === keepTurns && kept[0]!.role === 'assistant', () => `${id} keeps ${turns} turns, not ${keepTurns}`);
  ensure(same(is.slice(0, from), task), () => `the task changed after ${id}`);
  const summaryMessage = is[from];
  ensure(
    summaryMessage?.role === 'user' &&
      summaryMessage.content.some((part) => part.type === 'text' && part.text.includes(summary)),
    () => `the summary is missing after ${id}`,
  );
  ensure(same(is.slice(from + 1, from + 1 + kept.length), kept), () => `the newest turns changed after ${id}`);
  ensure(
    is.slice(from + 1 + kept.length).every(({ role }) => role === 'user'),
    () => `there is an unexpected message after ${id}`,
  );
}

/** Checks a conversation as providers do: a message with calls is followed by one with their results. */
export function checkPairs(messages: readonly Message[]): void {
  const ids = new Set<string>();
  for (const [place, message] of messages.entries()) {
    if (message.role === 'tool') {
      ensure(callsIn(messages[place - 1]).length > 0, () => `message ${place} has results without calls`);
      continue;
    }
    const calls = callsIn(message);
    for (const { id, name } of calls) {
      ensure(id !== '' && !ids.has(id), () => `the call id "${id}" of message ${place} is empty or not unique`);
      ensure(NAME.test(name), () => `providers reject the name "${name}" in message ${place}`);
      ids.add(id);
    }
    if (calls.length === 0) continue;
    const next = messages[place + 1];
    const answered = next?.role === 'tool' ? next.content.map(({ callId, name }) => [callId, name]) : [];
    ensure(
      same(
        answered,
        calls.map(({ id, name }) => [id, name]),
      ),
      () => `the calls of message ${place} are not answered one by one: ${JSON.stringify(answered)}`,
    );
  }
}

/** The history contains the reply unchanged, and the results that the events reported. */
function checkTurn(
  turn: Turn,
  final: readonly Message[],
  ended: boolean,
  claims: ReadonlyMap<CallRecord, Claim>,
): void {
  const { number, reply, position, calls } = turn;
  if (reply.finish === 'content-filter') return;
  const replyMessage = final[position];
  if (calls.length === 0) {
    const hasText = reply.content.some((part) => part.type === 'text' && part.text.trim() !== '');
    ensure(
      !hasText || same(replyMessage?.content, reply.content),
      () => `the text of turn ${number} is not in the history`,
    );
    return;
  }
  const earlier = new Set(final.slice(0, position).flatMap((message) => callsIn(message).map(({ id }) => id)));
  const kept = replyMessage?.role === 'assistant' ? replyMessage.content : [];
  ensure(kept.length === reply.content.length, () => `parts of turn ${number} are missing in the history`);
  for (const [place, part] of kept.entries()) {
    ensure(isKept(part, reply.content[place]!, earlier), () => `part ${place} of turn ${number} was changed`);
    if (part.type === 'tool-call') earlier.add(part.id);
  }
  const message = final[position + 1];
  if (message?.role !== 'tool') {
    ensure(!ended, () => `turn ${number} has no results`);
    return;
  }
  for (const call of calls) {
    const result = message.content[call.index];
    const answer = answerIn(call);
    // `checkClaimed` covers the calls that a typed agent claims, except outputs that are shown: they run like any other.
    if (claims.has(call) && claims.get(call) !== 'shown') continue;
    if (!answer)
      ensure(result!.isError, () => `call ${call.index} of turn ${number} has a success that no event reported`);
    else {
      const { content, isError, blob } = resultIn(answer);
      ensure(
        same([result!.content, result!.isError, result!.blob], [content, isError, blob]),
        () => `call ${call.index} of turn ${number} has a result that differs from the reported one`,
      );
    }
  }
}

const NAME = /^[\w-]{1,64}$/;

/** A call keeps its id if that is not empty and new, and its name if that is valid. */
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

/** No input is lost, duplicated or out of order. */
function checkInput({ moments, last }: Trace, sections: readonly Section[]): void {
  const input = moments.flatMap(({ event, applied }) => (applied ? inputOf(event) : []));
  const known = new Set(input.map((message) => JSON.stringify(message)));
  const all = sections.flatMap(({ messages, kept }) => messages.slice(kept));
  const recorded = all.filter((message) => message.role === 'user' && known.has(JSON.stringify(message)));
  const waits = last.observed.after.phase === 'ended' ? 0 : last.after.pending.length;
  ensure(same(recorded, input.slice(0, input.length - waits)), () => 'input is lost, duplicated or out of order');
}

function inputOf(event: Event): readonly Message[] {
  if (event.type === 'input-added') return event.messages;
  return event.type === 'run-started' ? event.input.filter(({ role }) => role === 'user') : [];
}

function resultIn(event: NonNullable<ReturnType<typeof answerIn>>): {
  content: unknown;
  isError: boolean;
  blob?: string;
} {
  if (event.type === 'client-result-given') return event;
  return event.result as Extract<typeof event.result, { type: 'result' }>;
}

function callsIn(message: Message | undefined): readonly ToolCall[] {
  if (message?.role !== 'assistant') return [];
  return message.content.filter((part): part is ToolCall => part.type === 'tool-call');
}
