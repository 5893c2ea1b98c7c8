import type { Values } from './command.ts';

/** The flags that say where everything is: of every command. */
export const PLACE_FLAGS = {
  store: {
    type: 'text',
    value: 'URL',
    help: 'Where runs are kept: sqlite:PATH or memory:; default: sqlite:.treadle/treadle.db',
  },
  config: {
    type: 'text',
    short: 'c',
    value: 'FILE',
    help: 'Configuration; default: treadle.toml in the working folder, if there',
  },
  cwd: {
    type: 'text',
    short: 'C',
    value: 'FOLDER',
    help: 'Working folder: all that the tools can see; default: this one',
  },
} as const;

/** The flags that say which model. */
export const MODEL_FLAGS = {
  model: {
    type: 'text',
    short: 'm',
    value: 'NAME',
    help: 'A name under [models], "PROVIDER/MODEL", a model of OpenAI, or "demo"',
  },
  'base-url': {
    type: 'text',
    value: 'URL',
    help: "A server that speaks OpenAI's Chat Completions, such as http://localhost:11434/v1",
  },
} as const;

/** The flags that say how a run goes. */
export const RULE_FLAGS = {
  'max-turns': { type: 'count', value: 'N', min: 1, help: 'Ask the model at most N times for one task' },
  finish: {
    type: 'choice',
    choices: ['plain', 'confirm'],
    help: '"confirm" asks the model once whether everything is done; default: plain',
  },
  ask: {
    type: 'choice',
    choices: ['always', 'never'],
    bare: 'always',
    help: 'Ask you before each tool call; default: never, as no tool here changes anything',
  },
} as const;

/** The flags of every command that runs one to its end and prints what came of it. */
export const OUTPUT_FLAGS = {
  json: { type: 'switch', help: 'Print the whole result as JSON instead of the answer' },
  quiet: { type: 'switch', short: 'q', help: 'Do not tell of tool calls on standard error' },
} as const;

export type PlaceValues = Values<typeof PLACE_FLAGS>;
export type ModelValues = Values<typeof MODEL_FLAGS>;
/** Of a command that starts runs. */
export type SessionValues = PlaceValues & ModelValues & Values<typeof RULE_FLAGS>;
export type OutputValues = Values<typeof OUTPUT_FLAGS>;

export const KEY_NOTE: string =
  'Keys come from the environment only: OPENAI_API_KEY, or the variable that api_key_env names in treadle.toml.\n' +
  'Without a key and a configuration the demo model answers.';

/** Flags that a later command needs as well, to find the same store and the same model. */
export type RepeatedValues = PlaceValues & ModelValues;

const REPEATED = ['model', 'base-url', 'store', 'config', 'cwd'] as const;

/** A command to copy: `treadle runs resume run_1a2b3c4d --store sqlite:x.db`. */
export function again(words: readonly string[], values: RepeatedValues): string {
  const flags = REPEATED.flatMap((name) => {
    const value = values[name];
    return value === undefined ? [] : [`--${name}`, value];
  });
  return ['treadle', ...words, ...flags].map(quoted).join(' ');
}

/** Only where they are: for a list of runs that may each have another model. */
export function againThere(words: readonly string[], { store, config, cwd }: PlaceValues): string {
  return again(words, {
    ...(store !== undefined && { store }),
    ...(config !== undefined && { config }),
    ...(cwd !== undefined && { cwd }),
  });
}

/** As a shell takes it for one word. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
