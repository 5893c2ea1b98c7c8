import type { JsonSchema } from '@treadle/core';

const FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'uri', 'ipv4', 'ipv6', 'uuid'];

/**
 * A schema as the API takes it for an answer: closed objects and few keywords. What it does not take is told to the
 * model in the description instead; the loop holds the answer against the whole schema anyway. None where that does not
 * do: an object whose keys are free would be closed before it has any, and the answer could only be empty there.
 */
export function answerSchema(schema: JsonSchema): { readonly schema?: JsonSchema } {
  const { $schema: _dialect, ...root } = schema;
  const found = { isOpen: false };
  const fit = taken(root, found);
  return found.isOpen ? {} : { schema: fit };
}

interface Found {
  /** There is an object whose keys are free. */
  isOpen: boolean;
}

function taken(schema: JsonSchema, found: Found): JsonSchema {
  if (isOpen(schema)) found.isOpen = true;
  const kept: Record<string, unknown> = {};
  const told: Record<string, unknown> = {};
  const { type } = schema;
  for (const [keyword, value] of Object.entries(schema)) {
    const [name, fit] = fitting(keyword, value, schema, found);
    if (fit === undefined) told[keyword] = value;
    else kept[name] = fit;
  }
  if (type === 'object') {
    kept['properties'] ??= {};
    kept['additionalProperties'] = false;
    if (told['additionalProperties'] === false) delete told['additionalProperties'];
  }
  if (Object.keys(told).length === 0) return kept;
  const words = Object.entries(told).map(([keyword, value]) => `${keyword}: ${JSON.stringify(value)}`);
  const description = [schema['description'], `{${words.join(', ')}}`].filter(Boolean).join('\n\n');
  return { ...kept, description };
}

/** `{type: 'object'}` alone is any object; beside words that tell its form elsewhere it is not. */
function isOpen({ type, properties, additionalProperties: more, patternProperties, ...rest }: JsonSchema): boolean {
  if (type !== 'object' || more === false || (isSchema(properties) && Object.keys(properties).length > 0)) return false;
  if (more !== undefined || patternProperties !== undefined) return true;
  return properties === undefined && !['$ref', 'anyOf', 'oneOf', 'allOf', 'enum', 'const'].some((word) => word in rest);
}

/** A keyword as it may stand, or `undefined` if it may not. */
function fitting(keyword: string, value: unknown, schema: JsonSchema, found: Found): [keyword: string, value: unknown] {
  const list = (): unknown => (Array.isArray(value) ? value.map((one) => takenIfSchema(one, found)) : undefined);
  switch (keyword) {
    case 'type':
    case '$ref':
    case 'title':
    case 'description':
    case 'enum':
    case 'const':
    case 'required':
      return [keyword, value];
    case '$defs':
    case 'definitions':
    case 'properties':
      return [keyword, isSchema(value) ? mapped(value, found) : undefined];
    case 'items':
      return [keyword, isSchema(value) ? taken(value, found) : undefined];
    case 'anyOf':
    case 'allOf':
      return [keyword, list()];
    case 'oneOf':
      return ['anyOf', 'anyOf' in schema ? undefined : list()];
    case 'format':
      return [keyword, schema['type'] === 'string' && FORMATS.includes(value as string) ? value : undefined];
    case 'minItems':
      return [keyword, value === 0 || value === 1 ? value : undefined];
    default:
      return [keyword, undefined];
  }
}

function mapped(schemas: JsonSchema, found: Found): JsonSchema {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, takenIfSchema(schema, found)]));
}

function takenIfSchema(schema: unknown, found: Found): unknown {
  return isSchema(schema) ? taken(schema, found) : schema;
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
