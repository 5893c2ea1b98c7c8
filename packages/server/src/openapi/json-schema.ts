import { z } from 'zod';
import { formOf } from '../parse/validate.ts';

/** JSON Schema 2020-12, which OpenAPI 3.1 uses. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** The parts that were derived so far. Many are used several times, and each takes up to some milliseconds. */
export type KnownSchemas = Map<z.core.$ZodType, JsonSchema>;

/**
 * The JSON Schema of what a schema accepts, derived from the schema itself. Checks that are code, such as limits on the sum of
 * several fields, are not part of it: it accepts everything that the schema accepts, and a few values more.
 */
export function jsonSchemaOf(schema: z.core.$ZodType, known: KnownSchemas): JsonSchema {
  const found = known.get(schema);
  if (found) return found;
  const { $schema: _, ...described } = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override({ zodSchema, jsonSchema }) {
      const form = describedForm(zodSchema);
      if (form) replaceWith(jsonSchema, nullableIf(acceptsValue(zodSchema, null), jsonSchemaOf(form, known)));
      else nameRequired(zodSchema, jsonSchema);
    },
  });
  known.set(schema, described);
  return described;
}

/** What describes a schema better than zod can. */
function describedForm(schema: z.core.$ZodType): z.core.$ZodType | undefined {
  const { def } = schema._zod;
  if (def.type !== 'pipe') return formOf(schema);
  const { in: first, out } = def as z.core.$ZodPipeDef;
  const isAny = unwrapped(first)._zod.def.type === 'unknown';
  return isAny && out._zod.def.type !== 'transform' ? out : formOf(first);
}

function unwrapped(schema: z.core.$ZodType): z.core.$ZodType {
  const { def } = schema._zod;
  return def.type === 'optional' || def.type === 'nullable'
    ? unwrapped((def as z.core.$ZodOptionalDef).innerType)
    : schema;
}

/** Fields that reject `undefined` are required. Zod does not know which those are, if their schema is a function. */
function nameRequired(schema: z.core.$ZodType, json: z.core.JSONSchema.BaseSchema): void {
  const { def } = schema._zod;
  if (def.type !== 'object') return;
  const { shape } = def as z.core.$ZodObjectDef;
  const required = Object.keys(shape).filter((name) => !acceptsValue(shape[name]!, undefined));
  if (required.length > 0) json.required = required;
  else delete json.required;
}

function acceptsValue(schema: z.core.$ZodType, value: undefined | null): boolean {
  return z.safeParse(schema, value).success;
}

function nullableIf(isNullable: boolean, json: JsonSchema): JsonSchema {
  const { anyOf } = json as { readonly anyOf?: readonly JsonSchema[] };
  if (!isNullable || anyOf?.some(({ type }) => type === 'null')) return json;
  return { anyOf: [...(anyOf ?? [json]), { type: 'null' }] };
}

function replaceWith(json: z.core.JSONSchema.BaseSchema, other: JsonSchema): void {
  for (const key of Object.keys(json)) delete json[key];
  Object.assign(json, other);
}
