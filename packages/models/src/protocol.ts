import type { Emit, ModelError, ModelReply, ModelRequest } from '@treadle/core';
import type { Framing, WireEvent } from './framing/framing.ts';

/**
 * How one provider's API is spoken: `body` writes a request, `step` reads an answer. It does no I/O and knows neither
 * clock nor network, so a recorded answer replays the same however it was cut into chunks.
 *
 * What a provider sends is never trusted to have the documented shape: whatever arrives, `step`, `end` and `decode`
 * give a reply or a failure.
 */
export interface Protocol<State> {
  /** Where requests go, below the base URL. */
  readonly path: string;
  readonly framing: Framing;
  /** The request as JSON, good until the reply is there. What an earlier turn has serialised is reused. */
  readonly body: (request: ModelRequest) => Uint8Array;
  readonly start: () => State;
  /** Takes the next event of a stream. `state` belongs to that one stream and is changed in place, for linear time. */
  readonly step: (state: State, event: WireEvent, emit: Emit) => StreamStatus;
  /** What a stream that is over amounts to; one that was cut is a failure. */
  readonly end: (state: State) => ModelReply;
  /** An answer that came whole instead of as a stream. */
  readonly decode: (text: string) => ModelReply;
  /** What the body of an answer with an error status tells. */
  readonly failure: (status: number, text: string) => ModelError;
}

/** Some hosts keep a stream alive by events that hold nothing. */
export function saysNothing({ name, data }: WireEvent): boolean {
  return name === 'ping' || data.trim() === '';
}

export type { Emit };

/** `done`: nothing of interest follows, though the connection may still be open. `failure`: the stream itself says so. */
export type StreamStatus =
  | { readonly type: 'more' }
  | { readonly type: 'done' }
  | { readonly type: 'failure'; readonly error: ModelError };

export const MORE: StreamStatus = { type: 'more' };
export const DONE: StreamStatus = { type: 'done' };
