import type { Model, Settings } from '@treadle/core';
import { ndjson } from '../framing.ts';
import { rejectOptions, type EndpointOptions, type OwnNames } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import { OLLAMA } from '../providers.ts';
import type { Protocol } from '../protocol.ts';
import { ollamaBody, type OllamaBody, type Think } from './body.ts';
import { decodeOllama, endOllama, failureOfOllamaBody, startOllama, stepOllama, type OllamaStream } from './stream.ts';

const TAKEN: readonly (keyof Settings)[] = [
  'temperature',
  'maxOutputTokens',
  'topP',
  'stop',
  'seed',
  'reasoning',
  'presencePenalty',
  'frequencyPenalty',
  'topLogprobs',
];

export interface OllamaOptions extends EndpointOptions {
  /**
   * The context window that the model is loaded with, in tokens. The default of the server depends on its memory and may
   * be as low as 4,096, whatever the model supports: too little for a run with tools. A conversation that does not fit
   * fails with `context-length`. Changing the value reloads the model.
   */
  readonly contextTokens?: number;
  /** How long the model stays loaded after a request: `10m`, or in seconds; for ever if negative. */
  readonly keepAlive?: string | number;
  /** Whether the model thinks if `settings.reasoning` is not set. Only gpt-oss has levels. */
  readonly think?: Think;
}

const OWN_NAMES: OwnNames<OllamaOptions> = { contextTokens: 'number', keepAlive: '', think: '' };

/** A model behind Ollama's own API, on this machine or at `baseURL`. Throws if the options are invalid. */
export function ollama(options: OllamaOptions): Model {
  const { model, stream = true, contextTokens, keepAlive, think } = options ?? {};
  checkOllamaOptions({ contextTokens, keepAlive, think });
  return httpModel(
    {
      factory: 'ollama',
      own: OWN_NAMES,
      protocol: ollamaProtocol({ model, stream, contextTokens, keepAlive, think }),
      provider: OLLAMA,
      auth: (apiKey) => ({ authorization: `Bearer ${apiKey}` }),
    },
    options,
  );
}

export function ollamaProtocol(body: OllamaBody): Protocol<OllamaStream> {
  return {
    path: '/api/chat',
    framing: ndjson,
    accepts: { files: false, fileUrls: false, imageDetail: false },
    takes: TAKEN,
    body: ollamaBody(body),
    start: startOllama,
    step: stepOllama,
    end: endOllama,
    decode: decodeOllama,
    failure: (status, text) => failureOfOllamaBody(body.model, status, text),
  };
}

function checkOllamaOptions({ contextTokens, keepAlive, think }: Partial<OllamaBody>): void {
  if (contextTokens !== undefined && !(Number.isInteger(contextTokens) && contextTokens > 0)) {
    rejectOptions('ollama', '"contextTokens" must be a whole number above 0.');
  }
  if (keepAlive !== undefined && typeof keepAlive !== 'number' && typeof keepAlive !== 'string') {
    rejectOptions('ollama', '"keepAlive" must be a string such as "10m", or a number of seconds.');
  }
  if (think !== undefined && ![true, false, 'low', 'medium', 'high'].includes(think)) {
    rejectOptions('ollama', '"think" must be true, false, "low", "medium" or "high".');
  }
}
