import { customInput, type TokenLogprob, type ToolResult } from '@treadle/core';
import {
  builtInArguments,
  builtInCallItem,
  builtInName,
  isBuiltInCall,
  isBuiltInCallType,
  type BuiltInCallItem,
} from './built-in-calls.ts';
import { parsableArguments, SEARCH } from '../../engine/tools.ts';
import { isObject } from '../../parse/validate.ts';
import { addEvent, type Outbox, type TextKind } from '../../requests/projection.ts';
import {
  mcpCallResult,
  wireLogprobs,
  type CompactionItem,
  type CustomCallItem,
  type FunctionCallItem,
  type ItemStatus,
  type McpApprovalRequestItem,
  type McpCallItem,
  type McpListToolsItem,
  type MessageItem,
  type OutputItem,
  type OutputText,
  type ReasoningItem,
  type ToolSearchCallItem,
  type WireLogprob,
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

/**
 * Whether an event opens or extends an item that is not stored yet. In a stream that is made from a stored response, the events
 * before it tell of the same response.
 */
export function isLive({ type }: ResponseEvent): boolean {
  return type.endsWith('.delta') || type.endsWith('.added');
}

/** The events of a response. They are created with their numbers, so that a delta costs one object. */
export interface EventList extends Outbox<ResponseEvent> {
  /** The number of the next event, from 0. */
  next: number;
}

/** A message or a reasoning item that is being streamed. It has one part, which contains all of its text. */
export interface OpenText {
  readonly type: 'text';
  readonly kind: TextKind;
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  text: string;
  /** The tokens of the text so far, if the client wants them. */
  logprobs?: readonly WireLogprob[];
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

export function openText(out: EventList, item: OpenText): void {
  sendAdded(out, item.index, wireText(item, 'in_progress', false));
}

/** Opens the part of the item with the first delta: reasoning without readable text has no part. */
export function addText(out: EventList, item: OpenText, delta: string, tokens?: readonly TokenLogprob[]): void {
  const { kind, id, index } = item;
  if (item.text === '') sendPart(out, item, 'added', '');
  item.text += delta;
  if (out.isSilent) {
    if (tokens) addTokens(item, tokens);
    return;
  }
  const sequence_number = out.next++;
  if (kind === 'summary') {
    const type = 'response.reasoning_summary_text.delta';
    addEvent(out, { type, sequence_number, item_id: id, output_index: index, summary_index: 0, delta });
  } else if (kind === 'message') {
    const type = 'response.output_text.delta';
    const logprobs = tokens ? addTokens(item, tokens) : EMPTY;
    addEvent(out, { type, sequence_number, item_id: id, output_index: index, content_index: 0, delta, logprobs });
  } else {
    const type = kind === 'refusal' ? 'response.refusal.delta' : 'response.reasoning_text.delta';
    addEvent(out, { type, sequence_number, item_id: id, output_index: index, content_index: 0, delta });
  }
}

function addTokens(item: OpenText, tokens: readonly TokenLogprob[]): readonly WireLogprob[] {
  const logprobs = wireLogprobs(tokens);
  item.logprobs = item.logprobs ? [...item.logprobs, ...logprobs] : logprobs;
  return logprobs;
}

/** Sends the whole text. What the deltas did not contain is sent as another delta first. */
export function endText(
  out: EventList,
  item: OpenText,
  whole: string = item.text,
  tokens?: readonly TokenLogprob[],
): void {
  if (item.isWhole) return;
  if (whole.length > item.text.length && whole.startsWith(item.text)) {
    addText(out, item, whole.slice(item.text.length), tokens?.slice(item.logprobs?.length ?? 0));
  }
  if (tokens) item.logprobs = wireLogprobs(tokens);
  item.text = whole;
  item.isWhole = true;
  if (whole === '') return;
  addEvent(out, {
    type: TEXT_DONE[item.kind],
    sequence_number: out.next++,
    ...placeOf(item),
    ...wholeText(item, whole),
  });
  sendPart(out, item, 'done', whole);
}

const TEXT_DONE: Readonly<Record<TextKind, string>> = {
  message: 'response.output_text.done',
  refusal: 'response.refusal.done',
  reasoning: 'response.reasoning_text.done',
  summary: 'response.reasoning_summary_text.done',
};

function wholeText({ kind, logprobs = EMPTY }: OpenText, text: string): object {
  if (kind === 'refusal') return { refusal: text };
  return kind === 'message' ? { text, logprobs } : { text };
}

/** The place of the only part of an item. */
function placeOf({ kind, id, index }: OpenText): object {
  return { item_id: id, output_index: index, [kind === 'summary' ? 'summary_index' : 'content_index']: 0 };
}

function sendPart(out: EventList, item: OpenText, what: 'added' | 'done', text: string): void {
  const name = item.kind === 'summary' ? 'reasoning_summary_part' : 'content_part';
  const part = partOf(item.kind, text, what === 'done' ? item.logprobs : undefined);
  addEvent(out, { type: `response.${name}.${what}`, sequence_number: out.next++, ...placeOf(item), part });
}

function partOf(kind: TextKind, text: string, logprobs?: readonly WireLogprob[]): object {
  switch (kind) {
    case 'message':
      return outputText(text, logprobs);
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

export function closeText(out: EventList, item: OpenText, status: ItemStatus, end: TextEnd = {}): void {
  if (item.done) return;
  endText(out, item);
  item.done = wireText(item, status, true, end);
  sendDone(out, item.index, item.done);
}

function sendAdded(out: EventList, index: number, item: object): void {
  addEvent(out, { type: 'response.output_item.added', sequence_number: out.next++, output_index: index, item });
}

function sendDone(out: EventList, index: number, item: OutputItem): void {
  addEvent(out, { type: 'response.output_item.done', sequence_number: out.next++, output_index: index, item });
}

function wireText(
  { kind, id, text, logprobs }: OpenText,
  status: ItemStatus,
  withParts: boolean,
  { phase, encrypted }: TextEnd = {},
): MessageItem | ReasoningItem {
  const parts = withParts && text !== '' ? [partOf(kind, text, logprobs)] : [];
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
function textOfItem(item: MessageItem | ReasoningItem): ClosedText {
  if (item.type === 'reasoning') {
    const part = item.content?.[0];
    return part ? { kind: 'reasoning', text: part.text } : { kind: 'summary', text: item.summary[0]?.text ?? '' };
  }
  const part = item.content[0];
  return part?.type === 'refusal'
    ? { kind: 'refusal', text: part.refusal }
    : { kind: 'message', text: part?.text ?? '', tokens: part?.logprobs?.map(tokenOf) };
}

interface ClosedText {
  readonly kind: TextKind;
  readonly text: string;
  readonly tokens?: readonly TokenLogprob[] | undefined;
}

function tokenOf({ top_logprobs: top, ...token }: WireLogprob): TokenLogprob {
  return { ...token, top };
}

function outputText(text: string, logprobs: readonly WireLogprob[] = EMPTY): OutputText {
  return { type: 'output_text', text, annotations: EMPTY, logprobs };
}

/**
 * A call that is being streamed: a `function_call`, a `custom_tool_call`, a `tool_search_call` or a call of a built-in tool for
 * the client, or an `mcp_call` that the server handles. There are no events for the arguments of a `tool_search_call` and of
 * built-in tools, whose items are sent when they are whole. The text of a `custom_tool_call` is sent when it is whole, because most models send it as a JSON string.
 */
export interface OpenCall {
  readonly type: CallItem['type'];
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  /** The `call_id` of a call for the client. */
  readonly callId: string;
  /** The `server_label` of a call that the server handles. */
  readonly label: string;
  /** The request for an approval that the client has decided about. */
  readonly approval: string | null;
  name: string;
  /** Of a call for the client, if its tool belongs to one. */
  readonly namespace?: string | undefined;
  /** Of a `custom_tool_call`: the text. */
  arguments: string;
  /** The event with the whole arguments was sent. */
  isWhole: boolean;
  /** `response.mcp_call.in_progress` was sent. */
  hasStarted: boolean;
  /** The final item; undefined while it is open. */
  done: CallItem | undefined;
}

type CallItem = FunctionCallItem | CustomCallItem | ToolSearchCallItem | BuiltInCallItem | McpCallItem;

/** The name of a call as the loop stores it: one that every provider accepts. */
export function storedCallName(name: string): string {
  return /^[a-zA-Z0-9_-]{1,64}$/.test(name) ? name : name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
}

const NO_RESULT = { output: null, error: null };

export function openCall(out: EventList, call: OpenCall): void {
  sendAdded(out, call.index, wireCall(call, 'in_progress'));
}

export function addArguments(out: EventList, call: OpenCall, delta: string): void {
  if (delta === '' || call.type === 'custom_tool_call') return;
  sendArguments(out, call, delta);
}

function sendArguments(out: EventList, call: OpenCall, delta: string): void {
  if (delta === '') return;
  call.arguments += delta;
  const type = ARGUMENTS_DELTA[call.type];
  if (out.isSilent || type === undefined) return;
  addEvent(out, {
    type,
    sequence_number: out.next++,
    item_id: call.id,
    output_index: call.index,
    delta,
  });
}

const ARGUMENTS_DELTA: Readonly<Partial<Record<OpenCall['type'], string>>> = {
  function_call: 'response.function_call_arguments.delta',
  custom_tool_call: 'response.custom_tool_call_input.delta',
  mcp_call: 'response.mcp_call_arguments.delta',
};

/** Sends the whole arguments. What the deltas did not contain is sent as another delta first. */
export function endArguments(out: EventList, call: OpenCall, text: string = call.arguments): void {
  if (call.isWhole) return;
  const isCustom = call.type === 'custom_tool_call';
  const whole = isCustom ? customInput(text) : parsableArguments(text);
  if (whole.startsWith(call.arguments)) sendArguments(out, call, whole.slice(call.arguments.length));
  call.arguments = whole;
  call.isWhole = true;
  if (ARGUMENTS_DELTA[call.type] === undefined) return;
  if (isCustom) {
    const type = 'response.custom_tool_call_input.done';
    addEvent(out, { type, sequence_number: out.next++, item_id: call.id, output_index: call.index, input: whole });
    return;
  }
  addEvent(out, {
    type: call.type === 'function_call' ? 'response.function_call_arguments.done' : 'response.mcp_call_arguments.done',
    sequence_number: out.next++,
    item_id: call.id,
    output_index: call.index,
    name: call.name,
    arguments: whole,
  });
}

/** Sent once for each call of the server, also for a refused one, so that clients see the same sequence of events. */
export function startCall(out: EventList, call: OpenCall): void {
  if (call.type !== 'mcp_call' || call.hasStarted) return;
  call.hasStarted = true;
  sendCallProgress(out, call, 'response.mcp_call.in_progress');
}

export function answerCall(out: EventList, call: OpenCall, result: ToolResult): void {
  if (call.type !== 'mcp_call' || call.done) return;
  const status = result.isError ? 'failed' : 'completed';
  endArguments(out, call);
  sendCallResult(out, call, status);
  call.done = wireCall(call, status, mcpCallResult(result));
  sendDone(out, call.index, call.done);
}

function sendCallResult(out: EventList, call: OpenCall, status: 'completed' | 'failed'): void {
  if (call.type !== 'mcp_call') return;
  startCall(out, call);
  sendCallProgress(out, call, `response.mcp_call.${status}`);
}

export function closeCall(out: EventList, call: OpenCall, status: ItemStatus): void {
  if (call.done) return;
  endArguments(out, call);
  call.done = wireCall(call, status);
  sendDone(out, call.index, call.done);
}

function sendCallProgress(out: EventList, { id, index }: OpenCall, type: string): void {
  addEvent(out, { type, sequence_number: out.next++, item_id: id, output_index: index });
}

function wireCall(
  { type, id, callId, label, approval, name, namespace, arguments: text }: OpenCall,
  status: McpCallItem['status'],
  { output, error }: Pick<McpCallItem, 'output' | 'error'> = NO_RESULT,
): CallItem {
  const own = namespace === undefined ? { name } : { name, namespace };
  if (type === 'custom_tool_call') {
    return { type, id, call_id: callId, ...own, input: text, status: status as ItemStatus };
  }
  if (isBuiltInCallType(type)) {
    return builtInCallItem({ type, id, callId, status: status as ItemStatus, arguments: text });
  }
  if (type === 'tool_search_call') {
    const given = searchArguments(text);
    return { type, id, call_id: callId, execution: 'client', arguments: given, status: status as ItemStatus };
  }
  if (type === 'function_call') {
    return { type, id, call_id: callId, ...own, arguments: text, status: status as ItemStatus };
  }
  return { type, id, server_label: label, name, arguments: text, status, output, error, approval_request_id: approval };
}

/** In the item they are an object. What is none is empty, and the client says what is missing. */
function searchArguments(text: string): Readonly<Record<string, unknown>> {
  try {
    const given: unknown = JSON.parse(text);
    return isObject(given) ? given : {};
  } catch {
    return {};
  }
}

/** An item that is sent at once: a list of tools, or a request for an approval. */
export interface WholeItem {
  readonly type: 'whole';
  readonly done: McpListToolsItem | McpApprovalRequestItem | CompactionItem;
}

/** Stands for all that came before it. */
export function compactionItem(id: string, encrypted_content: string): WholeItem {
  return { type: 'whole', done: { type: 'compaction', id, encrypted_content } };
}

export type StreamedItem = OpenText | OpenCall | WholeItem;

/** Sends all events of an item that has no parts. */
export function sendWhole(out: EventList, { done: item }: WholeItem, index: number): void {
  const isList = item.type === 'mcp_list_tools';
  const { error: _, ...added } = isList ? { ...item, tools: EMPTY } : { ...item, error: undefined };
  sendAdded(out, index, added);
  if (isList) {
    const about = { item_id: item.id, output_index: index };
    addEvent(out, { type: 'response.mcp_list_tools.in_progress', sequence_number: out.next++, ...about });
    const end = item.error === undefined ? 'completed' : 'failed';
    addEvent(out, { type: `response.mcp_list_tools.${end}`, sequence_number: out.next++, ...about });
  }
  sendDone(out, index, item);
}

/** Closes every open item with the content that it has. */
export function closeInterrupted(out: EventList, items: readonly StreamedItem[]): void {
  for (const item of items) {
    if (item.done) continue;
    if ('text' in item) closeText(out, item, item.isWhole ? 'completed' : 'incomplete');
    else if (item.type !== 'whole') closeCall(out, item, 'incomplete');
  }
}

/** The call of an item before any of its events was sent. */
export function newCall(item: CallItem, index: number): OpenCall {
  const { type, id } = item;
  return {
    type,
    id,
    index,
    callId: type === 'mcp_call' ? '' : item.call_id,
    label: type === 'mcp_call' ? item.server_label : '',
    approval: type === 'mcp_call' ? item.approval_request_id : null,
    name: isBuiltInCallType(type) ? builtInName(type) : 'name' in item ? item.name : SEARCH,
    namespace: 'namespace' in item ? item.namespace : undefined,
    arguments: isBuiltInCallType(type) ? argumentsOf(item) : '',
    isWhole: isBuiltInCallType(type),
    hasStarted: false,
    done: undefined,
  };
}

/** Sends all events of an item that is closed. Its text, or its arguments, are one delta. */
export function sendClosedItem(out: EventList, item: OutputItem, index: number): void {
  const { type, id } = item;
  if (type === 'mcp_list_tools' || type === 'mcp_approval_request' || type === 'compaction') {
    return sendWhole(out, { type: 'whole', done: item }, index);
  }
  if (type === 'message' || type === 'reasoning') {
    const { kind, text, tokens } = textOfItem(item);
    const open: OpenText = { type: 'text', kind, id, index, text: '', isWhole: false, done: undefined };
    openText(out, open);
    endText(out, open, text, tokens?.length ? tokens : undefined);
    sendDone(out, index, item);
    return;
  }
  const call = newCall(item, index);
  openCall(out, call);
  endArguments(out, call, argumentsOf(item));
  if (item.status === 'completed' || item.status === 'failed') sendCallResult(out, call, item.status);
  sendDone(out, index, item);
}

/** As the model wrote them. */
function argumentsOf(item: CallItem): string {
  if (isBuiltInCall(item)) return builtInArguments(item);
  if (item.type === 'custom_tool_call') return JSON.stringify({ input: item.input });
  return item.type === 'tool_search_call' ? JSON.stringify(item.arguments) : item.arguments;
}

/** The item as it is now. */
export function wireItem(item: StreamedItem): OutputItem {
  if (item.type === 'whole' || item.done) return item.done!;
  return 'text' in item ? wireText(item, 'in_progress', true) : wireCall(item, 'in_progress');
}
