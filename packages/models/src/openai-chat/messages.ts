import {
  textOf,
  type AssistantMessage,
  type Message,
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

/**
 * What a message adds to the list, commas first. A tool message becomes one per result; what cannot be in those follows
 * from the user. The messages of a loop are written as text at once: to make objects of them first costs as much again.
 */
export function wireMessage(message: Message, form: WireForm): string {
  switch (message.role) {
    case 'user':
      return `,${jsonOf({ role: 'user', content: userContent(message.content, form) })}`;
    case 'assistant':
      return assistant(message, form);
    case 'tool':
      return toolMessages(message, form);
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

function isMedia(block: ResultBlock): block is MediaBlock {
  return block.type === 'image' || block.type === 'file';
}

/** The API fetches images, but no files. */
function isTaken({ type, source }: MediaBlock, { media }: WireForm): boolean {
  return media && (type === 'image' || source.type === 'data');
}

function assistant({ content }: AssistantMessage, form: WireForm): string {
  const text = textOf(content);
  let calls = '';
  for (const part of content) {
    if (part.type !== 'tool-call') continue;
    const id = jsonOf(idFor(part.id, form));
    const json = jsonOf(part.arguments === '' ? '{}' : part.arguments);
    const called = `{"name":"${callNameFor(part.name)}","arguments":${json}}`;
    calls += `${calls === '' ? '' : ','}{"id":${id},"type":"function","function":${called}}`;
  }
  if (calls === '') return `,{"role":"assistant","content":${jsonOf(text)}}`;
  const said = text === '' ? 'null' : jsonOf(text);
  return `,{"role":"assistant","content":${said},${reasoningFields(content, form)}"tool_calls":[${calls}]}`;
}

/** Only with calls: what led to an answer that is given is no longer needed, and some hosts refuse it. */
function reasoningFields(content: AssistantMessage['content'], { reasoning, signer }: WireForm): string {
  if (reasoning === 'none') return '';
  const parts = content.filter((part) => part.type === 'reasoning');
  const text = parts.map((part) => part.text).join('');
  switch (reasoning) {
    case 'reasoning_content':
      return `"reasoning_content":${jsonOf(text)},`;
    case 'openrouter': {
      const details = detailsOf(parts, signer);
      if (details.length > 0) return `"reasoning_details":${jsonOf(details)},`;
      return text === '' ? '' : `"reasoning":${jsonOf(text)},`;
    }
    default:
      return reasoning satisfies never;
  }
}

function toolMessages({ content }: ToolMessage, form: WireForm): string {
  let wire = '';
  const media: unknown[] = [];
  for (const result of content) {
    const id = jsonOf(idFor(result.callId, form));
    const text = jsonOf(resultText(result, form));
    wire += `,{"role":"tool","tool_call_id":${id},"name":"${callNameFor(result.name)}","content":${text}}`;
    if (result.content.some(isMedia)) media.push(...mediaParts(result, form));
  }
  if (media.length === 0) return wire;
  const bridge = form.userAfterResults ? '' : `,${BRIDGE}`;
  return `${wire}${bridge},${jsonOf({ role: 'user', content: media })}`;
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult, form: WireForm): string {
  const words = content.some(isMedia) ? mediaText(content, form) : textOf(content);
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

/** The text of a result with images or files, with words for those that are not taken. */
function mediaText(content: readonly ResultBlock[], form: WireForm): string {
  const missing = content.filter(isMedia).filter((block) => !isTaken(block, form));
  const said = [textOf(content), ...missing.map(notShown)].filter((line) => line !== '').join('\n');
  return said === '' ? 'The result is attached to the next message.' : said;
}

function mediaParts({ callId, name, content }: ToolResult, form: WireForm): unknown[] {
  const media = content.filter(isMedia).filter((block) => isTaken(block, form));
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
