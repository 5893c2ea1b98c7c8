import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { checked, isObject, notOneOf, wrongType, type Body } from './fields.ts';
import { LONGEST, type RequestLimits } from './limits.ts';
import type { AnswerForm } from './request.ts';

export interface ParsedText {
  /** Absent: any text will do. */
  readonly format?: AnswerForm;
  readonly echo: unknown;
}

const FORMATS = ['text', 'json_object', 'json_schema'] as const;

const textSettings = z.object({
  format: z.unknown().optional(),
  verbosity: z.enum(['low', 'medium', 'high']).nullish(),
});
const jsonSchema = z.object({
  name: z
    .string()
    .min(1)
    .max(LONGEST.name)
    .regex(/^[a-zA-Z0-9_-]+$/, "a format's name has letters, digits, '_' and '-' only"),
  description: z.string().nullish(),
  schema: z.custom<Body>(isObject, 'expected a JSON Schema, which is an object'),
  strict: z.boolean().nullish(),
});

/** `text`: the form of the answer. */
export function parseText(text: unknown, limits: RequestLimits): ParsedText {
  const { format, verbosity } = checked(textSettings, text ?? {}, 'text');
  const more = verbosity != null && { verbosity };
  const at = 'text.format';
  if (format == null) return { echo: { format: { type: 'text' }, ...more } };
  if (!isObject(format)) throw wrongType('object', format, at);
  const { type } = format;
  switch (type) {
    case 'text':
      return { echo: { format: { type }, ...more } };
    case 'json_object':
      return { format: { schema: { type: 'object' } }, echo: { format: { type }, ...more } };
    case 'json_schema': {
      if ('json_schema' in format && !('schema' in format)) throw chatForm(at);
      const { name, description, schema, strict } = checked(jsonSchema, format, at);
      checkSize(schema, `${at}.schema`, limits.toolChars);
      const echo = { type, name, description: description ?? null, schema, strict: strict ?? false };
      return { format: { schema, name, ...(strict != null && { strict }) }, echo: { format: echo, ...more } };
    }
    default:
      throw notOneOf(type, FORMATS, `${at}.type`);
  }
}

function chatForm(at: string): Error {
  return badRequest(
    `Missing required parameter: '${at}.schema'. Here 'name' and 'schema' stand in the format itself, not under 'json_schema'.`,
    `${at}.schema`,
    'missing_required_parameter',
  );
}

function checkSize(schema: object, at: string, most: number): void {
  const { length } = JSON.stringify(schema);
  if (length <= most) return;
  throw badRequest(
    `'${at}' has ${length} characters as JSON, and this server takes at most ${most} for a schema. Shorten it.`,
    at,
    'schema_too_large',
  );
}
