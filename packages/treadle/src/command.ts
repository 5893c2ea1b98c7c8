import type { Io } from './io.ts';

/** One entry of the table that arguments are read by and help is made from. */
export type Flag = { readonly short?: string; readonly help: string } & (
  | { readonly type: 'switch' }
  | { readonly type: 'text'; readonly value: string }
  /** A whole number from `min`. */
  | { readonly type: 'count'; readonly value: string; readonly min: number }
  /** `bare` is what the flag means without a value; without `bare` it needs one. */
  | { readonly type: 'choice'; readonly choices: readonly string[]; readonly bare?: string }
);

export type Flags = Readonly<Record<string, Flag>>;

/** What was given on the command line. A flag that was not given is absent. */
export type Values<F extends Flags> = {
  readonly [Name in keyof F]?: F[Name] extends { readonly type: 'switch' }
    ? boolean
    : F[Name] extends { readonly type: 'count' }
      ? number
      : F[Name] extends { readonly type: 'choice'; readonly choices: readonly (infer Choice)[] }
        ? Choice
        : string;
};

export interface Command<F extends Flags = Flags> {
  readonly name: string;
  readonly summary: string;
  /** The one argument that it takes besides flags, as usage shows it. */
  readonly argument?: string;
  readonly flags: F;
  /** Paragraphs below the flags in its help. */
  readonly notes: readonly string[];
  /** Gives the exit code. */
  readonly run: (given: Given<F>, io: Io) => Promise<number>;
}

export interface Given<F extends Flags = Flags> {
  readonly values: Values<F>;
  readonly argument: string | undefined;
}

/** Keeps the types of the flags for `run`, and forgets them for the table of commands. */
export function command<const F extends Flags>(definition: Command<F>): Command {
  return definition as unknown as Command;
}
