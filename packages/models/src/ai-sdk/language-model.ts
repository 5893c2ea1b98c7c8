/**
 * A language model of the AI SDK, specification V3 or V4, by its form alone: nothing of the AI SDK is imported. Both
 * `LanguageModelV3` and `LanguageModelV4` of `@ai-sdk/provider` fit it.
 */
export interface AiSdkModel {
  readonly specificationVersion: 'v3' | 'v4';
  readonly provider: string;
  readonly modelId: string;
  doGenerate(options: never): PromiseLike<object>;
  doStream(options: never): PromiseLike<{ readonly stream: ReadableStream<unknown> }>;
}

export type AiSdkVersion = AiSdkModel['specificationVersion'];

/** `{ openai: { … } }`: what only one provider understands, by its name. It goes in as options, it comes out as metadata. */
export type ProviderOptions = { readonly [provider: string]: { readonly [name: string]: unknown } };

/** What a model is called with. */
export interface CallOptions {
  readonly prompt: readonly unknown[];
  readonly maxOutputTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly stopSequences?: readonly string[];
  readonly seed?: number;
  readonly reasoning?: string;
  readonly responseFormat?: { readonly type: 'json'; readonly schema: unknown; readonly name: string };
  readonly tools?: readonly unknown[];
  readonly toolChoice?: { readonly type: 'auto' | 'none' | 'required' } | { readonly type: 'tool'; toolName: string };
  readonly providerOptions?: ProviderOptions;
  readonly headers?: Readonly<Record<string, string>>;
  readonly abortSignal: AbortSignal;
}

/** A part of a stream or of a whole answer: all fields of all kinds, none of them trusted to be there. */
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

/** What `doGenerate` gives. */
export interface WholeAnswer {
  readonly content?: readonly (ReplyPart | null)[];
  readonly finishReason?: unknown;
  readonly usage?: unknown;
  readonly response?: { readonly modelId?: unknown };
}
