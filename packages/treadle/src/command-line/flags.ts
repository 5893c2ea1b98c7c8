import type { RunFacts } from '@treadle/core';
import { CommandError, type Values } from './command.ts';

/** Where the store, the configuration and the working folder are. */
export const LOCATION_FLAGS = {
  store: {
    type: 'text',
    value: 'URL',
    help: 'Store for runs: sqlite:PATH or memory:; default: sqlite:.treadle/treadle.db',
  },
  config: {
    type: 'text',
    short: 'c',
    value: 'FILE',
    help: 'Configuration file; default: treadle.toml in the working folder, if it exists',
  },
  cwd: {
    type: 'text',
    short: 'C',
    value: 'FOLDER',
    help: 'Working folder, where the tools act; default: the current folder',
  },
} as const;

export const MODEL_FLAGS = {
  model: {
    type: 'text',
    short: 'm',
    value: 'NAME',
    help: 'A name under [models], PROVIDER/MODEL, an OpenAI model, or "demo"',
  },
  'base-url': {
    type: 'text',
    value: 'URL',
    help: 'Server with an OpenAI Chat Completions API, such as http://localhost:11434/v1',
  },
} as const;

export const YES_FLAG = {
  yes: {
    type: 'switch',
    short: 'y',
    help: 'Approve every call that the policy asks about, but none that it denies',
  },
} as const;

/** The rules of a new run. */
export const RULE_FLAGS = {
  tools: {
    type: 'text',
    value: 'LIST',
    help: 'Tools: read-only, coding, packages, mcp, mcp:SERVER, none, names; default: all',
  },
  'no-tools': { type: 'switch', help: 'Give the model no tools; the same as --tools none' },
  device: { type: 'text', value: 'NAME', help: 'Use the tools of a device of [edge]; with --tools, others too' },
  system: {
    type: 'text',
    value: 'TEXT|@FILE',
    help: 'Instructions for the model instead of those of the command',
  },
  'max-turns': { type: 'count', value: 'N', min: 1, help: 'Call the model at most N times per task; default: 100' },
  'max-cost': { type: 'text', value: 'DOLLARS', help: 'Stop a task that has cost so much, such as 0.50' },
  finish: {
    type: 'choice',
    choices: ['plain', 'confirm'],
    help: '"confirm" asks the model once whether the task is done; default: plain',
  },
  ask: {
    type: 'choice',
    choices: ['always', 'never'],
    bare: 'always',
    help: 'Ask before each call; "never" denies what the policy asks about; default: by the policy',
  },
  'no-agents-md': { type: 'switch', help: 'Do not give the instructions in AGENTS.md to the model' },
  skill: { type: 'text', value: 'NAME', many: true, help: 'Activate a skill; may be repeated' },
  'trust-skills': { type: 'switch', help: 'Use the skills and packages of tools of the project, as they are now' },
} as const;

/** What a new run belongs to. */
export const FACT_FLAGS = {
  session: { type: 'text', value: 'NAME', help: 'The session that the run is part of, for "runs list" and the server' },
  task: { type: 'text', value: 'NAME', help: 'The task that the run works on' },
  label: { type: 'text', value: 'NAME=VALUE', many: true, help: 'A label of the run; may be repeated' },
} as const;

export type FactValues = Values<typeof FACT_FLAGS>;

/** Throws for a label without a name. */
export function factsOf({ session, task, label = [] }: FactValues): Pick<RunFacts, 'session' | 'task' | 'labels'> {
  const labels = label.map((text) => {
    const at = text.indexOf('=');
    if (at > 0) return [text.slice(0, at), text.slice(at + 1)] as const;
    throw new CommandError(`--label cannot be ${JSON.stringify(text)}. It takes NAME=VALUE, such as team=sales.`);
  });
  return {
    ...(session !== undefined && { session }),
    ...(task !== undefined && { task }),
    ...(labels.length > 0 && { labels: Object.fromEntries(labels) }),
  };
}

export const LOG_FLAGS = {
  log: { type: 'text', value: 'FILE', help: 'Append a JSON line to FILE for each call that was executed or denied' },
} as const;

/** The limit of --max-cost in US dollars. Throws for what is not a positive number. */
export function maxCostOf({ 'max-cost': text }: Values<typeof RULE_FLAGS>): number | undefined {
  if (text === undefined) return undefined;
  const cost = /^\d*\.?\d+$/.test(text) ? Number(text) : 0;
  if (cost > 0) return cost;
  throw new CommandError(`--max-cost cannot be ${JSON.stringify(text)}. It takes US dollars, such as 0.50.`);
}

/** Flags of commands that drive a run and print its result. */
export const OUTPUT_FLAGS = {
  json: { type: 'switch', help: 'Print the whole result as JSON instead of the answer' },
  quiet: { type: 'switch', short: 'q', help: 'Print only the answer: no tool calls, no text before it, no status' },
} as const;

export type LocationValues = Values<typeof LOCATION_FLAGS>;
export type ModelValues = Values<typeof MODEL_FLAGS>;
export type OutputValues = Values<typeof OUTPUT_FLAGS & typeof LOG_FLAGS> & {
  /** Only of "treadle run". */
  readonly 'stream-json'?: boolean;
};
/** The flags of commands that start runs. */
export type SessionValues = LocationValues &
  ModelValues &
  FactValues &
  Values<typeof RULE_FLAGS & typeof YES_FLAG & typeof LOG_FLAGS>;

export const KEY_NOTE: string =
  'API keys are read from the environment only: from the variable of the provider, such as OPENAI_API_KEY or\n' +
  'ANTHROPIC_API_KEY, or the one that api_key_env names in treadle.toml. Without a configuration, a key selects the model\n' +
  'of its provider, and without a key the demo model is used.';

const REPEATED_FLAGS = ['model', 'base-url', 'store', 'config', 'cwd'] as const;

/** A command to copy that finds the same store and model: `treadle runs resume run_1a2b3c4d --store sqlite:x.db`. */
export function followUpCommand(words: readonly string[], values: LocationValues & ModelValues): string {
  const flags = REPEATED_FLAGS.flatMap((name) => {
    const value = values[name];
    return value === undefined ? [] : [`--${name}`, value];
  });
  return ['treadle', ...words, ...flags].map(shellQuoted).join(' ');
}

/** Without the model, for commands that do not need it or work on runs with different models. */
export function locationOf({ store, config, cwd }: LocationValues): LocationValues {
  return {
    ...(store !== undefined && { store }),
    ...(config !== undefined && { config }),
    ...(cwd !== undefined && { cwd }),
  };
}

function shellQuoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
