import type { UserBlock, UserMessage } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import { OWN_LABEL } from '../engine/executors.ts';
import { SEARCH } from '../engine/tools.ts';
import { itemOrigin, ITEMS_PREFIX, RESPONSE_PREFIX } from '../ids.ts';
import {
  builtInAsFunctionCall,
  builtInAsFunctionOutput,
  isBuiltInCall,
  isBuiltInOutput,
} from '../apis/responses/built-in-calls.ts';
import type { StoredRequest } from '../apis/responses/stored-request.ts';
import {
  mcpCallResult,
  mcpErrorText,
  type InputItem,
  type InputPart,
  type ItemStatus,
  type OutputItem,
  type ResponseResource,
} from '../apis/responses/wire.ts';
import { sentMessage } from '../apis/chat/attachments.ts';
import { isChatRecord, messageIds, type StoredAnswer, type StoredMessage } from './conversation-records.ts';
import type {
  AnswerPart,
  CallDecision,
  ChatAnswerMessage,
  ChatMessage,
  ChatStatus,
  ToolCallPart,
} from '../apis/chat/wire.ts';
import { firstTitle } from '../apis/chat/titles.ts';

/*
 * The records of a conversation in the forms of both APIs: as the items of the Conversations API, and as the messages of
 * `/v1/chat`. The output of a record is there when it has ended.
 */

/** The stored form of items that a client has added. The store's records contain it, so its fields must not change. */
export interface StoredItems {
  readonly items: readonly InputItem[];
}

export function isItemsRecord(recordId: string): boolean {
  return recordId.startsWith(ITEMS_PREFIX);
}

// Items

/** The items of a record, in order. */
export function itemsOfRecord(record: RequestRecord): readonly InputItem[] {
  return [...inputOfRecord(record), ...outputOfRecord(record)];
}

/** What was said to the model. */
export function inputOfRecord({ id, runId, request, response }: RequestRecord): readonly InputItem[] {
  if (isItemsRecord(id)) return (response as StoredItems).items;
  if (!isChatRecord(id)) return (request as StoredRequest).request.input;
  return [userItem(messageIds(runId).message, (request as StoredMessage).message)];
}

/** What the model said and called, and the results. */
export function outputOfRecord({ id, runId, status, response }: RequestRecord): readonly InputItem[] {
  if (isItemsRecord(id) || status === 'in_progress' || !response) return [];
  if (!isChatRecord(id)) return (response as ResponseResource).output;
  const hex = runId.slice(RESPONSE_PREFIX.length);
  return (response as StoredAnswer).parts.map((part, index) => partItem(part, `${hex}_p${index}`));
}

/** A message of a chat as an item. */
export function userItem(id: string, message: UserMessage): InputItem {
  const { content } = sentMessage(message) as UserMessage;
  return { type: 'message', id, status: 'completed', role: 'user', content: content.map(inputPart) };
}

function inputPart(block: UserBlock): InputPart {
  if (block.type === 'text') return { type: 'input_text', text: block.text };
  const { mediaType, source } = block;
  const url = source.type === 'data' ? `data:${mediaType};base64,${source.data}` : source.url;
  if (block.type === 'image') return { type: 'input_image', image_url: url, detail: block.detail ?? 'auto' };
  const { name } = block;
  const file = { type: 'input_file' as const, ...(name !== undefined && { filename: name }) };
  return source.type === 'data' ? { ...file, file_data: url } : { ...file, file_url: url };
}

/** A part of an answer as an item. `suffix` makes its id unique. It does not name a turn. */
function partItem(part: AnswerPart, suffix: string): InputItem {
  const status: ItemStatus = 'stopped' in part ? 'incomplete' : 'completed';
  switch (part.type) {
    case 'text': {
      const text = { type: 'output_text' as const, text: part.text, annotations: [], logprobs: [] };
      return { type: 'message', id: `msg_${suffix}`, status, role: 'assistant', content: [text] };
    }
    case 'input':
      return userItem(`msg_${suffix}`, { role: 'user', content: [{ type: 'text', text: part.text }] });
    case 'reasoning': {
      const content = [{ type: 'reasoning_text' as const, text: part.text }];
      return { type: 'reasoning', id: `rs_${suffix}`, status, summary: [], content };
    }
    case 'tool_call': {
      const { name, arguments: json, result } = part;
      const { content: text = 'The call was not executed.', is_error: isError = true } = result ?? {};
      const shown = mcpCallResult({
        type: 'tool-result',
        callId: part.id,
        name,
        content: [{ type: 'text', text }],
        isError,
      });
      return {
        type: 'mcp_call',
        id: `mcp_${suffix}`,
        server_label: OWN_LABEL,
        name,
        arguments: json,
        status: isError ? 'failed' : 'completed',
        ...shown,
        approval_request_id: null,
      };
    }
    default:
      return part satisfies never;
  }
}

/** The texts of items, by which they are found. */
export function searchText(items: readonly InputItem[]): string {
  return items
    .flatMap((item) => (item.type === 'message' && item.role !== 'system' ? messageItemText(item) : []))
    .join('\n');
}

/** The title that a conversation begins with, from the first message of the user. Empty if there is none. */
function titleOfItems(items: readonly InputItem[]): string {
  for (const item of items) {
    if (item.type !== 'message' || item.role !== 'user') continue;
    const other = item.content.find(({ type }) => type !== 'input_text');
    return firstTitle(messageItemText(item), other && (other.type === 'input_image' ? 'image' : 'file'));
  }
  return '';
}

/** What a conversation is found by, and named after. */
export function textAndTitle(items: readonly InputItem[]): { readonly text: string; readonly title: string } {
  return { text: searchText(items), title: titleOfItems(items) };
}

function messageItemText({ content }: Extract<InputItem, { type: 'message' }>): string {
  const texts = content.flatMap((part) => {
    if (part.type === 'refusal') return part.refusal;
    return 'text' in part ? part.text : [];
  });
  return texts.join('\n\n');
}

// Messages

/** The messages of a record that is not of a chat, and that has ended. */
export function messagesOfItems(record: RequestRecord): readonly ChatMessage[] {
  return isItemsRecord(record.id) ? addedMessages(record) : responseMessages(record);
}

/** The message of the user in the input of a response. Undefined if it has none: it has the results of calls. */
export function askedMessage(record: RequestRecord): ChatMessage | undefined {
  const input = inputOfRecord(record).filter((item) => item.type === 'message' && item.role === 'user');
  if (input.length === 0) return undefined;
  const { message: id } = messageIds(record.runId);
  return userMessage(id, record.createdAt, searchText(input));
}

function userMessage(id: string, created_at: number, content: string): ChatMessage {
  return { id, role: 'user', created_at, content, attachments: [] };
}

function responseMessages(record: RequestRecord): readonly ChatMessage[] {
  const { runId, createdAt, status, response } = record;
  const { output = [], error = null, usage = null, model } = (response ?? {}) as Partial<ResponseResource>;
  const answer: ChatAnswerMessage = {
    id: messageIds(runId).answer,
    role: 'assistant',
    created_at: createdAt,
    run_id: runId,
    model: model ?? null,
    events_after: 0,
    warnings: [],
    status: status === 'requires_action' ? 'waiting' : (status as ChatStatus),
    parts: output.flatMap(answerPart),
    error,
    usage: usage && {
      input_tokens: usage.input_tokens,
      output_tokens: usage.output_tokens,
      cached_tokens: usage.input_tokens_details.cached_tokens,
      reasoning_tokens: usage.output_tokens_details.reasoning_tokens,
      cost: null,
    },
    waiting: [],
  };
  return [askedMessage(record) ?? [], answer].flat();
}

/** Each message of the user, and what is between them as one answer. */
function addedMessages({ createdAt, response }: RequestRecord): readonly ChatMessage[] {
  const messages: ChatMessage[] = [];
  let parts: AnswerPart[] | undefined;
  for (const item of (response as StoredItems).items) {
    if (item.type === 'message' && item.role !== 'assistant') {
      parts = undefined;
      if (item.role === 'user') messages.push(userMessage(item.id, createdAt, messageItemText(item)));
      continue;
    }
    const added = answerPart(item);
    if (added.length === 0) continue;
    if (!parts) messages.push(addedAnswer(item.id, createdAt, (parts = [])));
    parts.push(...added);
  }
  return messages;
}

function addedAnswer(id: string, created_at: number, parts: readonly AnswerPart[]): ChatAnswerMessage {
  const unknown = { run_id: null, model: null, events_after: 0, warnings: [], error: null, usage: null, waiting: [] };
  return { id, role: 'assistant', created_at, status: 'completed', parts, ...unknown };
}

function answerPart(item: InputItem | OutputItem): readonly AnswerPart[] {
  switch (item.type) {
    case 'message':
      return [{ type: 'text', text: messageItemText(item) }];
    case 'reasoning': {
      const texts = [...item.summary, ...(item.content ?? [])].map(({ text }) => text);
      return texts.length === 0 ? [] : [{ type: 'reasoning', text: texts.join('\n\n') }];
    }
    case 'mcp_call': {
      const error = mcpErrorText(item.error);
      const result = { content: error ?? item.output ?? '', is_error: error !== null, duration_ms: null };
      return [{ ...callPart(item.id, item), result }];
    }
    case 'function_call':
      return [callPart(item.call_id, item)];
    case 'custom_tool_call':
      return [callPart(item.call_id, { name: item.name, arguments: item.input })];
    case 'shell_call':
    case 'local_shell_call':
    case 'apply_patch_call':
      return isBuiltInCall(item) ? [callPart(item.call_id, builtInAsFunctionCall(item))] : [];
    case 'tool_search_call': {
      if (!('call_id' in item)) return [];
      return [callPart(item.call_id, { name: SEARCH, arguments: JSON.stringify(item.arguments) })];
    }
    default:
      return [];
  }
}

function callPart(id: string, { name, arguments: json }: { readonly name: string; readonly arguments: string }) {
  return { type: 'tool_call', id, name, arguments: json, result: null } satisfies ToolCallPart;
}

export type CallResult = NonNullable<ToolCallPart['result']>;

/** The results of calls that the client has executed, with the ids of the calls. */
export function resultsIn(input: readonly InputItem[]): readonly (readonly [string, CallResult])[] {
  return input.flatMap((sent) => {
    const item = isBuiltInOutput(sent) ? builtInAsFunctionOutput(sent) : sent;
    if (item.type !== 'function_call_output' && item.type !== 'custom_tool_call_output') return [];
    const content =
      typeof item.output === 'string' ? item.output : searchText([{ ...NO_MESSAGE, content: item.output }]);
    const isError = item.is_error ?? item.status === 'incomplete';
    return [[item.call_id, { content, is_error: isError, duration_ms: null }] as const];
  });
}

/** The messages with results that their client has sent later. */
export function withResults(
  messages: readonly ChatMessage[],
  results: ReadonlyMap<string, CallResult>,
): readonly ChatMessage[] {
  if (results.size === 0) return messages;
  return messages.map((message) => {
    if (message.role === 'user') return message;
    const parts = message.parts.map((part) =>
      part.type === 'tool_call' && !part.result ? { ...part, result: results.get(part.id) ?? null } : part,
    );
    return { ...message, parts };
  });
}

/** The answers of a response with the decisions about its calls. `replayed`: all calls of its run, in order. */
export function withDecisions(
  messages: readonly ChatMessage[],
  replayed: readonly ToolCallPart[],
): readonly ChatMessage[] {
  if (!replayed.some(({ decision }) => decision)) return messages;
  const left = [...replayed];
  // The items of a response have ids of their own, and some calls have none.
  const decisionOn = ({ id, name }: ToolCallPart): CallDecision | undefined => {
    const at = left.findIndex((call) => call.name === name && turnOf(call.id) === turnOf(id));
    return at === -1 ? undefined : left.splice(0, at + 1).at(-1)!.decision;
  };
  return messages.map((message) => {
    if (message.role === 'user') return message;
    const parts = message.parts.map((part) => {
      const decision = part.type === 'tool_call' ? decisionOn(part) : undefined;
      return decision ? { ...part, decision } : part;
    });
    return { ...message, parts };
  });
}

function turnOf(id: string): string | undefined {
  return itemOrigin(id)?.turnKey;
}

const NO_MESSAGE = { type: 'message', id: '', status: 'completed', role: 'user' } as const;
