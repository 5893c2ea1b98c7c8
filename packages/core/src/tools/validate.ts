import { Validator } from '@cfworker/json-schema';
import { messageOf } from '../errors.ts';
import type { JsonSchema } from '../model.ts';
import { plainCheck, type PlainCheck } from './plain-schema.ts';
import { isStandardSchema, type Schema, type StandardSchema } from './schema.ts';

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
