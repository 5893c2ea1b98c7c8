import { z } from 'zod';
import { checked, isObject, unsupported, wrongType, type Body } from '../responses/fields.ts';
import { checkInputSize } from '../responses/input-size.ts';
import { DEFAULT_LIMITS, LONGEST, type RequestLimits } from '../responses/limits.ts';
import { parseRequest, type ParseOptions } from '../responses/parse.ts';
import { messagesFrom } from './messages.ts';
import type { ChatRequest } from './request.ts';
import { asResponseBody, inChatWords } from './response-body.ts';

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
  if (!isObject(body)) throw wrongType('object', body, '');
  refuseUnsupported(body);
  const plain = checked(chatFields, body, '');
  if (plain.n != null && plain.n !== 1) throw unsupported('n', 'One request has one answer: send several requests.');
  if (plain.logprobs === true) throw unsupported('logprobs', 'Leave it out.');
  const {
    previous: _,
    input: __,
    include: ___,
    echo,
    ...asked
  } = inChatWords(() => parseRequest(asResponseBody(body), options));
  const { messages, system } = messagesFrom(body['messages'], limits);
  checkInputSize(messages, 'messages', limits.inputChars);
  const stop = stopOf(body['stop']);
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

function stopOf(given: unknown): readonly string[] {
  if (given == null || given === '') return [];
  return typeof given === 'string' ? [given] : checked(stops, given, 'stop');
}
