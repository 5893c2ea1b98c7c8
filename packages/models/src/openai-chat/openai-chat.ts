import type { Model, Settings } from '@treadle/core';
import { sse } from '../framing.ts';
import { baseURLOf, type EndpointOptions } from '../http/endpoint.ts';
import { failureOfBody } from '../http/failures.ts';
import { httpModel } from '../http/model.ts';
import { OPENAI } from '../providers.ts';
import { signerOf, type Protocol } from '../protocol.ts';
import { chatBody, type ChatBody } from './body.ts';
import { UNKNOWN_HOST, type Quirks } from './quirks.ts';
import { OPENROUTER } from './reasoning-details.ts';
import { decodeChat, endChat, startChat, stepChat, type ChatStream } from './stream.ts';

const OPENAI_QUIRKS: Quirks = { maxTokensField: 'max_completion_tokens', customTools: true };

/** What most hosts take. */
const WIDELY_TAKEN: readonly (keyof Settings)[] = [
  'temperature',
  'maxOutputTokens',
  'topP',
  'stop',
  'seed',
  'reasoning',
  'presencePenalty',
  'frequencyPenalty',
  'logitBias',
  'topLogprobs',
];

export type OpenAiChatOptions = EndpointOptions;

/**
 * A model behind OpenAI's Chat Completions API, at OpenAI or at any host with the same API (`baseURL`). Use
 * `openaiCompatible` for hosts that differ. Throws if the options are invalid.
 */
export function openaiChat(options: OpenAiChatOptions): Model {
  const { model, stream = true } = options ?? {};
  const { baseURL } = baseURLOf(OPENAI, options);
  const quirks = isOpenAi(baseURL) ? OPENAI_QUIRKS : UNKNOWN_HOST;
  return httpModel(
    {
      factory: 'openaiChat',
      protocol: openaiChatProtocol({ model, stream, signer: signerOf(OPENROUTER, baseURL), ...quirks }),
      provider: OPENAI,
      auth: (apiKey) => ({ authorization: `Bearer ${apiKey}` }),
    },
    options,
  );
}

/** Includes the regional hosts. */
function isOpenAi(baseURL: unknown): boolean {
  const host = typeof baseURL === 'string' ? URL.parse(baseURL)?.hostname : undefined;
  return host === 'api.openai.com' || host?.endsWith('.api.openai.com') === true;
}

export function openaiChatProtocol(body: ChatBody): Protocol<ChatStream> {
  const { signer = OPENROUTER } = body;
  return {
    path: '/chat/completions',
    framing: sse,
    // The API fetches images by URL, but not files.
    accepts: { fileUrls: false, ...(body.media === false && { images: false, files: false }) },
    takes: body.hints === false ? WIDELY_TAKEN : [...WIDELY_TAKEN, 'promptCacheKey', 'verbosity', 'serviceTier'],
    body: chatBody(body),
    start: (tools) => startChat(signer, tools),
    step: stepChat,
    end: endChat,
    decode: (text) => decodeChat(text, signer),
    failure: failureOfBody,
  };
}
