import type { JsonSchema } from '@treadle/core';

const FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'uri', 'ipv4', 'ipv6', 'uuid'];

/**
 * A schema as the API takes it for an answer: closed objects and few keywords. What it does not take is told to the
 * model in the description instead; the loop holds the answer against the whole schema anyway.
 */
export function answerSchema(schema: JsonSchema): JsonSchema {
  const { $schema: _dialect, ...root } = schema;
  return taken(root);
}

function taken(schema: JsonSchema): JsonSchema {
  const kept: Record<string, unknown> = {};
  const told: Record<string, unknown> = {};
  const { type } = schema;
  for (const [keyword, value] of Object.entries(schema)) {
    const [name, fit] = fitting(keyword, value, type);
    if (fit === undefined) told[keyword] = value;
    else kept[name] = fit;
  }
  if (type === 'object') {
    kept['properties'] ??= {};
    kept['additionalProperties'] = false;
    delete told['additionalProperties'];
  }
  if (Object.keys(told).length === 0) return kept;
  const words = Object.entries(told).map(([keyword, value]) => `${keyword}: ${JSON.stringify(value)}`);
  const description = [schema['description'], `{${words.join(', ')}}`].filter(Boolean).join('\n\n');
  return { ...kept, description };
}

/** A keyword as it may stand, or `undefined` if it may not. */
function fitting(keyword: string, value: unknown, type: unknown): [keyword: string, value: unknown] {
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
      return [keyword, isSchema(value) ? mapped(value) : undefined];
    case 'items':
      return [keyword, isSchema(value) ? taken(value) : undefined];
    case 'anyOf':
    case 'allOf':
      return [keyword, Array.isArray(value) ? value.map(takenIfSchema) : undefined];
    case 'oneOf':
      return ['anyOf', Array.isArray(value) ? value.map(takenIfSchema) : undefined];
    case 'format':
      return [keyword, type === 'string' && FORMATS.includes(value as string) ? value : undefined];
    case 'minItems':
      return [keyword, value === 0 || value === 1 ? value : undefined];
    default:
      return [keyword, undefined];
  }
}

function mapped(schemas: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, takenIfSchema(schema)]));
}

function takenIfSchema(schema: unknown): unknown {
  return isSchema(schema) ? taken(schema) : schema;
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
