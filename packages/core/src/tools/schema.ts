import { messageOf, TreadleError, type TreadleErrorCode } from '../errors.ts';
import { described } from '../messages.ts';
import type { JsonSchema } from '../model.ts';
import { isPlain } from '../plain.ts';
import { matchRegExp, pauseOfChecks, schemaCheck, type PatternMatcher, type SchemaCheck } from './json-schema.ts';

/**
 * A Standard Schema (zod 4, valibot, arktype, …) or plain JSON Schema. A Standard Schema that cannot convert itself to
 * JSON Schema (plain valibot) needs `parameters` as well.
 */
export type Schema = StandardSchema | JsonSchema;

/** The type of a validated value. JSON Schema carries no TypeScript type. */
export type OutputOf<S> =
  S extends StandardSchema<infer Output> ? Output : S extends JsonSchema ? Record<string, unknown> : never;

/** The part of https://standardschema.dev that is used here. The specification recommends copying it. */
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

function isStandardSchema(schema: Schema): schema is StandardSchema {
  return (schema as Partial<StandardSchema> | null)?.['~standard'] !== undefined;
}

/** Converts a schema to JSON Schema. Throws `code` if that is not possible; `what` names the schema in the message. */
export function toJsonSchema(what: string, schema: Schema, code: TreadleErrorCode): JsonSchema {
  if (!isStandardSchema(schema)) {
    requireSchema(what, schema, code);
    return schema;
  }
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

/** The keywords of JSON Schema of which a schema has at least one, unless it accepts everything. */
const KEYWORDS =
  /^(type|\w*[pP]roperties|propertyNames|required|\w*[iI]tems|contains|anyOf|allOf|oneOf|if|not|enum|const|format|pattern|multipleOf|nullable|title|description|default|examples|definitions|(min|max|exclusive|dependent)\w+|\$.*|x-.*)$/;

/** Throws `code` for an object that is no schema, such as `{ city: z.string() }`: as JSON Schema it would accept everything. */
export function requireSchema(what: string, schema: Schema, code: TreadleErrorCode): void {
  if (isStandardSchema(schema) || isJsonSchema(schema)) return;
  const keys = isRecord(schema) ? Object.keys(schema) : [];
  const remedy = "Use z.object({ … }), or JSON Schema: { type: 'object', properties: { … } }";
  const found =
    keys.length > 0
      ? `a plain object with ${keys.join(', ')}`
      : typeof schema === 'object'
        ? described(schema)
        : `a ${typeof schema}`;
  throw new TreadleError(code, `${what} is ${found}, not a schema. ${remedy}.`);
}

/** Whether an object has a keyword of JSON Schema, or is empty. Other schemas are not JSON Schema. */
export function isJsonSchema(schema: unknown): schema is JsonSchema {
  if (!isRecord(schema) || '~standard' in schema) return false;
  const keys = Object.keys(schema);
  // A Date or a Map has no keys either.
  if (keys.length === 0) return isPlain(schema);
  return keys.some((key) => KEYWORDS.test(key) && !isNested(schema[key]));
}

/** A property that is called like a keyword, such as `description: z.string()`. */
function isNested(value: unknown): boolean {
  return isRecord(value) && '~standard' in value;
}

// ── Validation ───────────────────────────────────────────────────────────────────────────────────────────────────────

export type Validated =
  | { readonly type: 'valid'; readonly value: unknown }
  /** Each problem starts with the path of the value it is about. */
  | { readonly type: 'invalid'; readonly problems: readonly string[] };

/**
 * Validates a value. Never throws: an error thrown by the schema makes the value invalid. `matches` is for the patterns of a
 * JSON Schema. After expensive checks, further ones wait until the event loop has turned.
 */
export function validate(schema: Schema, value: unknown, matches?: PatternMatcher): Validated | Promise<Validated> {
  if (!isStandardSchema(schema)) {
    return (
      pauseOfChecks?.then(validate.bind(undefined, schema, value, matches)) ?? validateJson(schema, value, matches)
    );
  }
  try {
    return validateStandard(schema, value);
  } catch (error) {
    return validationFailed(error);
  }
}

type StandardVerdict = Awaited<ReturnType<StandardSchema['~standard']['validate']>>;

function validateStandard(schema: StandardSchema, value: unknown): Validated | Promise<Validated> {
  const verdict = schema['~standard'].validate(value);
  // Any thenable is awaited: read as a verdict, it would have no issues, and every value would be valid.
  if (typeof (verdict as Partial<PromiseLike<unknown>>)?.then !== 'function')
    return readVerdict(verdict as StandardVerdict);
  return Promise.resolve(verdict).then(readVerdict).catch(validationFailed);
}

function readVerdict(verdict: StandardVerdict): Validated {
  if (typeof verdict !== 'object' || verdict === null || !(verdict.issues || 'value' in verdict))
    throw new TypeError('the schema returned neither a value nor issues');
  if (!verdict.issues) return { type: 'valid', value: verdict.value };
  if (!Array.isArray(verdict.issues)) throw new TypeError('the schema returned issues that are not a list');
  return { type: 'invalid', problems: verdict.issues.map(({ path, message }) => problemAt(path ?? [], message)) };
}

function problemAt(path: readonly (PropertyKey | { readonly key: PropertyKey })[], message: string): string {
  const keys = path.map((part) => String(typeof part === 'object' ? part.key : part));
  return keys.length === 0 ? message : `${keys.join('.')}: ${message}`;
}

function validationFailed(error: unknown): Validated {
  return { type: 'invalid', problems: [`the check itself failed: ${messageOf(error)}`] };
}

interface JsonChecks {
  readonly plain: PlainCheck | undefined;
  readonly full: SchemaCheck;
}

/** Preparing a schema costs more than using it, so that is done once. */
const prepared = new WeakMap<JsonSchema, JsonChecks>();

/** Like `validate`, without waiting. */
export function validateJson(schema: JsonSchema, value: unknown, matches: PatternMatcher = matchRegExp): Validated {
  try {
    let checks = prepared.get(schema);
    if (!checks) {
      checks = { plain: plainCheck(schema), full: schemaCheck(schema) };
      prepared.set(schema, checks);
    }
    if (checks.plain?.(value)) return { type: 'valid', value };
    const problems = checks.full(value, matches);
    return problems.length === 0 ? { type: 'valid', value } : { type: 'invalid', problems };
  } catch (error) {
    return validationFailed(error);
  }
}

// ── Quick check ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** True: the value is valid. False: the full validator has to decide. */
type PlainCheck = (value: unknown) => boolean;

/**
 * Compiles a quick check for the simple schemas that most tools have: types, properties, required, items, enum. Most
 * arguments are valid, and for those the full validator takes ten times as long. The full validator decides about all
 * other values and writes the messages. Returns undefined if the schema uses any other keyword.
 */
export function plainCheck(schema: JsonSchema): PlainCheck | undefined {
  const checks: PlainCheck[] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    if (ANNOTATIONS.has(keyword)) continue;
    const check = keywordCheck(keyword, value, schema);
    if (!check) return undefined;
    checks.push(check);
  }
  return (value) => {
    for (let i = 0; i < checks.length; i++) if (!checks[i]!(value)) return false;
    return true;
  };
}

/** Keywords that require nothing of a value. */
const ANNOTATIONS: ReadonlySet<string> = new Set(['$schema', 'title', 'description', 'default', 'examples']);

function keywordCheck(keyword: string, operand: unknown, schema: JsonSchema): PlainCheck | undefined {
  switch (keyword) {
    case 'type':
      return typeof operand === 'string' ? TYPES[operand] : undefined;
    case 'enum':
      return Array.isArray(operand) ? (value) => typeof value !== 'object' && operand.includes(value) : undefined;
    case 'required':
      if (!Array.isArray(operand)) return undefined;
      return (value) => {
        if (!isRecord(value)) return false;
        for (let i = 0; i < operand.length; i++) if (!Object.hasOwn(value, operand[i])) return false;
        return true;
      };
    case 'properties':
      return isRecord(operand) ? propertiesCheck(operand, schema['additionalProperties']) : undefined;
    case 'additionalProperties':
      return 'properties' in schema ? alwaysValid : propertiesCheck({}, operand);
    case 'items': {
      const item = isRecord(operand) ? plainCheck(operand) : undefined;
      return item && ((value) => Array.isArray(value) && value.every(item));
    }
    default:
      return undefined;
  }
}

function propertiesCheck(properties: JsonSchema, additional: unknown): PlainCheck | undefined {
  if (additional !== undefined && typeof additional !== 'boolean') return undefined;
  const checks = new Map<string, PlainCheck>();
  for (const [key, schema] of Object.entries(properties)) {
    const check = isRecord(schema) ? plainCheck(schema) : undefined;
    if (!check) return undefined;
    checks.set(key, check);
  }
  return (value) => {
    if (!isRecord(value)) return false;
    for (const key in value) {
      const check = checks.get(key);
      if (check ? !check(value[key]) : additional === false) return false;
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

function alwaysValid(): boolean {
  return true;
}

function isRecord(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
