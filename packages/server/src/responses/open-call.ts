import type { ToolResult } from '@treadle/core';
import type { FunctionCallItem, ItemStatus, McpCallItem } from '../wire/items.ts';
import type { EventsOut } from './events-out.ts';
import { resultText } from './result-text.ts';

/** A call while it comes: the client's (`function_call`), or one that the server executes or refuses (`mcp_call`). */
export interface OpenCall {
  readonly type: 'function_call' | 'mcp_call';
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  /** Of a call that the client executes. */
  readonly callId: string;
  /** Who executes it, if that is not the client. */
  readonly label: string;
  name: string;
  arguments: string;
  /** The client was told that the arguments are whole. */
  isWhole: boolean;
  /** The client was told that it runs. */
  hasStarted: boolean;
  /** The item as it ended; there when it has. */
  done: FunctionCallItem | McpCallItem | undefined;
}

const PENDING = { output: null, error: null };

export function openCall(out: EventsOut, call: OpenCall): void {
  out.send({
    type: 'response.output_item.added',
    sequence_number: out.next(),
    output_index: call.index,
    item: shownCall(call, 'in_progress'),
  });
}

export function addArguments(out: EventsOut, call: OpenCall, piece: string): void {
  if (piece === '') return;
  call.arguments += piece;
  out.send({
    type: call.type === 'function_call' ? FUNCTION_DELTA : MCP_DELTA,
    sequence_number: out.next(),
    item_id: call.id,
    output_index: call.index,
    delta: piece,
  });
}

const FUNCTION_DELTA = 'response.function_call_arguments.delta';
const MCP_DELTA = 'response.mcp_call_arguments.delta';

/** Tells the arguments as a whole; what the pieces lacked of them comes as another one. */
export function endArguments(out: EventsOut, call: OpenCall, whole: string = call.arguments): void {
  if (call.isWhole) return;
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

/** Said of a call that the server has, once; also of one that is refused, so that clients see the same course of events. */
export function startCall(out: EventsOut, call: OpenCall): void {
  if (call.type !== 'mcp_call' || call.hasStarted) return;
  call.hasStarted = true;
  tell(out, call, 'response.mcp_call.in_progress');
}

export function answerCall(out: EventsOut, call: OpenCall, result: ToolResult): void {
  if (call.type !== 'mcp_call' || call.done) return;
  endArguments(out, call);
  startCall(out, call);
  tell(out, call, result.isError ? 'response.mcp_call.failed' : 'response.mcp_call.completed');
  end(out, call, shownCall(call, result.isError ? 'failed' : 'completed', resultText(result)));
}

export function closeCall(out: EventsOut, call: OpenCall, status: ItemStatus): void {
  if (call.done) return;
  endArguments(out, call);
  end(out, call, shownCall(call, status));
}

function end(out: EventsOut, call: OpenCall, item: FunctionCallItem | McpCallItem): void {
  call.done = item;
  out.send({ type: 'response.output_item.done', sequence_number: out.next(), output_index: call.index, item });
}

function tell(out: EventsOut, { id, index }: OpenCall, type: string): void {
  out.send({ type, sequence_number: out.next(), item_id: id, output_index: index });
}

/** As it goes over the wire. */
export function shownCall(
  { type, id, callId, label, name, arguments: text }: OpenCall,
  status: McpCallItem['status'],
  { output, error }: Pick<McpCallItem, 'output' | 'error'> = PENDING,
): FunctionCallItem | McpCallItem {
  if (type === 'function_call') {
    return { type, id, call_id: callId, name, arguments: text, status: status as ItemStatus };
  }
  return { type, id, server_label: label, name, arguments: text, status, output, error, approval_request_id: null };
}
