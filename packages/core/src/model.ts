import type { AssistantPart, Message, TokenLogprob } from './messages.ts';

/** A language model as the loop uses it. `@treadle/models` implements it; tests and programs may implement their own. */
export interface Model {
  readonly id: string;
  /** Who it is asked of, as the conventions of OpenTelemetry name it, such as `openai`. Absent: not known. */
  readonly provider?: string;
  /** Replies contain their cost. Required for a run with a cost limit. */
  readonly priced?: boolean;
  /** The most that a reply with so many tokens costs, in US dollars. Absent or undefined: the price is not known. */
  maxCost?(inputTokens: number, outputTokens: number): number | undefined;
  /** Models that may reply instead, including itself if it can, such as those of a router. */
  readonly asks?: readonly Model[];
  /** What the model takes besides text. Absent, and each field that is absent: it takes them, or that is not known. */
  readonly accepts?: Accepts;
  /**
   * The settings that it passes on. Absent: `temperature`, `maxOutputTokens`, `topP`, `stop`, `seed` and `reasoning`, or
   * what all models in `asks` take. Others are ignored.
   */
  readonly takes?: readonly (keyof Settings)[];
  /** Those of `takes` that it changes or leaves out because of their value or of another setting. Absent: none. */
  readonly omits?: (settings: Settings) => readonly (keyof Settings)[];
  /**
   * The model uses no tokens and costs nothing, such as a program. The usage in its replies is ignored. Limits of tokens
   * and cost do not fail the run, and a ledger reserves nothing for its calls.
   */
  readonly usesTokens?: false;
  /**
   * The definition of a program that is the model, as plain JSON. The run records it, and is not resumed under another one
   * unless `acceptChangedProgram` is set.
   */
  readonly program?: unknown;
  /**
   * Results longer than `maxResultChars` are not cut. They are stored as blobs of the run, and the history refers to them
   * (`ToolResult.blob`). The model reads them with `readBlob` of its requests, and may refer to them in calls
   * (`ToolCall.references`). Without a store, the history contains them in full.
   */
  readonly references?: true;
  /** Options for the runs that it is the model of. Options of a run override them. */
  readonly defaults?: ModelDefaults;
  /**
   * Never rejects: a failure is a returned reply. Passes deltas to `emit` as they arrive; a model that cannot stream
   * emits nothing. After `signal` aborts the reply is ignored, so it should return soon.
   */
  reply(request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply>;
}

export interface Accepts {
  readonly images?: boolean;
  /** Such as PDFs. */
  readonly files?: boolean;
  /** Files by their URL. `pdf`: only PDFs. */
  readonly fileUrls?: boolean | 'pdf';
  /** `ImageBlock.detail`. */
  readonly imageDetail?: boolean;
}

export interface ModelDefaults {
  readonly maxTurns?: number;
  /** 0 is off. */
  readonly errorLimit?: number;
  /** 0 is off. */
  readonly repeatLimit?: number;
}

/**
 * Receives a piece of a reply. Never throws. If it returns a promise, the listener is slow: a model that supports
 * back-pressure reads no further until the promise resolves. The promise never rejects.
 */
export type Emit = (delta: ModelDelta) => unknown;

export interface ModelRequest {
  readonly instructions?: string;
  /**
   * The history itself, not a copy. It is valid until the reply, and the next turn passes the same array with more
   * messages. So a protocol can cache what it made of earlier messages in a WeakMap keyed by the array.
   */
  readonly messages: readonly Message[];
  /** All tools, including those that `toolChoice` or `allowedTools` exclude. */
  readonly tools: readonly ToolSpec[];
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  /** False: the model should make one call at a time. */
  readonly parallel: boolean;
  readonly settings: Settings;
  /** The answer must be JSON that matches this schema. */
  readonly output?: JsonSchema;
  /**
   * What the output is called and for, and whether the provider should enforce its schema, if it can. `anyObject`: any JSON
   * object is meant. Providers that have a mode for that get it instead of the schema.
   */
  readonly outputForm?: {
    readonly name?: string;
    readonly description?: string;
    readonly strict?: boolean;
    readonly anyObject?: true;
  };
  /** The deadline of the run, in milliseconds since 1970. A retry after it is useless. */
  readonly deadline?: number;
  /** `runId/effectId`: the same when a call is repeated after a crash. */
  readonly key: string;
  /** The span of the call in its trace, as W3C Trace Context defines it, for requests that the model makes. */
  readonly traceparent?: string;
  /** The text of a blob of the run; undefined if the run has no such blob. Only for models with `references`. */
  readonly readBlob?: (id: string) => Promise<string | undefined>;
}

/** The description of a tool for a model. `parameters` is JSON Schema. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  /** Ask the provider to enforce the schema for arguments, if it can. */
  readonly strict?: boolean;
  readonly custom?: CustomForm;
}

/**
 * A tool that takes a text instead of JSON. Providers that have such tools get this description and the format. All others get
 * a function with the description and the parameters of the tool: an object with the text as `input`.
 */
export interface CustomForm {
  readonly description: string;
  /** In the form of OpenAI's Responses API, such as a grammar. Absent: any text. */
  readonly format?: JsonSchema;
}

export type JsonSchema = { readonly [keyword: string]: unknown };

export type ToolChoice = 'auto' | 'required' | 'none' | { readonly tool: string };

export interface Settings {
  readonly temperature?: number;
  readonly maxOutputTokens?: number;
  readonly topP?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
  /** A provider without a level gets the nearest one that it has. `none`: the model should not reason. */
  readonly reasoning?: Effort;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  /** By the number of the token. */
  readonly logitBias?: { readonly [token: string]: number };
  /** How fast and at what price, in the words of OpenAI: `auto`, `default`, `flex`, `priority`. */
  readonly serviceTier?: string;
  /** Requests with the same key may share the provider's cache. */
  readonly promptCacheKey?: string;
  readonly verbosity?: 'low' | 'medium' | 'high';
  /** Texts contain the log probabilities of their tokens, each with this number of the most likely tokens. */
  readonly topLogprobs?: number;
}

export type Effort = 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max';

/** A piece of a reply. The whole reply contains all pieces again. */
export type ModelDelta =
  | {
      readonly type: 'text-delta';
      readonly text: string;
      readonly refusal?: true;
      readonly logprobs?: readonly TokenLogprob[];
    }
  | { readonly type: 'reasoning-delta'; readonly text: string; readonly summary?: true }
  /** `call` is the position of the call in the reply, from 0; `arguments` is the next piece of the JSON text, or empty. */
  | { readonly type: 'call-delta'; readonly call: number; readonly name: string; readonly arguments: string };

export type Finish = 'stop' | 'tool-calls' | 'length' | 'content-filter';

export type ModelReply =
  | {
      readonly type: 'reply';
      readonly content: readonly AssistantPart[];
      readonly finish: Finish;
      /** The provider's own value for `finish`. */
      readonly rawFinish?: string;
      readonly usage: Usage;
      /** The model that replied. */
      readonly model: string;
      readonly attempts?: readonly Attempt[];
    }
  | { readonly type: 'failure'; readonly error: ModelError; readonly attempts?: readonly Attempt[] };

export interface Attempt {
  readonly model: string;
  /** The name of the fallback that was asked. Absent: the model itself. */
  readonly fallback?: string;
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
  | 'cancelled'
  /** A program ended the run; see `endsWith`. */
  | 'program-failed'
  /** A program asks for other calls than the run has made. */
  | 'program-diverged';

export interface ModelError {
  readonly code: ModelErrorCode;
  /** What happened and what to do, including the provider's message; never a secret. */
  readonly message: string;
  readonly retryable: boolean;
  readonly status?: number;
  readonly retryAfterMs?: number;
  /** The run ends as failed with this code, and cannot be resumed. For models that are programs. */
  readonly endsWith?: string;
}

/** Tokens of one model call or a sum of several. `cost` is absent if a price is unknown. */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** The part of `inputTokens` that was read from the provider's cache. */
  readonly cachedTokens?: number;
  /** The part of `inputTokens` that was written to the provider's cache. */
  readonly cacheWriteTokens?: number;
  /** The part of `outputTokens` used for reasoning. */
  readonly reasoningTokens?: number;
  /** In US dollars. */
  readonly cost?: number;
}

export const NO_USAGE: Usage = { inputTokens: 0, outputTokens: 0, cost: 0 };

/** The sum of two usages. Its cost is unknown if one of them has no cost. */
export function addUsage(a: Usage, b: Usage): Usage {
  const sum: { -readonly [Field in keyof Usage]: Usage[Field] } = {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
  };
  const cachedTokens = (a.cachedTokens ?? 0) + (b.cachedTokens ?? 0);
  const cacheWriteTokens = (a.cacheWriteTokens ?? 0) + (b.cacheWriteTokens ?? 0);
  const reasoningTokens = (a.reasoningTokens ?? 0) + (b.reasoningTokens ?? 0);
  if (cachedTokens > 0) sum.cachedTokens = cachedTokens;
  if (cacheWriteTokens > 0) sum.cacheWriteTokens = cacheWriteTokens;
  if (reasoningTokens > 0) sum.reasoningTokens = reasoningTokens;
  if (a.cost !== undefined && b.cost !== undefined) sum.cost = a.cost + b.cost;
  return sum;
}

export function tokensOf(usage: Usage): number {
  return usage.inputTokens + usage.outputTokens;
}
