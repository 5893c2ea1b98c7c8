import { chooseModel, keyFor, standingName } from '../choose-model.ts';
import { CommandError } from '../command-error.ts';
import { modelEntries, type ModelEntry } from '../config/config.ts';
import type { LoadedConfig } from '../config/load.ts';
import { factsOf, type Provider } from '../config/providers.ts';
import type { Io } from '../io.ts';
import { didYouMean } from '../nearest.ts';

/** A model of the configuration, without anything secret. */
export interface ListedModel {
  readonly name: string;
  readonly isDefault: boolean;
  readonly provider: Provider;
  readonly model?: string;
  /** Where requests go. */
  readonly host?: string;
  readonly key: KeyStanding;
  readonly fallback: readonly string[];
  readonly entry: ModelEntry;
}

export interface KeyStanding {
  readonly variable?: string;
  readonly standing: 'set' | 'missing' | 'not-needed';
}

/** All models of the configuration or the named one; without any, the one that is used then. */
export function listedModels(loaded: LoadedConfig, env: Io['env'], name?: string): readonly ListedModel[] {
  const standing = standingName(loaded);
  const configured = [...modelEntries(loaded.config)].map(([key, entry]) => listed(key, entry, key === standing, env));
  const all = configured.length > 0 ? configured : [unconfigured(loaded, env)];
  if (name === undefined) return all;
  const found = all.find((one) => one.name === name);
  if (found !== undefined) return [found];
  const names = all.map((one) => one.name);
  const where = loaded.file === undefined ? 'There is no configuration, so there is only' : `${loaded.file} has`;
  throw new CommandError(
    `There is no model ${JSON.stringify(name)}.${didYouMean(name, names)} ${where} ${names.join(', ')}.`,
  );
}

function unconfigured(loaded: LoadedConfig, env: Io['env']): ListedModel {
  const choice = chooseModel({}, loaded, env);
  if (choice.type === 'demo') return listed('demo', { provider: 'demo' }, true, env);
  return listed(choice.model, { provider: choice.type, model: choice.model }, true, env);
}

function listed(name: string, entry: ModelEntry, isDefault: boolean, env: Io['env']): ListedModel {
  const provider = entry.provider ?? 'openai';
  const address = provider === 'demo' ? undefined : (entry.base_url ?? factsOf(provider).baseURL);
  return {
    name,
    isDefault,
    provider,
    ...(entry.model !== undefined && { model: entry.model }),
    ...(address !== undefined && { host: new URL(address).host }),
    key: provider === 'demo' ? { standing: 'not-needed' } : keyStanding(entry, env),
    fallback: entry.fallback ?? [],
    entry,
  };
}

function keyStanding(entry: ModelEntry, env: Io['env']): KeyStanding {
  const { variable, value, needed } = keyFor(entry, env);
  if (variable === undefined) return { standing: 'not-needed' };
  return { variable, standing: value !== undefined ? 'set' : needed ? 'missing' : 'not-needed' };
}
