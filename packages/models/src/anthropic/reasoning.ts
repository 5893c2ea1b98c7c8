import type { ReasoningPart } from '@treadle/core';

/** Real signatures are base64 and never begin like this. */
const REDACTED = 'redacted_thinking:';

/** A thought as it came. Without a signature, which is the case when it was cut off, it can never go back. */
export function thought(text: string, signature: string, signer: string): ReasoningPart {
  return { type: 'reasoning', text, ...(signature !== '' && { signature, protocol: signer }) };
}

/** A thought that the provider shows to nobody but wants back. */
export function redactedThought(data: string, signer: string): ReasoningPart {
  return { type: 'reasoning', text: '', signature: REDACTED + data, protocol: signer };
}

/** A host refuses thoughts of others, and its own without their signature. */
export function canReturn({ signature, protocol }: ReasoningPart, signer: string): boolean {
  return protocol === signer && signature !== undefined;
}

/** The block that a thought came from, exactly. */
export function thoughtBlock({ text, signature = '' }: ReasoningPart): object {
  if (signature.startsWith(REDACTED)) return { type: 'redacted_thinking', data: signature.slice(REDACTED.length) };
  return { type: 'thinking', thinking: text, signature };
}
