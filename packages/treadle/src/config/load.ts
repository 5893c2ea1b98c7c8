import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { messageOf } from '@treadle/core';
import { parse, TomlError } from 'smol-toml';
import { CommandError } from '../command-line/command.ts';
import { CONFIG_SHAPE, modelProblems, type Config } from './config.ts';
import { serverProblems } from './server.ts';
import { checkShape } from './shape.ts';

export interface LoadedConfig {
  readonly config: Config;
  /** The name of the file in messages; absent if there is no file. */
  readonly file?: string;
  /** The file was named with --config, not found in the working folder. */
  readonly named: boolean;
}

/** Reads the named file, or treadle.toml of the working folder if it exists. */
export async function loadConfig(where: { cwd: string; folder: string; file?: string }): Promise<LoadedConfig> {
  const named = where.file !== undefined;
  const file = where.file ?? 'treadle.toml';
  let text: string;
  try {
    text = await readFile(named ? resolve(where.cwd, file) : join(where.folder, file), 'utf8');
  } catch (error) {
    if (!named && (error as NodeJS.ErrnoException).code === 'ENOENT') return { config: {}, named };
    throw new CommandError(`The configuration ${file} cannot be read: ${messageOf(error)}.`);
  }
  return { config: parseConfig(text, file), file, named };
}

export function parseConfig(text: string, file: string): Config {
  const value = parseToml(text, file);
  const problems = checkShape(value, CONFIG_SHAPE, '');
  const config = value as Config;
  if (problems.length === 0) problems.push(...modelProblems(config), ...serverProblems(config));
  if (problems.length > 0) throw new CommandError(problems.map((problem) => `${file}: ${problem}.`).join('\n'));
  return config;
}

function parseToml(text: string, file: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // The message of the library also contains the line, which may contain a secret.
    const what = error.message.split('\n')[0]!.replace('Invalid TOML document: ', '');
    throw new CommandError(`${file}:${error.line}:${error.column}: This is not TOML: ${what}.`);
  }
}
