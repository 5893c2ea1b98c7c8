import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { checkShape, parseToml, TomlProblem } from '@treadle/tools/toml';
import { CommandError } from '../command-line/command.ts';
import { decodeText, readProblem } from '../command-line/named-file.ts';
import { CONFIG_SHAPE, modelProblems, type Config } from './config.ts';
import { budgetProblems } from './budgets.ts';
import { edgeProblems } from './edge.ts';
import { mcpProblems } from './mcp.ts';
import { starterProblems } from './schedules.ts';
import { serverProblems } from './server.ts';

export interface LoadedConfig {
  readonly config: Config;
  /** The name of the file in messages; absent if there is no file. */
  readonly file?: string;
  /** The absolute path of the file. */
  readonly path?: string;
  /** The file was named with --config, not found in the working folder. */
  readonly named: boolean;
}

/** Reads the named file, or treadle.toml of the working folder if it exists. */
export async function loadConfig(where: { cwd: string; folder: string; file?: string }): Promise<LoadedConfig> {
  const named = where.file !== undefined;
  const file = where.file ?? 'treadle.toml';
  const path = named ? resolve(where.cwd, file) : join(where.folder, file);
  const text = await readConfig(path, file);
  if (text !== undefined) return { config: parseConfig(text, file), file, path, named };
  if (!named) return { config: {}, named };
  throw missingConfig(file);
}

export function missingConfig(file: string): CommandError {
  return new CommandError(`The configuration ${file} cannot be read: there is no such file.`);
}

/** The text of a configuration file; undefined if it does not exist. `name`: for messages. */
export async function readConfig(path: string, name: string): Promise<string | undefined> {
  try {
    return decodeText(await readFile(path));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new CommandError(`The configuration ${name} cannot be read: ${readProblem(error)}.`);
  }
}

export function parseConfig(text: string, file: string): Config {
  const { config, problems } = checkConfig(text, file);
  if (problems.length > 0) throw new CommandError(problems.join('\n'));
  return config;
}

/** One line per problem. The configuration is only valid without problems. Throws for a text that is not TOML. */
export function checkConfig(text: string, file: string): { config: Config; problems: readonly string[] } {
  const value = parseFile(text, file);
  const problems = checkShape(value, CONFIG_SHAPE, '');
  const config = value as Config;
  if (problems.length === 0) {
    problems.push(
      ...modelProblems(config),
      ...serverProblems(config),
      ...budgetProblems(config),
      ...mcpProblems(config),
      ...edgeProblems(config),
      ...starterProblems(config),
    );
  }
  return { config, problems: problems.map((problem) => `${file}: ${problem}.`) };
}

function parseFile(text: string, file: string): unknown {
  try {
    return parseToml(text);
  } catch (error) {
    if (!(error instanceof TomlProblem)) throw error;
    throw new CommandError(`${file}:${error.line}:${error.column}: ${error.message}.`);
  }
}
