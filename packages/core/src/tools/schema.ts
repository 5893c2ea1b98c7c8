import { Validator } from '@cfworker/json-schema';
import { messageOf, TreadleError, type TreadleErrorCode } from '../errors.ts';
import type { JsonSchema } from '../model.ts';

/**
 * A schema: anything that speaks Standard Schema (zod 4, valibot, arktype, …), or plain JSON Schema. A Standard Schema
 * that cannot describe itself as JSON Schema (plain valibot) needs `parameters` beside it.
 */
export type Schema = StandardSchema | JsonSchema;

/** What a schema gives after validation. JSON Schema says nothing to the type checker. */
export type OutputOf<S> =
  S extends StandardSchema<infer Output> ? Output : S extends JsonSchema ? Record<string, unknown> : never;

/** The part of https://standardschema.dev that is used here; the specification asks to copy it. */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export function isStandardSchema(schema: Schema): schema is StandardSchema {
  return '~standard' in schema;
}

/** A schema as JSON Schema. Throws `code` if it cannot be described as such; `what` is whose schema it is. */
export function describe(what: string, schema: Schema, code: TreadleErrorCode): JsonSchema {
  if (!isStandardSchema(schema)) return schema;
  const { jsonSchema, vendor } = schema['~standard'];
  if (!jsonSchema) {
    const remedy = 'Give that as "parameters", for example with toJsonSchema() of @valibot/to-json-schema.';
    throw new TreadleError(code, `${what} (${vendor}) cannot describe itself as JSON Schema. ${remedy}`);
  }
  try {
    const { $schema: _, ...described } = jsonSchema.input({ target: 'draft-2020-12' });
    return described;
  } catch (cause) {
    const why = `${what} (${vendor}) cannot be described as JSON Schema: ${messageOf(cause)}`;
    throw new TreadleError(code, `${why}. Change it, or describe it yourself as "parameters".`, { cause });
  }
}

export type Validated =
  | { readonly type: 'valid'; readonly value: unknown }
  /** Each with the path of what is wrong. */
  | { readonly type: 'invalid'; readonly problems: readonly string[] };

/** Checks a value against a schema. What the schema's code throws is a problem too. */
export function validate(schema: Schema, value: unknown): Validated | Promise<Validated> {
  try {
    return isStandardSchema(schema) ? byStandard(schema, value) : byJsonSchema(schema, value);
  } catch (error) {
    return crashed(error);
  }
}

type StandardVerdict = Awaited<ReturnType<StandardSchema['~standard']['validate']>>;

function byStandard(schema: StandardSchema, value: unknown): Validated | Promise<Validated> {
  const verdict = schema['~standard'].validate(value);
  // Any thenable: one that is taken for a verdict has no issues, so everything would be valid.
  if (typeof (verdict as Partial<PromiseLike<unknown>>)?.then !== 'function') return read(verdict as StandardVerdict);
  return Promise.resolve(verdict).then(read).catch(crashed);
}

function read(verdict: StandardVerdict): Validated {
  if (!verdict.issues) return { type: 'valid', value: verdict.value };
  return { type: 'invalid', problems: verdict.issues.map(({ path, message }) => at(path ?? [], message)) };
}

function at(path: readonly (PropertyKey | { readonly key: PropertyKey })[], message: string): string {
  const keys = path.map((part) => String(typeof part === 'object' ? part.key : part));
  return keys.length === 0 ? message : `${keys.join('.')}: ${message}`;
}

function crashed(error: unknown): Validated {
  return { type: 'invalid', problems: [`the check itself failed: ${messageOf(error)}`] };
}

interface Read {
  readonly plain: PlainCheck | undefined;
  readonly full: Validator;
}

/** Reading a schema costs more than using it, so each is read once. */
const known = new WeakMap<JsonSchema, Read>();

function readSchema(schema: JsonSchema): Read {
  let read = known.get(schema);
  if (!read) known.set(schema, (read = { plain: plainCheck(schema), full: new Validator(schema, '2020-12', false) }));
  return read;
}

function byJsonSchema(schema: JsonSchema, value: unknown): Validated {
  const { plain, full } = readSchema(schema);
  if (plain?.(value)) return { type: 'valid', value };
  const { valid, errors } = full.validate(value);
  if (valid) return { type: 'valid', value };
  // The validator reports a problem at every level above it too; the deepest ones say it best.
  const leaves = errors.filter(({ keyword }) => !CONTAINERS.has(keyword));
  const told = leaves.length > 0 ? leaves : errors;
  return {
    type: 'invalid',
    problems: told.map(({ instanceLocation, keyword, error }) =>
      at(instanceLocation.split('/').slice(1), keyword === 'false' ? 'is not expected here' : error.replace(/\.$/, '')),
    ),
  };
}

const CONTAINERS = new Set(['properties', 'items', 'prefixItems', 'additionalProperties', '$ref', 'allOf', 'if']);

/** True: the value is valid. False: nothing is known yet. */
export type PlainCheck = (value: unknown) => boolean;

/**
 * A quick check for schemas of the plain kind that most tools have: types, properties, required ones, lists, enums. Most
 * arguments are valid, and for those the full validator costs ten times as much; it still decides about all others and
 * finds the words. Absent if the schema says anything that is not understood here.
 */
export function plainCheck(schema: JsonSchema): PlainCheck | undefined {
  const checks: PlainCheck[] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    if (SILENT.has(keyword)) continue;
    const check = checkOf(keyword, value, schema);
    if (!check) return undefined;
    checks.push(check);
  }
  return (value) => {
    for (let i = 0; i < checks.length; i++) if (!checks[i]!(value)) return false;
    return true;
  };
}

/** Keywords that demand nothing. */
const SILENT: ReadonlySet<string> = new Set(['$schema', 'title', 'description', 'default', 'examples']);

function checkOf(keyword: string, value: unknown, schema: JsonSchema): PlainCheck | undefined {
  switch (keyword) {
    case 'type':
      return typeof value === 'string' ? TYPES[value] : undefined;
    case 'enum':
      return Array.isArray(value) ? (given) => typeof given !== 'object' && value.includes(given) : undefined;
    case 'required':
      return Array.isArray(value)
        ? (given) => isRecord(given) && value.every((key) => Object.hasOwn(given, key))
        : undefined;
    case 'properties':
      return isRecord(value) ? propertiesCheck(value, schema['additionalProperties']) : undefined;
    case 'additionalProperties':
      return 'properties' in schema ? always : propertiesCheck({}, value);
    case 'items': {
      const item = isRecord(value) ? plainCheck(value) : undefined;
      return item && ((given) => Array.isArray(given) && given.every(item));
    }
    default:
      return undefined;
  }
}

function propertiesCheck(properties: JsonSchema, others: unknown): PlainCheck | undefined {
  if (others !== undefined && typeof others !== 'boolean') return undefined;
  const checks = new Map<string, PlainCheck>();
  for (const [key, schema] of Object.entries(properties)) {
    const check = isRecord(schema) ? plainCheck(schema) : undefined;
    if (!check) return undefined;
    checks.set(key, check);
  }
  return (given) => {
    if (!isRecord(given)) return false;
    for (const key in given) {
      const check = checks.get(key);
      if (check ? !check(given[key]) : others === false) return false;
    }
    return true;
  };
}

const TYPES: Readonly<Record<string, PlainCheck>> = {
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
  object: (value) => isRecord(value),
  array: (value) => Array.isArray(value),
};

function always(): boolean {
  return true;
}

function isRecord(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
