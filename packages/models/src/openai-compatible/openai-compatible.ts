import { TreadleError, type Model } from '@treadle/core';
import type { EndpointOptions } from '../http/endpoint.ts';
import { httpModel, type HttpModel } from '../http/model.ts';
import { openaiChatProtocol } from '../openai-chat/openai-chat.ts';
import { checkQuirks, ELSEWHERE, type Quirks } from '../openai-chat/quirks.ts';
import { OPENROUTER } from '../openai-chat/reasoning-details.ts';
import { signerOf } from '../protocol.ts';

export interface OpenAiCompatibleOptions extends EndpointOptions {
  readonly baseURL: string;
  /** How the host differs from OpenAI. */
  readonly quirks?: Quirks;
}

/** A model at any host that speaks OpenAI's Chat Completions, more or less. Throws if the options cannot work. */
export function openaiCompatible(options: OpenAiCompatibleOptions): Model {
  if (options?.baseURL === undefined) {
    const message = `openaiCompatible: "baseURL" is missing: give one such as "http://127.0.0.1:8080/v1".`;
    throw new TreadleError('invalid-options', message);
  }
  return compatibleModel({ factory: 'openaiCompatible', baseURL: options.baseURL, quirks: ELSEWHERE }, options);
}

/** A host that is known. */
export interface Host {
  /** The function that a user called, for error messages. */
  readonly factory: string;
  readonly baseURL: string;
  readonly quirks: Quirks;
  readonly auth?: HttpModel<never>['auth'];
  readonly tellsCost?: boolean;
}

/** The user's quirks win over the host's. */
export function compatibleModel(host: Host, options: EndpointOptions & { readonly quirks?: Quirks }): Model {
  const { factory, baseURL, auth = bearer, tellsCost = false } = host;
  const { model, stream = true, quirks = {} } = options ?? {};
  checkQuirks(factory, quirks);
  const signer = signerOf(OPENROUTER, options?.baseURL ?? baseURL);
  const protocol = openaiChatProtocol({ ...host.quirks, ...quirks, model, stream, signer });
  return httpModel({ factory, protocol, baseURL, auth, tellsCost }, options);
}

function bearer(apiKey: string): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${apiKey}` };
}
