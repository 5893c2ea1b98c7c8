import type { ReasoningPart, TextBlock, ToolCall } from '@treadle/core';

/** Expected parts of a reply. */
export const text = (text: string): TextBlock => ({ type: 'text', text });
export const reasoning = (text: string): ReasoningPart => ({ type: 'reasoning', text });
export const call = (id: string, name: string, json: string): ToolCall => ({
  type: 'tool-call',
  id,
  name,
  arguments: json,
});
