import type { Message } from '@treadle/core';
import type { Before } from '../responses/messages.ts';

/**
 * What a completion that waits for its client has to remember, because the client is not told of it: its own turns as
 * they were, with the server's calls and their results. Plain JSON.
 */
export interface Kept {
  /** Only what the run has added to the conversation; the last one has the calls of `open`. */
  readonly messages: readonly Message[];
  readonly open: NonNullable<Before['open']>;
}

/**
 * Of a run that began with `given` messages. Absent: there is nothing that the client does not have, as in single-shot
 * inference.
 */
export function keptOf({ messages, open }: Pick<Before, 'messages' | 'open'>, given: number): Kept | undefined {
  const own = messages.slice(given);
  if (!open) return undefined;
  const known = own.length === 1 && open.calls.every(({ result }) => !result) && !own[0]!.content.some(isReasoning);
  return known ? undefined : { messages: own, open };
}

function isReasoning({ type }: { readonly type: string }): boolean {
  return type === 'reasoning';
}
