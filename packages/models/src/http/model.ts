import { messageOf, systemClock, type Model, type ModelError, type ModelReply } from '@treadle/core';
import type { Protocol } from '../protocol.ts';
import { dispatch } from './dispatch.ts';
import { checkEndpoint, endpointURL, type EndpointOptions } from './endpoint.ts';
import { misunderstood } from './failures.ts';
import { fetchSend } from './fetch.ts';
import { redactor } from './redact.ts';
import { withRetries } from './retry.ts';
import { exchange, type Transport } from './transport.ts';

const PATIENCE_MS = 300_000;

export interface HttpModel<State> {
  /** The function that a user called, for error messages. */
  readonly factory: string;
  readonly protocol: Protocol<State>;
  readonly baseURL: string;
  /** How the provider wants to be shown a key. */
  readonly auth: (apiKey: string) => Readonly<Record<string, string>>;
}

/** A model behind HTTP: a protocol, spoken over the shared transport. */
export function httpModel<State>(
  { factory, protocol, baseURL, auth }: HttpModel<State>,
  options: EndpointOptions,
): Model {
  checkEndpoint(factory, options);
  const { model, apiKey, fetch, maxRetries = 2, stream = true, clock = systemClock, random = Math.random } = options;
  const url = endpointURL(factory, options.baseURL ?? baseURL, protocol.path);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: stream ? protocol.framing.mediaType : 'application/json',
    'user-agent': 'treadle',
    ...(apiKey === undefined ? undefined : auth(apiKey)),
  };
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = value;

  const safe = redactor(apiKey, { ...headers, ...queryOf(url) });
  const transport: Transport = {
    send: fetch === undefined ? dispatch : fetchSend(fetch),
    clock,
    timeouts: { headers: options.timeouts?.headers ?? PATIENCE_MS, idle: options.timeouts?.idle ?? PATIENCE_MS },
  };
  const told = (error: ModelError): ModelError => {
    const hint = error.code === 'auth' && apiKey === undefined ? ' (No apiKey was given.)' : '';
    return { ...error, message: safe(error.message) + hint };
  };
  const failure = (error: ModelError): ModelReply => ({ type: 'failure', error: told(error) });

  return {
    id: model,
    async reply(request, emit, signal) {
      try {
        const post = { url, headers, body: protocol.body(request) };
        return await withRetries(
          { maxRetries, model, clock, random },
          async (emit) => {
            const reply = await exchange(transport, { protocol, post, stream, emit, signal });
            if (reply.type === 'failure') return failure(reply.error);
            return reply.model === '' ? { ...reply, model } : reply;
          },
          emit,
          signal,
        );
      } catch (thrown) {
        return failure({ ...misunderstood(`The request could not be made: ${messageOf(thrown)}`), retryable: false });
      }
    },
  };
}

function queryOf(url: URL): Record<string, string> {
  return Object.fromEntries(url.searchParams);
}
