import { customInput, type AssistantPart, type TokenLogprob, type Usage, type Waiting } from '@treadle/core';
import { errorBody, type ApiError } from '../../api-error.ts';
import { addEvent, takeEvents, type Outbox, type Projection } from '../../requests/projection.ts';
import { endingError, type Ending } from '../../requests/ending.ts';
import { parsableArguments, type CallKinds } from '../../engine/tools.ts';
import { wireLogprobs, type WireLogprob } from '../responses/wire.ts';
import { completionCallId } from '../../history/restore-turns.ts';
import type {
  ChatChunk,
  ChatCompletion,
  ChatDelta,
  ChatHead,
  ChatLogprobs,
  ChatToolCall,
  ChatUsage,
  FinishReason,
  Incomplete,
} from './wire.ts';

export interface CompletionProjectionOptions {
  readonly head: ChatHead;
  readonly calls: CallKinds;
  /** The last chunk contains the usage. */
  readonly includeUsage: boolean;
  /**
   * The content is only the text of the last turn, sent when that turn is known. For answers in a required format, which
   * text beside the calls of earlier turns would break. Otherwise the texts of all turns, separated by a blank line.
   */
  readonly lastTextOnly: boolean;
}

export type CompletionFrame = ChatChunk | { readonly error: object };

/** Takes a frame; returns a promise while the client reads more slowly than frames are sent. */
export type EmitFrame = (frame: CompletionFrame) => void | Promise<void>;

/**
 * Makes a completion and its chunks from the items of a run. A run that is resumed has no client that gets chunks.
 *
 * 1. The first chunk has the role, the last one before the usage has the finish reason. A failed completion ends with an
 *    error.
 * 2. The chunks of a completion add up to the whole, with one exception: calls for the client that were being streamed
 *    when the run ended for another reason are in the chunks, but not in the whole.
 * 3. Only calls for the client are sent, one after the other as they open. Calls of the server and refused calls are not.
 */
export type CompletionProjection = Projection<CompletionState, CompletionFrame, ChatCompletion | ApiError>;

export interface CompletionState extends Outbox<CompletionFrame> {
  readonly sentCalls: SentCall[];
  readonly whole: Texts & Pick<OpenTurn, 'logprobs'>;
  turn: OpenTurn;
  /** Set at the end. */
  result?: ChatCompletion | ApiError;
  /** The chunks that are sent when the end is stored. */
  rest: readonly CompletionFrame[];
}

interface SentCall {
  readonly id: string;
  readonly name: string;
  arguments: string;
  /** The tool takes a text. The call is sent when it is whole. */
  readonly isCustom: boolean;
}

/** A call of the current turn; without `sent` its deltas are dropped. */
interface OpenCall {
  readonly sent: SentCall | undefined;
  readonly position: number;
}

/** The texts of a message, by the field that they are sent in. */
interface Texts {
  content: string;
  refusal: string;
  reasoning_content: string;
}

interface OpenTurn extends Texts {
  readonly number: number;
  /** The tokens of the content, if the client wants them. */
  logprobs?: readonly WireLogprob[];
  readonly calls: OpenCall[];
}

function newTurn(number: number): OpenTurn {
  return { number, ...noTexts(), calls: [] };
}

function noTexts(): Texts {
  return { content: '', refusal: '', reasoning_content: '' };
}

function textKind(isText: boolean, refusal?: boolean): keyof Texts {
  if (!isText) return 'reasoning_content';
  return refusal ? 'refusal' : 'content';
}

export function completionProjection({
  head,
  calls,
  includeUsage,
  lastTextOnly,
}: CompletionProjectionOptions): CompletionProjection {
  const open: ChunkOptions = { finish: null, includeUsage };

  function sendDelta(state: CompletionState, delta: ChatDelta, logprobs?: readonly WireLogprob[]): void {
    if (!state.isSilent) addEvent(state, chunkOf(head, delta, logprobs ? { ...open, logprobs } : open));
  }

  function addText(state: CompletionState, kind: keyof Texts, text: string, tokens?: readonly TokenLogprob[]): void {
    const { turn, whole } = state;
    if (text === '' && !tokens?.length) return;
    const delta = text !== '' && turn[kind] === '' && whole[kind] !== '' ? TURN_SEPARATOR + text : text;
    turn[kind] += text;
    const logprobs = kind === 'content' && tokens ? wireLogprobs(tokens) : undefined;
    if (logprobs) turn.logprobs = [...(turn.logprobs ?? []), ...logprobs];
    if (kind === 'content' && lastTextOnly) return;
    whole[kind] += delta;
    if (logprobs) whole.logprobs = [...(whole.logprobs ?? []), ...logprobs];
    sendDelta(state, { [kind]: delta }, logprobs);
  }

  function addCallDelta(state: CompletionState, index: number, name: string, delta: string): void {
    const known = state.turn.calls[index];
    if (!known) state.turn.calls[index] = openCall(state, index, name, delta);
    else if (known.sent && delta !== '') {
      known.sent.arguments += delta;
      const piece = { index: known.position, function: { arguments: delta } };
      if (!known.sent.isCustom) sendDelta(state, { tool_calls: [piece] });
    }
  }

  function openCall(state: CompletionState, index: number, name: string, delta: string): OpenCall {
    if (calls.kindOf(name, index) !== 'client') return { sent: undefined, position: -1 };
    const isCustom = calls.isCustom?.(name) ?? false;
    const id = completionCallId(head.id, state.turn.number, index);
    const sent: SentCall = { id, name, arguments: delta, isCustom };
    const position = state.sentCalls.push(sent) - 1;
    if (!isCustom) sendCall(state, sent, position);
    return { sent, position };
  }

  function sendCall(state: CompletionState, call: SentCall, index: number): void {
    sendDelta(state, { tool_calls: [{ index, ...wireCall(call) }] });
  }

  /** Adds what the deltas did not contain; of a model that does not stream, everything. */
  function addReply(state: CompletionState, parts: readonly AssistantPart[]): void {
    const { turn } = state;
    let index = 0;
    const reply = noTexts();
    let tokens = 0;
    for (const part of parts) {
      if (part.type !== 'tool-call') {
        const kind = textKind(part.type === 'text', part.type === 'text' && part.refusal);
        reply[kind] += part.text;
        const logprobs = part.type === 'text' ? part.logprobs : undefined;
        const rest = logprobs?.slice(Math.max(0, (turn.logprobs?.length ?? 0) - tokens));
        addText(state, kind, restOf(reply[kind], turn[kind]), rest);
        tokens += logprobs?.length ?? 0;
      } else {
        const sent = turn.calls[index]?.sent?.arguments ?? '';
        addCallDelta(state, index, part.name, restOf(parsableArguments(part.arguments), sent));
        const known = turn.calls[index++];
        if (known?.sent?.isCustom) sendCall(state, known.sent, known.position);
      }
    }
  }

  /** Adds a call for the client that was not sent because the loop might have refused it. */
  function addWaitingCall({ sentCalls }: CompletionState, { call }: Waiting): void {
    const id = completionCallId(head.id, call.turn, call.index);
    if (sentCalls.some((one) => one.id === id)) return;
    const isCustom = calls.isCustom?.(call.name) ?? false;
    sentCalls.push({ id, name: call.name, arguments: parsableArguments(call.arguments), isCustom });
  }

  function completionOf({ sentCalls, whole }: CompletionState, ending: CompletedEnding): ChatCompletion {
    const waiting = ending.type === 'pending' ? ending.waiting : [];
    const pending = new Set(waiting.map(({ call }) => completionCallId(head.id, call.turn, call.index)));
    const toolCalls = sentCalls.flatMap((call) => (pending.has(call.id) ? wireCall(call) : []));
    const message = {
      role: 'assistant',
      content: whole.content || null,
      refusal: whole.refusal || null,
      annotations: [],
      ...(whole.reasoning_content !== '' && { reasoning_content: whole.reasoning_content }),
      ...(toolCalls.length > 0 && { tool_calls: toolCalls }),
    } as const;
    return {
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message, logprobs: chatLogprobs(whole.logprobs), finish_reason: finishReasonOf(ending) }],
      usage: chatUsage(ending.usage),
      ...incompleteDetails(ending),
    };
  }

  function endCompletion(state: CompletionState, ending: CompletedEnding): ChatCompletion {
    const { whole, turn, sentCalls } = state;
    const streamed = sentCalls.length;
    if (ending.type === 'pending') for (const wait of ending.waiting) addWaitingCall(state, wait);
    if (lastTextOnly) {
      whole.content = turn.content;
      if (turn.logprobs) whole.logprobs = turn.logprobs;
      if (whole.content !== '') sendDelta(state, { content: whole.content }, whole.logprobs);
    }
    for (const [index, call] of sentCalls.entries()) if (index >= streamed) sendCall(state, call, index);
    const last = chunkOf(head, {}, { finish: finishReasonOf(ending), includeUsage });
    addEvent(state, { ...last, ...incompleteDetails(ending) });
    if (includeUsage) addEvent(state, usageChunk(head, chatUsage(ending.usage)));
    return completionOf(state, ending);
  }

  return {
    start: ({ isSilent }) => ({ isSilent, events: [], sentCalls: [], whole: noTexts(), turn: newTurn(0), rest: [] }),
    open(state) {
      sendDelta(state, ROLE);
      return takeEvents(state);
    },
    project(state, item) {
      if (item.type === 'text-delta') addText(state, textKind(true, item.refusal), item.text, item.logprobs);
      else if (item.type === 'reasoning-delta') addText(state, 'reasoning_content', item.text);
      else if (item.type === 'call-delta') addCallDelta(state, item.call, item.name, item.arguments);
      else if (item.type === 'turn-started') state.turn = newTurn(item.turn);
      else if (item.type === 'fact' && item.event.type === 'model-replied') addReply(state, item.event.content);
      return takeEvents(state);
    },
    end(state, { ending, failure }) {
      if (ending.type === 'failed' || ending.type === 'cancelled') {
        const error = endingError(ending, failure);
        state.result = error;
        state.rest = [errorBody(error)];
      } else {
        state.result = endCompletion(state, ending);
        state.rest = takeEvents(state);
      }
      return [];
    },
    result: ({ result }) => result!,
    last: ({ rest }) => rest,
  };
}

function usageChunk(head: ChatHead, usage: ChatUsage): ChatChunk {
  return { ...head, object: 'chat.completion.chunk', choices: [], usage };
}

function wireCall({ id, name, arguments: json, isCustom }: SentCall): ChatToolCall {
  if (isCustom) return { id, type: 'custom', custom: { name, input: customInput(json) } };
  return { id, type: 'function', function: { name, arguments: json } };
}

interface ChunkOptions {
  readonly finish: FinishReason | null;
  readonly includeUsage: boolean;
  readonly logprobs?: readonly WireLogprob[] | undefined;
}

function chatLogprobs(content: readonly WireLogprob[] | undefined): ChatLogprobs | null {
  return content ? { content, refusal: null } : null;
}

function chunkOf(head: ChatHead, delta: ChatDelta, { finish, includeUsage, logprobs }: ChunkOptions): ChatChunk {
  return {
    ...head,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, logprobs: chatLogprobs(logprobs), finish_reason: finish }],
    ...(includeUsage && { usage: null }),
  };
}

/** Sends a completion that has ended as chunks. The reasoning, the content and each call are one delta. */
export async function replayCompletion(
  completion: ChatCompletion,
  includeUsage: boolean,
  emit: EmitFrame,
): Promise<void> {
  const { object: _, choices, usage, incomplete_details, ...head } = completion;
  const [{ message, logprobs, finish_reason: finish }] = choices;
  const { content, refusal, reasoning_content, tool_calls = [] } = message;
  const deltas: ChatDelta[] = [
    ROLE,
    ...(reasoning_content === undefined ? [] : [{ reasoning_content }]),
    ...(content === null ? [] : [{ content }]),
    ...(refusal === null ? [] : [{ refusal }]),
    ...tool_calls.map((call, index): ChatDelta => ({ tool_calls: [{ index, ...call }] })),
  ];
  for (const delta of deltas) {
    const tokens = delta.content ? logprobs?.content : undefined;
    await emit(chunkOf(head, delta, { finish: null, includeUsage, logprobs: tokens }));
  }
  const last = chunkOf(head, {}, { finish, includeUsage });
  await emit(incomplete_details ? { ...last, incomplete_details } : last);
  if (includeUsage) await emit(usageChunk(head, usage));
}

const ROLE: ChatDelta = { role: 'assistant', content: '', refusal: null };

const TURN_SEPARATOR = '\n\n';

/** The part of a text that was not sent yet. What was sent cannot be corrected. */
function restOf(whole: string, sent: string): string {
  return whole.startsWith(sent) ? whole.slice(sent.length) : '';
}

/** The endings that produce a completion. */
type CompletedEnding = Extract<Ending, { type: 'completed' | 'pending' | 'incomplete' }>;

/** Every limit is `length`: the official clients know no other reason for an incomplete answer. */
function finishReasonOf(ending: CompletedEnding): FinishReason {
  switch (ending.type) {
    case 'completed':
      return 'stop';
    case 'pending':
      return 'tool_calls';
    case 'incomplete':
      return ending.reason === 'content_filter' ? 'content_filter' : 'length';
    default:
      return ending satisfies never;
  }
}

function incompleteDetails(ending: CompletedEnding): Incomplete {
  return ending.type === 'incomplete' ? { incomplete_details: { reason: ending.reason } } : {};
}

function chatUsage({ inputTokens, outputTokens, cachedTokens = 0, reasoningTokens = 0 }: Usage): ChatUsage {
  return {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
