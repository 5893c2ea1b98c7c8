import {
  textOf,
  type AssistantMessage,
  type Message,
  type ResultBlock,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { notShown } from '../not-shown.ts';

/** One message as the API wants it. A tool message becomes one per result; images of a result follow from the user. */
export function wireMessage(message: Message): string {
  switch (message.role) {
    case 'user':
      return JSON.stringify({ role: 'user', ...contentOf(message.content) });
    case 'assistant':
      return assistant(message);
    case 'tool':
      return toolMessages(message)
        .map((wire) => JSON.stringify(wire))
        .join(',');
    default:
      return message satisfies never;
  }
}

/** Content is one text, with images beside it as base64. There is no place for files and for what lies elsewhere. */
function contentOf(blocks: readonly UserBlock[]): { readonly content: string; readonly images?: readonly string[] } {
  const images = imagesOf(blocks);
  return { content: wordsOf(blocks), ...(images.length > 0 && { images }) };
}

function imagesOf(blocks: readonly ResultBlock[]): string[] {
  return blocks.flatMap((block) => imageOf(block) ?? []);
}

function imageOf(block: ResultBlock): string | undefined {
  return block.type === 'image' && block.source.type === 'data' ? block.source.data : undefined;
}

function wordsOf(blocks: readonly ResultBlock[]): string {
  const notes = blocks.filter((block) => block.type === 'file' || (block.type === 'image' && !imageOf(block)));
  if (notes.length === 0) return textOf(blocks).toWellFormed();
  const lines = blocks.flatMap((block) => {
    if (block.type === 'text' || block.type === 'error') return block.text;
    return imageOf(block) === undefined ? notShown(block) : [];
  });
  return lines.join('\n').toWellFormed();
}

/** By hand, since the arguments are JSON already: text here, an object there. */
function assistant({ content }: AssistantMessage): string {
  const thinking = content.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');
  const calls = content.flatMap((part) => {
    if (part.type !== 'tool-call') return [];
    const named = `{"id":${JSON.stringify(part.id)},"function":{"name":${JSON.stringify(part.name)}`;
    return `${named},"arguments":${objectOf(part.arguments)}}}`;
  });
  const message = JSON.stringify({
    role: 'assistant',
    content: textOf(content).toWellFormed(),
    ...(thinking !== '' && { thinking: thinking.toWellFormed() }),
  });
  return calls.length === 0 ? message : `${message.slice(0, -1)},"tool_calls":[${calls.join(',')}]}`;
}

/** The server refuses anything but an object, so what is none is shown inside one. */
function objectOf(json: string): string {
  const text = json.trim() === '' ? '{}' : json.toWellFormed();
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return text;
  } catch {
    // Broken by the model, which has been told so by the result.
  }
  return JSON.stringify({ arguments: text });
}

function toolMessages({ content }: ToolMessage): unknown[] {
  const results = content.map((result) => ({
    role: 'tool',
    tool_name: result.name,
    tool_call_id: result.callId,
    content: resultText(result),
  }));
  return [...results, ...content.flatMap(shownAfter)];
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult): string {
  const text = wordsOf(content);
  const words = text === '' && imagesOf(content).length > 0 ? 'The result is attached to a later message.' : text;
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

function shownAfter({ callId, name, content }: ToolResult): unknown[] {
  const images = imagesOf(content);
  return images.length === 0 ? [] : [{ role: 'user', content: `Result of ${name} (${callId}):`, images }];
}
