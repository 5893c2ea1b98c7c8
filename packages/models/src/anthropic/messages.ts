import type {
  AssistantMessage,
  AssistantPart,
  Message,
  ResultBlock,
  ToolCall,
  ToolMessage,
  ToolResult,
  UserMessage,
} from '@treadle/core';
import { argumentsObject } from '../call-arguments.ts';
import { callNameFor } from '../call-name.ts';
import { jsonOf } from '../json.ts';
import { wireId } from './ids.ts';
import { mediaBlock } from './media.ts';
import { canReturn, thoughtBlock } from './reasoning.ts';

/** A history on its way to the wire. Its last message is open: the next one goes into it if it has the same role. */
export interface Conversation {
  /** Whose signatures go back. */
  readonly signer: string;
  role: 'user' | 'assistant' | undefined;
  /** The newest calls that have no result yet: their own ids, and those on the wire. */
  open: { readonly id: string; readonly wireId: string }[];
  /** Every id on the wire. The API wants none twice in a request, and no two of ours may become one. */
  readonly ids: Set<string>;
  /** The newest message of the assistant begins with a thought. */
  thought: boolean;
  /** It holds a call. */
  called: boolean;
}

export function startConversation(signer: string): Conversation {
  return { signer, role: undefined, open: [], ids: new Set(), thought: false, called: false };
}

/**
 * The text that a message adds. The API knows two roles that alternate: results are the user's, and what a user says
 * after them goes into the same message.
 */
export function wireMessage(message: Message, conversation: Conversation): string {
  const blocks = blocksOf(message, conversation);
  if (blocks.length === 0) return '';
  const role = message.role === 'assistant' ? 'assistant' : 'user';
  const before = conversation.role;
  conversation.role = role;
  const json = blocks.join(',');
  if (before === role) return `,${json}`;
  if (before === undefined)
    return (role === 'assistant' ? `${opening('user')}${BEGINNING}]}` : '') + opening(role) + json;
  return `]}${opening(role)}${json}`;
}

/** What closes the list of messages. The newest models refuse one that ends with their own words. */
export function closing({ role }: Conversation): string {
  if (role === undefined) return ']';
  return role === 'assistant' ? `]}${opening('user')}${CONTINUE}]}]` : ']}]';
}

function opening(role: 'user' | 'assistant'): string {
  return `,{"role":"${role}","content":[`;
}

/** A conversation has to begin with the user. */
const BEGINNING = textBlock('(The conversation begins here.)');
const CONTINUE = textBlock('Continue.');
/** A message has to say something. */
const SILENCE = textBlock('(The user sent an empty message.)');

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
  return blocks.length === 0 ? [SILENCE] : blocks;
}

function assistantBlocks({ content }: AssistantMessage, conversation: Conversation): string[] {
  const kept = content.filter((part) =>
    part.type === 'reasoning' ? canReturn(part, conversation.signer) : !isBlank(part),
  );
  // A thought that led to nothing, because the reply was cut off after it, is refused at the end of a message.
  const parts = kept.slice(0, kept.findLastIndex(({ type }) => type !== 'reasoning') + 1);
  if (parts.length === 0) return [];
  if (conversation.role !== 'assistant') {
    conversation.thought = parts[0]!.type === 'reasoning';
    conversation.called = false;
  }
  conversation.called ||= parts.some(({ type }) => type === 'tool-call');
  return parts.map((part, index) => assistantBlock(part, index === parts.length - 1, conversation));
}

function assistantBlock(part: AssistantPart, last: boolean, conversation: Conversation): string {
  switch (part.type) {
    case 'text':
      // White space at the end is refused in the last message, and no message knows whether it will be that.
      return textBlock(last ? part.text.trimEnd() : part.text);
    case 'reasoning':
      return jsonOf(thoughtBlock(part));
    case 'tool-call':
      return callBlock(part, conversation);
    default:
      return part satisfies never;
  }
}

function callBlock({ id, name, arguments: json }: ToolCall, { open, ids }: Conversation): string {
  let onWire = wireId(id);
  while (ids.has(onWire)) onWire = wireId(`${id}\n${ids.size}\n${onWire}`);
  ids.add(onWire);
  open.push({ id, wireId: onWire });
  return `{"type":"tool_use","id":"${onWire}","name":"${callNameFor(name)}","input":${argumentsObject(json)}}`;
}

function resultBlocks({ content }: ToolMessage, conversation: Conversation): string[] {
  const blocks = content.map((result) => {
    const at = conversation.open.findIndex(({ id }) => id === result.callId);
    const [call] = at === -1 ? [] : conversation.open.splice(at, 1);
    return resultBlock(result, call?.wireId ?? wireId(result.callId));
  });
  conversation.open = [];
  return blocks;
}

/** An error has to have words and may have nothing else, so one with a picture says in words that it is one. */
function resultBlock({ content, isError }: ToolResult, tool_use_id: string): string {
  const blocks = content.flatMap((block) => (isBlank(block) ? [] : contentBlock(block)));
  const wordsOnly = content.every(({ type }) => type === 'text' || type === 'error');
  if (isError && (blocks.length === 0 || !wordsOnly)) blocks.unshift(textBlock('The call failed.'));
  const head = `{"type":"tool_result","tool_use_id":"${tool_use_id}"`;
  const list = blocks.length === 0 ? '' : `,"content":[${blocks.join(',')}]`;
  return `${head}${list}${isError && wordsOnly ? ',"is_error":true' : ''}}`;
}

function contentBlock(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return textBlock(block.text);
    case 'image':
    case 'file':
      return jsonOf(mediaBlock(block));
    default:
      return block satisfies never;
  }
}

function textBlock(text: string): string {
  return jsonOf({ type: 'text', text });
}

/** The API refuses texts of nothing but white space. */
function isBlank(block: { readonly type: string; readonly text?: string }): boolean {
  return block.text !== undefined && block.text.trim() === '';
}
