import type { JsonSchemaType, JsonSchemaValidatorResult, jsonSchemaValidator } from '@modelcontextprotocol/client';
import { CfWorkerJsonSchemaValidator } from '@modelcontextprotocol/client/validators/cf-worker';
import type { JsonSchema } from '@treadle/core';

/*
 * Schemas of servers are data of others, and checking a value against one must not take long.
 *
 * 1. Patterns are not checked: a regular expression can take exponential time. Nor is `uniqueItems`, which compares all pairs.
 *    The server checks its input itself.
 * 2. References can make a small schema mean a huge one, or refer to themselves. Where they do, the schema that contains them
 *    is not checked beyond its type.
 * 3. A result with many values is not checked against a schema with many parts.
 */

/** Parts of a schema after all references were replaced by what they refer to. */
const MAX_PARTS = 5_000;

const known = new WeakMap<object, JsonSchema>();

/** The part of a schema that values are checked against. */
export function checkedSchema(schema: Readonly<Record<string, unknown>>): JsonSchema {
  let checked = known.get(schema);
  if (!checked) {
    checked = expandedSchema(schema);
    known.set(schema, checked);
  }
  return checked;
}

const knownInputs = new WeakMap<object, JsonSchema>();

/** What arguments are checked against. Models often give null for an argument that they could leave out. */
export function checkedInput(schema: Readonly<Record<string, unknown>>): JsonSchema {
  let checked = knownInputs.get(schema);
  if (!checked) {
    checked = withNulls(checkedSchema(schema));
    knownInputs.set(schema, checked);
  }
  return checked;
}

function withNulls(schema: JsonSchema): JsonSchema {
  const { properties, required } = schema;
  if (typeof properties !== 'object' || properties === null) return schema;
  const needed = new Set(listOf(required));
  const all = Object.entries(properties).map(([name, one]): [string, unknown] => [
    name,
    needed.has(name) ? one : { anyOf: [one, { type: 'null' }] },
  ]);
  return { ...schema, properties: Object.fromEntries(all) };
}

class TooMany extends Error {}

function expandedSchema(root: Readonly<Record<string, unknown>>): JsonSchema {
  let parts = 0;
  const copy = (value: unknown, open: readonly string[]): unknown => {
    if (++parts > MAX_PARTS) throw new TooMany();
    if (Array.isArray(value)) return value.map((item) => copy(item, open));
    if (typeof value !== 'object' || value === null) return value;
    const { $ref, ...rest } = value as Record<string, unknown>;
    const copied = Object.fromEntries(
      Object.entries(rest).flatMap(([key, item]): [string, unknown][] => {
        if (OMITTED.has(key)) return [];
        if (VALUES.has(key)) return [[key, item]];
        if (!MAPS.has(key) || typeof item !== 'object' || item === null) return [[key, copy(item, open)]];
        return [[key, Object.fromEntries(Object.entries(item).map(([name, one]) => [name, copy(one, open)]))]];
      }),
    );
    if (typeof $ref !== 'string') return copied;
    const target = open.includes($ref) ? undefined : targetOf(root, $ref);
    if (target === undefined) return copied;
    const resolved = copy(target, [...open, $ref]);
    return Object.keys(copied).length === 0 ? resolved : { ...copied, allOf: [resolved, ...listOf(copied['allOf'])] };
  };
  try {
    return copy(root, []) as JsonSchema;
  } catch (error) {
    if (!(error instanceof TooMany)) throw error;
    return typeof root['type'] === 'string' ? { type: root['type'] } : {};
  }
}

/** Their values have schemas by names that others choose. */
const MAPS = new Set(['properties', 'dependentSchemas']);
/** Their values are not schemas. */
const VALUES = new Set(['enum', 'const', 'default', 'examples', 'required', 'dependentRequired']);
/** Not checked, or only used by references. */
const OMITTED = new Set([
  'pattern',
  'patternProperties',
  'uniqueItems',
  '$defs',
  'definitions',
  '$id',
  '$anchor',
  '$dynamicRef',
  '$recursiveRef',
  '$recursiveAnchor',
  '$schema',
]);

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function targetOf(root: unknown, ref: string): unknown {
  if (!ref.startsWith('#')) return undefined;
  let at = root;
  for (const part of ref.split('/').slice(1)) {
    const key = decoded(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Record<string, unknown>)[key];
  }
  return at;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Values of a result times parts of its schema. A million take about half a second. */
const MAX_CHECKS = 1_000_000;

const cfWorker = new CfWorkerJsonSchemaValidator();

/** For results of tools. One whose check would take very long is taken for valid. */
export const safeValidator: jsonSchemaValidator = {
  getValidator<T>(schema: JsonSchemaType) {
    const checked = checkedSchema(schema as Record<string, unknown>);
    const check = cfWorker.getValidator<T>(checked as JsonSchemaType);
    const maxValues = MAX_CHECKS / countParts(checked, MAX_CHECKS);
    return (value: unknown): JsonSchemaValidatorResult<T> =>
      countParts(value, maxValues) > maxValues
        ? { valid: true, data: value as T, errorMessage: undefined }
        : check(value);
  },
};

/** How many values there are in a value of JSON. Stops counting above `max`. */
function countParts(value: unknown, max: number): number {
  const open = [value];
  let count = 0;
  while (open.length > 0 && count <= max) {
    const one = open.pop();
    count++;
    if (typeof one !== 'object' || one === null) continue;
    for (const item of Object.values(one)) open.push(item);
  }
  return count;
}
