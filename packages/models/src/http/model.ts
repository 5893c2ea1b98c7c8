import { messageOf, systemClock, type Model, type ModelError, type ModelReply, type ModelRequest } from '@treadle/core';
import { withCost } from '../prices/price.ts';
import { priceOf } from '../prices/table.ts';
import type { Emit, Protocol } from '../protocol.ts';
import { toolsRefused } from '../tool-support/refusal.ts';
import { withToolSupport } from '../tool-support/tool-support.ts';
import { dispatch } from './dispatch.ts';
import { checkEndpoint, endpointURL, type EndpointOptions } from './endpoint.ts';
import { misunderstood } from './failures.ts';
import { fetchSend } from './fetch.ts';
import { redactor } from './redact.ts';
import { retrying, withRetries } from './retry.ts';
import { addressOf, type Post } from './send.ts';
import { exchange, type Transport } from './transport.ts';

const PATIENCE_MS = 300_000;

export interface HttpModel<State> {
  /** The function that a user called, for error messages. */
  readonly factory: string;
  readonly protocol: Protocol<State>;
  readonly baseURL: string;
  /** How the provider wants to be shown a key. */
  readonly auth: (apiKey: string) => Readonly<Record<string, string>>;
  /** The provider's replies say what they cost, so that no price is needed. */
  readonly tellsCost?: boolean;
}

/** A model behind HTTP: a protocol, spoken over the shared transport. */
export function httpModel<State>(
  { factory, protocol, baseURL, auth, tellsCost = false }: HttpModel<State>,
  options: EndpointOptions,
): Model {
  checkEndpoint(factory, options);
  const { model, apiKey, fetch, maxRetries = 2, stream = true, clock = systemClock, random = Math.random } = options;
  const { price = priceOf(model), toolSupport = 'error' } = options;
  const url = endpointURL(factory, options.baseURL ?? baseURL, protocol.path);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: stream ? protocol.framing.mediaType : 'application/json',
    'user-agent': 'treadle',
    ...(apiKey === undefined ? undefined : auth(apiKey)),
  };
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = value;

  const to = addressOf(url, headers);
  const safe = redactor(apiKey, { ...headers, ...queryOf(url) });
  const transport: Transport<State> = {
    protocol,
    stream,
    send: fetch === undefined ? dispatch : fetchSend(fetch),
    clock,
    timeouts: { headers: options.timeouts?.headers ?? PATIENCE_MS, idle: options.timeouts?.idle ?? PATIENCE_MS },
  };
  const told = (error: ModelError): ModelError => {
    const hint = error.code === 'auth' && apiKey === undefined ? ' (No key was given.)' : '';
    return { ...error, message: safe(error.message) + hint };
  };

  const finished = (reply: ModelReply, { tools }: ModelRequest): ModelReply => {
    if (reply.type === 'reply') return withCost(reply.model === '' ? { ...reply, model } : reply, price);
    const error = told(reply.error);
    return { type: 'failure', error: (tools.length > 0 && toolsRefused(model, error)) || error };
  };
  const postOf = (request: ModelRequest): Post | ModelReply => {
    try {
      return { to, body: protocol.body(request) };
    } catch (thrown) {
      const error = misunderstood(`The request could not be made: ${messageOf(thrown)}`);
      return { type: 'failure', error: { ...told(error), retryable: false } };
    }
  };
  const attempt = (post: Post, request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply> =>
    exchange(transport, { post, emit, signal, finished: (reply) => finished(reply, request) });

  const made: Model = {
    id: model,
    priced: tellsCost || price !== undefined,
    reply(request, emit, signal) {
      const post = postOf(request);
      if ('type' in post) return Promise.resolve(post);
      const retries = { maxRetries, model, clock, random, deadline: request.deadline };
      return withRetries(retries, (emit) => attempt(post, request, emit, signal), emit, signal);
    },
  };
  retrying(made, (request, emit, signal) => {
    const post = postOf(request);
    return 'type' in post ? Promise.resolve(post) : attempt(post, request, emit, signal);
  });
  return toolSupport === 'error' ? made : withToolSupport(made, toolSupport, { clock });
}

function queryOf(url: URL): Record<string, string> {
  return Object.fromEntries(url.searchParams);
}
