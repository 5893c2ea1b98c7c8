import {
  textOf,
  type AssistantMessage,
  type Message,
  type ReasoningPart,
  type ResultBlock,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import { callIdFor, type CallIds } from '../call-id.ts';
import { callNameFor } from '../call-name.ts';
import { jsonOf } from '../json.ts';
import { mediaURL } from '../media-url.ts';
import { notShown } from '../not-shown.ts';
import type { Quirks } from './quirks.ts';
import { detailsOf } from './reasoning-details.ts';

/** What stands between results and the user where a host wants the assistant to have spoken. */
export const BRIDGE: string = jsonOf({ role: 'assistant', content: 'Noted.' });

/** All that the form of a message depends on. */
export interface WireForm extends Required<Pick<Quirks, 'reasoning' | 'callIds' | 'userAfterResults' | 'media'>> {
  /** Whose signatures go back. */
  readonly signer: string;
}

/** One message as the API wants it. A tool message becomes one per result; what cannot be in those follows from the user. */
export function wireMessage(message: Message, form: WireForm): string {
  switch (message.role) {
    case 'user':
      return jsonOf({ role: 'user', content: userContent(message.content, form) });
    case 'assistant':
      return jsonOf(assistant(message, form));
    case 'tool':
      return toolMessages(message, form).join(',');
    default:
      return message satisfies never;
  }
}

function userContent(blocks: readonly UserBlock[], form: WireForm): unknown {
  if (blocks.every((block) => block.type === 'text')) return textOf(blocks);
  if (form.media) return blocks.map((block) => userPart(block, form));
  return blocks.map((block) => (block.type === 'text' ? block.text : notShown(block))).join('\n');
}

function userPart(block: UserBlock, form: WireForm): unknown {
  if (block.type === 'text') return { type: 'text', text: block.text };
  if (!isTaken(block, form)) return { type: 'text', text: notShown(block) };
  const url = mediaURL(block);
  return block.type === 'image'
    ? { type: 'image_url', image_url: { url } }
    : { type: 'file', file: { filename: block.name ?? 'file', file_data: url } };
}

type MediaBlock = Extract<ResultBlock, { type: 'image' | 'file' }>;

/** The API fetches images, but no files. */
function isTaken({ type, source }: MediaBlock, { media }: WireForm): boolean {
  return media && (type === 'image' || source.type === 'data');
}

function assistant({ content }: AssistantMessage, form: WireForm): unknown {
  const calls = content.filter((part) => part.type === 'tool-call');
  const text = textOf(content);
  if (calls.length === 0) return { role: 'assistant', content: text };
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    ...reasoningFields(
      content.filter((part) => part.type === 'reasoning'),
      form,
    ),
    tool_calls: calls.map(({ id, name, arguments: json }) => ({
      id: idFor(id, form),
      type: 'function',
      function: { name: callNameFor(name), arguments: json === '' ? '{}' : json },
    })),
  };
}

/** Only with calls: what led to an answer that is given is no longer needed, and some hosts refuse it. */
function reasoningFields(parts: readonly ReasoningPart[], { reasoning, signer }: WireForm): object | undefined {
  const text = parts.map((part) => part.text).join('');
  switch (reasoning) {
    case 'none':
      return undefined;
    case 'reasoning_content':
      return { reasoning_content: text };
    case 'openrouter': {
      const details = detailsOf(parts, signer);
      if (details.length > 0) return { reasoning_details: details };
      return text === '' ? undefined : { reasoning: text };
    }
    default:
      return reasoning satisfies never;
  }
}

function toolMessages({ content }: ToolMessage, form: WireForm): string[] {
  const wire = content.map((result) =>
    jsonOf({
      role: 'tool',
      tool_call_id: idFor(result.callId, form),
      name: callNameFor(result.name),
      content: resultText(result, form),
    }),
  );
  const media = content.flatMap((result) => mediaParts(result, form));
  if (media.length === 0) return wire;
  if (!form.userAfterResults) wire.push(BRIDGE);
  return [...wire, jsonOf({ role: 'user', content: media })];
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult, form: WireForm): string {
  const media = content.filter((block) => block.type === 'image' || block.type === 'file');
  const lines = [textOf(content), ...media.filter((block) => !isTaken(block, form)).map(notShown)];
  const said = lines.filter((line) => line !== '').join('\n');
  const words = said === '' && media.length > 0 ? 'The result is attached to the next message.' : said;
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

function mediaParts({ callId, name, content }: ToolResult, form: WireForm): unknown[] {
  const media = content.filter(
    (block): block is MediaBlock => (block.type === 'image' || block.type === 'file') && isTaken(block, form),
  );
  if (media.length === 0) return [];
  const title = `Result of ${callNameFor(name)} (${idFor(callId, form)}):`;
  return [{ type: 'text', text: title }, ...media.map((block) => userPart(block, form))];
}

const CALL_IDS: Record<WireForm['callIds'], CallIds> = {
  any: { accepted: /^[^]{1,40}$/, length: 40 },
  nine: { accepted: /^[a-zA-Z0-9]{9}$/, length: 9 },
};

function idFor(id: string, { callIds }: WireForm): string {
  return callIdFor(id, CALL_IDS[callIds]);
}
