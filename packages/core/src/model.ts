import type { AssistantPart, Message } from './messages.ts';

/** A language model, as the loop sees it. `@treadle/models` has them; a test or a program may bring its own. */
export interface Model {
  readonly id: string;
  /** Its replies tell what they cost. A run with a cost limit needs that. */
  readonly priced?: boolean;
  /** Those who may reply in its stead, with itself if it can, such as the models of a router. */
  readonly asks?: readonly Model[];
  /**
   * Never rejects: a failure is the returned reply. Deltas go to `emit` as they arrive; a model that cannot stream
   * emits nothing. After `signal` aborts the reply is ignored, so end soon.
   */
  reply(request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply>;
}

/**
 * Takes a piece of a reply. Never throws. If it gives a promise, whoever listens is behind: a model that can reads no
 * further until that resolves, so that nothing piles up. It never rejects.
 */
export type Emit = (delta: ModelDelta) => unknown;

export interface ModelRequest {
  readonly instructions?: string;
  /**
   * The history itself, not a copy: it is valid until the reply is there, and the same array comes again, longer, with
   * the next turn. So a protocol can keep what it made of earlier messages in a WeakMap keyed by it.
   */
  readonly messages: readonly Message[];
  /** Every tool that exists, also those that `toolChoice` or `allowedTools` rule out. */
  readonly tools: readonly ToolSpec[];
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  /** False: the model is asked for one call at a time. */
  readonly parallel: boolean;
  readonly settings: Settings;
  /** The answer has to be JSON of this form. */
  readonly output?: JsonSchema;
  /** What a provider that can make sure of that form is told of it. */
  readonly outputForm?: { readonly name?: string; readonly strict?: boolean };
  /** When the run's time is up, in milliseconds since 1970: to wait for longer is in vain. */
  readonly deadline?: number;
  /** `runId/effectId`: the same for the same call, also after a crash. */
  readonly key: string;
}

/** What a model is told of a tool. `parameters` is JSON Schema. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  /** The provider is to make sure that arguments keep to the schema, where it can. */
  readonly strict?: boolean;
}

export type JsonSchema = { readonly [keyword: string]: unknown };

export type ToolChoice = 'auto' | 'required' | 'none' | { readonly tool: string };

export interface Settings {
  readonly temperature?: number;
  readonly maxOutputTokens?: number;
  readonly topP?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
  readonly reasoning?: 'low' | 'medium' | 'high';
}

/** A piece of a reply on its way. The whole reply repeats all of it. */
export type ModelDelta =
  | { readonly type: 'text-delta'; readonly text: string }
  | { readonly type: 'reasoning-delta'; readonly text: string }
  /** `call` counts the reply's calls from 0; `arguments` is the next piece of the JSON text, maybe empty. */
  | { readonly type: 'call-delta'; readonly call: number; readonly name: string; readonly arguments: string };

export type Finish = 'stop' | 'tool-calls' | 'length' | 'content-filter';

export type ModelReply =
  | {
      readonly type: 'reply';
      readonly content: readonly AssistantPart[];
      readonly finish: Finish;
      /** The provider's own word for `finish`. */
      readonly rawFinish?: string;
      readonly usage: Usage;
      /** The model that really answered. */
      readonly model: string;
      readonly attempts?: readonly Attempt[];
    }
  | { readonly type: 'failure'; readonly error: ModelError; readonly attempts?: readonly Attempt[] };

export interface Attempt {
  readonly model: string;
  readonly ms: number;
  readonly error?: ModelError;
}

export type ModelErrorCode =
  | 'auth'
  | 'rate-limit'
  | 'overloaded'
  | 'context-length'
  | 'invalid-request'
  | 'timeout'
  | 'network'
  | 'protocol'
  | 'content-filter'
  | 'cancelled';

export interface ModelError {
  readonly code: ModelErrorCode;
  /** What happened and what to do, with the provider's own words; never a secret. */
  readonly message: string;
  readonly retryable: boolean;
  readonly status?: number;
  readonly retryAfterMs?: number;
}

/** Tokens of one call or summed over many. `cost` is absent when a price is unknown, never 0 for that reason. */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Part of `inputTokens` that came from the provider's cache. */
  readonly cachedTokens?: number;
  /** Part of `inputTokens` that was written to it. */
  readonly cacheWriteTokens?: number;
  /** Part of `outputTokens`. */
  readonly reasoningTokens?: number;
  /** In US dollars. */
  readonly cost?: number;
}
