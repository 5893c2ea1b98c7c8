import type { Io } from '../terminal/io.ts';

/** A flag of a command. Arguments are parsed by it, and help is generated from it. */
export type Flag = { readonly short?: string; readonly help: string } & (
  | { readonly type: 'switch' }
  /** `many`: the flag may be repeated. `bare`: the value if none is given. */
  | { readonly type: 'text'; readonly value: string; readonly many?: true; readonly bare?: string }
  /** A whole number from `min` to `max`, or without an upper limit. */
  | { readonly type: 'count'; readonly value: string; readonly min: number; readonly max?: number }
  /** `bare`: the value if none is given; without it a value is required. `value`: what help shows for the choices. */
  | {
      readonly type: 'choice';
      readonly choices: readonly string[];
      readonly bare?: string;
      readonly value?: string;
      readonly many?: true;
    }
);

export type Flags = Readonly<Record<string, Flag>>;

/** The values of the flags on the command line. Absent flags are absent here. */
export type Values<F extends Flags> = {
  readonly [Name in keyof F]?: F[Name] extends { readonly many: true } ? readonly Value<F[Name]>[] : Value<F[Name]>;
};

type Value<F extends Flag> = F extends { readonly type: 'switch' }
  ? boolean
  : F extends { readonly type: 'count' }
    ? number
    : F extends { readonly type: 'choice'; readonly choices: readonly (infer Choice)[] }
      ? Choice
      : string;

export interface Command<F extends Flags = Flags> {
  /** One word, or the name of its group and one word. */
  readonly name: string;
  readonly summary: string;
  /** The positional arguments as usage shows them: `[x]` is optional, `x…` is one or more. */
  readonly arguments?: readonly string[];
  /** What the only argument can be. */
  readonly argumentChoices?: readonly string[];
  readonly flags: F;
  /** More flags, which depend on the arguments, such as the inputs of an agent. */
  readonly moreFlags?: (args: readonly string[], io: Io) => Promise<Flags>;
  /** Paragraphs below the flags in the help. */
  readonly notes: readonly string[];
  /** Command lines for the end of the help, at least one. */
  readonly examples: readonly [string, ...string[]];
  /** Returns the exit code. */
  readonly run: (parsed: ParsedArguments<F>, io: Io) => Promise<number>;
}

/** Commands whose names begin with the same word. */
export interface CommandGroup {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly Command[];
  /** What its name alone does. Absent: it prints help. */
  readonly default?: Command;
  readonly notes: readonly string[];
}

export interface ParsedArguments<F extends Flags = Flags> {
  readonly values: Values<F>;
  readonly arguments: readonly string[];
}

/** Infers the types of the flags for `run`, and hides them from the table of commands. */
export function defineCommand<const F extends Flags>(definition: Command<F>): Command {
  return definition as unknown as Command;
}

/** The first words of the command line with their summaries, in the order of the help. Help does not load the commands. */
export const SUMMARIES = {
  serve: 'Start an HTTP server for OpenAI clients',
  run: 'Run one task with the tools of the working folder, and print the answer',
  chat: 'Chat with a model that can use the tools of the working folder',
  init: 'Write a commented treadle.toml for a provider',
  doctor: 'Check the configuration, the store, the keys and the models, and say what to do',
  runs: 'List, show, resume, fork and compare the runs in the store',
  trace: 'Show what a run did as a tree: turns, calls, times and failures',
  status: 'Show whether a server works, and what it does',
  metrics: 'Show what tools and runs did: calls, errors, times',
  logs: 'Show the log of a server',
  memory: 'List, search, forget and export what runs did and noted before',
  budgets: 'List and suspend budgets',
  store: 'Back up, restore and check the store',
  tools: 'List, show and call the tools of the command',
  skills: 'List, check, write and add skills',
  agents: 'List, show, run, write and check agents that are defined in files',
  workflow: 'List, run, check, draw and write workflows that are defined in files',
  schedule: 'Start workflows and agents at times',
  edge: 'Run the tools of this machine for an orchestrator, and use those of devices',
  mcp: 'Use MCP servers and sign in to them, and serve tools to MCP clients',
  policy: 'Explain and check what agents may do',
  models: 'List the models of the configuration and test them',
  key: 'Create keys for clients of the server',
  completion: 'Print a script that completes commands and flags in a shell',
} as const;

/** An error that the user can fix. Only the message is shown: what is wrong, and what to do. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}

export const EXIT = {
  completed: 0,
  failed: 1,
  usage: 2,
  exhausted: 3,
  paused: 4,
  /** The run completed, but calls were denied: because nobody could be asked, or other than reads by a rule. */
  denied: 5,
  /** 128 + SIGINT, as in shells. */
  cancelled: 130,
} as const;
