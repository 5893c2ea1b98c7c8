import { z } from 'zod';
import { ApiError, badRequest, type ApiErrorCode } from '../api-error.ts';

/**
 * Validation of request bodies: zod checks them, and `apiErrorOf` is the one place that turns an issue of zod into an
 * error of the API, with the path of the field as `param`.
 */

/** A JSON object with unknown fields. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value as the schema returns it. Throws an `ApiError` for the first problem. */
export function validateBody<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw apiErrorOf(issue!, value);
}

type Path = readonly PropertyKey[];
type Issue = z.core.$ZodIssue;

function apiErrorOf(issue: Issue, body: unknown): ApiError {
  const param = paramOf(issue.path);
  const value = valueAt(body, issue.path);
  if (issue.code === 'custom') {
    const { code, status = 400 } = (issue.params ?? {}) as Refusal;
    const message = issue.message.replaceAll(PARAM, () => `'${param}'`);
    return new ApiError(status, 'invalid_request_error', message, { param, code: code ?? 'invalid_value' });
  }
  if (value === undefined)
    return badRequest(`Missing required parameter: '${param}'.`, param, 'missing_required_parameter');
  switch (issue.code) {
    case 'invalid_type': {
      const field = param === '' ? 'the request body' : `'${param}'`;
      const expected = KINDS[issue.expected] ?? issue.expected;
      const message = `Invalid type for ${field}: expected ${expected}, but got ${kindOf(value)} instead.`;
      return badRequest(message, param === '' ? undefined : param, 'invalid_type');
    }
    case 'invalid_value':
      return notOneOf(param, value, issue.values.map(String));
    case 'invalid_union':
      // The message of a union is the list of its official variants: see `variants`.
      return notOneOf(param, value, issue.message.split(' '));
    case 'too_small':
      return outOfRange(param, value, { side: 'below', bound: issue.minimum, origin: issue.origin });
    case 'too_big':
      return outOfRange(param, value, { side: 'above', bound: issue.maximum, origin: issue.origin });
    case 'unrecognized_keys': {
      const unknown = paramOf([...issue.path, issue.keys[0]!]);
      return badRequest(`Unknown parameter: '${unknown}'.`, unknown, 'unknown_parameter');
    }
    default:
      return badRequest(`Invalid '${param}': ${issue.message}.`, param, 'invalid_value');
  }
}

function notOneOf(param: string, value: unknown, values: readonly string[]): ApiError {
  const supported = values.map((one) => `'${one}'`).join(', ');
  return badRequest(
    `Invalid value for '${param}': ${shortened(value)}. Supported values are: ${supported}.`,
    param,
    'invalid_value',
  );
}

interface Range {
  readonly side: 'below' | 'above';
  readonly bound: number | bigint;
  readonly origin: string;
}

function outOfRange(param: string, value: unknown, { side, bound, origin }: Range): ApiError {
  const limit = `${side === 'below' ? 'at least' : 'at most'} ${bound}`;
  const end = side === 'below' ? 'below_min' : 'above_max';
  if (origin === 'string' || origin === 'array') {
    const [what, unit] = origin === 'string' ? ['string', 'characters'] : ['list', 'items'];
    const { length } = value as { readonly length: number };
    const message = `Invalid '${param}': the ${what} has a length of ${length}; expected ${limit} ${unit}.`;
    return badRequest(message, param, `${origin}_${end}_length`);
  }
  const message = `Invalid '${param}': expected a value of ${limit}, but got ${shortened(value)} instead.`;
  return badRequest(message, param, `${origin === 'int' ? 'integer' : 'decimal'}_${end}_value`);
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

/** Enough of a value to find it in the request. */
function shortened(value: unknown): string {
  if (typeof value === 'string') return `'${value.length > 60 ? `${value.slice(0, 60)}…` : value}'`;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : kindOf(value);
}

/** `input[2].content` from `input`, `2`, `content`. */
export function paramOf(path: Path): string {
  let text = '';
  for (const key of path) text += typeof key === 'number' ? `[${key}]` : `${text === '' ? '' : '.'}${String(key)}`;
  return text;
}

function valueAt(value: unknown, path: Path): unknown {
  let found = value;
  for (const key of path) found = (found as Record<PropertyKey, unknown> | null | undefined)?.[key];
  return found;
}

// What the schemas are built from

/** The `params` of a custom issue. */
interface Refusal {
  readonly code?: ApiErrorCode;
  readonly status?: number;
}

/** Stands for the path of the field in the message of a custom issue. */
export const PARAM = '{param}';

/** Where a transform or a refinement reports issues. */
export type IssueContext = Pick<z.core.$RefinementCtx, 'addIssue'>;

/** Adds an issue with a message of its own. In the message, `PARAM` is replaced by the path of the field. */
export function refuse(
  ctx: IssueContext,
  message: string,
  { path = [], ...params }: Refusal & { readonly path?: Path } = {},
): never {
  ctx.addIssue({ code: 'custom', message, path: [...path], params: { ...params } });
  return undefined as never;
}

/** A field that is not supported. It is refused, because ignoring it would change the meaning of the request. */
export function unsupported(
  remedy: string,
  { isUsed = (value) => value != null, schema = z.unknown().optional() }: UnsupportedOptions = {},
): z.ZodType {
  return schema
    .superRefine((value, ctx) => {
      if (isUsed(value)) refuse(ctx, `${PARAM} is not supported by this server. ${remedy}`, UNSUPPORTED);
    })
    .meta({ description: `Not supported. ${remedy}` });
}

interface UnsupportedOptions {
  /** Default: any value but null. */
  readonly isUsed?: (value: unknown) => boolean;
  readonly schema?: z.ZodType;
}

export const UNSUPPORTED: Refusal = { code: 'unsupported_parameter' };

type Validate<T> = (value: unknown, ctx: z.core.$RefinementCtx) => T;

const forms = new WeakMap<object, () => z.ZodType>();

/** A schema that validates with a function. `form` accepts the same values, and describes them in `/openapi.json`. */
function transformOf<T>(validate: Validate<T>, form: () => z.ZodType): z.ZodType<T> {
  forms.set(validate, form);
  return z.transform(validate);
}

/** The description of a schema that validates with a function: the same object each time. Undefined if it has none. */
export function formOf(schema: z.core.$ZodType): z.ZodType | undefined {
  const { def } = schema._zod;
  if (def.type !== 'transform') return undefined;
  // A copy of the schema, for example with a further check, has the same function.
  const { transform } = def as z.core.$ZodTransformDef;
  const form = forms.get(transform)?.();
  if (form) forms.set(transform, () => form);
  return form;
}

/**
 * Validates with a schema that depends on the value. `choose` may report an issue instead of returning a schema. Unlike
 * a plain union it has to try only one schema, and its errors are those of that schema. `all`: those that it can choose.
 */
export function chosenSchema<T>(
  choose: (value: unknown, ctx: IssueContext) => z.ZodType<T> | undefined,
  all: () => readonly z.ZodType[],
): z.ZodType<T> {
  return transformOf(
    (value, ctx): T => {
      const result = choose(value, ctx)?.safeParse(value);
      if (!result) return z.NEVER;
      return result.success ? result.data : addFirstIssue(ctx, result.error);
    },
    () => z.union(all()),
  );
}

/** An object that also has a field `type` with this value. For the descriptions of `chosenSchema`. */
export function typed(
  type: string,
  schema: z.ZodType,
  { isOptional = false }: { readonly isOptional?: boolean } = {},
): z.ZodType {
  const literal = z.literal(type);
  return z.intersection(z.looseObject({ type: isOptional ? literal.nullish() : literal }), schema);
}

function addFirstIssue(ctx: IssueContext, { issues: [issue] }: z.ZodError, ...at: PropertyKey[]): never {
  ctx.addIssue({ ...issue, path: [...at, ...issue!.path] } as Parameters<IssueContext['addIssue']>[0]);
  return z.NEVER;
}

interface ListOptions {
  /** What is expected instead of a value of another type, such as `a list of tools`. */
  readonly expected: string;
  readonly max: number;
}

/**
 * A list that stops at the first item that is wrong. `z.array` would collect an issue for each item, and a body may
 * contain millions of them.
 */
export function list<T>(item: z.ZodType<T>, { expected, max }: ListOptions): z.ZodType<readonly T[]> {
  const form = (): z.ZodType => (max === Infinity ? z.array(item) : z.array(item).max(max));
  return transformOf((value, ctx): readonly T[] => {
    if (!Array.isArray(value)) return wrongType(ctx, value, expected);
    if (value.length > max) {
      ctx.addIssue({ code: 'too_big', origin: 'array', maximum: max, input: value });
      return z.NEVER;
    }
    const items: T[] = [];
    for (let index = 0; index < value.length; index++) {
      const result = item.safeParse(value[index]);
      if (!result.success) return addFirstIssue(ctx, result.error, index);
      items.push(result.data);
    }
    return items;
  }, form);
}

/** A string, or a list. `expected` of the list names both. */
export function textOr<T, U>(text: z.ZodType<T>, other: z.ZodType<U>): z.ZodType<T | U> {
  return chosenSchema<T | U>(
    (value) => (typeof value === 'string' ? text : other),
    () => [text, other],
  );
}

export function wrongType(ctx: IssueContext, input: unknown, expected: string): never {
  ctx.addIssue({ code: 'invalid_type', expected: expected as 'object', input });
  return undefined as never;
}

/**
 * Objects that differ by the field `key`. `official` are the values that the error for another value lists, without
 * aliases and deprecated ones.
 */
export function variants<
  Options extends readonly [z.core.$ZodTypeDiscriminable, ...z.core.$ZodTypeDiscriminable[]],
  Key extends string,
>(key: Key, official: readonly string[], options: Options): z.ZodDiscriminatedUnion<Options, Key> {
  return z.discriminatedUnion(key, options, {
    error: ({ code }) => (code === 'invalid_union' ? official.join(' ') : undefined),
  });
}

/** Of an answer, such as a token, for `verifyAnswer`. */
export const signature: z.ZodType<string> = z.string().min(1).max(10_000);

/** Any JSON object, not copied. */
export const jsonObject: z.ZodType<JsonObject> = transformOf(
  (value, ctx): JsonObject => (isObject(value) ? value : wrongType(ctx, value, 'object')),
  () => z.looseObject({}),
);

// Checks of a whole body

/**
 * Rejects JSON that would break code that reads it later: nesting that exhausts the stack, and the key that sets the
 * prototype of an object.
 */
export function checkJson(value: unknown, maxDepth: number, path: PropertyKey[] = []): void {
  if (path.length > maxDepth) {
    const message = `'${paramOf(path)}' is nested more than ${maxDepth} levels deep. Send JSON that is less nested.`;
    throw badRequest(message, String(path[0]), 'nesting_too_deep');
  }
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const item: unknown = value[index];
      if (typeof item !== 'object' || item === null) continue;
      path.push(index);
      checkJson(item, maxDepth, path);
      path.pop();
    }
    return;
  }
  if (!isObject(value)) return;
  for (const key of Object.keys(value)) {
    if (key === '__proto__') {
      const message = `'${paramOf([...path, key])}' is not allowed as the name of a field. Rename it.`;
      throw badRequest(message, path.length === 0 ? key : paramOf(path));
    }
    const field = value[key];
    if (typeof field !== 'object' || field === null) continue;
    path.push(key);
    checkJson(field, maxDepth, path);
    path.pop();
  }
}

/** Reports an issue with status 413 if the strings in a value have more than `max` characters together. */
export function checkCharacters(value: unknown, max: number, ctx: IssueContext): void {
  const total = charactersIn(value);
  if (total <= max) return;
  const message = `${PARAM} has ${total} characters, and this server accepts at most ${max}. Shorten the conversation, or send smaller files.`;
  refuse(ctx, message, { status: 413, code: 'input_too_large' });
}

function charactersIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let total = 0;
  // No `Object.values`: it would allocate a list for every part of a large input.
  if (Array.isArray(value)) for (let at = 0; at < value.length; at++) total += charactersIn(value[at]);
  else for (const key in value) total += charactersIn((value as JsonObject)[key]);
  return total;
}
