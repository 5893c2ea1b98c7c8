import type { Model } from '@treadle/core';
import { CommandError } from './command-error.ts';
import { isWebAddress, modelEntries, PROVIDERS, type ModelEntry, type Provider } from './config/config.ts';
import type { LoadedConfig } from './config/load.ts';
import type { Io } from './io.ts';
import { didYouMean } from './nearest.ts';

/** Which model to use and how to reach it; plain data, so that the choice can be tested without one. */
export type ModelChoice =
  | { readonly type: 'demo'; readonly notice?: string }
  | {
      readonly type: 'openai';
      readonly model: string;
      readonly baseURL?: string;
      readonly apiKey?: string;
      readonly notice?: string;
    };

export interface ModelWish {
  /** Of --model: an entry of [models], `provider/model`, or a model of the openai provider. */
  readonly model?: string | undefined;
  /** Of --base-url. */
  readonly baseUrl?: string | undefined;
}

const DEFAULT_MODEL = 'gpt-5-mini';
const DEFAULT_KEY = 'OPENAI_API_KEY';
const OPENAI_HOST = 'api.openai.com';

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
    const entry = entries.get(wish.model);
    return entry
      ? fromEntry(entry, wish, loaded, env)
      : fromEntry(spelledOut(wish.model, wish, entries), wish, loaded, env);
  }
  const name = loaded.config.models?.default ?? (entries.size === 1 ? [...entries.keys()][0] : undefined);
  if (name !== undefined) return fromEntry(entries.get(name)!, wish, loaded, env);
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
  return fromEntry({ model: DEFAULT_MODEL }, wish, loaded, env);
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
    return choice.type === 'openai' ? choice.model : undefined;
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
  if (isProvider(provider) && model !== '') return { provider, model };
  // Many servers have models such as "meta-llama/Llama-3": their whole name is the id.
  if (wish.baseUrl !== undefined && model !== '') return { model: name };
  throw new CommandError(
    `--model ${name}: there is no provider ${JSON.stringify(provider)}.${didYouMean(provider, [...PROVIDERS, ...entries.keys()])} ` +
      `Write openai/MODEL or demo, or openai/${name} if that is the model's whole name.`,
  );
}

function fromEntry(entry: ModelEntry, wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelChoice {
  const provider = entry.provider ?? 'openai';
  if (provider === 'demo') return { type: 'demo' };
  if (provider !== 'openai') {
    throw new CommandError(
      `The provider ${provider} is not in this version, which has openai and demo. Many servers speak OpenAI's Chat ` +
        `Completions too: use provider openai with their base URL.`,
    );
  }
  const baseURL = wish.baseUrl ?? entry.base_url;
  const variable = entry.api_key_env ?? DEFAULT_KEY;
  const apiKey = keyOf(variable, env);
  if (apiKey === undefined && !(baseURL !== undefined && isLoopback(baseURL))) {
    throw new CommandError(
      `There is no key for ${entry.model}: set the environment variable ${variable}. Without a key there is the demo ` +
        `model (--model demo), and a server on this machine (--base-url http://localhost:…/v1) needs none.`,
    );
  }
  // A folder from elsewhere can bring its own treadle.toml, so nobody's key goes to a strange host unseen.
  const strange = !loaded.named && apiKey !== undefined && wish.baseUrl === undefined && isStrange(entry.base_url);
  return {
    type: 'openai',
    model: entry.model!,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
    ...(strange && {
      notice: `As ${loaded.file} says, the key in ${variable} goes to ${new URL(entry.base_url!).host}.`,
    }),
  };
}

/** Loads what the choice needs, which is slow to load, and only that. */
export async function openModel(choice: ModelChoice): Promise<Model> {
  const { demo, openaiChat } = await import('@treadle/models');
  if (choice.type === 'demo') return demo();
  const { model, baseURL, apiKey } = choice;
  return openaiChat({ model, ...(baseURL !== undefined && { baseURL }), ...(apiKey !== undefined && { apiKey }) });
}

function keyOf(variable: string, env: Io['env']): string | undefined {
  return env[variable]?.trim() || undefined;
}

function isProvider(name: string): name is Provider {
  return (PROVIDERS as readonly string[]).includes(name);
}

function isStrange(baseURL: string | undefined): boolean {
  return baseURL !== undefined && !isLoopback(baseURL) && new URL(baseURL).hostname !== OPENAI_HOST;
}

function isLoopback(address: string): boolean {
  const host = new URL(address).hostname;
  return host === 'localhost' || host.endsWith('.localhost') || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}
