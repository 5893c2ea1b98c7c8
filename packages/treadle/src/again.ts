import type { ModelValues, PlaceValues } from './session-flags.ts';

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
