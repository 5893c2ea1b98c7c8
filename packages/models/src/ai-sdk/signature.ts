import type { ReasoningPart } from '@treadle/core';
import type { ProviderOptions } from './language-model.ts';

/**
 * What a provider wants back with its own words. Most of it belongs to reasoning, but some providers sign calls or texts
 * as well (Gemini its calls, OpenAI's Responses every item), and only reasoning has a place for that. So `next` is what
 * belongs to the part that follows.
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

/** Undefined: it was signed for somebody else, or not as it is done here. */
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
