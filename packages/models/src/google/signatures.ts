import type { ReasoningPart } from '@treadle/core';

/** What a call keeps for its provider. */
export type CallData = { readonly [Field in 'id' | 'thoughtSignature']?: string };

/** Signatures are base64, so none starts like this. */
const OF_TEXT = /^text:(\d+):/;

/**
 * The signature of a text, as a part behind it. A stream may sign only the end of a text, often an empty one, and the API
 * requires that piece back unchanged. So the part has the length of that piece.
 */
export function signedText(signature: string, length: number, protocol: string): ReasoningPart {
  return { type: 'reasoning', text: '', signature: `text:${length}:${signature}`, protocol };
}

/** The wire parts of signed reasoning, and whether they replace the text before it, which the signature is that of. */
export function signedParts(text: string, signature: string, textBefore: string): [parts: object[], replaces: boolean] {
  const [mark, length] = OF_TEXT.exec(signature) ?? [];
  if (mark === undefined) return [[{ text, thought: true, thoughtSignature: signature }], false];
  const at = textBefore.length - Number(length);
  // The text has been changed.
  if (at < 0) return [[], false];
  const signed = { text: textBefore.slice(at), thoughtSignature: signature.slice(mark.length) };
  return [at === 0 ? [signed] : [{ text: textBefore.slice(0, at) }, signed], true];
}
