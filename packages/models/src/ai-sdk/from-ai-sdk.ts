import {
  systemClock,
  TreadleError,
  type Clock,
  type Model,
  type ModelError,
  type ModelReply,
  type ModelRequest,
} from '@treadle/core';
import { checkAsking } from '../http/endpoint.ts';
import { CANCELLED } from '../http/failures.ts';
import { redactor } from '../http/redact.ts';
import { retrying, withRetries } from '../http/retry.ts';
import { withCost, type Price } from '../prices/price.ts';
import { priceOf } from '../prices/table.ts';
import type { Emit } from '../protocol.ts';
import type { ToolSupport } from '../tool-support/modes.ts';
import { toolsRefused } from '../tool-support/refusal.ts';
import { withToolSupport } from '../tool-support/tool-support.ts';
import { callOptions } from './call-options.ts';
import { failureOfThrown } from './failures.ts';
import type { AiSdkModel, CallOptions, ProviderOptions, ReplyPart, WholeAnswer } from './language-model.ts';
import { promptOf } from './prompt.ts';
import { endReply, startReply, takePart, takeWhole } from './reply.ts';
import { protocolOf } from './signature.ts';

export interface FromAiSdkOptions {
  /** False: the answer comes whole. */
  readonly stream?: boolean;
  /** Sent with each request, by the provider's name, such as `{ openai: { store: false } }`. */
  readonly providerOptions?: ProviderOptions;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Attempts after the first, for failures that may pass, while nothing has been shown; default 2. */
  readonly maxRetries?: number;
  /** What it costs, where the table of known models has nothing or something else; 0 for what is free. */
  readonly price?: Price;
  /** What to do if the provider refuses tools; default `error`. */
  readonly toolSupport?: ToolSupport;
  readonly clock?: Clock;
  /** From 0 to below 1; spreads retries. */
  readonly random?: () => number;
}

/**
 * A language model of the AI SDK (specification V3 or V4) as a model of ours. Throws if it is something else.
 *
 * Only calls of tools that the loop has are calls. What the provider runs itself is told of in the reasoning.
 */
export function fromAiSdk(model: AiSdkModel, options: FromAiSdkOptions = {}): Model {
  checkModel(model);
  checkOptions(options);
  const { specificationVersion: version, provider, modelId } = model;
  const { stream = true, providerOptions, headers, maxRetries = 2, toolSupport = 'error' } = options;
  const { price = priceOf(modelId), clock = systemClock, random = Math.random } = options;
  const protocol = protocolOf(provider);
  const prompt = promptOf({ version, protocol });
  const safe = redactor(undefined, headers ?? {});

  const called = (request: ModelRequest, abortSignal: AbortSignal): CallOptions => ({
    prompt: prompt(request.instructions, request.messages),
    ...callOptions(request, { version, provider, providerOptions, headers }),
    abortSignal,
  });

  const answer = async (called: CallOptions, emit: Emit): Promise<ModelReply> => {
    const reply = startReply(modelId);
    const failure = stream
      ? await eachPart(await model.doStream(called as never), called.abortSignal, (part) => takePart(reply, part, emit))
      : takeWhole(reply, (await model.doGenerate(called as never)) as WholeAnswer);
    return failure === undefined ? withCost(endReply(reply, protocol), price) : { type: 'failure', error: failure };
  };

  const attempt: Model['reply'] = async (request, emit, signal) => {
    const failed = (told: ModelError): ModelReply => {
      const error = { ...told, message: safe(told.message) };
      return { type: 'failure', error: (request.tools.length > 0 && toolsRefused(modelId, error)) || error };
    };
    try {
      const reply = await unlessAborted(signal, () => answer(called(request, signal), emit));
      return reply.type === 'failure' ? failed(reply.error) : reply;
    } catch (thrown) {
      return failed(signal.aborted ? CANCELLED : failureOfThrown(thrown, clock.now()));
    }
  };

  const made: Model = {
    id: modelId,
    priced: price !== undefined,
    reply: (request, emit, signal) =>
      withRetries(
        { maxRetries, model: modelId, clock, random, deadline: request.deadline },
        (emit) => attempt(request, emit, signal),
        emit,
        signal,
      ),
  };
  retrying(made, attempt);
  return toolSupport === 'error' ? made : withToolSupport(made, toolSupport, { clock });
}

/** Hands over the parts of a stream until one of them is a failure, and leaves nothing of it open. */
async function eachPart<Failure>(
  { stream }: { readonly stream: ReadableStream<unknown> },
  signal: AbortSignal,
  take: (part: ReplyPart) => Failure | undefined,
): Promise<Failure | undefined> {
  const reader = stream.getReader();
  const leave = (): void => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', leave, { once: true });
  try {
    if (signal.aborted) leave();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return undefined;
      if (typeof value !== 'object' || value === null) continue;
      const failure = take(value);
      if (failure === undefined) continue;
      leave();
      return failure;
    }
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** Rejects when the signal aborts, also if the provider takes no notice of it. */
async function unlessAborted<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([work(), promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function wrong(what: string): never {
  throw new TreadleError('invalid-options', `fromAiSdk: ${what}`);
}

function checkOptions(options: FromAiSdkOptions): void {
  if (typeof options !== 'object' || options === null) wrong('its second argument must be an object of options.');
  checkAsking('fromAiSdk', options);
  const { providerOptions = {} } = options;
  const isByName = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isByName(providerOptions) || !Object.values(providerOptions).every(isByName)) {
    wrong('"providerOptions" must be objects by the names of providers, such as { openai: { store: false } }.');
  }
}

function checkModel(model: unknown): void {
  if (typeof model === 'string') {
    wrong(
      `${JSON.stringify(model)} is only a name. Pass the model of a provider, such as openai('…') of @ai-sdk/openai.`,
    );
  }
  if (typeof model !== 'object' || model === null) {
    wrong("pass a language model of the AI SDK, such as openai('…') of @ai-sdk/openai.");
  }
  const { specificationVersion: version, doStream, doGenerate } = model as Record<string, unknown>;
  if (version !== 'v3' && version !== 'v4') {
    const told =
      typeof version === 'string' ? `has the specification ${version}` : 'is no language model of the AI SDK';
    wrong(`the model ${told}. Use a provider package with specification v3 or v4 (AI SDK 6 or 7).`);
  }
  if (typeof doStream !== 'function' || typeof doGenerate !== 'function') {
    wrong('the model has no doStream and doGenerate. Pass a language model, not one for images or embeddings.');
  }
}
