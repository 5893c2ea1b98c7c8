import type { Accepts, Settings } from '@treadle/core';
import type { Price, ToolSupport } from '@treadle/models';
import { CommandError } from '../command-line/command.ts';
import type { ModelValues } from '../command-line/flags.ts';
import { didYouMean } from '@treadle/core/nearest';
import { isLoopbackURL } from '@treadle/models/providers';
import type { Io } from '../terminal/io.ts';
import { modelEntries, type ModelEntry } from './config.ts';
import { isWebAddress } from './web-address.ts';
import type { LoadedConfig } from './load.ts';
import { addressOfEntry, checkedAddress, factsOf, isProvider, PROVIDERS, type HttpProvider } from './providers.ts';

/** Which model to use, and how to reach it. Plain data, so that tests need no model. */
export type ModelChoice = DemoChoice | HttpChoice;

export interface DemoChoice {
  readonly type: 'demo';
  /** A message for the user before anything runs. */
  readonly notice?: string;
}

export interface HttpChoice {
  readonly type: HttpProvider;
  readonly model: string;
  readonly baseURL?: string;
  readonly apiKey?: string;
  readonly contextTokens?: number;
  readonly accepts?: Accepts;
  readonly headers?: Readonly<Record<string, string>>;
  readonly settings?: Settings;
  readonly timeoutMs?: number;
  readonly price?: Price;
  readonly toolSupport?: ToolSupport;
  readonly notice?: string;
  /** Called in this order if the model fails. They have no fallbacks of their own. */
  readonly fallback?: readonly ModelChoice[];
}

/** Used without a configuration, if the key of one is set. The first counts. */
const WITH_KEY = PROVIDERS.filter((provider) => factsOf(provider).keyVariable !== undefined && factsOf(provider).model);

const DEMO_NOTICE =
  'No API key and no configured model: this is the demo model, which follows a few fixed rules.\n' +
  'For a real model run "treadle init", set OPENAI_API_KEY, or name a server: --base-url http://localhost:11434/v1 --model NAME';

export function chooseModel(values: ModelValues, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  if (values['base-url'] !== undefined && !isWebAddress(values['base-url'])) {
    throw new CommandError(
      `--base-url cannot be ${JSON.stringify(values['base-url'])}. It takes a URL such as https://host/v1.`,
    );
  }
  const entries = modelEntries(loaded.config);
  if (values.model !== undefined) {
    const entry = entries.get(values.model) ?? parseModelName(values.model, values, entries);
    return withFallback(entry, values, loaded, env);
  }
  const name = defaultModelName(loaded);
  if (name !== undefined) return withFallback(entries.get(name)!, values, loaded, env);
  if (entries.size > 1) {
    throw new CommandError(
      `${loaded.file} has the models ${[...entries.keys()].join(', ')}, but no default. Choose one with --model, or add ` +
        `default = "…" to [models].`,
    );
  }
  if (values['base-url'] !== undefined) {
    throw new CommandError('--base-url names a server, but no model. Add --model NAME.');
  }
  const provider = WITH_KEY.find((one) => keyFor({ provider: one }, env).value);
  if (provider === undefined) return { type: 'demo', notice: DEMO_NOTICE };
  return chooseEntry({ provider, model: factsOf(provider).model! }, values, loaded, env);
}

/** The entry of [models] that is used if no model is named. */
export function defaultModelName({ config }: LoadedConfig): string | undefined {
  const entries = modelEntries(config);
  return config.models?.default ?? (entries.size === 1 ? [...entries.keys()][0] : undefined);
}

/**
 * The model of a run that is resumed, if its server is certain. Otherwise a run that used a private server could be sent
 * to another provider because a key for it is set.
 */
export function chooseModelOf(
  model: string | undefined,
  values: ModelValues,
  loaded: LoadedConfig,
  env: Io['env'],
): ModelChoice {
  if (values.model !== undefined || model === undefined) return chooseModel(values, loaded, env);
  if (values['base-url'] !== undefined) return chooseModel({ ...values, model: `openai/${model}` }, loaded, env);
  if (model === 'demo') return { type: 'demo' };
  const names = [...modelEntries(loaded.config)].flatMap(([name, entry]) => (entry.model === model ? name : []));
  if (names.length === 1) return chooseModel({ model: names[0]! }, loaded, env);
  if (names.length === 0 && defaultModel(loaded, env) === model) return chooseModel({}, loaded, env);
  throw new CommandError(
    names.length > 1
      ? `The run uses the model ${model}, which ${loaded.file} has as ${names.join(' and ')}. Choose one with --model.`
      : `The run uses the model ${model}, but its server is not configured. Name the model with --model ${model}, and ` +
          `add --base-url URL if it is not from OpenAI. You can also resume with another model.`,
  );
}

/** The model that is used if none is named. */
function defaultModel(loaded: LoadedConfig, env: Io['env']): string | undefined {
  try {
    const choice = chooseModel({}, loaded, env);
    return choice.type === 'demo' ? undefined : choice.model;
  } catch {
    return undefined;
  }
}

/** Parses `PROVIDER/MODEL`, or the name of an OpenAI model. */
function parseModelName(name: string, values: ModelValues, entries: ReadonlyMap<string, ModelEntry>): ModelEntry {
  if (name === 'demo') return { provider: 'demo' };
  const slash = name.indexOf('/');
  if (slash < 0) return { model: name };
  const provider = name.slice(0, slash);
  const model = name.slice(slash + 1);
  if (isProvider(provider) && model !== '') {
    if (provider === 'demo' || values['base-url'] !== undefined || factsOf(provider).baseURL !== undefined) {
      return { provider, model };
    }
    throw new CommandError(`--model ${name}: ${provider} has no default address. Add --base-url URL.`);
  }
  // Many servers have models such as "meta-llama/Llama-3", where the slash is part of the name.
  if (values['base-url'] !== undefined && model !== '') return { model: name };
  throw new CommandError(
    `--model ${name}: there is no provider ${JSON.stringify(provider)}.${didYouMean(provider, [...PROVIDERS, ...entries.keys()])} ` +
      `Write PROVIDER/MODEL with one of ${PROVIDERS.join(', ')}, or openai/${name} if that is the model's whole name.`,
  );
}

/**
 * The entry with its fallbacks. --base-url applies to the entry only. Fallbacks without a key are left out, because they
 * are not needed while the first model works.
 */
function withFallback(entry: ModelEntry, values: ModelValues, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  const chosen = chooseEntry(entry, values, loaded, env);
  if (chosen.type === 'demo' || !entry.fallback || entry.fallback.length === 0) return chosen;
  const entries = modelEntries(loaded.config);
  const names = [...new Set(entry.fallback)];
  const keyless = names.filter((name) => lacksKey(keyFor(entries.get(name)!, env)));
  const fallback = names
    .filter((name) => !keyless.includes(name))
    .map((name) => chooseEntry(entries.get(name)!, {}, loaded, env));
  const notices = [
    ...[chosen, ...fallback].flatMap((choice) => choice.notice ?? []),
    ...keyless.map((name) => {
      const { variable } = keyFor(entries.get(name)!, env);
      return `The fallback ${name} is left out because it has no key: set the environment variable ${variable}.`;
    }),
  ];
  return {
    ...chosen,
    ...(fallback.length > 0 && { fallback: fallback.map(withoutNotice) }),
    ...(notices.length > 0 && { notice: notices.join('\n') }),
  };
}

function withoutNotice({ notice: _, ...choice }: ModelChoice): ModelChoice {
  return choice;
}

/** One entry, without its fallbacks. */
export function chooseEntry(entry: ModelEntry, values: ModelValues, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  const provider = entry.provider ?? 'openai';
  if (provider === 'demo') return { type: 'demo' };
  const address = checkedAddress(entry, env);
  const isNamed = entry.base_url !== undefined || address.variable !== undefined;
  const baseURL = values['base-url'] ?? (isNamed ? address.baseURL : undefined);
  const key = keyFor(entry, env, values['base-url']);
  const { variable, value: apiKey } = key;
  if (lacksKey(key)) {
    throw new CommandError(
      `There is no key for ${entry.model}: set the environment variable ${variable}. The demo model (--model demo) and ` +
        `servers on this machine (--base-url http://localhost:…/v1) do not need a key.`,
    );
  }
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new CommandError(
      `The key in ${variable} is invalid: it contains spaces, line breaks or non-ASCII characters. Set it again.`,
    );
  }
  const headers = headersOf(entry, env);
  // A downloaded folder can contain a treadle.toml, so a key is never sent to another host without a notice.
  const sent = [...(apiKey === undefined ? [] : [variable]), ...Object.values(entry.headers_env ?? {})];
  const toOtherHost = !loaded.named && sent.length > 0 && values['base-url'] === undefined && isOtherHost(entry);
  return {
    type: provider,
    model: entry.model!,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
    ...(entry.context_tokens !== undefined && { contextTokens: entry.context_tokens }),
    ...((entry.images ?? entry.files) !== undefined && {
      accepts: {
        ...(entry.images !== undefined && { images: entry.images }),
        ...(entry.files !== undefined && { files: entry.files }),
      },
    }),
    ...(headers && { headers }),
    ...optionsOf(entry),
    ...(toOtherHost && {
      notice: `${loaded.file} sends the key in ${sent.join(', ')} to ${new URL(entry.base_url!).host}.`,
    }),
  };
}

/** The keys of an entry that are passed on to the model. */
function optionsOf(entry: ModelEntry): Pick<HttpChoice, 'settings' | 'timeoutMs' | 'price' | 'toolSupport'> {
  const { temperature, max_output_tokens: maxOutputTokens, reasoning, price } = entry;
  const settings: Settings = {
    ...(temperature !== undefined && { temperature }),
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...(reasoning !== undefined && { reasoning }),
  };
  return {
    ...(Object.keys(settings).length > 0 && { settings }),
    ...(entry.timeout_ms !== undefined && { timeoutMs: entry.timeout_ms }),
    ...(entry.tool_support !== undefined && { toolSupport: entry.tool_support }),
    ...(price && {
      price: {
        // The configuration was validated, so both are present.
        input: price.input!,
        output: price.output!,
        ...(price.cached_input !== undefined && { cachedInput: price.cached_input }),
        ...(price.cache_write !== undefined && { cacheWrite: price.cache_write }),
      },
    }),
  };
}

function headersOf({ headers_env }: ModelEntry, env: Io['env']): Readonly<Record<string, string>> | undefined {
  if (!headers_env) return undefined;
  const headers = Object.entries(headers_env).map(([name, variable]) => {
    const value = keyOf(variable, env)!;
    if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) return [name, value];
    throw new CommandError(
      `The value of ${variable} cannot be sent as the header ${name}: it has several lines. Set it again.`,
    );
  });
  return Object.fromEntries(headers);
}

const KEY_HEADER = /^(proxy-)?authorization$|^(x-)?(goog-)?api-key$/i;

export interface KeyFor {
  /** The environment variable of the key, if the entry or its provider names one; or one of headers_env that is not set. */
  readonly variable: string | undefined;
  readonly value: string | undefined;
  /** False for a server on this machine. */
  readonly needed: boolean;
}

export function keyFor(entry: ModelEntry, env: Io['env'], baseUrl?: string): KeyFor {
  const { keyVariable, otherKeyVariable } = factsOf(entry.provider ?? 'openai');
  const isOther = !keyOf(keyVariable ?? '', env) && keyOf(otherKeyVariable ?? '', env) !== undefined;
  const variable = entry.api_key_env ?? (isOther ? otherKeyVariable : keyVariable);
  const address = baseUrl ?? addressOfEntry(entry, env).baseURL;
  const headers = Object.entries(entry.headers_env ?? {});
  const missing = headers.find(([, name]) => keyOf(name, env) === undefined)?.[1];
  if (missing !== undefined) return { variable: missing, value: undefined, needed: true };
  const isInHeader = headers.some(([header]) => KEY_HEADER.test(header));
  return {
    variable,
    value: variable === undefined ? undefined : keyOf(variable, env),
    needed: variable !== undefined && !isInHeader && !(address !== undefined && isLoopbackURL(address)),
  };
}

export function lacksKey({ needed, value }: KeyFor): boolean {
  return needed && value === undefined;
}

function keyOf(variable: string, env: Io['env']): string | undefined {
  return env[variable]?.trim() || undefined;
}

function isOtherHost({ base_url, provider = 'openai' }: ModelEntry): boolean {
  if (base_url === undefined || isLoopbackURL(base_url)) return false;
  const own = factsOf(provider).baseURL;
  return own === undefined || new URL(base_url).hostname !== new URL(own).hostname;
}
