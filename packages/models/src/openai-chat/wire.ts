/** What the API sends, as far as it is read. Hosts leave out, repeat and invent, so nothing is sure to be there. */
export interface WireChunk {
  readonly model?: unknown;
  readonly choices?: readonly (WireChoice | null)[] | null;
  readonly usage?: WireUsage | null;
  /** Groq's place for it. */
  readonly x_groq?: { readonly usage?: WireUsage | null } | null;
  readonly error?: unknown;
  /** `error`: the chunk is one (vLLM). */
  readonly object?: unknown;
}

export interface WireChoice {
  readonly index?: number;
  /** Of a stream. */
  readonly delta?: WireMessage | null;
  /** Of a whole answer. */
  readonly message?: WireMessage | null;
  readonly finish_reason?: string | null;
}

export interface WireMessage {
  readonly content?: string | readonly WireContent[] | null;
  readonly refusal?: string | null;
  readonly reasoning_content?: string | null;
  readonly reasoning?: string | null;
  /** OpenRouter's. */
  readonly reasoning_details?: readonly unknown[] | null;
  readonly tool_calls?: readonly (WireCall | null)[] | null;
  /** The older form of a single call. */
  readonly function_call?: WireFunction | null;
}

/** Mistral's content in parts. */
export interface WireContent {
  readonly type?: string;
  readonly text?: string;
  readonly thinking?: readonly WireContent[];
}

export interface WireCall {
  readonly index?: number | null;
  readonly id?: string | null;
  readonly function?: WireFunction | null;
}

export interface WireFunction {
  readonly name?: string | null;
  /** JSON text, or on some hosts the object itself. */
  readonly arguments?: unknown;
}

export interface WireUsage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number; readonly cache_write_tokens?: number } | null;
  readonly completion_tokens_details?: { readonly reasoning_tokens?: number } | null;
  /** DeepSeek's place for cached tokens. */
  readonly prompt_cache_hit_tokens?: number;
  /** OpenRouter's: in credits, which are dollars. */
  readonly cost?: number;
}
