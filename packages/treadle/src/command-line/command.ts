import type { LoopResult } from '@treadle/core';
import type { Io } from '../terminal/io.ts';

/** One entry of the table that arguments are read by and help is made from. */
export type Flag = { readonly short?: string; readonly help: string } & (
  | { readonly type: 'switch' }
  /** `many`: it may be given more than once. */
  | { readonly type: 'text'; readonly value: string; readonly many?: true }
  /** A whole number from `min`, up to `max` if there is one. */
  | { readonly type: 'count'; readonly value: string; readonly min: number; readonly max?: number }
  /** `bare` is what the flag means without a value; without `bare` it needs one. `value`: a word for long choices. */
  | {
      readonly type: 'choice';
      readonly choices: readonly string[];
      readonly bare?: string;
      readonly value?: string;
      readonly many?: true;
    }
);

export type Flags = Readonly<Record<string, Flag>>;

/** What was given on the command line. A flag that was not given is absent. */
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
  /** What it takes besides flags, as usage shows it: `[x]` may be left out, `x…` is one or more. */
  readonly arguments?: readonly string[];
  readonly flags: F;
  /** Paragraphs below the flags in its help. */
  readonly notes: readonly string[];
  /** Gives the exit code. */
  readonly run: (given: Given<F>, io: Io) => Promise<number>;
}

/** Commands whose names begin with the same word. */
export interface CommandGroup {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly Command[];
  readonly notes: readonly string[];
}

export interface Given<F extends Flags = Flags> {
  readonly values: Values<F>;
  readonly arguments: readonly string[];
}

/** Keeps the types of the flags for `run`, and forgets them for the table of commands. */
export function command<const F extends Flags>(definition: Command<F>): Command {
  return definition as unknown as Command;
}

/** Something that the user can put right. Its message is all that is shown: what was wrong, and what to do. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}

export const EXIT = {
  completed: 0,
  failed: 1,
  usage: 2,
  exhausted: 3,
  paused: 4,
  /** 128 + SIGINT, as shells have it. */
  cancelled: 130,
} as const;

/** For --help. */
export const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [EXIT.completed, 'completed: the answer is on standard output'],
  [EXIT.failed, 'failed: the model could not be reached or refused'],
  [EXIT.usage, 'the command or its configuration is not right; nothing was run'],
  [EXIT.exhausted, 'exhausted: a limit was met before the task was done'],
  [EXIT.paused, 'paused: it needs an approval and there is no terminal to ask on, or a result from outside'],
  [EXIT.cancelled, 'stopped with Ctrl-C'],
];

export function exitCodeOf({ outcome, detached }: LoopResult): number {
  if (outcome) return EXIT[outcome.type];
  return detached ? EXIT.cancelled : EXIT.paused;
}
