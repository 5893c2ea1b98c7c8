import type { Effort } from '@treadle/core';
import { effortOfBudget } from '@treadle/models/anthropic-wire';
import { z } from 'zod';
import type { RunRequest } from '../../requests/run.ts';
import { DEFAULT_LIMITS, jsonSchemaFormat, MAX_LENGTH, type RequestLimits } from '../../parse/fields.ts';
import { checkJson, list, textOr, unsupported, validateBody, variants } from '../../parse/validate.ts';
import { contextManagement, type ContextEdit } from './context-edits.ts';
import { effort, messagesSchema, type ParsedMessage } from './parse-messages.ts';
import { serversSchema, toolChoiceSchema, toolsSchema, type DeclaredServer, type DeclaredTool } from './parse-tools.ts';

/** A validated request for a message. */
export interface MessageRequest extends Omit<RunRequest, 'functions' | 'otherTools'> {
  readonly model: string;
  readonly stream: boolean;
  readonly messages: readonly ParsedMessage[];
  /** The texts of `system`. Absent: the request has none. */
  readonly system?: readonly string[];
  /** Absent: the request has none. */
  readonly tools?: readonly DeclaredTool[];
  readonly servers: readonly DeclaredServer[];
  /** What the client gets of the model's reasoning. Absent: nothing. */
  readonly thinking?: ThinkingDisplay;
  /** Absent: the client does not ask for it. */
  readonly edits?: readonly ContextEdit[];
  readonly thread?: MessageThread;
}

/** `omitted`: only signatures. */
export type ThinkingDisplay = 'summarized' | 'omitted';

/** The server holds the conversation. */
export type MessageThread = { readonly type: 'create' } | { readonly type: 'continue'; readonly previous: string };

/** Validates the body of `POST /v1/messages`. Throws an `ApiError` that names the field and what to do. */
export function parseMessageRequest(body: unknown, limits: Partial<RequestLimits> = {}): MessageRequest {
  return requestOf(parsedBody(body, limits, CREATE, createSchema));
}

/** The same for `POST /v1/messages/count_tokens`. */
export function parseCountRequest(body: unknown, limits: Partial<RequestLimits> = {}): MessageRequest {
  return requestOf(parsedBody(body, limits, COUNT, bodySchema));
}

function parsedBody<T>(
  body: unknown,
  limits: Partial<RequestLimits>,
  standard: z.ZodType<T>,
  schemaFor: (limits: RequestLimits) => z.ZodType<T>,
): T {
  const all = { ...DEFAULT_LIMITS, ...limits };
  checkJson(body, all.depth);
  return validateBody(Object.keys(limits).length === 0 ? standard : schemaFor(all), body);
}

function requestOf(body: ParsedBody & { readonly max_tokens?: number }): MessageRequest {
  const { tool_choice: choice, output_config: output, thinking, context_management: managed, thread } = body;
  const format = output?.format ?? body.output_format;
  const told = body.messages.findLast((message) => message.role === 'system' && message.effort);
  const reasoning = reasoningOf(thinking, (told?.role === 'system' && told.effort) || output?.effort);
  const display = thinking == null || thinking.type === 'disabled' ? undefined : (thinking.display ?? 'summarized');
  return {
    model: body.model,
    stream: body.stream ?? false,
    messages: body.messages,
    ...(body.system != null && { system: body.system.filter((text) => !BILLING.test(text)) }),
    ...(body.tools && { tools: body.tools }),
    servers: body.mcp_servers ?? [],
    toolChoice: choice?.choice ?? 'auto',
    parallel: choice?.parallel ?? true,
    ...(body.max_tokens !== undefined && { maxOutputTokens: body.max_tokens }),
    settings: {
      ...(body.temperature != null && { temperature: body.temperature }),
      ...(body.top_p != null && { topP: body.top_p }),
      ...(body.stop_sequences && body.stop_sequences.length > 0 && { stop: body.stop_sequences }),
      ...(reasoning && { reasoning }),
      ...(body.service_tier && { serviceTier: body.service_tier === 'auto' ? 'auto' : 'default' }),
    },
    ...(format?.format && { format: format.format }),
    ...(display && { thinking: display === 'omitted' ? 'omitted' : 'summarized' }),
    ...(managed && { edits: managed.edits ?? [] }),
    ...(thread && {
      thread:
        thread.type === 'create' ? { type: 'create' } : { type: 'continue', previous: thread.previous_message_id },
    }),
    truncation: 'disabled',
  };
}

/** A text of Claude Code for Anthropic's servers, and not for the model. */
const BILLING = /^x-anthropic-billing-header:/;

type Thinking = NonNullable<z.infer<typeof thinkingSchema>>;

/** Without `thinking` the provider decides whether the model thinks. The API's own default effort is `high`. */
function reasoningOf(thinking: Thinking | null | undefined, wanted: Effort | null | undefined): Effort | undefined {
  switch (thinking?.type) {
    case 'disabled':
      return 'none';
    case 'enabled':
      return wanted ?? effortOfBudget(thinking.budget_tokens);
    case 'adaptive':
    case 'between_tools':
      return wanted ?? 'high';
    default:
      return wanted ?? undefined;
  }
}

const display = { display: z.enum(['summarized', 'omitted', 'updates']).nullish() };

const thinkingSchema = variants(
  'type',
  ['enabled', 'adaptive', 'disabled'],
  [
    z.object({ type: z.literal('enabled'), budget_tokens: z.int().min(1_024), ...display }),
    z.object({ type: z.literal('adaptive'), ...display }),
    z.object({ type: z.literal('between_tools'), ...display }),
    z.object({ type: z.literal('disabled') }),
  ],
).nullish();

const threadSchema = variants(
  'type',
  ['create', 'continue'],
  [
    z.object({ type: z.literal('create') }),
    z.object({ type: z.literal('continue'), previous_message_id: z.string().min(1).max(MAX_LENGTH.id) }),
  ],
).nullish();

const MAX_STOPS = 64;

/** Unknown fields are ignored. */
function bodySchema(limits: RequestLimits) {
  const text = z.string().max(MAX_LENGTH.text);
  const texts = list(z.object({ type: z.literal('text'), text }), {
    expected: 'a string or a list of texts',
    max: limits.parts,
  });
  const format = z
    .object({ type: z.literal('json_schema'), schema: z.unknown() })
    .transform(({ schema }): unknown => ({ name: 'answer', schema, strict: true }))
    .pipe(jsonSchemaFormat(limits))
    .nullish();
  return z.object({
    model: z.string().min(1).max(MAX_LENGTH.id),
    messages: messagesSchema(limits),
    system: textOr(
      text.transform((one) => [one]),
      texts.transform((blocks) => blocks.map((block) => block.text)),
    ).nullish(),
    stream: z.boolean().nullish(),
    tools: toolsSchema(limits).nullish(),
    tool_choice: toolChoiceSchema,
    mcp_servers: serversSchema.nullish(),
    thinking: thinkingSchema,
    output_config: z.object({ effort, format }).nullish(),
    output_format: format,
    context_management: contextManagement,
    stop_sequences: list(z.string().min(1).max(MAX_LENGTH.id), {
      expected: 'a list of strings',
      max: MAX_STOPS,
    }).nullish(),
    temperature: z.number().min(0).max(1).nullish(),
    top_p: z.number().min(0).max(1).nullish(),
    top_k: unsupported("Leave it out, or use 'top_p'."),
    metadata: z.looseObject({ user_id: z.string().nullish() }).nullish(),
    service_tier: z.enum(['auto', 'standard_only']).nullish(),
    thread: threadSchema,
    container: unsupported('This server has no containers.'),
    compaction: unsupported('Let the client summarise the conversation.'),
    inference_geo: unsupported('The models of this server run where they are configured.'),
  });
}

type ParsedBody = z.infer<ReturnType<typeof bodySchema>>;

function createSchema(limits: RequestLimits) {
  return bodySchema(limits).extend({ max_tokens: z.int().min(1) });
}

const CREATE = createSchema(DEFAULT_LIMITS);
const COUNT = bodySchema(DEFAULT_LIMITS);

/** The bodies of requests, for `/openapi.json`. */
export const MESSAGE_BODY: z.ZodType = CREATE;
export const COUNT_BODY: z.ZodType = COUNT;
