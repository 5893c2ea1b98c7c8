import { textOf, type AssistantPart, type Item, type ResultBlock, type Waiting } from '@treadle/core';
import { exactText } from '@treadle/core/describe';
import { shownResult } from '@treadle/core/web';
import type { Ending } from '../../requests/run.ts';
import { callIdFor, itemId, itemOrigin, RESPONSE_PREFIX } from '../../ids.ts';
import { shownReply } from '../responses/turn-items.ts';
import { resultParts } from './attachments.ts';
import { callDecisions } from './decisions.ts';
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
 * Builds an answer and its events from the items of a run.
 *
 * 1. The events add up to the answer: the deltas of each text that has no `item_incomplete`, and each call with its last decision
 *    and its result, are its parts, in order. A text with an `item_stopped` is what was sent of it before the run ended.
 * 2. Every call has one start and one result, also a refused one. A result follows the start.
 * 3. The same items make the same answer and the same events, whether they are live or replayed. Only deltas and progress are
 *    not in a journal: the rest of a text is sent as one delta.
 * 4. What was sent before a crash (`sent`) is not sent again. A text whose reply was lost is incomplete, and the next one has
 *    another id.
 * 5. The texts of a model that failed stay if the run ends with that, and are incomplete if the model is called again.
 */
export interface ChatOutput {
  /** Adds the next item of the run. Returns the promise of `emit`, if it returned one. */
  addItem(item: Item): void | Promise<void>;
  /** Sends the approvals and questions that were not sent yet. */
  announce(waiting: readonly Waiting[]): void;
  /** The model is called again for the texts so far. */
  closeTexts(): void;
  /** Sends how the run has ended, without `done`. Texts that the model did not complete stay in the answer, also if it failed. */
  end(ending: Ending): void;
  readonly parts: readonly AnswerPart[];
}

export interface ChatOutputOptions {
  readonly runId: string;
  /** Absent: only the answer is needed. */
  readonly emit?: (event: ChatEvent) => void | Promise<void>;
  /** The events of the run that were sent before. */
  readonly sent?: readonly ChatEvent[];
}

/** A text that was sent, or a part of it. */
interface SentText {
  readonly type: 'text' | 'reasoning';
  readonly id: string;
  text: string;
}

interface OutputCall {
  readonly id: string;
  /** Of the provider. */
  readonly providerId: string;
  readonly part: number;
  startedAt: number | undefined;
  isAnswered: boolean;
}

export function chatOutput({ runId, emit, sent = [] }: ChatOutputOptions): ChatOutput {
  const parts: AnswerPart[] = [];
  /** Messages that the model gets with the next turn. */
  let inputs: AnswerPart[] = [];
  const before = sentBefore(sent);
  let turn = 0;
  let texts: SentText[] = [];
  /** A call or the reply follows: the next delta begins another text. */
  let isTextOpen = false;
  /** The model failed during the reply with the texts. */
  let hasFailed = false;
  let calls: OutputCall[] = [];
  const decisions = callDecisions();
  let at = 0;
  let backpressure: void | Promise<void>;

  function send(event: ChatEvent): void {
    if (emit) backpressure = emit(event);
  }

  /** Sends an event that happens once in a run, unless it was sent before. */
  function sendOnce(event: ChatEvent, key: string): void {
    if (!before.once.has(key)) send(event);
  }

  function sendDelta({ type, id }: SentText, delta: string): void {
    if (delta !== '') send({ type: type === 'text' ? 'token_delta' : 'reasoning_delta', id, delta });
  }

  function beginText(type: SentText['type']): SentText {
    const number = before.counts.get(turn) ?? 0;
    before.counts.set(turn, number + 1);
    const id = itemId(type === 'text' ? 'message' : 'reasoning', runId, turn, number);
    const begun: SentText = { type, id, text: '' };
    texts.push(begun);
    return begun;
  }

  function addDelta(type: SentText['type'], delta: string): void {
    if (delta === '') return;
    if (hasFailed) closeTexts();
    const last = texts.at(-1);
    const text = isTextOpen && last?.type === type ? last : beginText(type);
    isTextOpen = true;
    text.text += delta;
    sendDelta(text, delta);
  }

  function discard({ id }: SentText): void {
    const message = 'The model did not complete this text, so it is not part of the answer. Remove it.';
    send({ type: 'warning', code: INCOMPLETE, message, item: id });
  }

  /** The run ended during a reply. What the user has seen of it stays. Only its last text was not complete. */
  function keepTexts(): void {
    const last = texts.pop();
    for (const { type, text } of texts) parts.push({ type, text });
    if (last) {
      const { type, id, text } = last;
      const message =
        'The run ended before the model completed this text. The model does not get it with later messages.';
      sendOnce({ type: 'warning', code: STOPPED, message, item: id }, `stopped ${id}`);
      parts.push({ type, text, stopped: true });
    }
    texts = [];
  }

  function closeTexts(): void {
    for (const text of texts) discard(text);
    texts = [];
    isTextOpen = false;
    hasFailed = false;
  }

  /** Sends what the deltas did not contain; of a model that does not stream, everything. */
  function completeText(type: SentText['type'], whole: string): void {
    let text = texts.shift();
    if (text && (text.type !== type || !whole.startsWith(text.text))) {
      discard(text);
      text = undefined;
    }
    if (!text) {
      text = beginText(type);
      texts.pop();
    }
    sendDelta(text, whole.slice(text.text.length));
    parts.push({ type, text: whole });
  }

  function addReply(content: readonly AssistantPart[]): void {
    calls = [];
    if (hasFailed) closeTexts();
    for (const shown of shownReply(content).parts) {
      if (shown.type !== 'call') {
        completeText(shown.type === 'message' ? 'text' : 'reasoning', shown.text);
        continue;
      }
      const { name, arguments: text, id: providerId } = shown.call;
      const id = callIdFor(runId, turn, shown.index);
      const start = { id, name, arguments: text, called_at: at };
      const part = parts.push({ type: 'tool_call', ...start, result: null }) - 1;
      calls.push({ id, providerId, part, startedAt: undefined, isAnswered: false });
      sendOnce({ type: 'tool_call_start', ...start }, `start ${id}`);
    }
    closeTexts();
  }

  function decideCall(index: number, decision: CallDecision | undefined): void {
    const call = calls[index];
    if (!call || call.isAnswered || !decision) return;
    const { id, part } = call;
    parts[part] = { ...(parts[part] as ToolCallPart), decision };
    sendOnce({ type: 'tool_call_decision', id, ...decision }, decisionKey(id, decision));
  }

  function answerCall(index: number, content: readonly ResultBlock[], isError: boolean): void {
    const call = calls[index];
    if (!call || call.isAnswered) return;
    call.isAnswered = true;
    const { id, startedAt = at } = call;
    const shown = resultParts(content, { runId, turn, call: index });
    const result = {
      content: shownResult(content),
      is_error: isError,
      duration_ms: Math.max(0, at - startedAt),
      ...(shown && { parts: shown }),
    };
    parts[call.part] = { ...(parts[call.part] as ToolCallPart), result };
    sendOnce({ type: 'tool_call_result', id, ...result }, `result ${id}`);
  }

  /** The positions of the calls without a result. */
  const openCalls = (): readonly number[] => calls.flatMap(({ isAnswered }, index) => (isAnswered ? [] : index));

  function applyItem(item: Item): void {
    switch (item.type) {
      case 'text-delta':
        return addDelta('text', item.text);
      case 'reasoning-delta':
        return addDelta('reasoning', item.text);
      case 'call-delta':
        isTextOpen = false;
        return;
      case 'turn-started':
        // The same turn starts again when the model is called with a shorter conversation.
        if (hasFailed) closeTexts();
        if (item.turn === turn) return;
        turn = item.turn;
        parts.push(...inputs);
        inputs = [];
        texts = before.texts.get(turn) ?? [];
        isTextOpen = false;
        return;
      case 'call-started': {
        const call = calls[item.index];
        if (call) call.startedAt ??= at;
        return decideCall(item.index, decisions.started(item.index));
      }
      case 'call-answered':
        return answerCall(item.index, item.result.content, item.result.isError);
      case 'tool-report': {
        const call = calls.find(({ providerId, isAnswered }) => providerId === item.call.id && !isAnswered);
        if (call) send({ type: 'tool_call_output', id: call.id, delta: progressText(item.progress) });
        return;
      }
      case 'fact': {
        const { event } = item;
        ({ at } = event);
        for (const [index, decision] of decisions.add(event, openCalls)) decideCall(index, decision);
        if (event.type === 'model-replied') addReply(event.content);
        else if (event.type === 'model-failed') hasFailed = true;
        else if (event.type === 'input-added') {
          for (const { content } of event.messages) inputs.push({ type: 'input', text: textOf(content) });
        }
        break;
      }
      case 'resource-problem':
      case 'waiting':
      case 'run-failed':
        break;
      default:
        item satisfies never;
    }
  }

  return {
    get parts() {
      return [...parts, ...inputs];
    },
    addItem(item) {
      backpressure = undefined;
      applyItem(item);
      return backpressure;
    },
    announce(waiting) {
      for (const wait of waiting) {
        const request = askRequest(runId, wait);
        if (!request) continue;
        sendOnce(request, `ask ${request.id}`);
        before.once.add(`ask ${request.id}`);
      }
    },
    closeTexts,
    end(ending) {
      keepTexts();
      const error = endError(ending);
      if (error) sendOnce({ type: 'error', ...error }, 'error');
      sendOnce({ type: 'usage', ...chatUsage(ending.usage) }, 'usage');
    },
  };
}

const INCOMPLETE = 'item_incomplete';
const STOPPED = 'item_stopped';

function decisionKey(id: string, { source, approved }: CallDecision): string {
  return `decision ${id} ${source} ${approved}`;
}

/** What was sent of a run before a crash. */
interface SentBefore {
  /** Keys of events that happen once. */
  readonly once: Set<string>;
  /** The texts of a turn that are not closed as incomplete. */
  readonly texts: Map<number, SentText[]>;
  /** How many texts a turn has, with those that are incomplete. */
  readonly counts: Map<number, number>;
}

function sentBefore(events: readonly ChatEvent[]): SentBefore {
  const once = new Set<string>();
  const open = new Map<string, SentText>();
  const counts = new Map<number, number>();
  for (const event of events) {
    switch (event.type) {
      case 'token_delta':
      case 'reasoning_delta': {
        const known = open.get(event.id);
        if (known) {
          known.text += event.delta;
          break;
        }
        const { turn, number } = itemOrigin(event.id)!;
        counts.set(turn, Math.max(counts.get(turn) ?? 0, number + 1));
        open.set(event.id, {
          type: event.type === 'token_delta' ? 'text' : 'reasoning',
          id: event.id,
          text: event.delta,
        });
        break;
      }
      case 'tool_call_start':
        once.add(`start ${event.id}`);
        break;
      case 'tool_call_decision':
        once.add(decisionKey(event.id, event));
        break;
      case 'tool_call_result':
        once.add(`result ${event.id}`);
        break;
      case 'approval_request':
      case 'question':
        once.add(`ask ${event.id}`);
        break;
      case 'warning':
        if (event.code === INCOMPLETE && event.item !== undefined) open.delete(event.item);
        if (event.code === STOPPED) once.add(`stopped ${event.item}`);
        break;
      case 'error':
      case 'usage':
        once.add(event.type);
        break;
      case 'conversation_meta':
      case 'tool_call_output':
      case 'done':
        break;
      default:
        event satisfies never;
    }
  }
  const texts = new Map<number, SentText[]>();
  for (const text of open.values()) {
    const { turn } = itemOrigin(text.id)!;
    texts.set(turn, [...(texts.get(turn) ?? []), text]);
  }
  return { once, texts, counts };
}

function progressText(progress: unknown): string {
  return typeof progress === 'string' ? progress : (JSON.stringify(progress) ?? '');
}

const ASK = /^ask_([0-9a-f]{32})_(.+)$/s;

/** The run and the effect that the id of an approval or a question names. Undefined for another text. */
export function askedIn(id: string): { readonly runId: string; readonly effect: string } | undefined {
  const [, hex, effect] = ASK.exec(id) ?? [];
  return hex === undefined ? undefined : { runId: RESPONSE_PREFIX + hex, effect: effect! };
}

/** What a person has to know to answer. Undefined for what only a program can answer. */
export function askRequest(
  runId: string,
  waiting: Waiting,
):
  | ({ readonly type: 'approval_request' } & ApprovalRequest)
  | ({ readonly type: 'question' } & QuestionRequest)
  | undefined {
  const { effect, call } = waiting;
  const common = {
    id: `ask_${runId.slice(RESPONSE_PREFIX.length)}_${effect}`,
    call_id: callIdFor(runId, call.turn, call.index),
    tool: call.name,
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
  if (waiting.type !== 'question') return undefined;
  const { prompt, choices = null, schema = null } = waiting.question;
  return { type: 'question', ...common, prompt, choices, schema, expires_at: waiting.expiresAt ?? null };
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
      const message = `${LIMITS[ending.reason] ?? `The answer ended early (${ending.reason}).`} What was done so far is stored. Send another message to continue.`;
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
