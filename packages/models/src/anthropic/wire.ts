/** What the API sends, as far as it is read. Hosts that offer the same leave out and invent, so nothing is sure to be there. */
export interface WireStreamEvent {
  readonly type?: unknown;
  /** Of `message_start`. */
  readonly message?: WireMessage | null;
  readonly index?: unknown;
  readonly content_block?: WireBlock | null;
  readonly delta?: WireDelta | null;
  /** Of `message_delta`; what it repeats replaces what was told at the start. */
  readonly usage?: WireUsage | null;
  readonly error?: unknown;
  readonly object?: unknown;
}

/** A whole answer, or the empty beginning of a streamed one. */
export interface WireMessage {
  readonly model?: unknown;
  readonly content?: unknown;
  readonly stop_reason?: unknown;
  readonly usage?: WireUsage | null;
  readonly error?: unknown;
  readonly object?: unknown;
}

export interface WireBlock {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly thinking?: unknown;
  readonly signature?: unknown;
  /** Of redacted thinking. */
  readonly data?: unknown;
  readonly id?: unknown;
  readonly name?: unknown;
  /** Whole, or in a stream an empty object that the deltas fill. */
  readonly input?: unknown;
}

/** Of a block, or of the message. */
export interface WireDelta {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly thinking?: unknown;
  readonly signature?: unknown;
  readonly partial_json?: unknown;
  readonly stop_reason?: unknown;
}

/** The three counts of input tokens exclude each other. */
export interface WireUsage {
  readonly input_tokens?: unknown;
  readonly cache_read_input_tokens?: unknown;
  readonly cache_creation_input_tokens?: unknown;
  readonly output_tokens?: unknown;
  readonly output_tokens_details?: { readonly thinking_tokens?: unknown } | null;
}
