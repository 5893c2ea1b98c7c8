/**
 * What the API sends, as far as it is read. Hosts leave out and invent, so nothing is sure to be there, nor to have the
 * type that the documentation gives it.
 */
export interface WireResponse {
  readonly status?: unknown;
  readonly model?: unknown;
  readonly output?: unknown;
  readonly usage?: unknown;
  readonly error?: unknown;
  /** `error`: the answer is one (vLLM). */
  readonly object?: unknown;
  readonly incomplete_details?: unknown;
}

/** One event of a stream. Which fields it has depends on its type. */
export interface StreamEvent {
  readonly type?: unknown;
  readonly response?: unknown;
  readonly output_index?: unknown;
  readonly item_id?: unknown;
  readonly item?: unknown;
  readonly summary_index?: unknown;
  readonly content_index?: unknown;
  readonly delta?: unknown;
  readonly error?: unknown;
  readonly object?: unknown;
}

/** One item of a response's output. */
export interface WireItem {
  readonly type?: unknown;
  readonly id?: unknown;
  /** Of a message, and of reasoning that is not secret. */
  readonly content?: unknown;
  /** Of a message. */
  readonly phase?: unknown;
  readonly summary?: unknown;
  readonly encrypted_content?: unknown;
  readonly call_id?: unknown;
  readonly name?: unknown;
  readonly arguments?: unknown;
}

export interface WirePart {
  readonly text?: unknown;
  readonly refusal?: unknown;
}

export interface WireUsage {
  readonly input_tokens?: unknown;
  readonly input_tokens_details?: unknown;
  readonly output_tokens?: unknown;
  readonly output_tokens_details?: unknown;
}
