import type { JsonSchema } from '@treadle/core';

const FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'uri', 'ipv4', 'ipv6', 'uuid'];

/**
 * A schema in the subset that the API accepts for an answer: closed objects and few keywords. Other keywords are moved
 * into the description; the loop validates the answer against the whole schema anyway. Returns no schema if an object has
 * arbitrary keys: closing it would only allow an empty object.
 */
export function answerSchema(schema: JsonSchema): { readonly schema?: JsonSchema } {
  const { $schema: _dialect, ...root } = schema;
  const found = { isOpen: false };
  const accepted = acceptedSchema(root, found);
  return found.isOpen ? {} : { schema: accepted };
}

interface Found {
  /** An object has arbitrary keys. */
  isOpen: boolean;
}

function acceptedSchema(schema: JsonSchema, found: Found): JsonSchema {
  if (isOpen(schema)) found.isOpen = true;
  const accepted: Record<string, unknown> = {};
  const described: Record<string, unknown> = {};
  const { type } = schema;
  for (const [keyword, value] of Object.entries(schema)) {
    const [name, acceptedValue] = acceptedKeyword(keyword, value, schema, found);
    if (acceptedValue === undefined) described[keyword] = value;
    else accepted[name] = acceptedValue;
  }
  if (type === 'object') {
    accepted['properties'] ??= {};
    accepted['additionalProperties'] = false;
    if (described['additionalProperties'] === false) delete described['additionalProperties'];
  }
  if (Object.keys(described).length === 0) return accepted;
  const keywords = Object.entries(described).map(([keyword, value]) => `${keyword}: ${JSON.stringify(value)}`);
  const description = [schema['description'], `{${keywords.join(', ')}}`].filter(Boolean).join('\n\n');
  return { ...accepted, description };
}

/** `{type: 'object'}` alone is any object; with a keyword that defines its form it is not. */
function isOpen({ type, properties, additionalProperties: more, patternProperties, ...rest }: JsonSchema): boolean {
  if (type !== 'object' || more === false || (isSchema(properties) && Object.keys(properties).length > 0)) return false;
  if (more !== undefined || patternProperties !== undefined) return true;
  return properties === undefined && !['$ref', 'anyOf', 'oneOf', 'allOf', 'enum', 'const'].some((word) => word in rest);
}

/** A keyword with the value that the API accepts, or `undefined` if it accepts none. */
function acceptedKeyword(
  keyword: string,
  value: unknown,
  schema: JsonSchema,
  found: Found,
): [keyword: string, value: unknown] {
  const list = (): unknown => (Array.isArray(value) ? value.map((one) => acceptedIfSchema(one, found)) : undefined);
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
      return [keyword, isSchema(value) ? acceptedSchemas(value, found) : undefined];
    case 'items':
      return [keyword, isSchema(value) ? acceptedSchema(value, found) : undefined];
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

function acceptedSchemas(schemas: JsonSchema, found: Found): JsonSchema {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, acceptedIfSchema(schema, found)]));
}

function acceptedIfSchema(schema: unknown, found: Found): unknown {
  return isSchema(schema) ? acceptedSchema(schema, found) : schema;
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
