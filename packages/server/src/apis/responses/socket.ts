import { systemClock, type Clock } from '@treadle/core';
import { badRequest, errorBody, toApiError, type ApiError } from '../../api-error.ts';
import type { Caller } from '../../http/admission.ts';
import type { Held } from '../../http/limits.ts';
import { parseBody } from '../../http/body.ts';
import type { AnswerMessage, ClientSocket, OpenSocket, SocketMessage } from '../../http/websocket.ts';
import { isObject, type JsonObject } from '../../parse/validate.ts';
import { isLive, type EmitEvent, type ResponseEvent } from './output-items.ts';
import { parseRequest, type ParseOptions } from './parse-request.ts';
import type { LocalConversation, LocalConversations } from '../../history/request-conversation.ts';
import { codexFault, heldStart } from './codex-faults.ts';
import { replayResponse } from './projection.ts';
import { checkFinished, endedResponse, type FinishedResponse } from './response.ts';
import type { Responses } from './responses.ts';

/**
 * The Responses API over WebSocket, as Open Responses specifies it.
 *
 * 1. A client sends `response.create` with the fields of `POST /v1/responses`, and receives the events of a stream. Each message
 *    has exactly one last event: that of the response, or an `error` with a `status`.
 * 2. The last response with `store: false` stays in memory until the socket closes, so that the next one can continue it. A
 *    continuation that fails evicts it.
 * 3. With `generate: false`, the input is kept for the next response, which continues this one. No model is called.
 */
export interface ResponsesSocketOptions {
  readonly responses: Pick<Responses, 'prepare' | 'warmUp'>;
  readonly parseOptions: ParseOptions;
  readonly requiresAction: boolean;
  /** The client reads errors in its own way; default false. */
  readonly isCodex?: boolean;
  /** How long a socket may be open; default 60 minutes. A response in progress is finished. */
  readonly maxAgeMs?: number;
  readonly clock?: Clock;
}

export function responsesSocket(options: ResponsesSocketOptions): OpenSocket {
  const { responses, parseOptions, requiresAction, maxAgeMs = 3_600_000, clock = systemClock } = options;
  const { isCodex = false } = options;
  return (socket) => {
    const local = localConversation(socket);
    let isAnswering = false;
    let isExpired = false;
    const cancelTimer = clock.timer(maxAgeMs, () => {
      isExpired = true;
      if (!isAnswering) sendExpired();
    });
    socket.closed.addEventListener('abort', cancelTimer, { once: true });

    function sendExpired(): void {
      void socket.send(errorFrame(connectionLimit(maxAgeMs)));
      socket.close(1000, 'The socket was open for too long.');
    }

    async function createResponse(body: JsonObject, caller: Caller): Promise<void> {
      const { type: _, stream_options: __, stream_id: streamId, generate, ...fields } = body;
      const isWarmUp = generate === false;
      const request = parseRequest({ ...fields, stream: true }, { ...parseOptions, ...(isWarmUp && { isWarmUp }) });
      const emit = messageEvents((event) => {
        const sent = withStream(event, streamId);
        return isLive(event) ? socket.sendLive(sent) : socket.send(sent);
      });
      if (isWarmUp) {
        const response = await responses.warmUp(request, caller, local);
        return replayResponse(response, { emit, requiresAction });
      }
      const prepared = await responses.prepare(request, caller, undefined, local);
      const start = isCodex ? heldStart(emit) : undefined;
      const finished = await prepared.run({ requiresAction, emit: start?.emit ?? emit }, socket.closed);
      throwIfInterrupted(finished);
      if (start?.hasBegun() === false) checkFinished(finished);
      if (finished.response.status === 'failed') local.evict(request.previous);
    }

    async function answerMessage(message: SocketMessage): Promise<void> {
      let caller: Caller | undefined;
      let body: JsonObject | undefined;
      try {
        caller = await message.admit();
        body = await readEvent(message, caller.tenant);
        await createResponse(body, caller);
      } catch (thrown) {
        const error = toApiError(thrown, message.requestId);
        if (error !== thrown) caller?.log.error({ err: thrown }, 'a message on a socket failed unexpectedly');
        message.setStatus(error.status);
        local.evict(body?.['previous_response_id']);
        void socket.send(withStream(isCodex ? codexFrame(error) : errorFrame(error), body?.['stream_id']));
      }
    }

    const answer: AnswerMessage = async (message) => {
      if (socket.closed.aborted) return;
      isAnswering = true;
      try {
        if (!isExpired) await answerMessage(message);
        if (isExpired) sendExpired();
      } finally {
        isAnswering = false;
      }
    };
    return answer;
  };
}

/** The fields that have another meaning on a socket. */
const REFUSED: Readonly<Record<string, { readonly isUsed: (value: unknown) => boolean; readonly advice: string }>> = {
  background: { isUsed: (value) => value === true, advice: 'Create a background response with POST /v1/responses.' },
};

async function readEvent({ bytes, isBinary }: SocketMessage, tenant: string): Promise<JsonObject> {
  if (isBinary) throw badRequest('Send JSON in a text message, not a binary one.', undefined, 'invalid_json');
  const body = await parseBody(bytes, tenant);
  if (!isObject(body)) throw badRequest('Send a JSON object with a "type".', undefined, 'invalid_type');
  const { type, stream_id: streamId } = body;
  if (type !== 'response.create')
    throw badRequest("Send messages with the type 'response.create'. There are no others.", 'type', 'invalid_value');
  if (streamId != null && (typeof streamId !== 'string' || streamId.length > 256))
    throw badRequest('stream_id must be a text of at most 256 characters.', 'stream_id', 'invalid_type');
  for (const [name, { isUsed, advice }] of Object.entries(REFUSED)) {
    if (!isUsed(body[name])) continue;
    throw badRequest(`'${name}' is not supported on a WebSocket. ${advice}`, name, 'unsupported_parameter');
  }
  return body;
}

/**
 * In a stream over HTTP, the event of a failed response follows an `error`. On a socket it is the only one, because clients
 * send the next message after the first event that ends a response.
 */
function messageEvents(send: EmitEvent): EmitEvent {
  let error: ResponseEvent | undefined;
  return (event) => {
    if (event.type !== 'error') return send(error ? { ...event, sequence_number: error.sequence_number } : event);
    error = event;
  };
}

/** Throws a 503 for a response that was interrupted. The client has got no event that ends it. */
function throwIfInterrupted(finished: FinishedResponse): void {
  if (finished.interruption) endedResponse(finished);
}

function withStream(event: object, streamId: unknown): object {
  return typeof streamId === 'string' ? { ...event, stream_id: streamId } : event;
}

/** In both forms: that of the official clients and that of a stream over HTTP. `headers`: those that HTTP would have. */
function errorFrame(error: ApiError): object {
  const { status, code, message, param, headers } = error;
  const more = Object.keys(headers).length > 0 && { headers };
  return { type: 'error', status, sequence_number: 0, code, message, param, ...more, ...errorBody(error) };
}

function codexFrame(error: ApiError): object {
  const fault = codexFault(error);
  return fault.type === 'failed' ? fault.event : errorFrame(fault.error);
}

function connectionLimit(maxAgeMs: number): ApiError {
  const message = `A socket may be open for ${Math.round(maxAgeMs / 60_000)} minutes. Open a new one.`;
  return badRequest(message, undefined, 'websocket_connection_limit_reached');
}

interface SocketConversation extends LocalConversations {
  /** Nothing if it is the conversation of another response. */
  evict(response: unknown): void;
}

/** The conversation of the last response that is not stored. Its size is counted. If it is too large, it is not kept. */
function localConversation(socket: Pick<ClientSocket, 'holder' | 'closed'>): SocketConversation {
  let last: { readonly id: string; readonly conversation: LocalConversation; readonly held: Held } | undefined;
  function forget(): void {
    last?.held.release();
    last = undefined;
  }
  socket.closed.addEventListener('abort', forget, { once: true });
  return {
    find: (response) => (last?.id === response ? last.conversation : undefined),
    keep(id, conversation, size) {
      forget();
      if (socket.closed.aborted) return;
      const held = socket.holder();
      try {
        held.hold(size);
        last = { id, conversation, held };
      } catch {
        held.release();
      }
    },
    evict(response) {
      if (last && last.id === response) forget();
    },
  };
}
