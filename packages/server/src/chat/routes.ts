import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono, type Context } from 'hono';
import { ApiError, errorBody } from '../api-error.ts';
import type { Engine } from '../engine/engine.ts';
import { readJson } from '../http/body.ts';
import type { Env } from '../http/env.ts';
import { toApiError } from '../http/errors.ts';
import { whenGone } from '../http/gone.ts';
import { sendJson } from '../http/send-json.ts';
import { eventStream } from '../http/sse.ts';
import type { RequestLimits } from '../responses/limits.ts';
import { chats, type PreparedChat } from './chats.ts';
import { parseChat } from './parse.ts';

export interface ChatOptions {
  readonly engine: Engine;
  readonly limits: RequestLimits;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
}

/** `/chat/completions`. */
export function chatRoutes({ engine, limits, maxBodyBytes, heartbeatMs }: ChatOptions): Hono<Env> {
  const { prepare } = chats(engine);

  return new Hono<Env>().post('/chat/completions', async (c) => {
    const request = parseChat(await readJson(c, maxBodyBytes), limits);
    const prepared = await prepare(request, c.get('caller'));
    if (request.stream) return streamed(c, prepared);
    const answer = await prepared.run(undefined, whenGone(c));
    if (answer instanceof ApiError) throw answer;
    return sendJson(c, answer);
  });

  async function streamed(c: Context<Env>, prepared: PreparedChat): Promise<Response> {
    const gone = new AbortController();
    const stream = eventStream(c.env.outgoing, { heartbeatMs, onGone: () => gone.abort() });
    try {
      await prepared.run((frame) => stream.send(undefined, frame), gone.signal);
    } catch (error) {
      const { log, requestId } = c.get('caller');
      log.error({ err: error, completion: prepared.id }, 'a streamed completion broke off');
      void stream.send(undefined, errorBody(toApiError(error, requestId)));
    }
    stream.end();
    return RESPONSE_ALREADY_SENT;
  }
}
