import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { ApiError, errorBody, toApiError } from '../../api-error.ts';
import { KEY_HEADER, requestKey } from '../../requests/idempotency.ts';
import type { Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, eventStream, sendJson } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Route } from '../../http/routes.ts';
import type { Completions, PreparedCompletion } from './completions.ts';
import type { ChatChunk } from './wire.ts';
import type { EmitFrame } from './projection.ts';
import { COMPLETION_BODY, parseCompletion, type ChatParseOptions } from './parse-request.ts';

export interface ChatOptions {
  readonly completions: Completions;
  readonly parseOptions: ChatParseOptions;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
}

/** The Chat Completions API. */
export function completionRoutes({
  completions,
  parseOptions,
  maxBodyBytes,
  heartbeatMs,
}: ChatOptions): readonly Route[] {
  return [
    route({
      method: 'POST',
      path: '/v1/chat/completions',
      scope: 'agents:invoke',
      summary: 'Create a chat completion',
      body: COMPLETION_BODY,
      headers: KEY_HEADER,
      answers: [JSON_TYPE, EVENTS],
      async handle(c) {
        const body = await readJson(c, maxBodyBytes);
        const request = parseCompletion(body, parseOptions);
        const { 'idempotency-key': given } = c.env.incoming.headers;
        const key = given === undefined ? undefined : requestKey(given, 'chat/completions', body);
        const prepared = await completions.prepare(request, c.get('caller'), key);
        if (request.stream) return streamCompletion(c, prepared);
        const completion = await prepared.run(undefined, disconnectSignal(c));
        if (completion instanceof ApiError) throw completion;
        return sendJson(c, completion);
      },
    }),
  ];

  async function streamCompletion(c: Context<Env>, prepared: PreparedCompletion): Promise<Response> {
    const disconnected = new AbortController();
    const stream = eventStream(c, { heartbeatMs, onDisconnect: () => disconnected.abort() });
    try {
      const emit: EmitFrame = (frame) =>
        isLive(frame) ? stream.sendLive(undefined, frame) : stream.send(undefined, frame);
      await prepared.run(emit, disconnected.signal);
    } catch (error) {
      const { log, requestId } = c.get('caller');
      const level = error instanceof ApiError ? 'warn' : 'error';
      log[level]({ err: error, completion: prepared.id }, 'a streamed completion failed unexpectedly');
      void stream.send(undefined, errorBody(toApiError(error, requestId)));
    }
    stream.end();
    return RESPONSE_ALREADY_SENT;
  }
}

/** Whether a chunk extends a message that is not stored yet. The first chunk has the role, also of a completion that is stored. */
function isLive(frame: ChatChunk | object): boolean {
  const [choice] = 'choices' in frame ? frame.choices : [];
  return choice !== undefined && choice.finish_reason === null && !('role' in choice.delta);
}
