import type { AssistantPart, ResultBlock } from '@treadle/core';
import { ApiError } from '../api-error.ts';
import type { Conversation } from './plan.ts';

/**
 * Throws a 413 for a conversation of more characters than that. The request itself was measured before; what it only
 * refers to can be far more, since the same may be referred to again and again.
 */
export function checkSize({ messages, instructions }: Conversation, most: number): void {
  let left = instructions.reduce((size, text) => size - text.length, most);
  for (const message of messages) {
    const parts = message.role === 'tool' ? message.content.flatMap(({ content }) => content) : message.content;
    for (const part of parts) {
      left -= sizeOf(part) + SIZE_OF_A_PART;
      if (left >= 0) continue;
      const words = `The conversation has more than ${most.toLocaleString('en-US')} characters. Shorten it.`;
      throw new ApiError(413, 'invalid_request_error', words, { param: 'input', code: 'input_too_large' });
    }
  }
}

/** An empty part is not nothing. */
const SIZE_OF_A_PART = 16;

function sizeOf(part: AssistantPart | ResultBlock): number {
  switch (part.type) {
    case 'image':
    case 'file':
      return part.source.type === 'data' ? part.source.data.length : part.source.url.length;
    case 'tool-call':
      return part.arguments.length;
    case 'reasoning':
      return part.text.length + (part.signature?.length ?? 0);
    default:
      return part.text.length;
  }
}
