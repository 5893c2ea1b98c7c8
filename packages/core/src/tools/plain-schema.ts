import type { JsonSchema } from '../model.ts';

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
