import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { Shape } from '@treadle/tools/toml';
import type { ConfiguredPlace } from './skill-folders.ts';

/** [agents] of treadle.toml. */
export interface AgentsConfig {
  /** Folders with definitions. */
  readonly path?: readonly string[];
  /** The agent that is used where none is named. */
  readonly default?: string;
  /** How many agents may be inside each other. */
  readonly max_depth?: number;
  /** The server may write definitions, to the first folder. */
  readonly write?: boolean;
  /** What the server does about inputs that look like an attempt to replace instructions. */
  readonly injection?: 'off' | 'flag' | 'refuse';
}

export const AGENTS_SHAPE: Shape = {
  type: 'table',
  fields: {
    path: { type: 'texts' },
    default: { type: 'text' },
    max_depth: { type: 'count', min: 1, max: 100 },
    write: { type: 'switch' },
    injection: { type: 'text', choices: ['off', 'flag', 'refuse'] },
  } satisfies Record<keyof AgentsConfig, Shape>,
};

/** [workflows] of treadle.toml. */
export interface WorkflowsConfig {
  /** Folders with definitions. */
  readonly path?: readonly string[];
}

export const WORKFLOWS_SHAPE: Shape = {
  type: 'table',
  fields: { path: { type: 'texts' } } satisfies Record<keyof WorkflowsConfig, Shape>,
};

const AGENTS_PATH = ['agents', '~/.treadle/agents'];
const WORKFLOWS_PATH = ['workflows', '~/.treadle/workflows'];

/** As absolute paths: relative to the configuration, or from the home folder. The defaults start at the working folder. */
export function agentFolders(place: ConfiguredPlace): readonly string[] {
  return foldersOf(place, place.loaded.config.agents?.path, AGENTS_PATH);
}

export function workflowFolders(place: ConfiguredPlace): readonly string[] {
  return foldersOf(place, place.loaded.config.workflows?.path, WORKFLOWS_PATH);
}

function foldersOf(
  { folder, loaded }: ConfiguredPlace,
  path: readonly string[] | undefined,
  byDefault: readonly string[],
): readonly string[] {
  const base = path === undefined || loaded.path === undefined ? folder : dirname(loaded.path);
  return (path ?? byDefault).map((one) =>
    /^~($|[/\\])/.test(one) ? join(homedir(), one.slice(1)) : resolve(base, one),
  );
}
