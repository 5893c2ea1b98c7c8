import type { ReasoningPart } from '@treadle/core';

/**
 * `encrypted_content`: what a model needs to get back of its reasoning, for clients that keep the conversation
 * themselves. It is opaque to them, but no secret of ours: the signature is the provider's own seal.
 * `after`: of a thought that is shown last, because nobody can read it, and that stood elsewhere.
 */
export function encryptedContent({ text, signature, protocol }: ReasoningPart, after?: number): string {
  return Buffer.from(JSON.stringify({ text, signature, protocol, after })).toString('base64');
}

export interface Thought {
  readonly part: ReasoningPart;
  readonly after?: number;
}

/** Absent: it is not from here. */
export function reasoningFrom(content: string): Thought | undefined {
  try {
    const { text, signature, protocol, after } = JSON.parse(Buffer.from(content, 'base64').toString('utf8')) ?? {};
    if (typeof text !== 'string') return undefined;
    return {
      part: {
        type: 'reasoning',
        text,
        ...(typeof signature === 'string' && { signature }),
        ...(typeof protocol === 'string' && { protocol }),
      },
      ...(Number.isSafeInteger(after) && { after }),
    };
  } catch {
    return undefined;
  }
}
