import type {
  AssistantMessage,
  AssistantPart,
  FileBlock,
  ImageBlock,
  Message,
  ResultBlock,
  ToolCall,
  ToolMessage,
  ToolResult,
  UserMessage,
} from '@treadle/core';
import { argumentsObject, callIdFor, callNameFor, type CallIds } from '../calls.ts';
import { sliceableJson } from '../json.ts';
import { notShown } from '../media.ts';
import { addToTurns, closeTurns, EMPTY_MESSAGE, type TurnForm, type Turns } from '../turns.ts';
import { canReturnThought, thoughtBlock } from './thinking.ts';

/** The state of a history that is being written. */
export interface Conversation extends Turns {
  /** Only reasoning signed under this name is sent back. */
  readonly signer: string;
  /** The newest calls without a result: by their own ids, those on the wire. Calls may have the same id. */
  openCalls: Map<string, { readonly wireIds: string[]; answered: number }>;
  /** All ids on the wire. The API requires them to be unique in a request. */
  readonly ids: Set<string>;
  /** Whether the newest assistant message starts with a thought. */
  hasThought: boolean;
  /** Whether it contains a call. */
  hasCall: boolean;
}

export function startConversation(signer: string): Conversation {
  return { signer, role: undefined, openCalls: new Map(), ids: new Set(), hasThought: false, hasCall: false };
}

/**
 * The text that a message adds. The API has two alternating roles: results belong to the user, and a user message after
 * them becomes part of the same message.
 */
export function anthropicMessage(message: Message, conversation: Conversation): string {
  const role = message.role === 'assistant' ? 'assistant' : 'user';
  // Before the role of the conversation changes.
  const blocks = blocksOf(message, conversation);
  return addToTurns(FORM, conversation, role, blocks);
}

/** Closes the list of messages. The newest models reject a list that ends with an assistant message. */
export function closeMessages(conversation: Conversation): string {
  return closeTurns(FORM, conversation);
}

const FORM: TurnForm = { open: (role) => `{"role":"${role}","content":[`, text: textBlock };

function blocksOf(message: Message, conversation: Conversation): string[] {
  switch (message.role) {
    case 'user':
      return userBlocks(message);
    case 'assistant':
      return assistantBlocks(message, conversation);
    case 'tool':
      return resultBlocks(message, conversation);
    default:
      return message satisfies never;
  }
}

function userBlocks({ content }: UserMessage): string[] {
  const blocks = content.flatMap((block) => (isBlank(block) ? [] : contentBlock(block)));
  return blocks.length === 0 ? [textBlock(EMPTY_MESSAGE)] : blocks;
}

function assistantBlocks({ content }: AssistantMessage, conversation: Conversation): string[] {
  const sendable = content.filter((part) =>
    part.type === 'reasoning' ? canReturnThought(part, conversation.signer) : !isBlank(part),
  );
  // The API rejects a thought at the end of a message, which a truncated reply may have.
  const parts = sendable.slice(0, sendable.findLastIndex(({ type }) => type !== 'reasoning') + 1);
  if (parts.length === 0) return [];
  if (conversation.role !== 'assistant') {
    conversation.hasThought = parts[0]!.type === 'reasoning';
    conversation.hasCall = false;
  }
  conversation.hasCall ||= parts.some(({ type }) => type === 'tool-call');
  return parts.map((part, index) => assistantBlock(part, index === parts.length - 1, conversation));
}

function assistantBlock(part: AssistantPart, last: boolean, conversation: Conversation): string {
  switch (part.type) {
    case 'text':
      // The API rejects trailing white space in the last message, and any message may become the last one.
      return textBlock(last ? part.text.trimEnd() : part.text);
    case 'reasoning':
      return sliceableJson(thoughtBlock(part));
    case 'tool-call':
      return callBlock(part, conversation);
    default:
      return part satisfies never;
  }
}

function callBlock({ id, name, arguments: json }: ToolCall, { openCalls, ids }: Conversation): string {
  let wireId = anthropicCallId(id);
  while (ids.has(wireId)) wireId = anthropicCallId(`${id}\n${ids.size}\n${wireId}`);
  ids.add(wireId);
  const open = openCalls.get(id);
  if (open) open.wireIds.push(wireId);
  else openCalls.set(id, { wireIds: [wireId], answered: 0 });
  return `{"type":"tool_use","id":"${wireId}","name":"${callNameFor(name)}","input":${argumentsObject(json)}}`;
}

function resultBlocks({ content }: ToolMessage, conversation: Conversation): string[] {
  const blocks = content.map((result) => {
    const open = conversation.openCalls.get(result.callId);
    return resultBlock(result, open?.wireIds[open.answered++] ?? anthropicCallId(result.callId));
  });
  conversation.openCalls = new Map();
  return blocks;
}

/** The API requires text in an error and rejects anything else, so an error with an image is marked by a text. */
function resultBlock({ content, isError }: ToolResult, tool_use_id: string): string {
  const blocks = content.flatMap((block) => (isBlank(block) ? [] : contentBlock(block)));
  const isTextOnly = content.every(({ type }) => type === 'text' || type === 'error');
  if (isError && (blocks.length === 0 || !isTextOnly)) blocks.unshift(textBlock('The call failed.'));
  const head = `{"type":"tool_result","tool_use_id":"${tool_use_id}"`;
  const list = blocks.length === 0 ? '' : `,"content":[${blocks.join(',')}]`;
  return `${head}${list}${isError && isTextOnly ? ',"is_error":true' : ''}}`;
}

function contentBlock(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return textBlock(block.text);
    case 'image':
    case 'file':
      return sliceableJson(mediaBlock(block));
    default:
      return block satisfies never;
  }
}

function textBlock(text: string): string {
  return sliceableJson({ type: 'text', text });
}

/** The API rejects blank text. */
function isBlank(block: { readonly type: string; readonly text?: string }): boolean {
  return block.text !== undefined && block.text.trim() === '';
}

const CALL_IDS: CallIds = { accepted: /^[\w-]{1,64}$/, length: 43 };

/** Ids of other protocols may contain anything. Those that the API rejects are replaced by a hash. */
export function anthropicCallId(id: string): string {
  return callIdFor(id, CALL_IDS);
}

const IMAGES = /^image\/(jpeg|png|gif|webp)$/;
const TEXTS = /^text\/|[/+](json|xml|yaml|x-yaml|toml|javascript|typescript|x-sh|sql)$/;

/** An image or a file as a block. The API accepts four types of images, PDF and text. */
function mediaBlock(block: ImageBlock | FileBlock): object {
  return (block.type === 'image' ? imageBlock(block) : fileBlock(block)) ?? { type: 'text', text: notShown(block) };
}

function imageBlock({ mediaType, source }: ImageBlock): object | undefined {
  if (source.type === 'url') return { type: 'image', source: { type: 'url', url: source.url } };
  const media_type = mediaType === 'image/jpg' ? 'image/jpeg' : mediaType;
  return IMAGES.test(media_type) ? { type: 'image', source: base64(media_type, source.data) } : undefined;
}

function fileBlock({ mediaType, name, source }: FileBlock): object | undefined {
  const content = documentSource(mediaType, source);
  return content && { type: 'document', source: content, ...(name !== undefined && { title: name }) };
}

function documentSource(mediaType: string, source: FileBlock['source']): object | undefined {
  const isPdf = mediaType === 'application/pdf';
  // The API fetches only PDFs. A URL without a known ending may be one.
  if (isPdf || (source.type === 'url' && mediaType === 'application/octet-stream')) {
    return source.type === 'url' ? { type: 'url', url: source.url } : base64(mediaType, source.data);
  }
  if (source.type === 'url' || !TEXTS.test(mediaType)) return undefined;
  const data = Buffer.from(source.data, 'base64').toString('utf8');
  return data.trim() === '' ? undefined : { type: 'text', media_type: 'text/plain', data };
}

function base64(media_type: string, data: string): object {
  return { type: 'base64', media_type, data };
}
