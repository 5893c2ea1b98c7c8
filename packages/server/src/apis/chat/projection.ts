import {
  textOf,
  type AssistantPart,
  type Event,
  type Item,
  type Memory,
  type ResultBlock,
  type Waiting,
} from '@treadle/core';
import { exactText } from '@treadle/core/describe';
import { shownResult } from '@treadle/core/web';
import {
  addEvent,
  addSent,
  sentBefore,
  shownReply,
  takeEvents,
  type Outbox,
  type Projection,
  type Sent,
  type TextKind,
} from '../../requests/projection.ts';
import type { Ending } from '../../requests/ending.ts';
import { callIdFor, itemId, RESPONSE_PREFIX } from '../../ids.ts';
import { resultParts } from './attachments.ts';
import { callDecisions, type Judged } from './decisions.ts';
import {
  chatUsage,
  type AnswerPart,
  type ApprovalRequest,
  type CallDecision,
  type ChatEvent,
  type ChatProblem,
  type ChatStatus,
  type QuestionRequest,
  type ToolCallPart,
} from './wire.ts';

/**
 * Makes an answer and its events from the items of a run. The result is its parts. The end has no `done`.
 *
 * 1. The events add up to the answer: the deltas of each text that has no `item_incomplete`, and each call with its last decision
 *    and its result, are its parts, in order. A text with an `item_stopped` is what was sent of it before the run ended.
 * 2. Every call has one start and one result, also a refused one. A result follows the start.
 * 3. The same items make the same answer and the same events, whether they are live or replayed. Only deltas and progress are
 *    not in a journal: the rest of a text is sent as one delta.
 * 4. What was sent before a crash is not sent again. A text whose reply was lost is incomplete, and the next one has another id.
 * 5. The texts of a model that failed stay if the run ends with that, and are incomplete if the model is called again.
 */
export type ChatProjection = Projection<ChatState, ChatEvent, readonly AnswerPart[]>;

export interface ChatState extends Outbox<ChatEvent> {
  readonly sent: Sent<ChatEvent>;
  readonly parts: AnswerPart[];
  /** Messages that the model gets with the next turn. */
  inputs: AnswerPart[];
  turn: number;
  texts: SentText[];
  /** How many texts the turn has, with those that are incomplete. */
  textCount: number;
  /** What the last text is, if the next delta may extend it. Undefined after a call, and before the reply begins. */
  open: TextKind | undefined;
  /** The model failed during the reply with the texts. */
  hasFailed: boolean;
  calls: OutputCall[];
  readonly judged: Map<number, Judged>;
  /** The time of the last event of the run. */
  at: number;
}

/** A text that was sent, or a part of it. */
interface SentText {
  readonly type: 'text' | 'reasoning';
  readonly id: string;
  text: string;
}

interface OutputCall {
  readonly id: string;
  readonly step?: string;
  /** Of the provider. */
  readonly providerId: string;
  readonly part: number;
  startedAt: number | undefined;
  isAnswered: boolean;
}

const INCOMPLETE = 'item_incomplete';
const STOPPED = 'item_stopped';

export function chatProjection(runId: string): ChatProjection {
  function beginText(state: ChatState, type: SentText['type']): SentText {
    const id = itemId(type === 'text' ? 'message' : 'reasoning', runId, state.turn, state.textCount++);
    return { type, id, text: '' };
  }

  function addDelta(state: ChatState, kind: TextKind, delta: string): void {
    if (delta === '') return;
    if (state.hasFailed) closeTexts(state);
    if (state.open !== kind) state.texts.push(beginText(state, typeOf(kind)));
    state.open = kind;
    const text = state.texts.at(-1)!;
    text.text += delta;
    sendDelta(state, text, delta);
  }

  /** Sends what the deltas did not contain; of a model that does not stream, everything. */
  function completeText(state: ChatState, type: SentText['type'], whole: string): void {
    let text = state.texts.shift();
    if (text && (text.type !== type || !whole.startsWith(text.text))) {
      discard(state, text);
      text = undefined;
    }
    text ??= beginText(state, type);
    sendDelta(state, text, whole.slice(text.text.length));
    state.parts.push({ type, text: whole });
  }

  function addReply(state: ChatState, content: readonly AssistantPart[]): void {
    const { parts, at: called_at } = state;
    state.calls = [];
    if (state.hasFailed) closeTexts(state);
    for (const shown of shownReply(content).parts) {
      if (shown.type !== 'call') {
        completeText(state, typeOf(shown.type), shown.text);
        continue;
      }
      const { name, arguments: text, id: providerId, label } = shown.call;
      const id = callIdFor(runId, state.turn, shown.index);
      const start = { id, name, arguments: text, called_at };
      const part = parts.push({ type: 'tool_call', ...start, result: null }) - 1;
      const step = label === undefined ? {} : { step: label };
      state.calls.push({ id, ...step, providerId, part, startedAt: undefined, isAnswered: false });
      sendOnce(state, { type: 'tool_call_start', ...start, ...step });
    }
    closeTexts(state);
  }

  function answerCall(state: ChatState, index: number, content: readonly ResultBlock[], isError: boolean): void {
    const { calls, parts, turn, at } = state;
    const call = calls[index];
    if (!call || call.isAnswered) return;
    call.isAnswered = true;
    const { id, step, startedAt = at } = call;
    const shown = resultParts(content, { runId, turn, call: index });
    const result = {
      content: shownResult(content),
      is_error: isError,
      duration_ms: Math.max(0, at - startedAt),
      ...(shown && { parts: shown }),
    };
    parts[call.part] = { ...(parts[call.part] as ToolCallPart), result };
    sendOnce(state, { type: 'tool_call_result', id, ...(step !== undefined && { step }), ...result });
  }

  /** Sends the approvals and questions that were not sent yet. */
  function announce(state: ChatState, waiting: readonly Waiting[]): void {
    for (const wait of waiting) {
      const request = askRequest(runId, wait);
      if (!request) continue;
      sendOnce(state, request);
      addSent(state.sent, request.id, request);
    }
  }

  function beginTurn(state: ChatState, turn: number): void {
    // The same turn starts again when the model is called with a shorter conversation.
    if (state.hasFailed) closeTexts(state);
    if (turn === state.turn) return;
    state.turn = turn;
    state.parts.push(...state.inputs);
    state.inputs = [];
    const before = sentTexts(state.sent, turn);
    state.textCount = before.length;
    state.texts = before.filter(({ isIncomplete }) => !isIncomplete);
    state.open = undefined;
  }

  function applyFact(state: ChatState, event: Event): void {
    state.at = event.at;
    const changes = changedMemory(event);
    if (changes)
      sendOnce(state, {
        type: 'memory',
        id: `mem_${runId.slice(RESPONSE_PREFIX.length)}_${changes.by}`,
        values: changes.values,
      });
    const open = (): readonly number[] => state.calls.flatMap(({ isAnswered }, index) => (isAnswered ? [] : index));
    for (const [index, decision] of callDecisions(state.judged).add(event, open)) decideCall(state, index, decision);
    if (event.type === 'model-replied') addReply(state, event.content);
    else if (event.type === 'model-failed') state.hasFailed = true;
    else if (event.type === 'input-added') {
      for (const { content } of event.messages) state.inputs.push({ type: 'input', text: textOf(content) });
    }
  }

  function applyItem(state: ChatState, item: Item): void {
    switch (item.type) {
      case 'text-delta':
        return addDelta(state, item.refusal ? 'refusal' : 'message', item.text);
      case 'reasoning-delta':
        return addDelta(state, item.summary ? 'summary' : 'reasoning', item.text);
      case 'call-delta':
        state.open = undefined;
        return;
      case 'turn-started':
        return beginTurn(state, item.turn);
      case 'call-started': {
        const call = state.calls[item.index];
        if (call) call.startedAt ??= state.at;
        return decideCall(state, item.index, callDecisions(state.judged).started(item.index));
      }
      case 'call-answered':
        return answerCall(state, item.index, item.result.content, item.result.isError);
      case 'tool-report': {
        const call = state.calls.find(({ providerId, isAnswered }) => providerId === item.call.id && !isAnswered);
        if (call) send(state, { type: 'tool_call_output', id: call.id, delta: progressText(item.progress) });
        return;
      }
      case 'fact':
        return applyFact(state, item.event);
      case 'waiting':
        return announce(state, item.waiting);
      case 'resource-problem':
      case 'budget-warning':
      case 'run-failed':
        return;
      default:
        item satisfies never;
    }
  }

  return {
    start: ({ sent, isSilent }) => ({
      sent: sentBefore(sent, sentIdOf),
      isSilent,
      events: [],
      parts: [],
      inputs: [],
      turn: 0,
      texts: [],
      textCount: 0,
      open: undefined,
      hasFailed: false,
      calls: [],
      judged: new Map(),
      at: 0,
    }),
    project(state, item) {
      if (item.type !== 'resumed') applyItem(state, item);
      else if (!item.isOver) closeTexts(state);
      return takeEvents(state);
    },
    end(state, { ending }) {
      keepTexts(state);
      const error = endError(ending);
      if (error) sendOnce(state, { type: 'error', ...error });
      sendOnce(state, { type: 'usage', ...chatUsage(ending.usage) });
      return takeEvents(state);
    },
    result: ({ parts, inputs }) => [...parts, ...inputs],
  };
}

/** What an event changes in the memory of the run. `by`: the effect, or the start. */
function changedMemory(event: Event): { readonly by: string; readonly values: Memory } | undefined {
  if (event.type === 'run-started') return event.memory && { by: 'start', values: event.memory };
  if (event.type !== 'tool-settled' || event.result.type !== 'result' || !event.result.memory) return undefined;
  return { by: event.effect, values: event.result.memory };
}

function typeOf(kind: TextKind): SentText['type'] {
  return kind === 'message' || kind === 'refusal' ? 'text' : 'reasoning';
}

function send(state: ChatState, event: ChatEvent): void {
  if (!state.isSilent) addEvent(state, event);
}

function sendDelta(state: ChatState, { type, id }: SentText, delta: string): void {
  if (delta !== '') send(state, { type: type === 'text' ? 'token_delta' : 'reasoning_delta', id, delta });
}

/** Sends an event that happens once in a run, unless it was sent before. */
function sendOnce(state: ChatState, event: ChatEvent): void {
  const before = state.sent.items.get(sentIdOf(event)!);
  if (!before?.some((one) => isSameEvent(one, event))) send(state, event);
}

function discard(state: ChatState, { id }: SentText): void {
  const message = 'The model did not complete this text, so it is not part of the answer. Remove it.';
  send(state, { type: 'warning', code: INCOMPLETE, message, item: id });
}

/** The run ended during a reply. What the user has seen of it stays. Only its last text was not complete. */
function keepTexts(state: ChatState): void {
  const last = state.texts.pop();
  for (const { type, text } of state.texts) state.parts.push({ type, text });
  state.texts = [];
  if (!last) return;
  const { type, id, text } = last;
  const message = 'The run ended before the model completed this text. The model does not get it with later messages.';
  sendOnce(state, { type: 'warning', code: STOPPED, message, item: id });
  state.parts.push({ type, text, stopped: true });
}

/** The model is called again for the texts so far. */
function closeTexts(state: ChatState): void {
  for (const text of state.texts) discard(state, text);
  state.texts = [];
  state.open = undefined;
  state.hasFailed = false;
}

function decideCall(state: ChatState, index: number, decision: CallDecision | undefined): void {
  const call = state.calls[index];
  if (!call || call.isAnswered || !decision) return;
  const { id, part } = call;
  state.parts[part] = { ...(state.parts[part] as ToolCallPart), decision };
  sendOnce(state, { type: 'tool_call_decision', id, ...decision });
}

/** What an event is about. */
function sentIdOf(event: ChatEvent): string | undefined {
  if (event.type === 'error' || event.type === 'usage') return event.type;
  if (event.type === 'warning') return event.item;
  return 'id' in event ? event.id : undefined;
}

/** Whether two events about the same say the same. A call may have several decisions. */
function isSameEvent(one: ChatEvent, two: ChatEvent): boolean {
  if (one.type === 'warning' && two.type === 'warning') return one.code === two.code;
  if (one.type !== 'tool_call_decision' || two.type !== 'tool_call_decision') return one.type === two.type;
  return one.source === two.source && one.approved === two.approved;
}

/** The texts of a turn that were sent before, in order. */
function sentTexts(
  { items, turns }: Sent<ChatEvent>,
  turn: number,
): readonly (SentText & { readonly isIncomplete: boolean })[] {
  return (turns.get(turn) ?? []).flatMap((id) => {
    const events = items.get(id)!;
    const type = TEXT_TYPES[events[0]!.type];
    if (!type) return [];
    const text = events.map((event) => ('delta' in event ? event.delta : '')).join('');
    return { type, id, text, isIncomplete: events.some((one) => one.type === 'warning' && one.code === INCOMPLETE) };
  });
}

const TEXT_TYPES: Readonly<Partial<Record<ChatEvent['type'], SentText['type']>>> = {
  token_delta: 'text',
  reasoning_delta: 'reasoning',
};

function progressText(progress: unknown): string {
  return typeof progress === 'string' ? progress : (JSON.stringify(progress) ?? '');
}

const ASK = /^ask_([0-9a-f]{32})_(.+)$/s;

/** The run and the effect that the id of an approval or a question names. Undefined for another text. */
export function askedIn(id: string): { readonly runId: string; readonly effect: string } | undefined {
  const [, hex, effect] = ASK.exec(id) ?? [];
  return hex === undefined ? undefined : { runId: RESPONSE_PREFIX + hex, effect: effect! };
}

/** What a person, or the client, has to know to answer. Undefined for what only another program can answer. */
export function askRequest(
  runId: string,
  waiting: Waiting,
):
  | ({ readonly type: 'approval_request' } & ApprovalRequest)
  | ({ readonly type: 'question' } & QuestionRequest)
  | Extract<ChatEvent, { type: 'client_call' }>
  | undefined {
  const { effect, call } = waiting;
  const common = {
    id: `ask_${runId.slice(RESPONSE_PREFIX.length)}_${effect}`,
    call_id: waitingCallId(runId, waiting),
    tool: call.name,
    ...(call.label !== undefined && { step: call.label }),
  };
  if (waiting.type === 'approval') {
    const { digest, touches = [], reason, rule, shown, required, approvedBy, expiresAt } = waiting;
    return {
      type: 'approval_request',
      ...common,
      arguments: call.arguments,
      digest,
      touches,
      reason: reason === undefined ? null : exactText(reason),
      ...(rule !== undefined && { rule }),
      ...(shown !== undefined && { shown }),
      ...(required !== undefined && { required }),
      ...(approvedBy && { approved_by: approvedBy }),
      expires_at: expiresAt,
    };
  }
  if (waiting.type === 'client') return { type: 'client_call', ...common };
  if (waiting.type !== 'question') return undefined;
  const { prompt, choices = null, schema = null } = waiting.question;
  return { type: 'question', ...common, prompt, choices, schema, expires_at: waiting.expiresAt ?? null };
}

/** Of the call of this run that waits. A child run has calls of its own. */
function waitingCallId(runId: string, { effect, call: { turn, index } }: Waiting): string {
  const [, ofTurn = turn, ofIndex = index] = /^t(\d+)\.tool\.(\d+)\//.exec(effect) ?? [];
  return callIdFor(runId, Number(ofTurn), Number(ofIndex));
}

export function statusOf(ending: Ending): ChatStatus {
  // No call of a conversation is executed by its client.
  return ending.type === 'pending' ? 'incomplete' : ending.type;
}

/** Undefined if the run has completed. */
export function endError(ending: Ending): ChatProblem | undefined {
  switch (ending.type) {
    case 'completed':
    case 'pending':
      return undefined;
    case 'failed':
      return ending.error;
    case 'cancelled':
      return { code: 'cancelled', message: 'The answer was cancelled. What was done so far is stored.' };
    case 'incomplete': {
      const message = `${ending.message ?? LIMITS[ending.reason] ?? `The answer ended early (${ending.reason}).`} What was done so far is stored. Send another message to continue.`;
      return { code: ending.reason, message };
    }
    default:
      return ending satisfies never;
  }
}

const LIMITS: Readonly<Record<string, string>> = {
  max_turns: 'The limit of model calls for one message was reached.',
  max_tool_calls: 'The limit of tool calls was reached.',
  max_output_tokens: 'The answer reached the limit of its length.',
  max_duration: 'The time limit was reached.',
  tool_errors: 'Too many turns in a row had only errors.',
  repetition: 'The model repeated the same call too often.',
  budget: 'The budget is used up.',
  content_filter: 'The provider has filtered the answer.',
};
