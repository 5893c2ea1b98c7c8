import { chooseModel, keyFor, standingName } from '../config/choose-model.ts';
import { CommandError } from '../command-line/command.ts';
import { modelEntries, type ModelEntry } from '../config/config.ts';
import type { LoadedConfig } from '../config/load.ts';
import { factsOf, type Provider } from '../config/providers.ts';
import type { Io } from '../terminal/io.ts';
import { didYouMean } from '../command-line/nearest.ts';
import type { Colours } from '../terminal/colours.ts';
import { oneLine, padded } from '../terminal/printable.ts';
import { passes, probeText, type Probe } from './probe.ts';

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

export interface Row extends ListedModel {
  readonly test?: Probe;
}

const WIDEST = 40;

/** One line per model below a line of headings. */
export function modelTable(rows: readonly Row[], colours: Colours): readonly string[] {
  const tested = rows.some(({ test }) => test !== undefined);
  const headings = ['NAME', 'PROVIDER', 'MODEL', 'HOST', 'KEY'];
  const lines = rows.map((row) =>
    [
      `${row.name}${row.isDefault ? ' (default)' : ''}`,
      row.provider,
      row.model ?? '',
      row.host ?? 'in this process',
      keyText(row.key),
    ].map((cell) => oneLine(cell, WIDEST)),
  );
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...lines.map((line) => line[column]!.length)),
  );
  const joined = (cells: readonly string[]): string =>
    cells.map((cell, column) => padded(cell, widths[column]!)).join('  ');
  return [
    colours.dim(`${joined(headings)}${tested ? '  TEST' : ''}`.trimEnd()),
    ...lines.map((line, index) => {
      const { test } = rows[index]!;
      const paint = test !== undefined && !passes(test) ? colours.red : colours.plain;
      return `${joined(line)}${test === undefined ? '' : `  ${paint(probeText(test))}`}`.trimEnd();
    }),
  ];
}

function keyText({ variable, standing }: KeyStanding): string {
  if (variable === undefined) return 'none needed';
  return { set: `${variable} is set`, missing: `${variable} is not set`, 'not-needed': 'none needed' }[standing];
}
