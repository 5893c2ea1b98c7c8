import {
  checkOptions,
  systemClock,
  TreadleError,
  type Clock,
  type Model,
  type ModelError,
  type ModelReply,
  type OptionNames,
} from '@treadle/core';
import { checkCallOptions } from '../http/endpoint.ts';
import { CANCELLED } from '../http/failures.ts';
import { redactor } from '../http/redact.ts';
import { setSingleAttempt, withRetries } from '../http/retry.ts';
import { maxCostOf, withCost, type Price } from '../prices/price.ts';
import { priceOf } from '../prices/table.ts';
import type { Emit } from '../protocol.ts';
import type { ToolSupport } from '../tool-support/modes.ts';
import { toolsRefused } from '../tool-support/refusal.ts';
import { withToolSupport } from '../tool-support/tool-support.ts';
import { failureOfThrown } from './failures.ts';
import type { AiSdkModel, CallOptions, ProviderOptions, ReplyPart, WholeAnswer } from './language-model.ts';
import { addPart, addWholeAnswer, finishReply, newOpenReply } from './reply.ts';
import { requestConverter } from './request.ts';
import { protocolOf } from './signature.ts';

export interface FromAiSdkOptions {
  /** False: the answer is not streamed. */
  readonly stream?: boolean;
  /** Sent with each request, by the provider's name, such as `{ openai: { store: false } }`. */
  readonly providerOptions?: ProviderOptions;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Retries after a retryable failure, as long as no part of the reply was emitted; default 2. */
  readonly maxRetries?: number;
  /** The price, if the table of known models lacks it or is wrong. Rates of 0 mean that the model is free. */
  readonly price?: Price;
  /** What to do if the provider refuses tools; default `error`. */
  readonly toolSupport?: ToolSupport;
  readonly clock?: Clock;
  /** Returns a number from 0 to below 1, to spread retries. */
  readonly random?: () => number;
}

const NAMES: OptionNames<FromAiSdkOptions> = {
  stream: 'boolean',
  providerOptions: '',
  headers: '',
  maxRetries: 'number',
  price: '',
  toolSupport: '',
  clock: '.now',
  random: 'function',
};

/**
 * A language model of the AI SDK (specification V3 or V4) as a model of the loop. Throws for anything else.
 *
 * Tools that the provider executes itself do not become calls; the reasoning mentions them.
 */
export function fromAiSdk(model: AiSdkModel, options: FromAiSdkOptions = {}): Model {
  checkModel(model);
  checkFromAiSdk(options);
  const { specificationVersion: version, provider, modelId } = model;
  const { stream = true, providerOptions, headers, maxRetries = 2, toolSupport = 'error' } = options;
  const { price = priceOf(modelId), clock = systemClock, random = Math.random } = options;
  const protocol = protocolOf(provider);
  const convert = requestConverter({ version, provider, protocol, providerOptions, headers });
  const redact = redactor(undefined, headers ?? {});

  const callModel = async (options: CallOptions, emit: Emit): Promise<ModelReply> => {
    const reply = newOpenReply(modelId);
    const failure = stream
      ? await forEachPart(await model.doStream(options as never), options.abortSignal, (part) =>
          addPart(reply, part, emit),
        )
      : addWholeAnswer(reply, (await model.doGenerate(options as never)) as WholeAnswer);
    return failure === undefined ? withCost(finishReply(reply, protocol), price) : { type: 'failure', error: failure };
  };

  const attempt: Model['reply'] = async (request, emit, signal) => {
    const failModelCall = (failure: ModelError): ModelReply => {
      const error = { ...failure, message: redact(failure.message) };
      return { type: 'failure', error: (request.tools.length > 0 && toolsRefused(modelId, error)) || error };
    };
    try {
      const reply = await unlessAborted(signal, () => callModel(convert(request, signal), emit));
      return reply.type === 'failure' ? failModelCall(reply.error) : reply;
    } catch (thrown) {
      return failModelCall(signal.aborted ? CANCELLED : failureOfThrown(thrown, clock.now()));
    }
  };

  const adapted: Model = {
    id: modelId,
    provider: model.provider.split('.')[0]!,
    priced: price !== undefined,
    accepts: { imageDetail: false },
    ...(price && { maxCost: (input: number, output: number) => maxCostOf(price, input, output) }),
    reply: (request, emit, signal) =>
      withRetries(
        { maxRetries, model: modelId, clock, random, deadline: request.deadline },
        (emit) => attempt(request, emit, signal),
        emit,
        signal,
      ),
  };
  setSingleAttempt(adapted, attempt);
  return toolSupport === 'error' ? adapted : withToolSupport(adapted, toolSupport, { clock });
}

/** Calls `add` with each part of a stream until it returns a failure. Cancels the stream then, or on abort. */
async function forEachPart<Failure>(
  { stream }: { readonly stream: ReadableStream<unknown> },
  signal: AbortSignal,
  add: (part: ReplyPart) => Failure | undefined,
): Promise<Failure | undefined> {
  const reader = stream.getReader();
  const cancelStream = (): void => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', cancelStream, { once: true });
  try {
    if (signal.aborted) cancelStream();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return undefined;
      if (typeof value !== 'object' || value === null) continue;
      const failure = add(value);
      if (failure === undefined) continue;
      cancelStream();
      return failure;
    }
  } finally {
    signal.removeEventListener('abort', cancelStream);
  }
}

/** Rejects when the signal aborts, even if the provider ignores it. */
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

function rejectOptions(what: string): never {
  throw new TreadleError('invalid-options', `fromAiSdk: ${what}`);
}

function checkFromAiSdk(options: FromAiSdkOptions): void {
  if (typeof options !== 'object' || options === null)
    rejectOptions('its second argument must be an object of options.');
  checkOptions('fromAiSdk', options, { names: NAMES });
  checkCallOptions('fromAiSdk', options);
  const { providerOptions = {} } = options;
  const isByName = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isByName(providerOptions) || !Object.values(providerOptions).every(isByName)) {
    rejectOptions('"providerOptions" must be an object for each provider, such as { openai: { store: false } }.');
  }
}

function checkModel(model: unknown): void {
  if (typeof model === 'string') {
    rejectOptions(
      `${JSON.stringify(model)} is only a name. Pass the model of a provider, such as openai('…') of @ai-sdk/openai.`,
    );
  }
  if (typeof model !== 'object' || model === null) {
    rejectOptions("pass a language model of the AI SDK, such as openai('…') of @ai-sdk/openai.");
  }
  const { specificationVersion: version, doStream, doGenerate } = model as Record<string, unknown>;
  if (version !== 'v3' && version !== 'v4') {
    const problem =
      typeof version === 'string' ? `has the specification ${version}` : 'is not a language model of the AI SDK';
    rejectOptions(`the model ${problem}. Use a provider package with specification v3 or v4 (AI SDK 6 or 7).`);
  }
  if (typeof doStream !== 'function' || typeof doGenerate !== 'function') {
    rejectOptions('the model has no doStream and doGenerate. Pass a language model, not one for images or embeddings.');
  }
}
