import type { JsonSchema } from '../model.ts';

/**
 * Why no value can be checked with a JSON Schema; undefined if nothing is wrong. It looks at all parts of the schema. It is
 * loaded by the first run with a JSON Schema for its answer.
 */
export function schemaProblem(schema: JsonSchema): string | undefined {
  if (Object.keys(schema).length === 0) return 'it is empty';
  // If parts have ids, references are left to the check.
  return partProblem(schema, JSON.stringify(schema).includes('"$id":') ? undefined : schema);
}

/** Keywords with one schema, or a list of them. */
const SCHEMAS: ReadonlySet<string> = new Set([
  'items',
  'prefixItems',
  'additionalItems',
  'unevaluatedItems',
  'contains',
  'contentSchema',
  'additionalProperties',
  'unevaluatedProperties',
  'propertyNames',
  'anyOf',
  'allOf',
  'oneOf',
  'not',
  'if',
  'then',
  'else',
]);
/** Keywords with schemas by a name of the user. */
const SCHEMAS_BY_NAME = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
const TYPES: readonly unknown[] = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];

function partProblem(part: unknown, root: JsonSchema | undefined): string | undefined {
  if (Array.isArray(part)) return firstProblem(part, (one) => partProblem(one, root));
  if (!isRecord(part)) return undefined;
  const { type, pattern, $ref: reference, patternProperties } = part;
  const patterns = [pattern, ...Object.keys(isRecord(patternProperties) ? patternProperties : {})];
  return (
    firstProblem(type === undefined ? [] : [type].flat(), typeProblem) ??
    firstProblem(patterns, (one) => (typeof one === 'string' ? patternProblem(one) : undefined)) ??
    (typeof reference === 'string' && root && !isResolved(reference, root)
      ? `there is no '${reference.slice(0, 100)}' in it`
      : undefined) ??
    firstProblem(Object.keys(part), (key) => keywordProblem(key, part[key], root))
  );
}

function keywordProblem(key: string, value: unknown, root: JsonSchema | undefined): string | undefined {
  if (SCHEMAS.has(key)) return partProblem(value, root);
  if (key === 'required' || key === 'enum') return Array.isArray(value) ? undefined : `its '${key}' is not a list`;
  if (!SCHEMAS_BY_NAME.has(key)) return undefined;
  if (!isRecord(value)) return `its '${key}' is not an object`;
  return firstProblem(Object.keys(value), (name) =>
    isRecord(value[name]) || typeof value[name] === 'boolean'
      ? partProblem(value[name], root)
      : `'${name}' in its '${key}' is not a schema`,
  );
}

function firstProblem<T>(list: readonly T[], problemOf: (one: T) => string | undefined): string | undefined {
  for (const one of list) {
    const problem = problemOf(one);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function typeProblem(type: unknown): string | undefined {
  return TYPES.includes(type) ? undefined : `there is no type ${JSON.stringify(type)?.slice(0, 100)}`;
}

function patternProblem(pattern: string): string | undefined {
  try {
    return void new RegExp(pattern, 'u');
  } catch (error) {
    return `a pattern is not valid (${(error as Error).message})`;
  }
}

/** Only paths are looked up. Anchors are left to the check. */
function isResolved(reference: string, root: JsonSchema): boolean {
  if (!reference.startsWith('#/')) return reference.startsWith('#');
  let found: unknown = root;
  for (const key of reference.slice(2).split('/')) {
    const name = key.replaceAll('~1', '/').replaceAll('~0', '~');
    found = (found as Record<string, unknown> | null | undefined)?.[name];
  }
  // The check decodes the path.
  return found !== undefined || reference.includes('%');
}

function isRecord(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
