import type { AssistantPart, Finish, ModelError, ModelReply, SaidText, Usage } from '@treadle/core';
import { misunderstood } from '../http/failures.ts';
import { failureOfFrame, isErrorFrame } from '../http/provider-failures.ts';
import { fieldsOf, listOf, textIn } from '../json.ts';
import { usageOf } from '../usage.ts';
import { reasoningPart } from './reasoning.ts';
import type { WireItem, WirePart, WireResponse, WireUsage } from './wire.ts';

/** What a response amounts to that is over, with these items as its output. */
export function replyOf(response: WireResponse, items: readonly unknown[], signer: string): ModelReply {
  const content = partsOf(items, signer);
  const status = textIn(response.status);
  switch (status) {
    case 'completed': {
      const finish = content.some((part) => part.type === 'tool-call') ? 'tool-calls' : 'stop';
      return reply(response, content, finish, status);
    }
    case 'incomplete': {
      const reason = textIn(fieldsOf<{ reason: unknown }>(response.incomplete_details).reason) || status;
      return reply(response, content, reason === 'content_filter' ? 'content-filter' : 'length', reason);
    }
    default:
      return { type: 'failure', error: failureOfResponse(response) };
  }
}

/** A response that failed, or that is not one. */
export function failureOfResponse(response: WireResponse): ModelError {
  const { error } = response;
  if (isErrorFrame(response)) return failureOfFrame(error ? { error } : response);
  const status = textIn(response.status);
  if (status === '') return misunderstood('The answer is not a response: it has no status.');
  return misunderstood(`The provider gave up the response and told no reason: its status is "${status}".`);
}

/** Items of other kinds (searches of the provider and the like) are its own affair. */
export function partsOf(items: readonly unknown[], signer: string): AssistantPart[] {
  const parts: AssistantPart[] = [];
  for (const value of items) {
    const item = fieldsOf<WireItem>(value);
    if (item.type === 'message') {
      const text = messageText(item);
      if (text !== '') parts.push({ type: 'text', text, ...phaseOf(item) });
    } else if (item.type === 'function_call') {
      const id = textIn(item.call_id) || textIn(item.id);
      parts.push({ type: 'tool-call', id, name: textIn(item.name), arguments: argumentsOf(item) });
    } else if (item.type === 'reasoning') {
      const part = reasoningPart(item, signer);
      if (part.text !== '' || part.signature !== undefined) parts.push(part);
    }
  }
  return parts;
}

function phaseOf({ phase }: WireItem): Pick<SaidText, 'phase'> {
  return phase === 'commentary' || phase === 'final_answer' ? { phase } : {};
}

function messageText({ content }: WireItem): string {
  let text = textIn(content);
  for (const value of listOf(content)) {
    const part = fieldsOf<WirePart>(value);
    text += textIn(part.text) || textIn(part.refusal);
  }
  return text;
}

/** JSON text, or on some hosts the object itself. */
function argumentsOf({ arguments: value }: WireItem): string {
  if (typeof value === 'string') return value;
  return value == null ? '' : JSON.stringify(value);
}

function reply(response: WireResponse, content: AssistantPart[], finish: Finish, rawFinish: string): ModelReply {
  return { type: 'reply', content, finish, rawFinish, usage: usageIn(response.usage), model: textIn(response.model) };
}

function usageIn(value: unknown): Usage {
  const usage = fieldsOf<WireUsage>(value);
  const input = fieldsOf<{ cached_tokens: unknown; cache_write_tokens: unknown }>(usage.input_tokens_details);
  const output = fieldsOf<{ reasoning_tokens: unknown }>(usage.output_tokens_details);
  return usageOf({
    input: usage.input_tokens,
    output: usage.output_tokens,
    cached: input.cached_tokens,
    cacheWrite: input.cache_write_tokens,
    reasoning: output.reasoning_tokens,
  });
}
