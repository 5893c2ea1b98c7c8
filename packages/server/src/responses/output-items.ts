import type { ToolResult } from '@treadle/core';
import { parsableArguments } from '../engine/tools.ts';
import {
  mcpCallResult,
  type FunctionCallItem,
  type ItemStatus,
  type McpCallItem,
  type MessageItem,
  type OutputItem,
  type OutputText,
  type ReasoningItem,
} from './wire.ts';

/** The output items while they are streamed, and the events that open them, extend them and close them. */

/** An event of a streamed response. `type` is one that the official client knows. */
export interface ResponseEvent {
  readonly type: string;
  readonly sequence_number: number;
  readonly [field: string]: unknown;
}

/** Takes an event; returns a promise while the client reads more slowly than events are sent. */
export type EmitEvent = (event: ResponseEvent) => void | Promise<void>;

/** Numbers and sends the events of one response. */
export interface EventSender {
  /** The number of the next event, from 0. Events are created with it, so that a delta costs one object. */
  next(): number;
  send(event: ResponseEvent): void;
  /** How many events were sent. */
  sentCount(): number;
  /** The promise that the last events returned, if any. Each promise is returned once. */
  backpressure(): void | Promise<void>;
}

/** `first`: the number of the first event. */
export function eventSender(emit: EmitEvent | undefined, first = 0): EventSender {
  let number = first;
  let pending: void | Promise<void>;
  return {
    next: () => number++,
    sentCount: () => number - first,
    send(event) {
      pending = emit?.(event) ?? pending;
    },
    backpressure() {
      const last = pending;
      pending = undefined;
      return last;
    },
  };
}

/**
 * What the text of an item is. The first two are messages. `reasoning` is the reasoning itself, `summary` a summary of it
 * that the provider made.
 */
export type TextKind = 'message' | 'refusal' | 'reasoning' | 'summary';

/** A message or a reasoning item that is being streamed. It has one part, which contains all of its text. */
export interface OpenText {
  readonly kind: TextKind;
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  text: string;
  /** The event with the whole text was sent. */
  isWhole: boolean;
  /** The final item; undefined while it is open. */
  done: MessageItem | ReasoningItem | undefined;
}

/** Properties of an item that are known only when it is closed. */
export interface TextEnd {
  readonly phase?: MessageItem['phase'];
  readonly encrypted?: string;
}

const EMPTY: readonly never[] = [];

export function openText(out: EventSender, item: OpenText): void {
  out.send({
    type: 'response.output_item.added',
    sequence_number: out.next(),
    output_index: item.index,
    item: wireText(item, 'in_progress', false),
  });
}

/** Opens the part of the item with the first delta: reasoning without readable text has no part. */
export function addText(out: EventSender, item: OpenText, delta: string): void {
  const { kind, id, index } = item;
  if (item.text === '') sendPart(out, item, 'added', '');
  item.text += delta;
  const sequence_number = out.next();
  if (kind === 'summary') {
    const type = 'response.reasoning_summary_text.delta';
    out.send({ type, sequence_number, item_id: id, output_index: index, summary_index: 0, delta });
  } else if (kind === 'message') {
    const type = 'response.output_text.delta';
    out.send({ type, sequence_number, item_id: id, output_index: index, content_index: 0, delta, logprobs: EMPTY });
  } else {
    const type = kind === 'refusal' ? 'response.refusal.delta' : 'response.reasoning_text.delta';
    out.send({ type, sequence_number, item_id: id, output_index: index, content_index: 0, delta });
  }
}

/** Sends the whole text. What the deltas did not contain is sent as another delta first. */
export function endText(out: EventSender, item: OpenText, whole: string = item.text): void {
  if (item.isWhole) return;
  if (whole.length > item.text.length && whole.startsWith(item.text)) addText(out, item, whole.slice(item.text.length));
  item.text = whole;
  item.isWhole = true;
  if (whole === '') return;
  out.send({
    type: TEXT_DONE[item.kind],
    sequence_number: out.next(),
    ...placeOf(item),
    ...wholeText(item.kind, whole),
  });
  sendPart(out, item, 'done', whole);
}

const TEXT_DONE: Readonly<Record<TextKind, string>> = {
  message: 'response.output_text.done',
  refusal: 'response.refusal.done',
  reasoning: 'response.reasoning_text.done',
  summary: 'response.reasoning_summary_text.done',
};

function wholeText(kind: TextKind, text: string): object {
  if (kind === 'refusal') return { refusal: text };
  return kind === 'message' ? { text, logprobs: EMPTY } : { text };
}

/** The place of the only part of an item. */
function placeOf({ kind, id, index }: OpenText): object {
  return { item_id: id, output_index: index, [kind === 'summary' ? 'summary_index' : 'content_index']: 0 };
}

function sendPart(out: EventSender, item: OpenText, what: 'added' | 'done', text: string): void {
  const name = item.kind === 'summary' ? 'reasoning_summary_part' : 'content_part';
  const part = partOf(item.kind, text);
  out.send({ type: `response.${name}.${what}`, sequence_number: out.next(), ...placeOf(item), part });
}

function partOf(kind: TextKind, text: string): object {
  switch (kind) {
    case 'message':
      return outputText(text);
    case 'refusal':
      return { type: 'refusal', refusal: text };
    case 'reasoning':
      return { type: 'reasoning_text', text };
    case 'summary':
      return { type: 'summary_text', text };
    default:
      return kind satisfies never;
  }
}

export function closeText(out: EventSender, item: OpenText, status: ItemStatus, end: TextEnd = {}): void {
  if (item.done) return;
  endText(out, item);
  item.done = wireText(item, status, true, end);
  sendDone(out, item.index, item.done);
}

function sendDone(out: EventSender, index: number, item: OutputItem): void {
  out.send({ type: 'response.output_item.done', sequence_number: out.next(), output_index: index, item });
}

function wireText(
  { kind, id, text }: OpenText,
  status: ItemStatus,
  withParts: boolean,
  { phase, encrypted }: TextEnd = {},
): MessageItem | ReasoningItem {
  const parts = withParts && text !== '' ? [partOf(kind, text)] : [];
  if (kind === 'message' || kind === 'refusal') {
    const content = parts as MessageItem['content'];
    return { type: 'message', id, status, role: 'assistant', ...(phase && { phase }), content };
  }
  const content = parts as ReasoningItem['summary'] & ReasoningItem['content'];
  return {
    type: 'reasoning',
    id,
    status,
    summary: kind === 'summary' ? content : [],
    ...(kind === 'reasoning' && content.length > 0 && { content }),
    ...(encrypted !== undefined && { encrypted_content: encrypted }),
  };
}

/** What the text of a closed item is, and the text. */
function textOfItem(item: MessageItem | ReasoningItem): { readonly kind: TextKind; readonly text: string } {
  if (item.type === 'reasoning') {
    const part = item.content?.[0];
    return part ? { kind: 'reasoning', text: part.text } : { kind: 'summary', text: item.summary[0]?.text ?? '' };
  }
  const part = item.content[0];
  return part?.type === 'refusal'
    ? { kind: 'refusal', text: part.refusal }
    : { kind: 'message', text: part?.text ?? '' };
}

function outputText(text: string): OutputText {
  return { type: 'output_text', text, annotations: EMPTY, logprobs: EMPTY };
}

/** A call that is being streamed: a `function_call` for the client, or an `mcp_call` that the server handles. */
export interface OpenCall {
  readonly type: 'function_call' | 'mcp_call';
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  /** The `call_id` of a call for the client. */
  readonly callId: string;
  /** The `server_label` of a call that the server handles. */
  readonly label: string;
  name: string;
  arguments: string;
  /** The event with the whole arguments was sent. */
  isWhole: boolean;
  /** `response.mcp_call.in_progress` was sent. */
  hasStarted: boolean;
  /** The final item; undefined while it is open. */
  done: FunctionCallItem | McpCallItem | undefined;
}

/** The name of a call as the loop stores it: one that every provider accepts. */
export function storedCallName(name: string): string {
  return /^[a-zA-Z0-9_-]{1,64}$/.test(name) ? name : name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
}

const NO_RESULT = { output: null, error: null };

export function openCall(out: EventSender, call: OpenCall): void {
  out.send({
    type: 'response.output_item.added',
    sequence_number: out.next(),
    output_index: call.index,
    item: wireCall(call, 'in_progress'),
  });
}

export function addArguments(out: EventSender, call: OpenCall, delta: string): void {
  if (delta === '') return;
  call.arguments += delta;
  out.send({
    type: call.type === 'function_call' ? FUNCTION_DELTA : MCP_DELTA,
    sequence_number: out.next(),
    item_id: call.id,
    output_index: call.index,
    delta,
  });
}

const FUNCTION_DELTA = 'response.function_call_arguments.delta';
const MCP_DELTA = 'response.mcp_call_arguments.delta';

/** Sends the whole arguments. What the deltas did not contain is sent as another delta first. */
export function endArguments(out: EventSender, call: OpenCall, text: string = call.arguments): void {
  if (call.isWhole) return;
  const whole = parsableArguments(text);
  if (whole.startsWith(call.arguments)) addArguments(out, call, whole.slice(call.arguments.length));
  call.arguments = whole;
  call.isWhole = true;
  out.send({
    type: call.type === 'function_call' ? 'response.function_call_arguments.done' : 'response.mcp_call_arguments.done',
    sequence_number: out.next(),
    item_id: call.id,
    output_index: call.index,
    name: call.name,
    arguments: whole,
  });
}

/** Sent once for each call of the server, also for a refused one, so that clients see the same sequence of events. */
export function startCall(out: EventSender, call: OpenCall): void {
  if (call.type !== 'mcp_call' || call.hasStarted) return;
  call.hasStarted = true;
  sendCallProgress(out, call, 'response.mcp_call.in_progress');
}

export function answerCall(out: EventSender, call: OpenCall, result: ToolResult): void {
  if (call.type !== 'mcp_call' || call.done) return;
  const status = result.isError ? 'failed' : 'completed';
  endArguments(out, call);
  sendCallResult(out, call, status);
  call.done = wireCall(call, status, mcpCallResult(result));
  sendDone(out, call.index, call.done);
}

function sendCallResult(out: EventSender, call: OpenCall, status: 'completed' | 'failed'): void {
  if (call.type !== 'mcp_call') return;
  startCall(out, call);
  sendCallProgress(out, call, `response.mcp_call.${status}`);
}

export function closeCall(out: EventSender, call: OpenCall, status: ItemStatus): void {
  if (call.done) return;
  endArguments(out, call);
  call.done = wireCall(call, status);
  sendDone(out, call.index, call.done);
}

function sendCallProgress(out: EventSender, { id, index }: OpenCall, type: string): void {
  out.send({ type, sequence_number: out.next(), item_id: id, output_index: index });
}

function wireCall(
  { type, id, callId, label, name, arguments: text }: OpenCall,
  status: McpCallItem['status'],
  { output, error }: Pick<McpCallItem, 'output' | 'error'> = NO_RESULT,
): FunctionCallItem | McpCallItem {
  if (type === 'function_call') {
    return { type, id, call_id: callId, name, arguments: text, status: status as ItemStatus };
  }
  return { type, id, server_label: label, name, arguments: text, status, output, error, approval_request_id: null };
}

/** Closes every open item with the content that it has. */
export function closeInterrupted(out: EventSender, items: readonly (OpenText | OpenCall)[]): void {
  for (const item of items) {
    if (item.done) continue;
    if ('text' in item) closeText(out, item, item.isWhole ? 'completed' : 'incomplete');
    else closeCall(out, item, 'incomplete');
  }
}

/** Sends all events of an item that is closed. Its text, or its arguments, are one delta. */
export function sendClosedItem(out: EventSender, item: OutputItem, index: number): void {
  const { type, id } = item;
  if (type === 'message' || type === 'reasoning') {
    const { kind, text } = textOfItem(item);
    const open: OpenText = { kind, id, index, text: '', isWhole: false, done: undefined };
    openText(out, open);
    endText(out, open, text);
    sendDone(out, index, item);
    return;
  }
  const call: OpenCall = {
    type,
    id,
    index,
    callId: type === 'function_call' ? item.call_id : '',
    label: type === 'mcp_call' ? item.server_label : '',
    name: item.name,
    arguments: '',
    isWhole: false,
    hasStarted: false,
    done: undefined,
  };
  openCall(out, call);
  endArguments(out, call, item.arguments);
  if (item.status === 'completed' || item.status === 'failed') sendCallResult(out, call, item.status);
  sendDone(out, index, item);
}

/** The item as it is now. */
export function wireItem(item: OpenText | OpenCall): MessageItem | ReasoningItem | FunctionCallItem | McpCallItem {
  if (item.done) return item.done;
  return 'text' in item ? wireText(item, 'in_progress', true) : wireCall(item, 'in_progress');
}
