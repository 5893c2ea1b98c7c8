import { checkOptions, systemClock, type ModelReply, type OptionNames } from '@treadle/core';
import type { Embedder } from '@treadle/core/memory';
import { sse } from '../framing.ts';
import { connectionTo, type HttpService } from '../http/connection.ts';
import { checkEndpoint, rejectOptions, type EndpointOptions } from '../http/endpoint.ts';
import { CANCELLED, cutOff, failureOfBody, notJson, protocolFailure } from '../http/failures.ts';
import { withRetries } from '../http/retry.ts';
import { exchange } from '../http/transport.ts';
import { jsonOf } from '../json.ts';
import type { Protocol } from '../protocol.ts';

/** Options that every embedder has. */
export interface EmbedderOptions extends Pick<
  EndpointOptions,
  'model' | 'baseURL' | 'apiKey' | 'headers' | 'fetch' | 'maxRetries' | 'timeouts' | 'clock' | 'random'
> {
  /** The length of the vectors, if the model can make shorter ones. */
  readonly dimensions?: number;
}

const NAMES: OptionNames<EmbedderOptions> = {
  model: 'string',
  baseURL: 'string',
  apiKey: 'string',
  headers: '',
  fetch: 'function',
  maxRetries: 'number',
  timeouts: 'object',
  clock: '.now',
  random: 'function',
  dimensions: 'number',
};

/** An API that makes vectors of texts. It does no I/O. */
export interface EmbeddingProtocol {
  /** The path of requests below the base URL. */
  readonly path: string;
  readonly body: (texts: readonly string[]) => object;
  /** The vectors of an answer, in the order of the texts. Anything may come back: they are checked. */
  readonly vectors: (answer: unknown) => unknown;
}

/** A search waits for it. */
const TIMEOUT_MS = 10_000;

/** The same transport as that of models, with its retries. Throws if the options are invalid. */
export function httpEmbedder(
  { protocol, ...service }: HttpService & { readonly protocol: EmbeddingProtocol },
  options: EmbedderOptions,
): Embedder {
  const { factory, provider } = service;
  if (typeof options === 'object' && options !== null) checkOptions(factory, options, { names: NAMES });
  checkEndpoint(factory, options, NAMES);
  const { model, dimensions, maxRetries = 1, clock = systemClock, random = Math.random } = options;
  if (dimensions !== undefined && !(Number.isInteger(dimensions) && dimensions > 0)) {
    rejectOptions(factory, '"dimensions" must be a whole number above 0.');
  }
  const timeouts = { headers: TIMEOUT_MS, idle: TIMEOUT_MS, ...options.timeouts };
  const accept = 'application/json';
  const connection = connectionTo(service, { path: protocol.path, accept }, { ...options, timeouts });
  const { to, safeError, refusal } = connection;

  return {
    id: [provider.name ?? to.host, model, ...(dimensions === undefined ? [] : [dimensions])].join(' '),
    async embed(texts, signal = new AbortController().signal) {
      if (texts.length === 0) return [];
      let vectors: readonly (readonly number[])[] = [];
      const answerForm = formOf((answer) => {
        const found = protocol.vectors(answer);
        if (!areVectors(found, texts.length)) return false;
        vectors = found;
        return true;
      });
      const transport = { protocol: answerForm, stream: false, clock, ...connection };
      const post = { to, body: Buffer.from(jsonOf(protocol.body(texts))) };
      const finishReply = (reply: ModelReply): ModelReply => reply;
      const sendOnce = (): Promise<ModelReply> =>
        exchange(transport, { post, tools: [], emit: () => {}, signal, finishReply });
      const reply: ModelReply = refusal
        ? { type: 'failure', error: refusal }
        : await withRetries({ maxRetries, model, clock, random }, sendOnce, () => {}, signal);
      if (reply.type === 'reply') return vectors;
      if (reply.error.code === CANCELLED.code) signal.throwIfAborted();
      throw new Error(safeError(reply.error).message);
    },
  };
}

/** How the transport reads an answer. `read` returns whether it contains what was asked for. */
function formOf(read: (answer: unknown) => boolean): Protocol<undefined> {
  return {
    path: '',
    framing: sse,
    takes: [],
    body: () => new Uint8Array(),
    start: () => undefined,
    step: () => ({ type: 'failure', error: protocolFailure('The answer is a stream, and not vectors.') }),
    end: () => cutOff('the stream has ended'),
    decode(text) {
      let answer: unknown;
      try {
        answer = JSON.parse(text);
      } catch {
        return notJson(text);
      }
      if (read(answer)) return EMBEDDED;
      return { type: 'failure', error: protocolFailure('The answer does not contain a vector for each text.') };
    },
    failure: failureOfBody,
  };
}

/** The vectors are elsewhere. */
const EMBEDDED: ModelReply = {
  type: 'reply',
  content: [],
  finish: 'stop',
  usage: { inputTokens: 0, outputTokens: 0 },
  model: '',
};

function areVectors(found: unknown, count: number): found is readonly (readonly number[])[] {
  if (!Array.isArray(found) || found.length !== count) return false;
  const { length } = Array.isArray(found[0]) ? (found[0] as unknown[]) : [];
  return (
    length > 0 &&
    found.every((one) => Array.isArray(one) && one.length === length && one.every((value) => Number.isFinite(value)))
  );
}
