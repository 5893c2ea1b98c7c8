import {
  checkOptions,
  TreadleError,
  type Accepts,
  type Clock,
  type KnownOptions,
  type OptionNames,
  type Settings,
} from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import { warnOnce } from '@treadle/core/warning';
import { checkPrice, type Price } from '../prices/price.ts';
import type { Protocol } from '../protocol.ts';
import { baseURLFromEnvironment, isLoopbackURL, type ProviderFacts } from '../providers.ts';
import { checkToolSupport, type ToolSupport } from '../tool-support/modes.ts';
import type { Fetch } from './send.ts';

/** Options that every protocol has. */
export interface EndpointOptions {
  /** The name of the model at the provider. */
  readonly model: string;
  /**
   * The URL up to the path of the protocol: `https://api.openai.com/v1`. A query in it is sent too. Default: the environment
   * variable of the provider, such as `OPENAI_BASE_URL`, else its own host.
   */
  readonly baseURL?: string;
  /**
   * Default: the environment variable of the provider, such as `OPENAI_API_KEY`. It is sent to the provider's own host and to
   * the one in its environment variable, such as `OPENAI_BASE_URL`, but to no other that `baseURL` names.
   */
  readonly apiKey?: string | undefined;
  /** Sent with each request. They replace the default ones. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether to stream answers; default true. */
  readonly stream?: boolean;
  /** Used instead of the built-in transport, which is faster. */
  readonly fetch?: Fetch;
  /** Attempts after the first, for temporary failures before the first delta; default 2. */
  readonly maxRetries?: number;
  /** In milliseconds: until the answer starts, and between two chunks of it; default 300,000 each. */
  readonly timeouts?: { readonly headers?: number; readonly idle?: number };
  /** Used instead of the price in the table of known models; 0 if the model is free. */
  readonly price?: Price;
  /** What the model takes besides text; default: what its protocol can send. `{ images: false }`: it cannot see images. */
  readonly accepts?: Accepts;
  /** Used by requests that do not set them. */
  readonly settings?: Settings;
  /** What to do if the provider rejects tools; default `error`. */
  readonly toolSupport?: ToolSupport;
  readonly clock?: Clock;
  /** Returns a number from 0 to below 1, for the jitter of retries. */
  readonly random?: () => number;
}

const NAMES: OptionNames<EndpointOptions> = {
  model: 'string',
  baseURL: 'string',
  apiKey: 'string',
  headers: '',
  stream: 'boolean',
  fetch: 'function',
  maxRetries: 'number',
  timeouts: 'object',
  price: '',
  accepts: 'object',
  settings: 'object',
  toolSupport: '',
  clock: '.now',
  random: 'function',
};

const TIMEOUTS: OptionNames<NonNullable<EndpointOptions['timeouts']>> = { headers: '', idle: '' };

/** Names that other libraries have for options of a model, with the names here. */
const ELSEWHERE = {
  baseUrl: 'baseURL',
  base_url: 'baseURL',
  api_key: 'apiKey',
  defaultHeaders: 'headers',
  retries: 'maxRetries',
  timeout: 'timeouts',
  timeoutMs: 'timeouts',
  temperature: 'settings.temperature',
  maxTokens: 'settings.maxOutputTokens',
  maxOutputTokens: 'settings.maxOutputTokens',
  reasoning: 'settings.reasoning',
};

/** The names of the options that a model has besides those of every protocol. */
export type OwnNames<Options extends EndpointOptions> = OptionNames<Omit<Options, keyof EndpointOptions>>;

export function rejectOptions(factory: string, problem: string): never {
  throw new TreadleError('invalid-options', `${factory}: ${problem}`);
}

/** Throws if the options are invalid; `factory` is the function that was called with them, `own` has its further options. */
export function checkEndpoint(factory: string, options: EndpointOptions, own: KnownOptions['names'] = {}): void {
  const wrong = (problem: string): never => rejectOptions(factory, problem);
  if (typeof options !== 'object' || options === null) wrong("pass an object, such as { model: '…', apiKey: '…' }.");
  checkOptions(factory, options, { names: { ...NAMES, ...own }, elsewhere: ELSEWHERE });
  const { model, apiKey, timeouts } = options;
  if (typeof model !== 'string' || model.trim() === '') wrong('"model" is missing: pass the name of the model to use.');
  if (typeof apiKey === 'string' && apiKey.trim() === '') {
    wrong('"apiKey" is empty. Set the variable that it is read from, or omit it if no key is needed.');
  }
  if (apiKey !== undefined && (typeof apiKey !== 'string' || !isSendable(apiKey))) {
    wrong('"apiKey" must be a string without spaces and line breaks. Check where it is read from.');
  }
  checkOptions(`${factory}: "timeouts"`, timeouts ?? {}, { names: TIMEOUTS });
  for (const [name, ms] of Object.entries(timeouts ?? {})) {
    if (ms !== undefined && !(typeof ms === 'number' && ms > 0)) {
      wrong(`"timeouts.${name}" must be a number of milliseconds above 0.`);
    }
  }
  for (const [name, taken] of Object.entries(options.accepts ?? {})) {
    if (!['images', 'files'].includes(name) || typeof taken !== 'boolean') {
      wrong('"accepts" must be an object such as { images: true, files: false }.');
    }
  }
  checkCallOptions(factory, options);
}

/** Checks the options that models of the AI SDK have too. Throws if they are invalid. */
export function checkCallOptions(
  factory: string,
  options: Pick<EndpointOptions, 'headers' | 'stream' | 'maxRetries' | 'price' | 'toolSupport'>,
): void {
  const wrong = (problem: string): never => rejectOptions(factory, problem);
  const { headers = {}, stream, maxRetries } = options;
  if (typeof headers !== 'object' || headers === null) wrong('"headers" must be an object of strings.');
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name) || typeof value !== 'string' || !/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
      wrong(`the header "${name}" cannot be sent: it needs a valid name and a string value of one line.`);
    }
  }
  if (stream !== undefined && typeof stream !== 'boolean') wrong('"stream" must be true or false.');
  if (maxRetries !== undefined && !(Number.isInteger(maxRetries) && maxRetries >= 0)) {
    wrong('"maxRetries" must be a whole number from 0.');
  }
  checkPrice(factory, options.price);
  checkToolSupport(factory, options.toolSupport);
}

/** Throws if a setting of the options would be ignored. `takes`: those that the protocol sends for the model. */
export function checkSettings(factory: string, settings: Settings = {}, takes: readonly (keyof Settings)[]): void {
  const ignored = Object.keys(settings).filter((name) => !takes.some((taken) => taken === name));
  if (ignored.length === 0) return;
  const remedy = didYouMean(ignored[0]!, takes) || ` Remove it. It takes ${takes.join(', ')}.`;
  rejectOptions(factory, `the model takes no "settings.${ignored[0]}".${remedy}`);
}

/** The URL of a protocol below a base URL. */
export function endpointURL(
  factory: string,
  { baseURL, variable }: ReturnType<typeof baseURLOf>,
  { path, query = {} }: Pick<Protocol<unknown>, 'path' | 'query'>,
): URL {
  const name = variable ?? '"baseURL"';
  const url = typeof baseURL === 'string' ? URL.parse(baseURL) : null;
  const example = `${variable === undefined ? 'pass' : 'set'} one such as "https://api.openai.com/v1" or "http://127.0.0.1:8080/v1".`;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return rejectOptions(factory, `${name} is not an http(s) URL: ${example}`);
  }
  if (url.username !== '' || url.password !== '') {
    return rejectOptions(factory, `${name} holds a password: pass it as "apiKey" or in "headers".`);
  }
  url.pathname = `${url.pathname.replace(/\/+$/, '')}${path}`;
  url.hash = '';
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url;
}

/** The base URL of the options, else that of the environment with its `variable`, else the provider's own. */
export function baseURLOf(
  provider: ProviderFacts,
  options: EndpointOptions | undefined,
): { readonly baseURL: string; readonly variable?: string } {
  if (options?.baseURL !== undefined) return { baseURL: options.baseURL };
  return baseURLFromEnvironment(provider, environmentVariable) ?? { baseURL: provider.baseURL };
}

/** The key of the environment for a model, and what to say if there is none. */
export interface EnvironmentKey {
  readonly key?: string;
  /** Why no key is sent, and what to do. Appended to the failure of a provider that wants one. */
  readonly hint: string;
  /** The provider's own host is called, which wants a key for certain. */
  readonly isRequired?: boolean;
}

/** Of a model that is called at `url`. */
interface Called {
  readonly factory: string;
  readonly provider: ProviderFacts;
  readonly url: URL;
  /** Names of headers that carry a key. If one of them is passed, no other key is needed. */
  readonly keyHeaders: readonly string[];
}

const NO_KEY: EnvironmentKey = { hint: 'No API key was provided.' };

/**
 * The key that the environment has for the host that is called: the provider's own host, or the one that the environment
 * names. A host that only the code names does not get it, and the developer is told so, unless the host is this machine.
 * Throws if the key cannot be sent.
 */
export function environmentKey(
  { factory, provider, url, keyHeaders }: Called,
  options: EndpointOptions,
): EnvironmentKey {
  const { keyVariable, otherKeyVariable } = provider;
  const isInHeader = Object.keys(options.headers ?? {}).some((name) => keyHeaders.includes(name.toLowerCase()));
  if (keyVariable === undefined || options.apiKey !== undefined || isInHeader) return NO_KEY;
  const found = [keyVariable, otherKeyVariable].find((name) => name && environmentVariable(name)?.trim());
  const own = new URL(provider.baseURL);
  const isOwn = url.origin === own.origin;
  const chosen = baseURLFromEnvironment(provider, environmentVariable);
  if (!isOwn && url.origin !== (chosen && URL.parse(chosen.baseURL)?.origin)) {
    const only = `${found ?? keyVariable} is read only for ${own.host}, and ${url.host} is another host.`;
    if (found === undefined) return { hint: `No API key was provided. ${only} Pass "apiKey".` };
    const remedy = `To send it there on purpose, pass apiKey: process.env['${found}'].`;
    if (!isLoopbackURL(url.href)) warnOnce(`${factory}: ${found} is not sent to ${url.host}. ${only} ${remedy}`);
    return { hint: `No API key was sent. ${only} ${remedy}` };
  }
  if (found === undefined) {
    return {
      hint: `No API key was provided. Set ${keyVariable}, or pass "apiKey".`,
      isRequired: isOwn && !isLoopbackURL(url.href),
    };
  }
  const key = environmentVariable(found)!.trim();
  if (!isSendable(key)) rejectOptions(factory, `${found} must be a text without spaces and line breaks.`);
  return { key, hint: '' };
}

/** Undefined where there is no environment, or where it may not be read. */
function environmentVariable(name: string): string | undefined {
  const { process } = globalThis as {
    readonly process?: { readonly env?: Readonly<Record<string, string | undefined>> };
  };
  try {
    return process?.env?.[name];
  } catch {
    return undefined;
  }
}

function isSendable(text: string): boolean {
  return /^[\x21-\x7e]+$/.test(text);
}
