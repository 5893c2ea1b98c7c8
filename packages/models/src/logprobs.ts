import type { TokenLogprob } from '@treadle/core';
import { fieldsOf } from './json.ts';

/** A token in the form that OpenAI's APIs and Ollama share. */
interface WireToken {
  readonly token: unknown;
  readonly logprob: unknown;
  readonly bytes: unknown;
  readonly top_logprobs: unknown;
}

/** The tokens of a text; undefined if there are none. Entries that are not tokens are dropped. */
export function logprobsOf(wire: unknown): readonly TokenLogprob[] | undefined {
  if (!Array.isArray(wire) || wire.length === 0) return undefined;
  return wire.flatMap((value: unknown) => {
    const token = tokenOf(value);
    const { top_logprobs: top } = fieldsOf<WireToken>(value);
    return token && Array.isArray(top)
      ? { ...token, top: top.flatMap((other: unknown) => tokenOf(other) ?? []) }
      : (token ?? []);
  });
}

function tokenOf(value: unknown): TokenLogprob | undefined {
  const { token, logprob, bytes } = fieldsOf<WireToken>(value);
  if (typeof token !== 'string' || typeof logprob !== 'number') return undefined;
  return { token, logprob, ...(Array.isArray(bytes) && { bytes: bytes as readonly number[] }) };
}

/** A text whose tokens arrive with its pieces. */
export interface WithLogprobs {
  logprobs?: TokenLogprob[];
}

/** Adds the tokens of the next piece of a text. */
export function addLogprobs(text: WithLogprobs, tokens: readonly TokenLogprob[] | undefined): void {
  if (tokens) (text.logprobs ??= []).push(...tokens);
}
