/**
 * A language model of the AI SDK, specification V3 or V4: `LanguageModelV3` or `LanguageModelV4` of
 * `@ai-sdk/provider`. Nothing of the AI SDK is imported.
 */
export interface AiSdkModel {
  readonly specificationVersion: 'v3' | 'v4';
  readonly provider: string;
  readonly modelId: string;
  doGenerate(options: never): PromiseLike<object>;
  doStream(options: never): PromiseLike<{ readonly stream: ReadableStream<unknown> }>;
}

export type AiSdkVersion = AiSdkModel['specificationVersion'];

/** `{ openai: { … } }`: fields for one provider. Requests have them as options, replies as metadata. */
export type ProviderOptions = { readonly [provider: string]: { readonly [name: string]: unknown } };

/** The argument of `doStream` and `doGenerate`. */
export interface CallOptions {
  readonly prompt: readonly unknown[];
  readonly maxOutputTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly stopSequences?: readonly string[];
  readonly seed?: number;
  readonly reasoning?: string;
  /** Without a schema: any JSON object. */
  readonly responseFormat?: {
    readonly type: 'json';
    readonly schema?: unknown;
    readonly name?: string;
    readonly description?: string;
  };
  readonly tools?: readonly unknown[];
  readonly toolChoice?: { readonly type: 'auto' | 'none' | 'required' } | { readonly type: 'tool'; toolName: string };
  readonly providerOptions?: ProviderOptions;
  readonly headers?: Readonly<Record<string, string>>;
  readonly abortSignal: AbortSignal;
}

/** A part of a stream or of a whole answer: the fields of all types of parts. Any of them may be missing. */
export interface ReplyPart {
  readonly type?: unknown;
  readonly id?: string;
  readonly delta?: unknown;
  readonly text?: unknown;
  readonly toolCallId?: string;
  readonly toolName?: unknown;
  readonly input?: unknown;
  readonly providerExecuted?: boolean;
  readonly mediaType?: unknown;
  readonly providerMetadata?: ProviderOptions;
  readonly modelId?: unknown;
  readonly finishReason?: unknown;
  readonly usage?: unknown;
  readonly error?: unknown;
}

/** What `doGenerate` returns. */
export interface WholeAnswer {
  readonly content?: readonly (ReplyPart | null)[];
  readonly finishReason?: unknown;
  readonly usage?: unknown;
  readonly response?: { readonly modelId?: unknown };
}
