import { Hono, type Context } from 'hono';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { ApiError, badRequest } from '../api-error.ts';
import { failureOf } from '../engine/failure.ts';
import { readJson } from '../http/body.ts';
import type { Env } from '../http/env.ts';
import { whenGone } from '../http/gone.ts';
import { sendJson } from '../http/send-json.ts';
import { eventStream } from '../http/sse.ts';
import { presented } from '../wire/response.ts';
import { parseRequest, type ParseOptions } from './parse.ts';
import { STOPPING, type Finished, type PreparedResponse, type Responses } from './responses.ts';

export interface ResponsesOptions {
  readonly responses: Responses;
  readonly limits: ParseOptions;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
  /** Every client sees the status `requires_action`, also those that did not ask for it. */
  readonly requiresAction: boolean;
}

/** `/responses` and what is below it. */
export function responsesRoutes({
  responses,
  limits,
  maxBodyBytes,
  heartbeatMs,
  ...options
}: ResponsesOptions): Hono<Env> {
  const asksForStatus = (c: Context<Env>): boolean =>
    options.requiresAction || String(c.env.incoming.headers['treadle-status']).toLowerCase() === 'requires_action';

  return new Hono<Env>()
    .post('/responses', async (c) => {
      const request = parseRequest(await readJson(c, maxBodyBytes), limits);
      const prepared = await responses.prepare(request, c.get('caller'));
      const requiresAction = asksForStatus(c);
      if (request.stream) return streamed(c, prepared, requiresAction);
      const { response } = answerOf(await prepared.run({ requiresAction }, whenGone(c)));
      return sendJson(c, presented(response, requiresAction));
    })
    .get('/responses/:id', async (c) => {
      if (c.req.query('stream') === 'true') throw badRequest(STREAMED_ONCE, 'stream', 'unsupported_parameter');
      const response = await responses.retrieve(c.req.param('id'), c.get('caller'));
      return sendJson(c, presented(response, asksForStatus(c)));
    })
    .delete('/responses/:id', async (c) => {
      const id = c.req.param('id');
      await responses.delete(id, c.get('caller'));
      return sendJson(c, { id, object: 'response', deleted: true });
    })
    .post('/responses/:id/cancel', async (c) => {
      const response = await responses.cancel(c.req.param('id'), c.get('caller'));
      return sendJson(c, presented(response, asksForStatus(c)));
    })
    .get('/responses/:id/input_items', async (c) => {
      const { input } = await responses.requestOf(c.req.param('id'), c.get('caller'));
      return sendJson(c, pageOf(input, c.req.query()));
    });

  async function streamed(c: Context<Env>, prepared: PreparedResponse, requiresAction: boolean): Promise<Response> {
    const gone = new AbortController();
    const stream = eventStream(c.env.outgoing, { heartbeatMs, onGone: () => gone.abort() });
    try {
      await prepared.run({ requiresAction, emit: (event) => stream.send(event.type, event) }, gone.signal);
    } catch (error) {
      c.get('caller').log.error({ err: error, response: prepared.id }, 'a streamed response broke off');
    }
    stream.end();
    return RESPONSE_ALREADY_SENT;
  }
}

const STREAMED_ONCE = "A response is streamed only while it is created. Fetch it as it is: leave 'stream' out.";

/** A model that failed before it had said or done anything is an error of the request; later it is part of the answer. */
function answerOf(finished: Finished): Finished {
  const { response, failure, left } = finished;
  if (left) throw new ApiError(503, 'server_error', STOPPING.message, { code: STOPPING.code });
  if (response.status === 'failed' && response.output.length === 0) {
    throw failure
      ? failureOf(failure)
      : new ApiError(500, 'server_error', response.error!.message, { code: 'internal_error' });
  }
  return finished;
}

interface Identified {
  readonly id: string;
}

/** A list as the API pages through it: newest first unless asked otherwise, 20 at a time. */
function pageOf(items: readonly Identified[], query: Readonly<Record<string, string>>): object {
  const { order = 'desc', after, limit = '20' } = query;
  if (order !== 'asc' && order !== 'desc') throw badRequest('order must be "asc" or "desc".', 'order');
  const size = Number(limit);
  if (!Number.isInteger(size) || size < 1 || size > 100) throw badRequest('limit must be from 1 to 100.', 'limit');
  const all = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) throw badRequest(`There is no item ${JSON.stringify(after)}.`, 'after');
  const data = all.slice(from, from + size);
  return {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + size < all.length,
  };
}
