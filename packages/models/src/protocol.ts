import type { Accepts, Emit, Model, ModelError, ModelReply, Settings, ToolSpec } from '@treadle/core';
import type { WriteBody } from './body.ts';
import type { Framing, WireEvent } from './framing.ts';

/**
 * A provider's API: `body` writes a request, `step` reads an answer. It does no I/O and uses neither clock nor network,
 * so a recorded answer replays the same wherever it was split into chunks.
 *
 * No protocol relies on the documented shape of an answer: for any input, `step`, `end` and `decode` return a reply or a
 * failure.
 */
export interface Protocol<State> {
  /** The path of requests below the base URL. */
  readonly path: string;
  /** Parameters of the query. They are added to those of the base URL. */
  readonly query?: Readonly<Record<string, string>>;
  readonly framing: Framing;
  /** What requests can contain besides text. The others are replaced by notes. */
  readonly accepts?: Accepts;
  /** The settings that requests can contain. */
  readonly takes: readonly (keyof Settings)[];
  /** As that of `Model`. */
  readonly omits?: Model['omits'];
  /** The bytes are valid until the reply has arrived. Reuses what an earlier turn has serialised. */
  readonly body: WriteBody;
  /** `tools`: those of the request. */
  readonly start: (tools?: readonly ToolSpec[]) => State;
  /** Reads the next event of a stream. `state` belongs to that stream and is changed in place, for linear time. */
  readonly step: (state: State, event: WireEvent, emit: Emit) => StreamStatus;
  /** The reply of a stream that has ended; a failure if the stream was truncated. */
  readonly end: (state: State) => ModelReply;
  /** The reply of an answer that was not streamed. */
  readonly decode: (text: string) => ModelReply;
  /** The error in the body of an answer with an error status. */
  readonly failure: (status: number, text: string) => ModelError;
}

/** Some hosts send empty events to keep a stream open. */
export function isKeepAlive({ name, data }: WireEvent): boolean {
  return name === 'ping' || data.trim() === '';
}

export type { Emit };

/** `done`: nothing of interest follows, though the connection may still be open. `failure`: the stream reported an error. */
export type StreamStatus =
  | { readonly type: 'more' }
  | { readonly type: 'done' }
  | { readonly type: 'failure'; readonly error: ModelError };

export const MORE: StreamStatus = { type: 'more' };
export const DONE: StreamStatus = { type: 'done' };

/**
 * The name under which signatures of reasoning are stored. It contains the host, because no other host accepts them,
 * even if it uses the same protocol.
 */
export function signerOf(protocol: string, baseURL: unknown): string {
  const host = typeof baseURL === 'string' ? URL.parse(baseURL)?.host : undefined;
  return `${protocol}@${host ?? ''}`;
}
