import type { AssistantPart, ReasoningPart, ToolCall } from '@treadle/core';

/**
 * What a reply shows, in order. Pieces do not tell where one text ends and the next begins, so texts that follow one
 * another are one, and so are thoughts. What has no text is not shown, and parts nothing.
 */
export type ShownPart =
  | { readonly type: 'message'; readonly text: string }
  /** `first`: the thought that it begins with. */
  | { readonly type: 'reasoning'; readonly text: string; readonly first: ReasoningPart }
  | { readonly type: 'call'; readonly index: number; readonly call: ToolCall };

export interface ShownReply {
  readonly parts: readonly ShownPart[];
  readonly calls: readonly ToolCall[];
  /** Thoughts that begin nothing that is shown, but that the model has to get back. */
  readonly further: readonly FurtherThought[];
}

export interface FurtherThought {
  readonly part: ReasoningPart;
  /** How many shown parts it comes after. */
  readonly after: number;
}

export function shownReply(content: readonly AssistantPart[]): ShownReply {
  const parts: ShownPart[] = [];
  const calls: ToolCall[] = [];
  const further: FurtherThought[] = [];
  for (const part of content) {
    if (part.type === 'tool-call') {
      parts.push({ type: 'call', index: calls.length, call: part });
      calls.push(part);
      continue;
    }
    const last = parts.at(-1);
    const isThought = part.type === 'reasoning';
    const follows = last?.type === (isThought ? 'reasoning' : 'message') ? last : undefined;
    if (isThought && (follows || part.text === '') && (part.text || part.signature))
      further.push({ part, after: parts.length });
    if (part.text === '') continue;
    if (follows) parts[parts.length - 1] = { ...follows, text: follows.text + part.text };
    else if (isThought) parts.push({ type: 'reasoning', text: part.text, first: part });
    else parts.push({ type: 'message', text: part.text });
  }
  return { parts, calls, further };
}
