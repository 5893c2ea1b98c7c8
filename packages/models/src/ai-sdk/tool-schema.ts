import { TreadleError, type JsonSchema, type Schema, type StandardSchema } from '@treadle/core';

const MARK = Symbol.for('vercel.ai.schema');

/** What `jsonSchema()` of the AI SDK makes. */
interface AiSdkSchema {
  readonly jsonSchema: unknown;
  readonly validate?: (value: unknown) => Validation | PromiseLike<Validation>;
}

type Validation =
  | { readonly success: true; readonly value: unknown }
  | { readonly success: false; readonly error: Error };

/** The `inputSchema` of a tool as a schema of ours: zod and every Standard Schema are taken as they are. */
export function inputOf(name: string, schema: unknown): { input?: Schema; parameters?: JsonSchema } {
  if (schema === undefined || schema === null) return {};
  // A lazy schema is a function that gives it; some Standard Schemas are functions too.
  const given: unknown =
    typeof schema === 'function' && !('~standard' in schema) ? (schema as () => unknown)() : schema;
  if (isAiSdkSchema(given)) return fromMarked(name, given);
  if ((typeof given === 'object' || typeof given === 'function') && given !== null && '~standard' in given) {
    return { input: given as StandardSchema };
  }
  throw new TreadleError(
    'invalid-tool',
    `fromAiSdkTools: the inputSchema of "${name}" is none of the AI SDK's. Give zod, another Standard Schema or jsonSchema({ … }).`,
  );
}

function fromMarked(name: string, { jsonSchema, validate }: AiSdkSchema): { input: Schema; parameters: JsonSchema } {
  if (typeof jsonSchema !== 'object' || jsonSchema === null || 'then' in jsonSchema) {
    throw new TreadleError(
      'invalid-tool',
      `fromAiSdkTools: the JSON Schema of "${name}" is not there yet. Await it first: jsonSchema(await …).`,
    );
  }
  const { $schema: _, ...parameters } = jsonSchema as Record<string, unknown>;
  return { parameters, input: validate === undefined ? parameters : standard(validate) };
}

function standard(validate: NonNullable<AiSdkSchema['validate']>): StandardSchema {
  return {
    '~standard': {
      version: 1,
      vendor: 'ai-sdk',
      validate: async (value) => {
        const result = await validate(value);
        return result.success ? { value: result.value } : { issues: [{ message: result.error.message }] };
      },
    },
  };
}

function isAiSdkSchema(value: unknown): value is AiSdkSchema {
  return typeof value === 'object' && value !== null && MARK in value;
}
