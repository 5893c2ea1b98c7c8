import {
  textOf,
  type AssistantMessage,
  type Message,
  type ResultBlock,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { argumentsObject } from '../call-arguments.ts';
import { callNameFor } from '../call-name.ts';
import { jsonOf } from '../json.ts';
import { notShown } from '../not-shown.ts';

/** One message as the API wants it. A tool message becomes one per result; images of a result follow from the user. */
export function wireMessage(message: Message): string {
  switch (message.role) {
    case 'user':
      return jsonOf({ role: 'user', ...contentOf(message.content) });
    case 'assistant':
      return assistant(message);
    case 'tool':
      return toolMessages(message)
        .map((wire) => jsonOf(wire))
        .join(',');
    default:
      return message satisfies never;
  }
}

/** Content is one text, with images beside it as base64. There is no place for files and for what lies elsewhere. */
function contentOf(blocks: readonly UserBlock[]): { readonly content: string; readonly images?: readonly string[] } {
  const images = imagesOf(blocks);
  return { content: saidOf(blocks), ...(images.length > 0 && { images }) };
}

function imagesOf(blocks: readonly ResultBlock[]): string[] {
  return blocks.flatMap((block) => imageOf(block) ?? []);
}

function imageOf(block: ResultBlock): string | undefined {
  return block.type === 'image' && block.source.type === 'data' ? block.source.data : undefined;
}

/** The text, and words in place of what cannot be shown. */
function saidOf(blocks: readonly ResultBlock[]): string {
  const notes = blocks.filter((block) => block.type === 'file' || (block.type === 'image' && !imageOf(block)));
  if (notes.length === 0) return textOf(blocks);
  const lines = blocks.flatMap((block) => {
    if (block.type === 'text' || block.type === 'error') return block.text;
    return imageOf(block) === undefined ? notShown(block) : [];
  });
  return lines.join('\n');
}

/** By hand, since the arguments are JSON already: text here, an object there. */
function assistant({ content }: AssistantMessage): string {
  const thinking = content.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');
  const calls = content.flatMap((part) => {
    if (part.type !== 'tool-call') return [];
    const named = `{"id":${jsonOf(part.id)},"function":{"name":${jsonOf(callNameFor(part.name))}`;
    return `${named},"arguments":${argumentsObject(part.arguments)}}}`;
  });
  const message = jsonOf({ role: 'assistant', content: textOf(content), ...(thinking !== '' && { thinking }) });
  return calls.length === 0 ? message : `${message.slice(0, -1)},"tool_calls":[${calls.join(',')}]}`;
}

function toolMessages({ content }: ToolMessage): unknown[] {
  const results = content.map((result) => ({
    role: 'tool',
    tool_name: callNameFor(result.name),
    tool_call_id: result.callId,
    content: resultText(result),
  }));
  return [...results, ...content.flatMap(shownAfter)];
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult): string {
  const text = saidOf(content);
  const words = text === '' && imagesOf(content).length > 0 ? 'The result is attached to a later message.' : text;
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

function shownAfter({ callId, name, content }: ToolResult): unknown[] {
  const images = imagesOf(content);
  return images.length === 0 ? [] : [{ role: 'user', content: `Result of ${callNameFor(name)} (${callId}):`, images }];
}
