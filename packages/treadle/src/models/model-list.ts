import { CommandError } from '../command-line/command.ts';
import { didYouMean } from '@treadle/core/nearest';
import { chooseModel, defaultModelName, keyFor } from '../config/choose-model.ts';
import { modelEntries, type ModelEntry } from '../config/config.ts';
import type { LoadedConfig } from '../config/load.ts';
import { checkedAddress, type Provider } from '../config/providers.ts';
import type { Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, oneLine } from '../terminal/printable.ts';
import { passes, probeText, type Probe } from './probe.ts';

/** A model of the configuration, without secrets. */
export interface ListedModel {
  readonly name: string;
  readonly isDefault: boolean;
  readonly provider: Provider;
  readonly model?: string;
  /** The host that requests are sent to. */
  readonly host?: string;
  /** The environment variable that names the host. */
  readonly hostVariable?: string;
  readonly key: KeyStatus;
  readonly fallback: readonly string[];
  readonly entry: ModelEntry;
}

export interface KeyStatus {
  readonly variable?: string;
  readonly standing: 'set' | 'missing' | 'not-needed';
}

/** All models of the configuration, or the named one. Without a configuration, the model that is used instead. */
export function listedModels(loaded: LoadedConfig, env: Io['env'], name?: string): readonly ListedModel[] {
  const defaultName = defaultModelName(loaded);
  const configured = [...modelEntries(loaded.config)].map(([key, entry]) =>
    listed(key, entry, key === defaultName, env),
  );
  const all = configured.length > 0 ? configured : [unconfigured(loaded, env)];
  if (name === undefined) return all;
  const found = all.find((one) => one.name === name);
  if (found !== undefined) return [found];
  const names = all.map((one) => one.name);
  const where = loaded.file === undefined ? 'Without a configuration, the only model is' : `${loaded.file} has`;
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
  const address = checkedAddress(entry, env);
  return {
    name,
    isDefault,
    provider,
    ...(entry.model !== undefined && { model: entry.model }),
    ...(address.baseURL !== undefined && { host: new URL(address.baseURL).host }),
    ...(address.variable !== undefined && { hostVariable: address.variable }),
    key: provider === 'demo' ? { standing: 'not-needed' } : keyStatus(entry, env),
    fallback: entry.fallback ?? [],
    entry,
  };
}

function keyStatus(entry: ModelEntry, env: Io['env']): KeyStatus {
  const { variable, value, needed } = keyFor(entry, env);
  if (variable === undefined) return { standing: 'not-needed' };
  return { variable, standing: value !== undefined ? 'set' : needed ? 'missing' : 'not-needed' };
}

export interface Row extends ListedModel {
  readonly test?: Probe;
}

const MAX_CELL_WIDTH = 40;

/** A line of headings, then one line per model. */
export function modelTable(rows: readonly Row[], colours: Colours): readonly string[] {
  const tested = rows.some(({ test }) => test !== undefined);
  const cells = rows.map((row) =>
    [
      `${row.name}${row.isDefault ? ' (default)' : ''}`,
      row.provider,
      row.model ?? '',
      row.hostVariable === undefined ? (row.host ?? 'in this process') : `${row.host} (${row.hostVariable})`,
      keyText(row.key),
    ].map((cell) => oneLine(cell, MAX_CELL_WIDTH)),
  );
  const [headings, ...lines] = alignColumns([['NAME', 'PROVIDER', 'MODEL', 'HOST', 'KEY'], ...cells]);
  return [
    colours.dim([...headings!, ...(tested ? ['TEST'] : [])].join('  ').trimEnd()),
    ...lines.map((line, index) => {
      const { test } = rows[index]!;
      const paint = test !== undefined && !passes(test) ? colours.red : colours.plain;
      return [...line, ...(test === undefined ? [] : [paint(probeText(test))])].join('  ').trimEnd();
    }),
  ];
}

function keyText({ variable, standing }: KeyStatus): string {
  if (variable === undefined) return 'none needed';
  return { set: `${variable} is set`, missing: `${variable} is not set`, 'not-needed': 'none needed' }[standing];
}
