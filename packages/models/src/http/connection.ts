import type { ModelError } from '@treadle/core';
import { nodeVersion } from '@treadle/core/node-version';
import type { Protocol } from '../protocol.ts';
import type { ProviderFacts } from '../providers.ts';
import { baseURLOf, endpointURL, environmentKey, type EndpointOptions } from './endpoint.ts';
import { redactor } from './redact.ts';
import { addressOf, fetchSend, type Address, type Send } from './send.ts';
import type { Timeouts } from './transport.ts';
import { undiciSend } from './undici.ts';

const DEFAULT_TIMEOUT_MS = 300_000;

/** Whose API is called, and how it takes a key. */
export interface HttpService {
  /** The function that the user called, for error messages. */
  readonly factory: string;
  readonly provider: ProviderFacts;
  /** The headers that carry the key. */
  readonly auth: (apiKey: string) => Readonly<Record<string, string>>;
}

/** Where requests go, and with which headers: the same for all requests. */
export interface Connection {
  readonly to: Address;
  readonly send: Send;
  readonly timeouts: Timeouts;
  /** Without secrets, and with what to do if there is no key. */
  readonly safeError: (error: ModelError) => ModelError;
  /** There is no key, and the provider wants one for certain: nothing is sent. */
  readonly refusal: ModelError | undefined;
}

/** `accept`: the media type of an answer. Throws if the options are invalid. */
export function connectionTo(
  { factory, provider, auth }: HttpService,
  { accept, ...place }: Pick<Protocol<unknown>, 'path' | 'query'> & { readonly accept: string },
  options: EndpointOptions,
): Connection {
  const { fetch, timeouts } = options;
  const url = endpointURL(factory, baseURLOf(provider, options), place);
  const keyHeaders = Object.keys({ ...auth(''), authorization: '' });
  const { key, hint, isRequired } = environmentKey({ factory, provider, url, keyHeaders }, options);
  const apiKey = options.apiKey ?? key;
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept,
    'user-agent': 'treadle',
    ...(apiKey === undefined ? undefined : auth(apiKey)),
  };
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = value;
  const redact = redactor(apiKey, { ...headers, ...Object.fromEntries(url.searchParams) });
  return {
    to: addressOf(url, headers),
    send: fetch === undefined ? builtInSend() : fetchSend(fetch),
    timeouts: { headers: timeouts?.headers ?? DEFAULT_TIMEOUT_MS, idle: timeouts?.idle ?? DEFAULT_TIMEOUT_MS },
    safeError(error) {
      const remedy = error.code === 'auth' && apiKey === undefined ? ` (${hint})` : '';
      return { ...error, message: redact(error.message) + remedy };
    },
    // A `fetch` of the user may add a key of its own.
    refusal:
      isRequired && fetch === undefined
        ? { code: 'auth', message: `${hint} Nothing was sent to ${url.host}.`, retryable: false }
        : undefined,
  };
}

/** Undici needs the connections of Node. Other runtimes look like Node, and have a `fetch` of their own. */
function builtInSend(): Send {
  return nodeVersion() === undefined ? fetchSend((input, init) => globalThis.fetch(input, init)) : undiciSend;
}
