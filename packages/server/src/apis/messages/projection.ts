import {
  textOf,
  type AssistantPart,
  type Event,
  type Finish,
  type ReasoningPart,
  type ResultBlock,
  type ToolCall,
  type ToolResult,
  type Usage,
} from '@treadle/core';
import type {
  AnthropicBlock,
  AnthropicCall,
  AnthropicContextManagement,
  AnthropicDelta,
  AnthropicDeltaUsage,
  AnthropicEvent,
  AnthropicIteration,
  AnthropicMessage,
  AnthropicStopReason,
  AnthropicTokens,
  AnthropicUsage,
} from '@treadle/models/anthropic-wire';
import type { ApiError } from '../../api-error.ts';
import { parsableArguments, type CallKind, type CallKinds } from '../../engine/tools.ts';
import type { KeptTurn } from '../../history/kept-turns.ts';
import { toolUseIdFor, wireMessageId } from '../../ids.ts';
import { endingError, type Ending } from '../../requests/ending.ts';
import {
  addEvent,
  shownReply,
  takeEvents,
  type Outbox,
  type Projection,
  type ShownText,
  type TextKind,
} from '../../requests/projection.ts';
import type { ReasoningSeal } from '../responses/reasoning-seal.ts';
import type { ThinkingDisplay } from './parse-request.ts';

export interface MessageProjectionOptions {
  readonly runId: string;
  /** As the client names it. */
  readonly model: string;
  readonly calls: CallKinds;
  /** The names that the client has for tools, by those that the model has, if they differ. */
  readonly names: ReadonlyMap<string, string>;
  /** Absent: the client gets nothing of the reasoning. */
  readonly thinking?: Thinking | undefined;
  /** What was left out of the conversation. Null: the client did not ask for it. */
  readonly edited: AnthropicContextManagement | null;
  readonly stops: readonly string[];
  /** The texts of turns with calls are left out: the answer is JSON. */
  readonly answerOnly: boolean;
}

export interface Thinking {
  readonly display: ThinkingDisplay;
  readonly seal: ReasoningSeal;
}

/**
 * Makes a message and its events from the items of a run. A run that is resumed has no client that gets events.
 *
 * 1. One block is open at a time: the official client adds deltas to the last one. So a block ends when another part begins. A
 *    call ends then only if its arguments are complete; otherwise all that follows waits for the whole reply.
 * 2. A whole message consists of the replies, however they were split into deltas. Blocks of a reply that failed or was cut off
 *    may have been sent, and are not part of it, and neither are calls that the client is not to answer.
 * 3. Calls of the server and refused calls are `mcp_tool_use` blocks, followed by their results.
 * 4. The last events are sent when the end is stored. A failed message has none: its client gets an error.
 */
export type MessageProjection = Projection<MessageState, AnthropicEvent, MessageResult>;

export interface MessageResult {
  readonly message: AnthropicMessage | ApiError;
  /** What the next request of the client does not contain. */
  readonly kept: readonly KeptTurn[];
}

export interface MessageState extends Outbox<AnthropicEvent> {
  /** Of the replies so far. */
  readonly blocks: AnthropicBlock[];
  readonly kept: KeptTurn[];
  readonly iterations: AnthropicIteration[];
  /** The index of the next block on the wire. */
  next: number;
  /** The block that is open on the wire. It may be of a reply that failed: then nothing is added to it. */
  open: SentBlock | undefined;
  turn: TurnState;
  rawFinish: string | undefined;
  /** The reply of this turn does not match the schema of the answer. If the model is called again, it is not shown. */
  isRejected: boolean;
  /** Set at the end. */
  message: AnthropicMessage | ApiError | undefined;
  rest: readonly AnthropicEvent[];
}

interface TurnState {
  readonly number: number;
  /** The index of its first block in `blocks`. */
  readonly first: number;
  /** The blocks that were sent, by the kinds of their parts. */
  texts: Record<TextKind, SentBlock[]>;
  /** By the index of the call. Undefined: it is sent when it is known who executes it. */
  sentCalls: (SentBlock | undefined)[];
  /** Nothing is opened before the whole reply arrives. */
  isWaiting: boolean;
  /** The whole reply has arrived: its calls, by their index. */
  calls: readonly ReplyCall[];
}

interface SentBlock {
  readonly index: number;
  readonly kind: TextKind | 'call';
  /** The text or the arguments so far, also of a thought whose text the client does not get. */
  sent: string;
  /** The reply has failed. */
  isLost: boolean;
}

interface ReplyCall {
  readonly call: ToolCall;
  readonly kind: CallKind;
}

function newTurn(number: number, first: number): TurnState {
  return { number, first, ...noBlocks(), calls: [] };
}

function noBlocks(): Pick<TurnState, 'texts' | 'sentCalls' | 'isWaiting'> {
  const texts = { message: [], refusal: [], reasoning: [], summary: [] };
  return { texts, sentCalls: [], isWaiting: false };
}

export function messageProjection(options: MessageProjectionOptions): MessageProjection {
  const { runId, model, calls: kinds, names, thinking, edited, stops, answerOnly } = options;
  const id = wireMessageId(runId);

  /* What is sent */

  function sendDelta(state: MessageState, { index }: SentBlock, delta: AnthropicDelta): void {
    if (!state.isSilent) addEvent(state, { type: 'content_block_delta', index, delta });
  }

  function openBlock(state: MessageState, kind: SentBlock['kind'], content_block: AnthropicBlock): SentBlock {
    closeBlock(state);
    const block: SentBlock = { index: state.next++, kind, sent: '', isLost: false };
    addEvent(state, { type: 'content_block_start', index: block.index, content_block });
    state.open = block;
    return block;
  }

  function closeBlock(state: MessageState): void {
    const { open } = state;
    if (!open) return;
    if (isThought(open.kind)) {
      sendDelta(state, open, { type: 'signature_delta', signature: signatureOf(open.kind, open.sent) });
    }
    addEvent(state, { type: 'content_block_stop', index: open.index });
    state.open = undefined;
  }

  /** Whether the open block can end. */
  function isComplete({ open }: MessageState): boolean {
    return open?.kind !== 'call' || open.isLost || isJson(open.sent);
  }

  function addText(state: MessageState, block: SentBlock, text: string): void {
    if (text === '') return;
    block.sent += text;
    if (block.kind === 'call') sendDelta(state, block, { type: 'input_json_delta', partial_json: text });
    else if (!isThought(block.kind)) sendDelta(state, block, { type: 'text_delta', text });
    else if (thinking?.display !== 'omitted') {
      sendDelta(state, block, { type: 'thinking_delta', thinking: text, estimated_tokens: null });
    }
  }

  function signatureOf(kind: SentBlock['kind'], text: string): string {
    return thinking?.seal.seal({ type: 'reasoning', text, ...(kind === 'summary' && { summary: true }) }) ?? '';
  }

  function textDelta(state: MessageState, kind: TextKind, text: string): void {
    const { turn } = state;
    if (turn.isWaiting || text === '') return;
    if (state.open?.kind === kind && !state.open.isLost) return addText(state, state.open, text);
    turn.isWaiting = !isComplete(state);
    if (turn.isWaiting) return;
    if (isThought(kind) ? thinking : !answerOnly) addText(state, beginText(state, kind), text);
    else closeBlock(state);
  }

  function beginText(state: MessageState, kind: TextKind): SentBlock {
    const block = openBlock(
      state,
      kind,
      isThought(kind) ? { type: 'thinking', thinking: '', signature: '' } : { type: 'text', text: '', citations: null },
    );
    state.turn.texts[kind].push(block);
    return block;
  }

  function callDelta(state: MessageState, index: number, name: string, json: string): void {
    const { turn } = state;
    const known = turn.sentCalls[index];
    if (known) {
      if (known === state.open) addText(state, known, json);
      return;
    }
    if (turn.isWaiting) return;
    const kind = kinds.kindOf(name, index);
    turn.isWaiting = kind !== 'client' || index !== turn.sentCalls.length || name === '' || !isComplete(state);
    if (turn.isWaiting) return;
    const block = openBlock(state, 'call', callBlock(turn.number, { name, index, kind, input: {} }));
    turn.sentCalls.push(block);
    addText(state, block, json);
  }

  function callBlock(turn: number, { name, index, kind, input }: CallParts): AnthropicCall {
    const common = { id: toolUseIdFor(runId, turn, index), name: names.get(name) ?? name, input };
    if (kind === 'client' || kind === 'client-later') return { type: 'tool_use', ...common };
    return { type: 'mcp_tool_use', ...common, server_name: kinds.labelOf(name) };
  }

  /* What the message consists of */

  function addReply(state: MessageState, content: readonly AssistantPart[], finish: Finish): void {
    const { turn } = state;
    const { parts, calls } = shownReply(content);
    const wasCut = finish === 'length' || finish === 'content-filter';
    const seen = { message: 0, refusal: 0, reasoning: 0, summary: 0 };
    turn.calls = calls.map((call, index) => ({ call, kind: kinds.kindOf(call.name, index) }));
    for (const part of parts) {
      if (part.type === 'call') addReplyCall(state, part.index, wasCut);
      else if (isThought(part.type) ? thinking : !answerOnly || calls.length === 0) {
        addReplyText(state, part, seen[part.type]++);
      }
    }
    closeBlock(state);
    if (calls.length > 0 && !wasCut && isKept(content, thinking !== undefined)) {
      state.kept.push({ turn: turn.number, content });
    }
  }

  function addReplyText(state: MessageState, { type: kind, text }: ShownText, nth: number): void {
    const block = state.turn.texts[kind][nth] ?? beginText(state, kind);
    if (block === state.open) addText(state, block, restOf(text, block.sent));
    const shown = thinking?.display === 'omitted' ? '' : text;
    state.blocks.push(
      isThought(kind)
        ? { type: 'thinking', thinking: shown, signature: signatureOf(kind, text) }
        : { type: 'text', text, citations: null },
    );
  }

  function addReplyCall(state: MessageState, index: number, wasCut: boolean): void {
    const { turn } = state;
    const { call, kind } = turn.calls[index]!;
    const json = parsableArguments(call.arguments);
    // No call of a reply that was cut off is executed.
    if (isLater(kind) || (wasCut && (kind !== 'client' || !isJson(json)))) return;
    const block = turn.sentCalls[index];
    if (!block) return addWholeCall(state, index, kind);
    if (block === state.open) addText(state, block, restOf(json, block.sent));
    state.blocks.push(callBlock(turn.number, { name: call.name, index, kind, input: inputOf(json) }));
  }

  /** Adds a call that was not streamed. Claude Code takes no deltas of calls that the server executes. */
  function addWholeCall(state: MessageState, index: number, kind: CallKind): void {
    const { turn } = state;
    const { call } = turn.calls[index]!;
    const json = parsableArguments(call.arguments);
    const whole = callBlock(turn.number, { name: call.name, index, kind, input: inputOf(json) });
    const isStreamed = whole.type === 'tool_use';
    const block = openBlock(state, 'call', isStreamed ? { ...whole, input: {} } : whole);
    if (isStreamed) addText(state, block, json);
    closeBlock(state);
    state.blocks.push(whole);
  }

  function addResult(state: MessageState, index: number, result: ToolResult): void {
    const { turn } = state;
    const { kind } = turn.calls[index] ?? {};
    if (kind === undefined || kind === 'client') return;
    if (isLater(kind)) addWholeCall(state, index, 'refused');
    const { isError, content } = result;
    const block: AnthropicBlock = {
      type: 'mcp_tool_result',
      tool_use_id: toolUseIdFor(runId, turn.number, index),
      is_error: isError,
      content: [{ type: 'text', text: shownResult(content), citations: null }],
    };
    state.blocks.push(block);
    if (content.some(isMedia)) keepResult(state, result, index);
    const at = state.next++;
    addEvent(state, { type: 'content_block_start', index: at, content_block: block });
    addEvent(state, { type: 'content_block_stop', index: at });
  }

  function keepResult({ kept, turn }: MessageState, result: ToolResult, index: number): void {
    const last = kept.at(-1);
    const known = last?.turn === turn.number ? kept.pop()! : { turn: turn.number };
    kept.push({ ...known, results: [...(known.results ?? []), { index, result }] });
  }

  function applyFact(state: MessageState, event: Event): void {
    if (event.type === 'model-replied') {
      state.rawFinish = event.rawFinish;
      state.iterations.push({
        type: 'message',
        model: event.model,
        ...tokensOf(event.usage),
        ...cacheCreation(event.usage),
      });
      addReply(state, event.content, event.finish);
    } else if (event.type === 'model-failed') {
      // It is left open: clients ask again only for a message whose last block is not complete.
      if (state.open) state.open.isLost = true;
      Object.assign(state.turn, noBlocks());
    } else if (event.type === 'output-checked') state.isRejected = event.result.type === 'invalid';
  }

  function endMessage(state: MessageState, ending: CompletedEnding): AnthropicMessage {
    const waiting = ending.type === 'pending' ? ending.waiting : [];
    closeBlock(state);
    for (const { call } of waiting) {
      if (call.turn === state.turn.number && isLater(state.turn.calls[call.index]?.kind)) {
        addWholeCall(state, call.index, 'client-later');
      }
    }
    const pending = new Set(waiting.map(({ call }) => toolUseIdFor(runId, call.turn, call.index)));
    const content = state.blocks.filter((block) => block.type !== 'tool_use' || pending.has(block.id));
    const usage = usageOf(ending.usage, state.iterations);
    const end = stopOf(ending, { content, rawFinish: state.rawFinish, stops });
    addEvent(state, {
      type: 'message_delta',
      delta: { ...end, stop_details: null, container: null },
      usage: deltaUsage(usage),
      context_management: edited,
    });
    addEvent(state, { type: 'message_stop' });
    return { ...started, content, ...end, context_management: edited, usage };
  }

  const started: AnthropicMessage = {
    id,
    type: 'message',
    role: 'assistant',
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    stop_details: null,
    container: null,
    context_management: null,
    diagnostics: null,
    usage: usageOf({ inputTokens: 0, outputTokens: 0 }, []),
  };

  return {
    start: ({ isSilent }) => ({
      isSilent,
      events: [],
      blocks: [],
      kept: [],
      iterations: [],
      next: 0,
      open: undefined,
      turn: newTurn(0, 0),
      rawFinish: undefined,
      isRejected: false,
      message: undefined,
      rest: [],
    }),
    open: () => [{ type: 'message_start', message: started }],
    project(state, item) {
      if (item.type === 'text-delta') textDelta(state, item.refusal ? 'refusal' : 'message', item.text);
      else if (item.type === 'reasoning-delta') textDelta(state, item.summary ? 'summary' : 'reasoning', item.text);
      else if (item.type === 'call-delta') callDelta(state, item.call, item.name, item.arguments);
      else if (item.type === 'turn-started') {
        // The same turn starts again when the model is called with a shorter conversation.
        if (item.turn === state.turn.number) return NONE;
        // Nobody has seen it.
        if (state.isRejected && state.isSilent) state.blocks.splice(state.turn.first);
        state.isRejected = false;
        state.turn = newTurn(item.turn, state.blocks.length);
      } else if (item.type === 'call-answered') addResult(state, item.index, item.result);
      else if (item.type === 'fact') applyFact(state, item.event);
      return takeEvents(state);
    },
    end(state, { ending, failure }) {
      if (ending.type === 'failed' || ending.type === 'cancelled') state.message = endingError(ending, failure);
      else state.message = endMessage(state, ending);
      state.rest = takeEvents(state);
      return NONE;
    },
    result: ({ message, kept }) => ({ message: message!, kept }),
    last: ({ rest }) => rest,
  };
}

const NONE: readonly never[] = [];

interface CallParts {
  readonly name: string;
  readonly index: number;
  readonly kind: CallKind;
  readonly input: unknown;
}

function isThought(kind: SentBlock['kind']): boolean {
  return kind === 'reasoning' || kind === 'summary';
}

/** Whether the loop may still refuse a call, so that it is not known who gets it. */
function isLater(kind: CallKind | undefined): boolean {
  return kind === 'client-later' || kind === 'approved-later';
}

/** The part of a text that was not sent yet. What was sent cannot be corrected. */
function restOf(whole: string, sent: string): string {
  return whole.startsWith(sent) ? whole.slice(sent.length) : '';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Arguments that are not JSON are the text that the model wrote. */
function inputOf(json: string): unknown {
  return isJson(json) ? JSON.parse(json) : json;
}

/** Whether the client does not get everything of a reply that the model needs back. */
function isKept(content: readonly AssistantPart[], showsThinking: boolean): boolean {
  const isHidden = (part: ReasoningPart): boolean => part.signature !== undefined || !showsThinking;
  return content.some((part) => {
    if (part.type === 'reasoning') return isHidden(part);
    return part.type === 'tool-call' ? part.provider !== undefined : part.phase !== undefined;
  });
}

function isMedia({ type }: ResultBlock): boolean {
  return type === 'image' || type === 'file';
}

/** Results of the API contain only text. */
export function shownResult(content: readonly ResultBlock[]): string {
  const media = content.filter(isMedia).map(({ type }) => `[${type}]`);
  return [textOf(content), ...media].filter((text) => text !== '').join('\n');
}

type CompletedEnding = Extract<Ending, { type: 'completed' | 'pending' | 'incomplete' }>;

interface StopContext {
  readonly content: readonly AnthropicBlock[];
  readonly rawFinish: string | undefined;
  readonly stops: readonly string[];
}

interface Stop {
  readonly stop_reason: AnthropicStopReason;
  readonly stop_sequence: string | null;
}

/** A provider says at most that a sequence has stopped the model, and not which of several. */
function stopOf(ending: CompletedEnding, context: StopContext): Stop {
  const reason = stopReasonOf(ending, context);
  const [only, ...others] = context.stops;
  return {
    stop_reason: reason,
    stop_sequence: reason === 'stop_sequence' && others.length === 0 ? (only ?? null) : null,
  };
}

/** Limits that the client can continue after pause the turn. All others are `max_tokens`: the answer is not complete. */
function stopReasonOf(ending: CompletedEnding, { content, rawFinish }: StopContext): AnthropicStopReason {
  switch (ending.type) {
    case 'completed':
      return rawFinish === 'stop_sequence' ? 'stop_sequence' : 'end_turn';
    case 'pending':
      return 'tool_use';
    case 'incomplete':
      if (ending.reason === 'content_filter') return 'refusal';
      if (rawFinish === 'model_context_window_exceeded') return 'model_context_window_exceeded';
      return PAUSING.has(ending.reason) && content.at(-1)?.type === 'mcp_tool_result' ? 'pause_turn' : 'max_tokens';
    default:
      return ending satisfies never;
  }
}

const PAUSING = new Set(['max_turns', 'max_duration', 'max_tool_calls']);

function tokensOf({ inputTokens, outputTokens, cachedTokens = 0, cacheWriteTokens = 0 }: Usage): AnthropicTokens {
  return {
    input_tokens: Math.max(0, inputTokens - cachedTokens - cacheWriteTokens),
    cache_creation_input_tokens: cacheWriteTokens,
    cache_read_input_tokens: cachedTokens,
    output_tokens: outputTokens,
  };
}

function cacheCreation({ cacheWriteTokens = 0 }: Usage): Pick<AnthropicUsage, 'cache_creation'> {
  return { cache_creation: { ephemeral_5m_input_tokens: cacheWriteTokens, ephemeral_1h_input_tokens: 0 } };
}

function usageOf(usage: Usage, iterations: readonly AnthropicIteration[]): AnthropicUsage {
  const { reasoningTokens } = usage;
  return {
    ...tokensOf(usage),
    ...cacheCreation(usage),
    output_tokens_details: reasoningTokens === undefined ? null : { thinking_tokens: reasoningTokens },
    iterations: iterations.length > 1 ? iterations : null,
    server_tool_use: null,
    service_tier: 'standard',
    fallback_credit: null,
    inference_geo: null,
    speed: null,
  };
}

function deltaUsage(usage: AnthropicUsage): AnthropicDeltaUsage {
  const { cache_creation: _, service_tier: __, inference_geo: ___, speed: ____, ...delta } = usage;
  return delta;
}

/** The events of a message that has ended. Each text, and the arguments of each call, are one delta. */
export function replayedEvents(message: AnthropicMessage): readonly AnthropicEvent[] {
  const { content, stop_reason, stop_sequence, stop_details, container, usage, context_management, ...head } = message;
  const events: AnthropicEvent[] = [
    {
      type: 'message_start',
      message: {
        ...head,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        stop_details,
        container,
        context_management: null,
        usage: usageOf({ inputTokens: 0, outputTokens: 0 }, []),
      },
    },
  ];
  for (const [index, block] of content.entries()) {
    const { start, deltas } = splitBlock(block);
    events.push({ type: 'content_block_start', index, content_block: start });
    for (const delta of deltas) events.push({ type: 'content_block_delta', index, delta });
    events.push({ type: 'content_block_stop', index });
  }
  const delta = { stop_reason, stop_sequence, stop_details, container };
  events.push({ type: 'message_delta', delta, usage: deltaUsage(usage), context_management });
  events.push({ type: 'message_stop' });
  return events;
}

/** A block as it begins, and what is added to it. */
function splitBlock(block: AnthropicBlock): {
  readonly start: AnthropicBlock;
  readonly deltas: readonly AnthropicDelta[];
} {
  switch (block.type) {
    case 'text':
      return { start: { ...block, text: '' }, deltas: [{ type: 'text_delta', text: block.text }] };
    case 'thinking': {
      const { thinking, signature } = block;
      const shown: readonly AnthropicDelta[] =
        thinking === '' ? [] : [{ type: 'thinking_delta', thinking, estimated_tokens: null }];
      return {
        start: { ...block, thinking: '', signature: '' },
        deltas: [...shown, { type: 'signature_delta', signature }],
      };
    }
    case 'tool_use': {
      const partial_json = typeof block.input === 'string' ? block.input : JSON.stringify(block.input);
      return { start: { ...block, input: {} }, deltas: [{ type: 'input_json_delta', partial_json }] };
    }
    default:
      return { start: block, deltas: [] };
  }
}
