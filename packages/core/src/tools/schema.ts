import { messageOf, TreadleError, type TreadleErrorCode } from '../errors.ts';
import type { JsonSchema } from '../model.ts';

/**
 * A schema: anything that speaks Standard Schema (zod 4, valibot, arktype, …), or plain JSON Schema. A Standard Schema
 * that cannot describe itself as JSON Schema (plain valibot) needs `parameters` beside it.
 */
export type Schema = StandardSchema | JsonSchema;

/** What a schema gives after validation. JSON Schema says nothing to the type checker. */
export type OutputOf<S> =
  S extends StandardSchema<infer Output> ? Output : S extends JsonSchema ? Record<string, unknown> : never;

/** The part of https://standardschema.dev that is used here; the specification asks to copy it. */
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

export function isStandardSchema(schema: Schema): schema is StandardSchema {
  return '~standard' in schema;
}

/** A schema as JSON Schema. Throws `code` if it cannot be described as such; `what` is whose schema it is. */
export function describe(what: string, schema: Schema, code: TreadleErrorCode): JsonSchema {
  if (!isStandardSchema(schema)) return schema;
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
