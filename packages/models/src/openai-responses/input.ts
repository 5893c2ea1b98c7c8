import {
  textOf,
  type AssistantMessage,
  type Message,
  type ResultBlock,
  type SaidText,
  type ToolCall,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { callIdFor, type CallIds } from '../call-id.ts';
import { callNameFor } from '../call-name.ts';
import { jsonOf } from '../json.ts';
import { mediaURL } from '../media-url.ts';
import { reasoningItem, type Sender } from './reasoning.ts';

/** One message as input items with commas between them; none where nothing of it can be sent. */
export function inputItems(message: Message, sender: Sender): string {
  return itemsOf(message, sender)
    .map((item) => jsonOf(item))
    .join(',');
}

function itemsOf(message: Message, sender: Sender): readonly unknown[] {
  switch (message.role) {
    case 'user':
      return [{ type: 'message', role: 'user', content: userContent(message.content) }];
    case 'assistant':
      return assistantItems(message, sender);
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
function assistantItems({ content }: AssistantMessage, sender: Sender): readonly unknown[] {
  const items: unknown[] = [];
  let end = 0;
  for (const part of content) {
    if (part.type === 'reasoning') {
      const item = reasoningItem(part, sender);
      if (item !== undefined) items.push(item);
      continue;
    }
    if (part.type === 'tool-call') items.push(functionCall(part));
    else if (part.text !== '') items.push(said(part));
    else continue;
    end = items.length;
  }
  return items.slice(0, end);
}

function said({ text, phase }: SaidText): unknown {
  return { type: 'message', role: 'assistant', content: text, ...(phase && { phase }) };
}

/** Without the item's own id: that one would have to be known to the provider. */
function functionCall({ id, name, arguments: json }: ToolCall): unknown {
  return {
    type: 'function_call',
    call_id: callId(id),
    name: callNameFor(name),
    arguments: json === '' ? '{}' : json,
  };
}

/** Ids of other providers may be longer than the API takes. */
function callId(id: string): string {
  return callIdFor(id, CALL_IDS);
}

const CALL_IDS: CallIds = { accepted: /^[^]{1,64}$/, length: 43 };

function userContent(blocks: readonly UserBlock[]): unknown {
  return blocks.every((block) => block.type === 'text') ? textOf(blocks) : blocks.map(inputPart);
}

function inputPart(block: ResultBlock): unknown {
  switch (block.type) {
    case 'text':
    case 'error':
      return { type: 'input_text', text: block.text };
    case 'image':
      return { type: 'input_image', image_url: mediaURL(block), detail: 'auto' };
    case 'file':
      return block.source.type === 'url'
        ? { type: 'input_file', file_url: block.source.url }
        : { type: 'input_file', filename: block.name ?? 'file', file_data: mediaURL(block) };
    default:
      return block satisfies never;
  }
}

/** The API has no place for "this is an error", so the words say it. */
function resultOutput({ content, isError }: ToolResult): unknown {
  const text = textOf(content);
  const unsaid = isError && !/^error\b/i.test(text);
  if (content.every((block) => block.type === 'text' || block.type === 'error')) {
    return unsaid ? `Error: ${text}` : text;
  }
  const parts = content.map(inputPart);
  return unsaid ? [{ type: 'input_text', text: 'Error:' }, ...parts] : parts;
}
