import { TreadleError, type TreadleErrorCode } from './errors.ts';
import { described } from './messages.ts';
import type { Settings } from './model.ts';
import { didYouMean } from './nearest.ts';

/**
 * The names of the options in a type, with the kind of each. The compiler reports a name that is missing, one that the type
 * does not have, and a wrong kind. `name`: a text that is not empty. `.now`: an object with the function `now`. Empty: any
 * value, or it is checked elsewhere.
 */
export type OptionNames<Options> = { readonly [Name in keyof Options]-?: KindOf<NonNullable<Options[Name]>> | '' };

type KindOf<Value> = [Value] extends [(...args: never) => unknown]
  ? 'function'
  : [Value] extends [boolean]
    ? 'boolean'
    : [Value] extends [number]
      ? 'number'
      : [Value] extends [string]
        ? 'string' | 'name'
        : [Value] extends [readonly unknown[]]
          ? 'array'
          : 'object' | `.${keyof Value & string}`;

/** What `checkOptions` knows of the options of a function. */
export interface KnownOptions {
  readonly names: Readonly<Record<string, string>>;
  /** Names that other libraries have for options, with the names here. */
  readonly elsewhere?: Readonly<Record<string, string>>;
  /** Default: `invalid-options`. */
  readonly code?: TreadleErrorCode;
  /** Default: `option`. */
  readonly noun?: string;
}

/**
 * Throws if an option would be ignored because of its name, or has a value of the wrong kind. An option that is undefined is
 * not set. `what` names who has the options: `A run`.
 */
export function checkOptions(what: string, options: object, known: KnownOptions): void {
  if (typeof options !== 'object' || options === null) throw wrongValue(what, 'options', options, 'object', known);
  for (const name in options) {
    const value: unknown = options[name as never];
    const kind: unknown = known.names[name];
    if (kind === '' || value === undefined) continue;
    // What every object inherits, such as `toString`, is not a kind.
    if (typeof kind !== 'string') throw unknownName(what, name, known);
    if (!isOfKind(value, kind)) throw wrongValue(what, `"${name}"`, value, kind, known);
  }
}

function isOfKind(value: unknown, kind: string): boolean {
  if (kind === 'name') return typeof value === 'string' && value !== '';
  if (typeof value !== 'object' || value === null) return typeof value === kind && value !== null;
  if (kind.startsWith('.')) return typeof value[kind.slice(1) as never] === 'function';
  return kind === (Array.isArray(value) ? 'array' : 'object');
}

function wrongValue(
  what: string,
  name: string,
  value: unknown,
  kind: string,
  { code = 'invalid-options' }: KnownOptions,
): TreadleError {
  const wanted = VALUES[kind] ?? `an object with the function "${kind.slice(1)}"`;
  return new TreadleError(code, `${what} has ${described(value)} as ${name}. Use ${wanted}.`);
}

const VALUES: Readonly<Record<string, string>> = {
  function: 'a function',
  boolean: 'true or false',
  number: 'a number',
  string: 'a text',
  name: 'a text that is not empty',
  array: 'an array',
  object: 'an object',
};

function unknownName(what: string, name: string, known: KnownOptions): TreadleError {
  const { names, elsewhere = {}, code = 'invalid-options', noun = 'option' } = known;
  const remedy = Object.hasOwn(elsewhere, name)
    ? ` Use "${elsewhere[name]}".`
    : didYouMean(name, Object.keys(names)) || ` Use ${Object.keys(names).join(', ')}.`;
  return new TreadleError(code, `${what} has no ${noun} "${name}".${remedy}`);
}

const SETTINGS: OptionNames<Settings> = {
  temperature: 'number',
  maxOutputTokens: 'number',
  topP: 'number',
  stop: 'array',
  seed: 'number',
  reasoning: 'string',
  presencePenalty: 'number',
  frequencyPenalty: 'number',
  logitBias: 'object',
  serviceTier: 'string',
  promptCacheKey: 'string',
  verbosity: 'string',
  topLogprobs: 'number',
};

/** Throws if a setting would be ignored because of its name, or has a value of the wrong kind. */
export function checkSettings(what: string, settings: Settings | undefined, code?: TreadleErrorCode): void {
  if (settings) checkOptions(what, settings, { names: SETTINGS, noun: 'setting', ...(code && { code }) });
}
