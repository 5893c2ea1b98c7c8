import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import type { RunRequest } from '../../requests/run.ts';
import {
  answerFormat,
  DEFAULT_LIMITS,
  echoedTier,
  effort,
  jsonSchemaFormat,
  MAX_LENGTH,
  SHARED_FIELDS,
  sharedRequest,
  verbosity,
  type RequestLimits,
} from '../../parse/fields.ts';
import { checkDeclared, functionTool, toolChoiceSchema, toolsSchema } from '../../parse/tools.ts';
import { checkJson, jsonObject, list, PARAM, refuse, textOr, unsupported, validateBody } from '../../parse/validate.ts';
import { messagesSchema, type ChatConversation } from './parse-messages.ts';

/** A validated request for a completion. */
export interface CompletionRequest extends RunRequest, ChatConversation {
  readonly stream: boolean;
  readonly store: boolean;
  /** The last chunk contains the usage. */
  readonly includeUsage: boolean;
  readonly serviceTier: string;
}

export interface ChatParseOptions extends Partial<RequestLimits> {
  /** Labels of servers whose tools are available to every request, so that `tool_choice` may name them. */
  readonly labels?: readonly string[];
}

/** Validates the body of `POST /v1/chat/completions`. Throws an `ApiError` that names the field and what to do. */
export function parseCompletion(body: unknown, { labels = [], ...limits }: ChatParseOptions = {}): CompletionRequest {
  const all = { ...DEFAULT_LIMITS, ...limits };
  checkJson(body, all.depth);
  const parsed = validateBody(Object.keys(limits).length === 0 ? STANDARD : bodySchema(all), body);
  const { tools, tool_choice: choice, stop, seed, response_format: format } = parsed;
  checkDeclared(choice, tools, labels);
  if (parsed.top_logprobs && !parsed.logprobs) {
    throw badRequest(
      "'top_logprobs' needs 'logprobs': true. Send both, or none of them.",
      'top_logprobs',
      'invalid_value',
    );
  }
  const { logit_bias: logitBias } = parsed;
  const shared = sharedRequest(parsed, {
    reasoning: parsed.reasoning_effort,
    verbosity: parsed.verbosity,
    topLogprobs: parsed.logprobs ? (parsed.top_logprobs ?? 0) : undefined,
  });
  const maxOutputTokens = parsed.max_completion_tokens ?? parsed.max_tokens;
  return {
    ...shared,
    functions: tools.functions,
    otherTools: tools.others,
    toolChoice: choice.choice,
    settings: {
      ...shared.settings,
      ...(stop && stop.length > 0 && { stop }),
      ...(seed != null && { seed }),
      ...(logitBias && Object.keys(logitBias).length > 0 && { logitBias }),
    },
    ...(maxOutputTokens != null && { maxOutputTokens }),
    ...(format.format && { format: format.format }),
    ...parsed.messages,
    includeUsage: parsed.stream_options?.include_usage ?? false,
    serviceTier: echoedTier(parsed.service_tier),
  };
}

const MAX_STOPS = 16;

/** OpenAI accepts no more. */
const MAX_BIASES = 1_024;

const logitBias = jsonObject
  .superRefine((biases, ctx) => {
    const count = Object.keys(biases).length;
    if (count > MAX_BIASES) refuse(ctx, `Invalid ${PARAM}: it has ${count} tokens; expected at most ${MAX_BIASES}.`);
  })
  .pipe(z.record(z.string(), z.number().min(-100).max(100)))
  .nullish();

/** Unknown fields are ignored. */
function bodySchema(limits: RequestLimits) {
  const jsonSchema = z
    .object({ json_schema: jsonSchemaFormat(limits, { isSchemaOptional: true }).prefault({}) })
    .transform(({ json_schema }) => json_schema);
  const nestedFunction = z.object({ function: functionTool }).transform((tool) => tool.function);
  return z.object({
    functions: unsupported("Declare functions in 'tools'."),
    function_call: unsupported("Use 'tool_choice'."),
    audio: unsupported('Answers contain only text.'),
    modalities: unsupported("Answers contain only text: leave it out, or send ['text'].", {
      isUsed: (value) => Array.isArray(value) && value.some((one) => one !== 'text'),
    }),
    web_search_options: unsupported("Declare a search tool in 'tools'."),
    max_tokens: z.int().min(1).nullish(),
    max_completion_tokens: z.int().min(1).nullish(),
    n: unsupported('One request has one answer: send several requests.', {
      isUsed: (count) => count != null && count !== 1,
      schema: z.int().nullish(),
    }),
    seed: z.int().nullish(),
    logprobs: z.boolean().nullish(),
    top_logprobs: z.int().min(0).max(20).nullish(),
    logit_bias: logitBias,
    stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
    ...SHARED_FIELDS,
    reasoning_effort: effort,
    verbosity,
    tools: toolsSchema({
      limits,
      namePath: ['function', 'name'],
      functionForms: [nestedFunction, functionTool],
      // The flat form of the Responses API is accepted too.
      functionForm: (tool) => (tool['function'] == null && 'name' in tool ? functionTool : nestedFunction),
    }),
    tool_choice: toolChoiceSchema,
    response_format: answerFormat(() => jsonSchema, jsonSchema),
    stop: textOr(
      z.string().transform((text) => (text === '' ? [] : [text])),
      list(z.string().min(1).max(MAX_LENGTH.id), { expected: 'a string or a list of strings', max: MAX_STOPS }),
    ).nullish(),
    messages: messagesSchema(limits),
  });
}

const STANDARD = bodySchema(DEFAULT_LIMITS);

/** The body of a request, for `/openapi.json`. */
export const COMPLETION_BODY: z.ZodType = STANDARD;
