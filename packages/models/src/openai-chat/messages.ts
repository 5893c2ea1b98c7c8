import {
  textOf,
  type AssistantMessage,
  type Message,
  type ReasoningPart,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { notShown } from '../not-shown.ts';
import { callIdFor, type CallIds } from '../call-id.ts';
import type { Quirks } from './quirks.ts';
import { detailsOf } from './reasoning-details.ts';

/** What stands between results and the user where a host wants the assistant to have spoken. */
export const BRIDGE: string = JSON.stringify({ role: 'assistant', content: 'Noted.' });

/** One message as the API wants it. A tool message becomes one per result; what cannot be in those follows from the user. */
export function wireMessage(message: Message, quirks: Quirks): string {
  switch (message.role) {
    case 'user':
      return JSON.stringify({ role: 'user', content: userContent(message.content, quirks) });
    case 'assistant':
      return JSON.stringify(assistant(message, quirks));
    case 'tool':
      return toolMessages(message, quirks).join(',');
    default:
      return message satisfies never;
  }
}

function userContent(blocks: readonly UserBlock[], { media }: Quirks): unknown {
  if (blocks.every((block) => block.type === 'text')) return textOf(blocks).toWellFormed();
  if (media !== false) return blocks.map(userPart);
  return blocks
    .map((block) => (block.type === 'text' ? block.text : notShown(block)))
    .join('\n')
    .toWellFormed();
}

function userPart(block: UserBlock): unknown {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text.toWellFormed() };
    case 'image':
      return { type: 'image_url', image_url: { url: address(block) } };
    case 'file':
      return { type: 'file', file: { filename: block.name ?? 'file', file_data: address(block) } };
    default:
      return block satisfies never;
  }
}

function address({ mediaType, source }: Extract<UserBlock, { type: 'image' | 'file' }>): string {
  return source.type === 'url' ? source.url : `data:${mediaType};base64,${source.data}`;
}

function assistant({ content }: AssistantMessage, quirks: Quirks): unknown {
  const calls = content.filter((part) => part.type === 'tool-call');
  const text = textOf(content).toWellFormed();
  if (calls.length === 0) return { role: 'assistant', content: text };
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    ...reasoningFields(
      content.filter((part) => part.type === 'reasoning'),
      quirks,
    ),
    tool_calls: calls.map(({ id, name, arguments: json }) => ({
      id: idFor(id, quirks),
      type: 'function',
      function: { name, arguments: json === '' ? '{}' : json.toWellFormed() },
    })),
  };
}

/** Only with calls: what led to an answer that is given is no longer needed, and some hosts refuse it. */
function reasoningFields(parts: readonly ReasoningPart[], { reasoning = 'none' }: Quirks): object | undefined {
  const text = parts
    .map((part) => part.text)
    .join('')
    .toWellFormed();
  switch (reasoning) {
    case 'none':
      return undefined;
    case 'reasoning_content':
      return { reasoning_content: text };
    case 'openrouter': {
      const details = detailsOf(parts);
      if (details.length > 0) return { reasoning_details: details };
      return text === '' ? undefined : { reasoning: text };
    }
    default:
      return reasoning satisfies never;
  }
}

function toolMessages({ content }: ToolMessage, quirks: Quirks): string[] {
  const wire = content.map((result) =>
    JSON.stringify({
      role: 'tool',
      tool_call_id: idFor(result.callId, quirks),
      name: result.name,
      content: resultText(result, quirks),
    }),
  );
  const media = quirks.media === false ? [] : content.flatMap(mediaParts);
  if (media.length === 0) return wire;
  if (quirks.userAfterResults === false) wire.push(BRIDGE);
  return [...wire, JSON.stringify({ role: 'user', content: media })];
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult, { media }: Quirks): string {
  const attached = content.filter((block) => block.type === 'image' || block.type === 'file');
  const text = textOf(content);
  const notes = media === false ? attached.map(notShown) : ['The result is attached to the next message.'];
  const noted = attached.length > 0 && (text === '' || media === false);
  const words = (noted ? [text, ...notes].filter((line) => line !== '').join('\n') : text).toWellFormed();
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

function mediaParts({ callId, name, content }: ToolResult): unknown[] {
  const media = content.filter((block) => block.type === 'image' || block.type === 'file');
  if (media.length === 0) return [];
  return [{ type: 'text', text: `Result of ${name} (${callId}):` }, ...media.map(userPart)];
}

const CALL_IDS: Record<NonNullable<Quirks['callIds']>, CallIds> = {
  any: { accepted: /^[^]{1,40}$/, length: 40 },
  nine: { accepted: /^[a-zA-Z0-9]{9}$/, length: 9 },
};

function idFor(id: string, { callIds = 'any' }: Quirks): string {
  return callIdFor(id, CALL_IDS[callIds]);
}
