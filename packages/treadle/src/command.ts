import type { Io } from './io.ts';

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
