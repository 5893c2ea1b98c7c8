/** What the API sends, as far as it is read: a line of a stream, or a whole answer. */
export interface WireChunk {
  readonly model?: unknown;
  readonly message?: WireMessage | null;
  readonly done?: unknown;
  readonly done_reason?: unknown;
  readonly prompt_eval_count?: unknown;
  /** Part of the former that needed no work. */
  readonly prompt_eval_cached_count?: unknown;
  readonly eval_count?: unknown;
  readonly error?: unknown;
}

export interface WireMessage {
  readonly content?: unknown;
  readonly thinking?: unknown;
  readonly tool_calls?: readonly (WireCall | null)[] | null;
}

/** A call is never cut into pieces. */
export interface WireCall {
  /** Newer servers give one. */
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown } | null;
}
