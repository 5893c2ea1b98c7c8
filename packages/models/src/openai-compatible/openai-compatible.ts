import { TreadleError, type Model } from '@treadle/core';
import { baseURLOf, checkEndpoint, type EndpointOptions, type OwnNames } from '../http/endpoint.ts';
import { httpModel, type HttpModel } from '../http/model.ts';
import { openaiChatProtocol } from '../openai-chat/openai-chat.ts';
import { checkQuirks, UNKNOWN_HOST, type Quirks } from '../openai-chat/quirks.ts';
import { OPENROUTER } from '../openai-chat/reasoning-details.ts';
import type { ProviderFacts } from '../providers.ts';
import { signerOf } from '../protocol.ts';

export interface OpenAiCompatibleOptions extends EndpointOptions {
  readonly baseURL: string;
  /** The differences of the host from OpenAI. */
  readonly quirks?: Quirks;
}

const OWN_NAMES: OwnNames<OpenAiCompatibleOptions> = { quirks: '' };

/** A model at any host that is compatible with OpenAI's Chat Completions. Throws if the options are invalid. */
export function openaiCompatible(options: OpenAiCompatibleOptions): Model {
  checkEndpoint('openaiCompatible', options, OWN_NAMES);
  if (options.baseURL === undefined) {
    const message = `openaiCompatible: "baseURL" is missing. Pass one such as "http://127.0.0.1:8080/v1".`;
    throw new TreadleError('invalid-options', message);
  }
  return compatibleModel(
    { factory: 'openaiCompatible', provider: { baseURL: options.baseURL }, quirks: UNKNOWN_HOST },
    options,
  );
}

/** A known host. */
export interface Host {
  /** The name of the public function, for error messages. */
  readonly factory: string;
  readonly provider: ProviderFacts;
  readonly quirks: Quirks;
  /** The options that the function has besides those of `openaiCompatible`. */
  readonly own?: HttpModel<never>['own'];
  readonly auth?: HttpModel<never>['auth'];
  readonly reportsCost?: boolean;
}

/** The quirks in the options override those of the host. */
export function compatibleModel(host: Host, options: EndpointOptions & { readonly quirks?: Quirks }): Model {
  const { factory, own, provider, auth = bearer, reportsCost = false } = host;
  const { model, stream = true, quirks = {} } = options ?? {};
  checkQuirks(factory, quirks);
  const signer = signerOf(OPENROUTER, baseURLOf(provider, options).baseURL);
  const protocol = openaiChatProtocol({ ...host.quirks, ...quirks, model, stream, signer });
  return httpModel({ factory, own: { ...OWN_NAMES, ...own }, protocol, provider, auth, reportsCost }, options);
}

function bearer(apiKey: string): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${apiKey}` };
}
