import { CommandError } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import { didYouMean } from '../command-line/nearest.ts';
import { isWebAddress, modelEntries, type ModelEntry } from './config.ts';
import type { LoadedConfig } from './load.ts';
import { factsOf, isProvider, PROVIDERS, type HttpProvider } from './providers.ts';

/** Which model to use and how to reach it; plain data, so that the choice can be tested without one. */
export type ModelChoice = DemoChoice | HttpChoice;

export interface DemoChoice {
  readonly type: 'demo';
  /** What the user should know before anything runs. */
  readonly notice?: string;
}

export interface HttpChoice {
  readonly type: HttpProvider;
  readonly model: string;
  readonly baseURL?: string;
  readonly apiKey?: string;
  readonly contextTokens?: number;
  readonly notice?: string;
  /** Asked in this order when it fails. They have none of their own. */
  readonly fallback?: readonly ModelChoice[];
}

export interface ModelWish {
  /** Of --model: an entry of [models], `provider/model`, or a model of the openai provider. */
  readonly model?: string | undefined;
  /** Of --base-url. */
  readonly baseUrl?: string | undefined;
}

const DEFAULT_MODEL = 'gpt-5-mini';
const DEFAULT_KEY = 'OPENAI_API_KEY';

const DEMO_NOTICE =
  'No key and no model in a configuration, so this is the demo model: a few fixed rules, not a language model.\n' +
  'For a real one set OPENAI_API_KEY, or name a server of your own: --base-url http://localhost:11434/v1 --model NAME';

export function chooseModel(wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  if (wish.baseUrl !== undefined && !isWebAddress(wish.baseUrl)) {
    throw new CommandError(
      `--base-url cannot be ${JSON.stringify(wish.baseUrl)}. Give an address such as https://host/v1.`,
    );
  }
  const entries = modelEntries(loaded.config);
  if (wish.model !== undefined) {
    const entry = entries.get(wish.model) ?? spelledOut(wish.model, wish, entries);
    return withFallback(entry, wish, loaded, env);
  }
  const name = standingName(loaded);
  if (name !== undefined) return withFallback(entries.get(name)!, wish, loaded, env);
  if (entries.size > 1) {
    throw new CommandError(
      `${loaded.file} has the models ${[...entries.keys()].join(', ')} and no default. Choose one with --model, or write ` +
        `default = "…" under [models].`,
    );
  }
  if (wish.baseUrl !== undefined) {
    throw new CommandError('--base-url says where the model is, but not which. Add --model NAME.');
  }
  if (!keyOf(DEFAULT_KEY, env)) return { type: 'demo', notice: DEMO_NOTICE };
  return chooseEntry({ model: DEFAULT_MODEL }, wish, loaded, env);
}

/** The entry that is used when none is named. */
export function standingName({ config }: LoadedConfig): string | undefined {
  const entries = modelEntries(config);
  return config.models?.default ?? (entries.size === 1 ? [...entries.keys()][0] : undefined);
}

/**
 * The model that a run names by its id, where it is known for sure at which server it is: a run that was told to a server
 * of one's own must not go on elsewhere because a key happens to be set.
 */
export function chooseModelOf(model: string, wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  if (wish.model !== undefined) return chooseModel(wish, loaded, env);
  if (wish.baseUrl !== undefined) return chooseModel({ ...wish, model: `openai/${model}` }, loaded, env);
  if (model === 'demo') return { type: 'demo' };
  const named = [...modelEntries(loaded.config)].flatMap(([name, entry]) => (entry.model === model ? name : []));
  if (named.length === 1) return chooseModel({ model: named[0] }, loaded, env);
  if (named.length === 0 && standing(loaded, env) === model) return chooseModel({}, loaded, env);
  throw new CommandError(
    named.length > 1
      ? `The run was started with ${model}, and ${loaded.file} has that as ${named.join(' and ')}. Choose one with --model.`
      : `The run was started with the model ${model}, and it is not known where that is. Say it again: --model ${model} ` +
          `for one of OpenAI, with --base-url URL for one elsewhere. Another model goes on with the run too.`,
  );
}

/** The model that is used when none is named. */
function standing(loaded: LoadedConfig, env: Io['env']): string | undefined {
  try {
    const choice = chooseModel({}, loaded, env);
    return choice.type === 'demo' ? undefined : choice.model;
  } catch {
    return undefined;
  }
}

/** `provider/model`, or the name of a model of the openai provider. */
function spelledOut(name: string, wish: ModelWish, entries: ReadonlyMap<string, ModelEntry>): ModelEntry {
  if (name === 'demo') return { provider: 'demo' };
  const slash = name.indexOf('/');
  if (slash < 0) return { model: name };
  const provider = name.slice(0, slash);
  const model = name.slice(slash + 1);
  if (isProvider(provider) && model !== '') {
    if (provider === 'demo' || wish.baseUrl !== undefined || factsOf(provider).baseURL !== undefined) {
      return { provider, model };
    }
    throw new CommandError(`--model ${name}: ${provider} has no address of its own. Add --base-url URL.`);
  }
  // Many servers have models such as "meta-llama/Llama-3": their whole name is the id.
  if (wish.baseUrl !== undefined && model !== '') return { model: name };
  throw new CommandError(
    `--model ${name}: there is no provider ${JSON.stringify(provider)}.${didYouMean(provider, [...PROVIDERS, ...entries.keys()])} ` +
      `Write PROVIDER/MODEL with one of ${PROVIDERS.join(', ')}, or openai/${name} if that is the model's whole name.`,
  );
}

/**
 * The entry itself, with those that it falls back on. Where it is said otherwise where it is, that is not for them. Those
 * without their key are left out, as nobody needs them while the first works.
 */
function withFallback(entry: ModelEntry, wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  const chosen = chooseEntry(entry, wish, loaded, env);
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
      return `The fallback ${name} is left out, as it has no key: set the environment variable ${variable}.`;
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

/** One entry, alone. */
export function chooseEntry(entry: ModelEntry, wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  const provider = entry.provider ?? 'openai';
  if (provider === 'demo') return { type: 'demo' };
  const baseURL = wish.baseUrl ?? entry.base_url;
  const key = keyFor(entry, env, wish.baseUrl);
  const { variable, value: apiKey } = key;
  if (lacksKey(key)) {
    throw new CommandError(
      `There is no key for ${entry.model}: set the environment variable ${variable}. Without a key there is the demo ` +
        `model (--model demo), and a server on this machine (--base-url http://localhost:…/v1) needs none.`,
    );
  }
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new CommandError(
      `The key in ${variable} cannot be sent: it holds spaces, line breaks or letters that no key has. Set it anew.`,
    );
  }
  // A folder from elsewhere can bring its own treadle.toml, so nobody's key goes to a strange host unseen.
  const strange = !loaded.named && apiKey !== undefined && wish.baseUrl === undefined && isStrange(entry);
  return {
    type: provider,
    model: entry.model!,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
    ...(entry.context_tokens !== undefined && { contextTokens: entry.context_tokens }),
    ...(strange && {
      notice: `As ${loaded.file} says, the key in ${variable} goes to ${new URL(entry.base_url!).host}.`,
    }),
  };
}

export interface KeyFor {
  /** The environment variable that the key comes from, if the entry or its provider names one. */
  readonly variable: string | undefined;
  readonly value: string | undefined;
  /** A server on this machine needs none. */
  readonly needed: boolean;
}

export function keyFor(entry: ModelEntry, env: Io['env'], baseUrl?: string): KeyFor {
  const facts = factsOf(entry.provider ?? 'openai');
  const variable = entry.api_key_env ?? facts.key;
  const address = baseUrl ?? entry.base_url ?? facts.baseURL;
  return {
    variable,
    value: variable === undefined ? undefined : keyOf(variable, env),
    needed: variable !== undefined && !(address !== undefined && isLoopback(address)),
  };
}

export function lacksKey({ needed, value }: KeyFor): boolean {
  return needed && value === undefined;
}

function keyOf(variable: string, env: Io['env']): string | undefined {
  return env[variable]?.trim() || undefined;
}

function isStrange({ base_url, provider = 'openai' }: ModelEntry): boolean {
  if (base_url === undefined || isLoopback(base_url)) return false;
  const own = factsOf(provider).baseURL;
  return own === undefined || new URL(base_url).hostname !== new URL(own).hostname;
}

function isLoopback(address: string): boolean {
  const host = new URL(address).hostname;
  return host === 'localhost' || host.endsWith('.localhost') || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}
