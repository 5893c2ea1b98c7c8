import type { AssistantPart, Finish, ModelError, ModelReply, Usage } from '@treadle/core';
import { misunderstood } from '../http/failures.ts';
import { failureOfFrame } from '../openai-chat/failures.ts';
import { reasoningPart } from './reasoning.ts';
import { fieldsOf, listOf, wordsOf, type WireItem, type WirePart, type WireResponse, type WireUsage } from './wire.ts';

/** What a response amounts to that is over, with these items as its output. */
export function replyOf(response: WireResponse, items: readonly unknown[]): ModelReply {
  const content = partsOf(items);
  const status = wordsOf(response.status);
  switch (status) {
    case 'completed': {
      const finish = content.some((part) => part.type === 'tool-call') ? 'tool-calls' : 'stop';
      return reply(response, content, finish, status);
    }
    case 'incomplete': {
      const reason = wordsOf(fieldsOf<{ reason: unknown }>(response.incomplete_details).reason) || status;
      return reply(response, content, reason === 'content_filter' ? 'content-filter' : 'length', reason);
    }
    default:
      return { type: 'failure', error: failureOfResponse(response) };
  }
}

/** A response that failed, or that is not one. */
export function failureOfResponse({ status, error }: WireResponse): ModelError {
  if (error) return failureOfFrame({ error });
  const words = wordsOf(status);
  if (words === '') return misunderstood('The answer is not a response: it has no status.');
  return misunderstood(`The provider gave up the response and told no reason: its status is "${words}".`);
}

/** Items of other kinds (searches of the provider and the like) are its own affair. */
export function partsOf(items: readonly unknown[]): AssistantPart[] {
  const parts: AssistantPart[] = [];
  for (const value of items) {
    const item = fieldsOf<WireItem>(value);
    if (item.type === 'message') {
      const text = messageText(item);
      if (text !== '') parts.push({ type: 'text', text });
    } else if (item.type === 'function_call') {
      const id = wordsOf(item.call_id) || wordsOf(item.id);
      parts.push({ type: 'tool-call', id, name: wordsOf(item.name), arguments: argumentsOf(item) });
    } else if (item.type === 'reasoning') {
      const part = reasoningPart(item);
      if (part.text !== '' || part.signature !== undefined) parts.push(part);
    }
  }
  return parts;
}

function messageText({ content }: WireItem): string {
  let text = wordsOf(content);
  for (const value of listOf(content)) {
    const part = fieldsOf<WirePart>(value);
    text += wordsOf(part.text) || wordsOf(part.refusal);
  }
  return text;
}

/** JSON text, or on some hosts the object itself. */
function argumentsOf({ arguments: value }: WireItem): string {
  if (typeof value === 'string') return value;
  return value == null ? '' : JSON.stringify(value);
}

function reply(response: WireResponse, content: AssistantPart[], finish: Finish, rawFinish: string): ModelReply {
  return { type: 'reply', content, finish, rawFinish, usage: usageOf(response.usage), model: wordsOf(response.model) };
}

function usageOf(value: unknown): Usage {
  const usage = fieldsOf<WireUsage>(value);
  const input = fieldsOf<{ cached_tokens: unknown; cache_write_tokens: unknown }>(usage.input_tokens_details);
  const output = fieldsOf<{ reasoning_tokens: unknown }>(usage.output_tokens_details);
  return {
    inputTokens: countOf(usage.input_tokens) ?? 0,
    outputTokens: countOf(usage.output_tokens) ?? 0,
    ...given('cachedTokens', countOf(input.cached_tokens)),
    ...given('cacheWriteTokens', countOf(input.cache_write_tokens)),
    ...given('reasoningTokens', countOf(output.reasoning_tokens)),
  };
}

function countOf(tokens: unknown): number | undefined {
  return typeof tokens === 'number' ? tokens : undefined;
}

function given(name: keyof Usage, count: number | undefined): Partial<Usage> {
  return count === undefined ? {} : { [name]: count };
}
