import type { AssistantPart, Message, ResultBlock } from '@treadle/core';
import { ApiError } from '../api-error.ts';

/**
 * Throws a 413 for a conversation of more characters than that. The request itself was measured before; what it only
 * refers to can be far more, since the same may be referred to again and again.
 */
export function checkSize(messages: readonly Message[], most: number): void {
  let left = most;
  for (const message of messages) {
    const parts = message.role === 'tool' ? message.content.flatMap(({ content }) => content) : message.content;
    for (const part of parts) {
      left -= sizeOf(part);
      if (left >= 0) continue;
      const words = `The conversation has more than ${most.toLocaleString('en-US')} characters. Shorten it.`;
      throw new ApiError(413, 'invalid_request_error', words, { param: 'input', code: 'input_too_large' });
    }
  }
}

function sizeOf(part: AssistantPart | ResultBlock): number {
  switch (part.type) {
    case 'image':
    case 'file':
      return part.source.type === 'data' ? part.source.data.length : part.source.url.length;
    case 'tool-call':
      return part.arguments.length;
    default:
      return part.text.length;
  }
}
