import {
  textOf,
  type AssistantMessage,
  type Message,
  type ResultBlock,
  type ToolCall,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { callIdFor, type CallIds } from '../call-id.ts';
import { reasoningItem } from './reasoning.ts';

/** One message as input items with commas between them; none where nothing of it can be sent. */
export function inputItems(message: Message, stored: boolean): string {
  return itemsOf(message, stored)
    .map((item) => JSON.stringify(item))
    .join(',');
}

function itemsOf(message: Message, stored: boolean): readonly unknown[] {
  switch (message.role) {
    case 'user':
      return [{ type: 'message', role: 'user', content: userContent(message.content) }];
    case 'assistant':
      return assistantItems(message, stored);
    case 'tool':
      return message.content.map((result) => ({
        type: 'function_call_output',
        call_id: callId(result.callId),
        output: resultOutput(result),
      }));
    default:
      return message satisfies never;
  }
}

/** Reasoning that leads to nothing, of a reply that was cut, is refused. */
function assistantItems({ content }: AssistantMessage, stored: boolean): readonly unknown[] {
  const items: unknown[] = [];
  let end = 0;
  for (const part of content) {
    if (part.type === 'reasoning') {
      const item = reasoningItem(part, stored);
      if (item !== undefined) items.push(item);
      continue;
    }
    if (part.type === 'tool-call') items.push(functionCall(part));
    else if (part.text !== '') items.push({ type: 'message', role: 'assistant', content: part.text.toWellFormed() });
    else continue;
    end = items.length;
  }
  return items.slice(0, end);
}

/** Without the item's own id: that one would have to be known to the provider. */
function functionCall({ id, name, arguments: json }: ToolCall): unknown {
  return {
    type: 'function_call',
    call_id: callId(id),
    name: functionName(name),
    arguments: json === '' ? '{}' : json.toWellFormed(),
  };
}

const MAX_LENGTH = 64;

/** Ids of other providers may be longer than the API takes. */
function callId(id: string): string {
  return callIdFor(id, CALL_IDS).toWellFormed();
}

const CALL_IDS: CallIds = { accepted: /^[^]{1,64}$/, length: 43 };

/** Models call tools that do not exist, by names that could not. */
function functionName(name: string): string {
  return name.replace(/[^\w-]/g, '_').slice(0, MAX_LENGTH) || 'unknown';
}

function userContent(blocks: readonly UserBlock[]): unknown {
  return blocks.every((block) => block.type === 'text') ? textOf(blocks).toWellFormed() : blocks.map(inputPart);
}

function inputPart(block: ResultBlock): unknown {
  switch (block.type) {
    case 'text':
    case 'error':
      return { type: 'input_text', text: block.text.toWellFormed() };
    case 'image':
      return { type: 'input_image', image_url: address(block), detail: 'auto' };
    case 'file':
      return block.source.type === 'url'
        ? { type: 'input_file', file_url: block.source.url }
        : { type: 'input_file', filename: block.name ?? 'file', file_data: address(block) };
    default:
      return block satisfies never;
  }
}

function address({ mediaType, source }: Extract<ResultBlock, { type: 'image' | 'file' }>): string {
  return source.type === 'url' ? source.url : `data:${mediaType};base64,${source.data}`;
}

/** The API has no place for "this is an error", so the words say it. */
function resultOutput({ content, isError }: ToolResult): unknown {
  const text = textOf(content).toWellFormed();
  const unsaid = isError && !/^error\b/i.test(text);
  if (content.every((block) => block.type === 'text' || block.type === 'error')) {
    return unsaid ? `Error: ${text}` : text;
  }
  const parts = content.map(inputPart);
  return unsaid ? [{ type: 'input_text', text: 'Error:' }, ...parts] : parts;
}
