import { TreadleError, type Clock } from '@treadle/core';
import { checkPrice, type Price } from '../prices/price.ts';
import { checkToolSupport, type ToolSupport } from '../tool-support/modes.ts';
import type { Fetch } from './fetch.ts';

/** Where a model is and how it is asked. The same for every protocol. */
export interface EndpointOptions {
  /** The provider's name of the model. */
  readonly model: string;
  /** Up to the protocol's own path: `https://api.openai.com/v1`. A query in it is kept. */
  readonly baseURL?: string;
  readonly apiKey?: string | undefined;
  /** Sent with each request; they win over our own. */
  readonly headers?: Readonly<Record<string, string>>;
  /** False: the answer comes whole. */
  readonly stream?: boolean;
  /** Used instead of our own transport, which is faster. */
  readonly fetch?: Fetch;
  /** Attempts after the first, for failures that may pass, while nothing has been shown; default 2. */
  readonly maxRetries?: number;
  /** In milliseconds: until an answer begins, and between two pieces of it; default 300,000 each. */
  readonly timeouts?: { readonly headers?: number; readonly idle?: number };
  /** What it costs, where the table of known models has nothing or something else; 0 for what is free. */
  readonly price?: Price;
  /** What to do if the provider refuses tools; default `error`. */
  readonly toolSupport?: ToolSupport;
  readonly clock?: Clock;
  /** From 0 to below 1; spreads retries. */
  readonly random?: () => number;
}

/** Throws if the options cannot work; `factory` is the function that was called with them. */
export function checkEndpoint(factory: string, options: EndpointOptions): void {
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-options', `${factory}: ${what}`);
  };
  if (typeof options !== 'object' || options === null) wrong("pass an object, such as { model: '…', apiKey: '…' }.");
  const { model, apiKey, timeouts, fetch } = options;
  if (typeof model !== 'string' || model.trim() === '') wrong('"model" is missing: give the name of the model to use.');
  if (typeof apiKey === 'string' && apiKey.trim() === '') {
    wrong('"apiKey" is empty. Set what it was read from, or leave it out where none is needed.');
  }
  if (apiKey !== undefined && (typeof apiKey !== 'string' || !sendable(apiKey))) {
    wrong('"apiKey" must be a text without spaces and line breaks. Look at how it was read.');
  }
  for (const [name, ms] of Object.entries(timeouts ?? {})) {
    if (ms !== undefined && !(typeof ms === 'number' && ms > 0)) {
      wrong(`"timeouts.${name}" must be a number of milliseconds above 0.`);
    }
  }
  if (fetch !== undefined && typeof fetch !== 'function') wrong('"fetch" must be a function.');
  checkAsking(factory, options);
}

/** What is the same for every way to ask a model. Throws if it cannot work. */
export function checkAsking(
  factory: string,
  options: Pick<EndpointOptions, 'headers' | 'stream' | 'maxRetries' | 'price' | 'toolSupport'>,
): void {
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-options', `${factory}: ${what}`);
  };
  const { headers = {}, stream, maxRetries } = options;
  if (typeof headers !== 'object' || headers === null) wrong('"headers" must be an object of names and texts.');
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name) || typeof value !== 'string' || !/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
      wrong(`the header "${name}" cannot be sent: it must be a name and a text of one line.`);
    }
  }
  if (stream !== undefined && typeof stream !== 'boolean') wrong('"stream" must be true or false.');
  if (maxRetries !== undefined && !(Number.isInteger(maxRetries) && maxRetries >= 0)) {
    wrong('"maxRetries" must be a whole number from 0.');
  }
  checkPrice(factory, options.price);
  checkToolSupport(factory, options.toolSupport);
}

/** The place of `path` below a base URL. */
export function endpointURL(factory: string, baseURL: unknown, path: string): URL {
  const url = typeof baseURL === 'string' ? URL.parse(baseURL) : null;
  const example = `give one such as "https://api.openai.com/v1" or "http://127.0.0.1:8080/v1".`;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new TreadleError('invalid-options', `${factory}: "baseURL" is not an http(s) URL: ${example}`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new TreadleError(
      'invalid-options',
      `${factory}: "baseURL" holds a password: pass it as "apiKey" or in "headers".`,
    );
  }
  url.pathname = `${url.pathname.replace(/\/+$/, '')}${path}`;
  url.hash = '';
  return url;
}

function sendable(text: string): boolean {
  return /^[\x21-\x7e]+$/.test(text);
}
