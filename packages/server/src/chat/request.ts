import type { Message } from '@treadle/core';
import type { ResponseRequest } from '../responses/request.ts';

/** A request for a completion that has been checked: what the engine goes by is as in a request for a response. */
export interface ChatRequest extends Omit<ResponseRequest, 'previous' | 'instructions' | 'input' | 'include' | 'echo'> {
  /** The conversation: each call has its result, under the ids that the client knows. */
  readonly messages: readonly Message[];
  /** What system and developer messages say, in order. */
  readonly system: readonly string[];
  /** A chunk with the usage comes last. */
  readonly includeUsage: boolean;
  readonly serviceTier: string;
}
