import type { z } from 'zod';
import { badRequest, type ApiError } from '../api-error.ts';

/** A JSON object of which nothing is known. */
export type Body = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

type Path = readonly PropertyKey[];
type Issue = z.core.$ZodIssue;

/** The value as the schema reads it. Throws a 400 that names the first field that is wrong, below `at`. */
export function checked<T>(schema: z.ZodType<T>, value: unknown, at: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw problem(issue!, valueAt(value, issue!.path), fieldPath(at, issue!.path));
}

/** A list where something else may stand too: `kind` says what, such as `a string or a list of items`. */
export function checkedList(value: unknown, at: string, { kind, most }: ListRules): readonly unknown[] {
  if (value === undefined) throw missing(at);
  if (!Array.isArray(value)) throw wrongType(kind, value, at);
  if (value.length > most) throw outOfRange({ at, given: value, bound: most, origin: 'array', side: 'above' });
  return value;
}

interface ListRules {
  readonly kind: string;
  readonly most: number;
}

/** `input[2].content` from `input`, `2`, `content`. */
export function fieldPath(at: string, path: Path): string {
  let text = at;
  for (const key of path) text += typeof key === 'number' ? `[${key}]` : `${text === '' ? '' : '.'}${String(key)}`;
  return text;
}

/** A field that would change what the request means, if it were ignored. */
export function unsupported(at: string, remedy: string): ApiError {
  return badRequest(`'${at}' is not supported by this server. ${remedy}`, at, 'unsupported_parameter');
}

/** A value that is none of those that may stand there. */
export function notOneOf(given: unknown, values: readonly string[], at: string): ApiError {
  if (given === undefined) return missing(at);
  const supported = values.map((value) => `'${value}'`).join(', ');
  return badRequest(
    `Invalid value for '${at}': ${shown(given)}. Supported values are: ${supported}.`,
    at,
    'invalid_value',
  );
}

export function missing(at: string): ApiError {
  return badRequest(`Missing required parameter: '${at}'.`, at, 'missing_required_parameter');
}

export function wrongType(expected: string, given: unknown, at: string): ApiError {
  const where = at === '' ? 'the request body' : `'${at}'`;
  return badRequest(
    `Invalid type for ${where}: expected ${KINDS[expected] ?? expected}, but got ${kindOf(given)} instead.`,
    at === '' ? undefined : at,
    'invalid_type',
  );
}

function problem(issue: Issue, given: unknown, at: string): ApiError {
  switch (issue.code) {
    case 'invalid_type':
      return given === undefined ? missing(at) : wrongType(issue.expected, given, at);
    case 'invalid_value':
      return notOneOf(given, issue.values.map(String), at);
    case 'too_small':
      return outOfRange({ at, given, bound: Number(issue.minimum), origin: issue.origin, side: 'below' });
    case 'too_big':
      return outOfRange({ at, given, bound: Number(issue.maximum), origin: issue.origin, side: 'above' });
    default:
      if (given === undefined) return missing(at);
      return badRequest(`Invalid '${at}': ${issue.message}.`, at, 'invalid_value');
  }
}

interface Range {
  readonly at: string;
  readonly given: unknown;
  readonly bound: number;
  readonly origin: string;
  readonly side: 'below' | 'above';
}

function outOfRange({ at, given, bound, origin, side }: Range): ApiError {
  const word = side === 'below' ? 'at least' : 'at most';
  const short = side === 'below' ? 'min' : 'max';
  if (origin === 'string' || origin === 'array') {
    const [what, unit] = origin === 'string' ? ['string', 'characters'] : ['list', 'items'];
    const length = (given as { readonly length: number }).length;
    return badRequest(
      `Invalid '${at}': the ${what} has a length of ${length}; expected ${word} ${bound} ${unit}.`,
      at,
      `${origin}_${side}_${short}_length`,
    );
  }
  return badRequest(
    `Invalid '${at}': expected a value of ${word} ${bound}, but got ${shown(given)} instead.`,
    at,
    `${origin === 'int' ? 'integer' : 'decimal'}_${side}_${short}_value`,
  );
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'an integer',
  boolean: 'a boolean',
  object: 'an object',
  record: 'an object',
  array: 'a list',
};

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a decimal';
  return KINDS[typeof value] ?? typeof value;
}

/** Enough of it to find it again, in the request that the caller has. */
function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value.length > 60 ? `${value.slice(0, 60)}…` : value}'`;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : kindOf(value);
}

function valueAt(value: unknown, path: Path): unknown {
  let found = value;
  for (const key of path) found = (found as Record<PropertyKey, unknown> | null | undefined)?.[key];
  return found;
}
