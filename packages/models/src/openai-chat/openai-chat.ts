import type { Model } from '@treadle/core';
import { sse } from '../framing/sse.ts';
import type { EndpointOptions } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import { failureOfBody } from '../http/provider-failures.ts';
import type { Protocol } from '../protocol.ts';
import { signerOf } from '../signer.ts';
import { chatBody, type ChatBody } from './body.ts';
import { ELSEWHERE, type Quirks } from './quirks.ts';
import { OPENROUTER } from './reasoning-details.ts';
import { decodeChat, endChat, startChat, stepChat, type ChatStream } from './stream.ts';

const BASE_URL = 'https://api.openai.com/v1';
const OPENAI: Quirks = { maxTokensField: 'max_completion_tokens' };

export type OpenAiChatOptions = EndpointOptions;

/**
 * A model behind OpenAI's Chat Completions API, at OpenAI or at any host that offers the same (`baseURL`);
 * `openaiCompatible` is for hosts that differ. Throws if the options cannot work.
 */
export function openaiChat(options: OpenAiChatOptions): Model {
  const { model, baseURL = BASE_URL, stream = true } = options ?? {};
  const quirks = isOpenAi(baseURL) ? OPENAI : ELSEWHERE;
  return httpModel(
    {
      factory: 'openaiChat',
      protocol: openaiChatProtocol({ model, stream, signer: signerOf(OPENROUTER, baseURL), ...quirks }),
      baseURL: BASE_URL,
      auth: (apiKey) => ({ authorization: `Bearer ${apiKey}` }),
    },
    options,
  );
}

/** Also in one of its regions. */
function isOpenAi(baseURL: unknown): boolean {
  const host = typeof baseURL === 'string' ? URL.parse(baseURL)?.hostname : undefined;
  return host === 'api.openai.com' || host?.endsWith('.api.openai.com') === true;
}

export function openaiChatProtocol(body: ChatBody): Protocol<ChatStream> {
  const { signer = OPENROUTER } = body;
  return {
    path: '/chat/completions',
    framing: sse,
    body: chatBody(body),
    start: () => startChat(signer),
    step: stepChat,
    end: endChat,
    decode: (text) => decodeChat(text, signer),
    failure: failureOfBody,
  };
}
