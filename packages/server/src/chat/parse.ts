import { z } from 'zod';
import { ApiError, badRequest } from '../api-error.ts';
import { checked, wrongType } from '../responses/fields.ts';
import { DEFAULT_LIMITS, LONGEST, type RequestLimits } from '../responses/limits.ts';
import { parseRequest, type ParseOptions } from '../responses/parse.ts';
import { messagesFrom } from './messages.ts';
import type { ChatRequest } from './request.ts';
import { asResponseBody, inChatWords } from './response-body.ts';

type Body = Readonly<Record<string, unknown>>;

const MOST_STOPS = 16;

/** The fields that requests for responses do not have. Unknown ones are ignored. */
const chatFields = z.object({
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  n: z.int().nullish(),
  seed: z.int().nullish(),
  logprobs: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
});

const stops = z.array(z.string().min(1).max(LONGEST.id)).max(MOST_STOPS);

/** Checks the body of `POST /v1/chat/completions`. Throws an `ApiError` that names the field and what to do. */
export function parseChat(body: unknown, options: ParseOptions = {}): ChatRequest {
  const limits: RequestLimits = { ...DEFAULT_LIMITS, ...options };
  if (typeof body !== 'object' || body === null || Array.isArray(body)) throw wrongType('object', body, '');
  const fields = body as Body;
  refuseUnsupported(fields);
  const plain = checked(chatFields, fields, '');
  if (plain.n != null && plain.n !== 1) throw unsupported('n', 'One request has one answer: send several requests.');
  if (plain.logprobs === true) throw unsupported('logprobs', 'Leave it out.');
  const {
    previous: _,
    input: __,
    include: ___,
    echo,
    ...asked
  } = inChatWords(() => parseRequest(asResponseBody(fields), options));
  const { messages, system } = messagesFrom(fields['messages'], limits);
  checkSize(messages, limits.inputChars);
  const stop = stopOf(fields['stop']);
  const most = plain.max_completion_tokens ?? plain.max_tokens;
  return {
    ...asked,
    settings: { ...asked.settings, ...(stop.length > 0 && { stop }), ...(plain.seed != null && { seed: plain.seed }) },
    ...(most != null && { maxOutputTokens: most }),
    messages,
    system,
    includeUsage: plain.stream_options?.include_usage ?? false,
    serviceTier: echo.service_tier,
  };
}

/** Fields that would change what the request means, if they were ignored. */
function refuseUnsupported(fields: Body): void {
  if (fields['functions'] != null) throw unsupported('functions', "Declare functions in 'tools'.");
  if (fields['function_call'] != null) throw unsupported('function_call', "Use 'tool_choice'.");
  if (fields['audio'] != null) throw unsupported('audio', 'Answers are texts only.');
  const { modalities } = fields;
  if (Array.isArray(modalities) && modalities.some((one) => one !== 'text')) {
    throw unsupported('modalities', "Answers are texts only: leave it out, or ask for ['text'].");
  }
  if (fields['web_search_options'] != null) {
    throw unsupported('web_search_options', "Offer the model a tool in 'tools' that searches.");
  }
}

function unsupported(param: string, remedy: string): ApiError {
  return badRequest(`'${param}' is not supported by this server. ${remedy}`, param, 'unsupported_parameter');
}

function stopOf(given: unknown): readonly string[] {
  if (given == null || given === '') return [];
  return typeof given === 'string' ? [given] : checked(stops, given, 'stop');
}

function checkSize(messages: ChatRequest['messages'], most: number): void {
  const total = charsIn(messages);
  if (total <= most) return;
  const message = `'messages' hold ${total} characters, and this server takes at most ${most}. Send less of the conversation, or smaller files.`;
  throw new ApiError(413, 'invalid_request_error', message, { param: 'messages', code: 'input_too_large' });
}

function charsIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce<number>((total, part) => total + charsIn(part), 0);
}
