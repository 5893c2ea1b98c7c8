import { isJsonSchema, type Effort, type Settings } from '@treadle/core';
import { schemaProblem } from '@treadle/core/schema-problem';
import { z } from 'zod';
import { MAX_CONVERSATION_CHARS } from '../history/conversation.ts';
import type { AnswerFormat } from '../engine/request-model.ts';
import type { RunRequest } from '../requests/run.ts';
import {
  chosenSchema,
  isObject,
  jsonObject,
  PARAM,
  refuse,
  typed,
  wrongType,
  type IssueContext,
  type JsonObject,
} from './validate.ts';

/** How large one request may be. The size of the whole body is limited before it is parsed. */
export interface RequestLimits {
  readonly inputItems: number;
  /** Parts of one message or one output. */
  readonly parts: number;
  /** All texts, images and files of the input together, in characters. */
  readonly inputChars: number;
  readonly tools: number;
  /** One tool as JSON, with its schema. It also limits the schema of an answer. */
  readonly toolChars: number;
  /** How deep objects and lists may be nested. */
  readonly depth: number;
}

export const DEFAULT_LIMITS: RequestLimits = {
  inputItems: 10_000,
  parts: 1_000,
  inputChars: MAX_CONVERSATION_CHARS,
  tools: 256,
  toolChars: 131_072,
  depth: 64,
};

/** The limits of the specification for single strings, in characters. */
export const MAX_LENGTH = { text: 10_485_760, image: 20_971_520, file: 33_554_432, id: 256, name: 64 } as const;

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const satisfies Effort[];
const TIERS = ['auto', 'default', 'flex', 'scale', 'priority', 'fast', 'ultrafast'] as const;

export const effort: z.ZodType<Effort | null | undefined> = z.enum(EFFORTS).nullish();
export const verbosity: z.ZodType<Settings['verbosity'] | null> = z.enum(['low', 'medium', 'high']).nullish();

const METADATA = { pairs: 16, key: 64, value: 512 } as const;

/** The number of pairs is checked first: zod would collect an issue for each wrong pair. */
const metadata = z
  .unknown()
  .optional()
  .superRefine((pairs, ctx) => {
    if (!isObject(pairs)) return;
    const keys = Object.keys(pairs);
    if (keys.length > METADATA.pairs) {
      const message = `Invalid ${PARAM}: it has ${keys.length} pairs; expected at most ${METADATA.pairs}.`;
      refuse(ctx, message, { code: 'object_above_max_properties' });
    }
    const long = keys.find((key) => key.length > METADATA.key);
    if (long !== undefined) {
      const message = `Invalid ${PARAM}: the key '${long.slice(0, METADATA.key)}…' has ${long.length} characters; expected at most ${METADATA.key}.`;
      refuse(ctx, message, { code: 'string_above_max_length' });
    }
  })
  .pipe(z.record(z.string(), z.string().max(METADATA.value)).nullish());

type Nullish<Names extends string, Value> = { readonly [Name in Names]: Value | null | undefined };

/** The fields that both APIs have under the same name. */
export type SharedFields = Nullish<'model' | 'user' | 'safety_identifier' | 'prompt_cache_key', string> &
  Nullish<'stream' | 'store' | 'parallel_tool_calls', boolean> &
  Nullish<'max_tool_calls' | 'temperature' | 'top_p' | 'presence_penalty' | 'frequency_penalty', number> &
  Nullish<'truncation', 'auto' | 'disabled'> &
  Nullish<'metadata', Readonly<Record<string, string>>> &
  Nullish<'service_tier', (typeof TIERS)[number]>;

export const SHARED_FIELDS: { readonly [Name in keyof SharedFields]: z.ZodType<SharedFields[Name]> } = {
  model: z.string().min(1).max(MAX_LENGTH.id).nullish(),
  stream: z.boolean().nullish(),
  store: z.boolean().nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  max_tool_calls: z.int().min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  truncation: z.enum(['auto', 'disabled']).nullish(),
  service_tier: z.enum(TIERS).nullish(),
  metadata,
  user: z.string().max(MAX_LENGTH.id).nullish(),
  safety_identifier: z.string().max(64).nullish(),
  prompt_cache_key: z.string().max(64).nullish(),
};

/** The tier that a response names: the server does not know which one the provider chose for `auto`. */
export function echoedTier(tier: SharedFields['service_tier']): string {
  return tier == null || tier === 'auto' ? 'default' : tier;
}

/** The settings that the APIs have under different names. */
interface OtherSettings {
  readonly reasoning: Effort | null | undefined;
  readonly verbosity: Settings['verbosity'] | null;
  /** Absent: no log probabilities. */
  readonly topLogprobs: number | undefined;
}

/** The part of a request that follows from the shared fields. */
export function sharedRequest(
  body: SharedFields,
  { reasoning, verbosity, topLogprobs }: OtherSettings,
): Pick<RunRequest, 'model' | 'parallel' | 'maxToolCalls' | 'settings' | 'truncation'> & {
  readonly stream: boolean;
  readonly store: boolean;
} {
  return {
    ...(body.model != null && { model: body.model }),
    stream: body.stream ?? false,
    store: body.store ?? true,
    parallel: body.parallel_tool_calls ?? true,
    ...(body.max_tool_calls != null && { maxToolCalls: body.max_tool_calls }),
    settings: {
      ...(body.temperature != null && { temperature: body.temperature }),
      ...(body.top_p != null && { topP: body.top_p }),
      ...(reasoning && { reasoning }),
      ...(body.presence_penalty && { presencePenalty: body.presence_penalty }),
      ...(body.frequency_penalty && { frequencyPenalty: body.frequency_penalty }),
      ...(body.service_tier && { serviceTier: body.service_tier }),
      ...(body.prompt_cache_key && { promptCacheKey: body.prompt_cache_key }),
      ...(verbosity && { verbosity }),
      ...(topLogprobs !== undefined && { topLogprobs }),
    },
    truncation: body.truncation ?? 'disabled',
  };
}

/** A validated answer format: what the run uses, and what the response repeats. */
export interface ParsedFormat {
  /** Absent: any text. */
  readonly format?: AnswerFormat;
  readonly echo: unknown;
}

const FORMATS = ['text', 'json_object', 'json_schema'] as const;

/** The fields of a format of type `json_schema`. */
export function jsonSchemaFormat(
  { toolChars }: RequestLimits,
  { isSchemaOptional = false }: { readonly isSchemaOptional?: boolean } = {},
): z.ZodType<ParsedFormat> {
  const schema = jsonObject.superRefine((value, ctx) => {
    const { length } = JSON.stringify(value);
    if (length <= toolChars) return;
    const message = `${PARAM} has ${length} characters as JSON, and this server accepts at most ${toolChars} for a schema. Shorten it.`;
    refuse(ctx, message, { code: 'schema_too_large' });
  });
  return z
    .object({
      name: z
        .string()
        .min(1)
        .max(MAX_LENGTH.name)
        .regex(/^[a-zA-Z0-9_-]+$/, "the name of a format may contain only letters, digits, '_' and '-'"),
      description: z.string().nullish(),
      schema: isSchemaOptional ? schema.default({ type: 'object' }) : schema,
      strict: z.boolean().nullish(),
    })
    .superRefine(({ schema, strict }, ctx) => {
      const problem = strict ? answerSchemaProblem(schema) : undefined;
      if (problem === undefined) return;
      const message = `Invalid ${PARAM}: ${problem}, so that no answer can be checked. Correct the schema.`;
      refuse(ctx, message, { path: ['schema'], code: 'invalid_json_schema' });
    })
    .transform(({ name, description, schema, strict }) => ({
      format: { schema, name, ...(description && { description }), ...(strict != null && { strict }) },
      echo: { type: 'json_schema', name, description: description ?? null, schema, strict: strict ?? false },
    }));
}

/** Why no answer can be checked with the schema; undefined if it can. */
function answerSchemaProblem(schema: JsonObject): string | undefined {
  return isJsonSchema(schema) ? schemaProblem(schema) : 'it has no keyword of JSON Schema';
}

/** A format by its type. `jsonSchema` is the form that `json_schema` has in the API, and `form` its schema. */
export function answerFormat(
  jsonSchema: (format: JsonObject, ctx: IssueContext) => z.ZodType<ParsedFormat> | undefined,
  form: z.ZodType<ParsedFormat>,
): z.ZodType<ParsedFormat> {
  return chosenSchema<ParsedFormat>(
    (format, ctx) => {
      if (format == null) return TEXT;
      if (!isObject(format)) return wrongType(ctx, format, 'object');
      switch (format['type']) {
        case 'text':
          return TEXT;
        case 'json_object':
          return JSON_OBJECT;
        case 'json_schema':
          return jsonSchema(format, ctx);
        default:
          return UNKNOWN_FORMAT;
      }
    },
    () => [z.looseObject({ type: z.enum(['text', 'json_object']) }), typed('json_schema', form)],
  );
}

const TEXT = z.unknown().transform((): ParsedFormat => ({ echo: { type: 'text' } }));
const JSON_OBJECT = z.unknown().transform((): ParsedFormat => ({
  format: { schema: { type: 'object' }, anyObject: true },
  echo: { type: 'json_object' },
}));
const UNKNOWN_FORMAT = z.object({ type: z.enum(FORMATS) }).transform((): ParsedFormat => ({ echo: undefined }));
