import type { Model } from '@treadle/core';
import { anthropic, google, ollama, openaiChat, openaiResponses, type OpenAiChatOptions } from '@treadle/models';
import type { Script } from '../provider/provider.ts';
import type { FormName } from '../provider/script.ts';

export type ProtocolOptions = Partial<OpenAiChatOptions>;

const factories: Readonly<Record<FormName, (options: OpenAiChatOptions) => Model>> = {
  'openai-chat': openaiChat,
  'openai-responses': openaiResponses,
  anthropic,
  google,
  ollama,
};

export const PROTOCOLS = Object.keys(factories) as FormName[];

export const KEY = 'sk-test-51Nb2xQ9vT7mZ';

/** A protocol with options that change its requests. */
export interface Way {
  readonly name: string;
  readonly form: FormName;
  readonly options?: object;
}

/**
 * Claude before 4.6 has a budget for reasoning, and the API then validates reasoning parts strictly. The newest Claude
 * always reasons, and supports neither a required call nor sampling settings. Gemini requires signatures since version 3.
 */
export const WAYS: readonly Way[] = [
  ...PROTOCOLS.map((form) => ({
    name: form,
    form,
    ...(form === 'google' && { options: { model: 'gemini-3.1-pro-preview' } }),
  })),
  { name: 'anthropic with a budget', form: 'anthropic', options: { model: 'claude-haiku-4-5' } },
  { name: 'the newest of anthropic', form: 'anthropic', options: { model: 'claude-opus-5-5' } },
];

/** A model that sends its requests to the scripted provider. */
export function modelOf(form: FormName, script: Script, options: ProtocolOptions = {}): Model {
  return makeModel(form, { model: 'm-1', apiKey: KEY, baseURL: script.baseURL(form), maxRetries: 0, ...options });
}

export function makeModel(form: FormName, options: OpenAiChatOptions): Model {
  return factories[form](options);
}
