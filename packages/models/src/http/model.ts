import {
  messageOf,
  systemClock,
  type KnownOptions,
  type Model,
  type ModelReply,
  type ModelRequest,
  type Settings,
} from '@treadle/core';
import { maxCostOf, withCost } from '../prices/price.ts';
import { priceOf } from '../prices/table.ts';
import type { Emit, Protocol } from '../protocol.ts';
import { toolsRefused } from '../tool-support/refusal.ts';
import { withToolSupport } from '../tool-support/tool-support.ts';
import { connectionTo, type HttpService } from './connection.ts';
import { checkEndpoint, checkSettings, type EndpointOptions } from './endpoint.ts';
import { CANCELLED, protocolFailure } from './failures.ts';
import { setSingleAttempt, withRetries } from './retry.ts';
import type { Post } from './send.ts';
import { exchange, type Transport } from './transport.ts';

export interface HttpModel<State> extends HttpService {
  readonly protocol: Protocol<State>;
  /** The options that the function has besides those of every protocol. */
  readonly own?: KnownOptions['names'];
  /** The provider reports the cost of each reply, so no price is needed. */
  readonly reportsCost?: boolean;
}

/** A model that is reached over HTTP: a protocol on top of the shared transport. */
export function httpModel<State>(
  { factory, protocol, provider, auth, reportsCost = false, own }: HttpModel<State>,
  options: EndpointOptions,
): Model {
  checkEndpoint(factory, options, own);
  const { model, maxRetries = 2, stream = true, clock = systemClock, random = Math.random } = options;
  const { price = priceOf(model), toolSupport = 'error', settings } = options;
  checkSettings(factory, settings, protocol.takes);
  const connection = connectionTo(
    { factory, provider, auth },
    { ...protocol, accept: stream ? protocol.framing.mediaType : 'application/json' },
    options,
  );
  const { to, safeError } = connection;
  const transport: Transport<State> = { protocol, stream, clock, ...connection };

  const finishReply = (reply: ModelReply, { tools }: ModelRequest): ModelReply => {
    if (reply.type === 'reply') return withCost(reply.model === '' ? { ...reply, model } : reply, price);
    const error = safeError(reply.error);
    return { type: 'failure', error: (tools.length > 0 && toolsRefused(model, error)) || error };
  };
  let given: Settings = {};
  let complete: Settings = { ...settings };
  /** The same object for the same settings: otherwise each turn writes the whole request again. */
  const completed = (asked: Settings): Settings => {
    if (asked !== given) complete = { ...settings, ...asked };
    given = asked;
    return complete;
  };
  const notWritten = (thrown: unknown, signal: AbortSignal): ModelReply => {
    if (signal.aborted) return { type: 'failure', error: CANCELLED };
    const error = protocolFailure(`The request could not be written: ${messageOf(thrown)}`);
    return { type: 'failure', error: { ...safeError(error), retryable: false } };
  };
  const writePost = (request: ModelRequest, signal: AbortSignal): Post | ModelReply | Promise<Post | ModelReply> => {
    try {
      const asked = settings ? { ...request, settings: completed(request.settings) } : request;
      const body = protocol.body(asked, signal);
      const { traceparent } = request;
      if (!(body instanceof Promise)) return { to, body, traceparent };
      return body.then(
        (written) => ({ to, body: written, traceparent }),
        (thrown: unknown) => notWritten(thrown, signal),
      );
    } catch (thrown) {
      return notWritten(thrown, signal);
    }
  };
  const sendOnce = (post: Post, request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply> =>
    exchange(transport, {
      post,
      tools: request.tools,
      emit,
      signal,
      finishReply: (reply) => finishReply(reply, request),
    });
  const sendRetrying = (post: Post, request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply> => {
    const retries = { maxRetries, model, clock, random, deadline: request.deadline };
    return withRetries(retries, (emit) => sendOnce(post, request, emit, signal), emit, signal);
  };
  const replyBy =
    (send: typeof sendOnce): Model['reply'] =>
    (request, emit, signal) => {
      if (refusal) return Promise.resolve(refusal);
      const post = writePost(request, signal);
      if (post instanceof Promise) {
        return post.then((written) => ('type' in written ? written : send(written, request, emit, signal)));
      }
      return 'type' in post ? Promise.resolve(post) : send(post, request, emit, signal);
    };

  const refusal: ModelReply | undefined = connection.refusal && { type: 'failure', error: connection.refusal };
  const retryingModel: Model = {
    id: model,
    ...(provider.name !== undefined && { provider: provider.name }),
    priced: reportsCost || price !== undefined,
    ...(price && { maxCost: (input: number, output: number) => maxCostOf(price, input, output) }),
    ...((protocol.accepts ?? options.accepts) && { accepts: { ...protocol.accepts, ...options.accepts } }),
    takes: protocol.takes,
    ...(protocol.omits && { omits: protocol.omits }),
    reply: replyBy(sendRetrying),
  };
  setSingleAttempt(retryingModel, replyBy(sendOnce));
  return toolSupport === 'error' ? retryingModel : withToolSupport(retryingModel, toolSupport, { clock });
}
