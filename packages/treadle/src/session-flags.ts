import type { Values } from './command.ts';

/** The flags of every command that talks with a model. */
export const SESSION_FLAGS = {
  model: {
    type: 'text',
    short: 'm',
    value: 'NAME',
    help: 'A name under [models], "openai/MODEL", a model of OpenAI, or "demo"',
  },
  'base-url': {
    type: 'text',
    value: 'URL',
    help: "A server that speaks OpenAI's Chat Completions, such as http://localhost:11434/v1",
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

export type SessionValues = Values<typeof SESSION_FLAGS>;

export const KEY_NOTE: string =
  'Keys come from the environment only: OPENAI_API_KEY, or the variable that api_key_env names in treadle.toml.\n' +
  'Without a key and a configuration the demo model answers.';
