import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { bodyDigest } from '../../requests/idempotency.ts';
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
import { checkDeclared, functionTool, toolChoiceSchema, toolsSchema, withoutSecrets } from '../../parse/tools.ts';
import {
  checkJson,
  isObject,
  jsonObject,
  list,
  PARAM,
  refuse,
  textOr,
  unsupported,
  validateBody,
  type IssueContext,
} from '../../parse/validate.ts';
import { givenIds, inputSchema, longText, withIds } from './parse-input.ts';
import type { Echo, InputItem, ResponseResource } from './wire.ts';

/** A validated request for a response; plain JSON. Its `storable` form is stored with the response. */
export interface ResponseRequest extends RunRequest {
  readonly stream: boolean;
  readonly store: boolean;
  readonly previous?: string;
  /** The id of the conversation that it continues, instead of `previous`. */
  readonly conversation?: string;
  /** The ids of items that the client has chosen, if it continues a conversation. Not stored. */
  readonly givenIds?: readonly string[];
  readonly instructions?: string;
  /** The items in the order of the request. Each has an id. */
  readonly input: readonly InputItem[];
  /** Equal for equal requests, streamed or not. Set if the input decides about calls. Not stored. */
  readonly digest?: string;
  readonly include: readonly string[];
  /** The session that its client names. Absent: none, or that of the headers. */
  readonly session?: string;
  /** Reasoning that this server has not sealed is passed over. Absent: it is refused. */
  readonly passesForeignReasoning?: true;
  /** The fields that the response repeats; `model` is added when it is known. */
  readonly echo: Omit<Echo, 'model'>;
}

export interface ParseOptions extends Partial<RequestLimits> {
  /** Labels of servers whose tools are available to every request, so that `tool_choice` may name them. */
  readonly labels?: readonly string[];
  /** The input may be empty: no model is called for it. Default false. */
  readonly isWarmUp?: boolean;
}

/** Validates the body of `POST /v1/responses`. Throws an `ApiError` that names the field and what to do. */
export function parseRequest(
  body: unknown,
  { labels = [], isWarmUp = false, ...limits }: ParseOptions = {},
): ResponseRequest {
  const isStandard = Object.keys(limits).length === 0;
  const all = { ...DEFAULT_LIMITS, ...limits };
  checkJson(body, all.depth);
  const parsed = validateBody(isStandard ? STANDARD : bodySchema(all), body);
  const { tools, tool_choice: choice, instructions, text, input, conversation } = parsed;
  const { previous_response_id: previous } = parsed;
  checkDeclared(choice, tools, labels);
  if (parsed.background && parsed.store === false) throw badRequest(BACKGROUND_STORED, 'background', 'invalid_value');
  if (conversation != null) checkConversation(parsed);
  if (input.length === 0 && previous == null && conversation == null && !isWarmUp)
    throw emptyInput((body as { readonly input?: unknown }).input);
  return {
    ...sharedRequest(parsed, {
      reasoning: parsed.reasoning?.effort,
      verbosity: text?.verbosity,
      topLogprobs: wantedLogprobs(parsed),
    }),
    ...(previous != null && { previous }),
    ...(conversation != null && { conversation, givenIds: [...givenIds(input)] }),
    ...(instructions != null && { instructions }),
    // In a conversation the same text may be sent twice.
    input: withIds(input, conversation == null ? '' : randomUUID()),
    ...(input.some(({ type }) => type === 'mcp_approval_response') && { digest: digestOf(body as object) }),
    functions: tools.functions,
    otherTools: tools.others,
    toolChoice: choice.choice,
    ...(parsed.max_output_tokens != null && { maxOutputTokens: parsed.max_output_tokens }),
    ...(text?.format.format && { format: text.format.format }),
    ...(parsed.context_management?.[0] && { compactFrom: parsed.context_management[0].compact_threshold }),
    include: parsed.include ?? [],
    ...sessionIn(parsed.client_metadata),
    ...(isOfCodex(parsed.client_metadata) && { passesForeignReasoning: true }),
    ...(parsed.background && { background: true }),
    echo: echoOf(parsed),
  };
}

function digestOf(body: { readonly stream?: unknown; readonly stream_options?: unknown }): string {
  const { stream: _, stream_options: __, ...fields } = body;
  return bodyDigest('responses', fields);
}

/** Codex names its session here, which its agents and its reviews have too. */
function sessionIn(metadata: ParsedBody['client_metadata']): { readonly session?: string } {
  const { session_id: session } = metadata ?? {};
  return typeof session === 'string' && /^[\w-]{1,200}$/.test(session) ? { session } : {};
}

/** Codex sends the reasoning of all servers that a session has had, and cannot leave it out. */
function isOfCodex(metadata: ParsedBody['client_metadata']): boolean {
  return metadata?.['x-codex-window-id'] !== undefined;
}

const BACKGROUND_STORED = "A background response is stored: leave 'store' out, or set it to true.";

function checkConversation({ previous_response_id: previous, store }: ParsedBody): void {
  if (previous != null) {
    const message =
      "'previous_response_id' and 'conversation' exclude each other: a conversation is continued after its newest response. Send one of them.";
    throw badRequest(message, 'conversation', 'mutually_exclusive_parameters');
  }
  if (store !== false) return;
  const message = "A response of a conversation is stored: leave 'store' out, or set it to true.";
  throw badRequest(message, 'store', 'invalid_value');
}

/** The request as it may be stored: without the secrets of its tools. */
export function storable({ givenIds: _, digest: __, ...request }: ResponseRequest): ResponseRequest {
  return { ...request, otherTools: request.otherTools.map(withoutSecrets) };
}

/** The response to a request when it is created. */
export function newResponse(id: string, request: ResponseRequest, defaultModel: string, now: number): ResponseResource {
  return {
    id,
    object: 'response',
    created_at: Math.floor(now / 1000),
    completed_at: null,
    status: request.background ? 'queued' : 'in_progress',
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
    ...request.echo,
    model: request.model ?? defaultModel,
  };
}

/** `encrypted_content` of reasoning is included. */
export const ENCRYPTED = 'reasoning.encrypted_content';
const LOGPROBS = 'message.output_text.logprobs';

/** The other values of the API name parts of items that this server does not have, so there is nothing to include. */
const INCLUDABLE = [
  ENCRYPTED,
  LOGPROBS,
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'message.input_image.image_url',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
] as const;

/** Throws a 400 for a value of `include` that the API does not have. */
export function checkIncluded(values: readonly string[]): void {
  const unknown = values.find((value) => !(INCLUDABLE as readonly string[]).includes(value));
  if (unknown === undefined) return;
  const message = `There is nothing to include by the name ${JSON.stringify(unknown)}. Use ${INCLUDABLE.join(', ')}.`;
  throw badRequest(message, 'include', 'invalid_value');
}

/** With how many of the most likely tokens log probabilities are wanted; undefined: they are not. */
function wantedLogprobs({ include, top_logprobs: top }: ParsedBody): number | undefined {
  return top || include?.includes(LOGPROBS) ? (top ?? 0) : undefined;
}

const SUMMARIES = ['auto', 'concise', 'detailed'] as const;

const conversationId = z.string().min(1).max(MAX_LENGTH.id);

/** Fields that the API does not have, as OpenAI says it. */
const chatOnly = z
  .unknown()
  .superRefine((value, ctx) => {
    if (value == null) return;
    const message = `Unknown parameter: ${PARAM}. The Responses API does not have it. Leave it out, or use Chat Completions.`;
    refuse(ctx, message, { code: 'unknown_parameter' });
  })
  .meta({ description: 'Not supported: only Chat Completions has it.' })
  .optional();

const MIN_OUTPUT_TOKENS = 16;

const maxOutputTokens = z
  .int()
  .superRefine((value, ctx) => {
    if (value >= MIN_OUTPUT_TOKENS) return;
    const message = `Invalid ${PARAM}: integer below minimum value. Expected a value >= ${MIN_OUTPUT_TOKENS}, but got ${value} instead.`;
    refuse(ctx, message, { code: 'integer_below_min_value' });
  })
  .meta({ minimum: MIN_OUTPUT_TOKENS });

/** Unknown fields are ignored. */
function bodySchema(limits: RequestLimits) {
  const input = inputSchema(limits);
  const jsonSchema = jsonSchemaFormat(limits);
  return z.object({
    ...SHARED_FIELDS,
    previous_response_id: z.string().min(1).max(MAX_LENGTH.id).nullish(),
    include: list(z.string().pipe(z.enum(INCLUDABLE)), { expected: 'array', max: 64 }).nullish(),
    max_output_tokens: maxOutputTokens.nullish(),
    top_logprobs: z.int().min(0).max(20).nullish(),
    reasoning: z
      .object({
        effort,
        summary: z.enum(SUMMARIES).nullish(),
        generate_summary: z.enum(SUMMARIES).nullish(),
      })
      .nullish(),
    context_management: list(z.object({ type: z.enum(['compaction']), compact_threshold: z.int().min(1_000) }), {
      expected: 'array',
      max: 1,
    }).nullish(),
    background: z.boolean().nullish(),
    client_metadata: jsonObject.nullish(),
    stop: chatOnly,
    seed: chatOnly,
    logit_bias: chatOnly,
    conversation: textOr(
      conversationId,
      z.object({ id: conversationId }).transform(({ id }) => id),
    ).nullish(),
    prompt: unsupported("Send the text itself as 'instructions' or 'input'."),
    instructions: textOr(longText, input.superRefine(refuseOtherItems).transform(textOfMessages)).nullish(),
    tools: toolsSchema({
      limits,
      namePath: ['name'],
      hasNamespaces: true,
      functionForms: [functionTool],
      functionForm(tool, ctx) {
        if (tool['name'] !== undefined || !isObject(tool['function'])) return functionTool;
        const message = `Missing required parameter: ${PARAM}. In this API the fields of a function are in the tool itself, not under 'function'.`;
        return refuse(ctx, message, { path: ['name'], code: 'missing_required_parameter' });
      },
    }),
    tool_choice: toolChoiceSchema,
    text: z
      .object({
        format: answerFormat((format, ctx) => {
          if (!('json_schema' in format) || 'schema' in format) return jsonSchema;
          const message = `Missing required parameter: ${PARAM}. In this API 'name' and 'schema' are in the format itself, not under 'json_schema'.`;
          return refuse(ctx, message, { path: ['schema'], code: 'missing_required_parameter' });
        }, jsonSchema),
        verbosity,
      })
      .nullish(),
    input: input.nullish().transform((items) => items ?? []),
  });
}

const STANDARD = bodySchema(DEFAULT_LIMITS);

/** The body of a request, for `/openapi.json`. */
export const RESPONSE_BODY: z.ZodType = STANDARD;

type ParsedBody = z.infer<ReturnType<typeof bodySchema>>;

function refuseOtherItems(items: readonly InputItem[], ctx: IssueContext): void {
  const index = items.findIndex(({ type }) => type !== 'message');
  if (index === -1) return;
  refuse(ctx, `Invalid ${PARAM}: instructions are messages, not items of type '${items[index]!.type}'.`, {
    path: [index],
    code: 'invalid_value',
  });
}

function textOfMessages(items: readonly InputItem[]): string {
  const texts = items.map((item) => {
    const parts = item.type === 'message' ? item.content : [];
    return parts.map((part) => ('text' in part ? part.text : part.type === 'refusal' ? part.refusal : '')).join('');
  });
  return texts.join('\n\n');
}

function emptyInput(value: unknown): Error {
  if (value == null) return badRequest("Missing required parameter: 'input'.", 'input', 'missing_required_parameter');
  const message =
    "'input' is empty. Send at least one message, or a 'previous_response_id' or a 'conversation' to continue.";
  return badRequest(message, 'input', 'empty_input');
}

function echoOf(body: ParsedBody): Omit<Echo, 'model'> {
  const { reasoning, text } = body;
  return {
    background: body.background ?? false,
    frequency_penalty: body.frequency_penalty ?? 0,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    metadata: body.metadata ?? {},
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    presence_penalty: body.presence_penalty ?? 0,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: reasoning
      ? { effort: reasoning.effort ?? null, summary: reasoning.summary ?? reasoning.generate_summary ?? null }
      : null,
    safety_identifier: body.safety_identifier ?? null,
    service_tier: echoedTier(body.service_tier),
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: {
      format: text?.format.echo ?? { type: 'text' },
      ...(text?.verbosity != null && { verbosity: text.verbosity }),
    },
    tool_choice: body.tool_choice.echo,
    tools: body.tools.echo,
    top_logprobs: body.top_logprobs ?? 0,
    top_p: body.top_p ?? 1,
    truncation: body.truncation ?? 'disabled',
    // Last: an object is built faster if its first fields are always the same.
    ...(body.user != null && { user: body.user }),
    ...(body.conversation != null && { conversation: { id: body.conversation } }),
  };
}
