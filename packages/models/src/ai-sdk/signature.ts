import type { ReasoningPart } from '@treadle/core';
import type { ProviderOptions } from './language-model.ts';

/**
 * Metadata that a provider needs back with the parts of its reply. Some providers sign calls or texts as well (Gemini its
 * calls, OpenAI's Responses every item), but only a reasoning part has a signature. So `own` belongs to the reasoning
 * part itself, and `next` to the part after it.
 */
export interface Signed {
  readonly own?: ProviderOptions;
  readonly next?: ProviderOptions;
}

export function protocolOf(provider: string): string {
  return `ai-sdk:${provider}`;
}

export function signedPart(text: string, signed: Signed, protocol: string): ReasoningPart {
  if (signed.own === undefined && signed.next === undefined) return { type: 'reasoning', text };
  return { type: 'reasoning', text, signature: JSON.stringify(signed), protocol };
}

/** Undefined if another provider signed it, or if the signature is not of this form. */
export function signedOf({ signature, protocol }: ReasoningPart, own: string): Signed | undefined {
  if (signature === undefined) return protocol === undefined || protocol === own ? {} : undefined;
  if (protocol !== own) return undefined;
  try {
    const signed: unknown = JSON.parse(signature);
    return typeof signed === 'object' && signed !== null ? signed : undefined;
  } catch {
    return undefined;
  }
}
