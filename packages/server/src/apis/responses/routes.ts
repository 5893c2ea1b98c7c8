import { systemClock } from '@treadle/core';
import type { Context } from 'hono';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { ApiError, badRequest } from '../../api-error.ts';
import { KEY_HEADER, requestKey } from '../../requests/idempotency.ts';
import type { Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, eventStream, sendJson, type EventStream } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Parameters, type Route } from '../../http/routes.ts';
import {
  itemPage,
  PAGE,
  pageQuery,
  unknownCursor,
  wholeNumber,
  type NumberParameter,
  type Query,
} from '../../parse/query.ts';
import { codexAnswer, codexUpgradeAnswer, heldStart, isCodex } from './codex-faults.ts';
import { parseCompactRequest } from './compaction.ts';
import { isLive, type EmitEvent } from './output-items.ts';
import { parseRequest, RESPONSE_BODY, type ParseOptions } from './parse-request.ts';
import { checkFinished, type PreparedResponse } from './response.ts';
import type { Responses } from './responses.ts';
import { presentedResponse } from './wire.ts';

export interface ResponsesOptions {
  readonly responses: Responses;
  readonly parseOptions: ParseOptions;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
  /** Every client sees the status `requires_action`, also those that did not request it. */
  readonly requiresAction: boolean;
}

const STATUS_HEADER: Parameters = {
  'Treadle-Status': {
    description: 'With `requires_action`, a response that waits for its client has this status.',
    schema: { type: 'string', enum: ['requires_action'] },
  },
};

const LAST_EVENT: NumberParameter = {
  description: '`sequence_number` of the last event that the client has, of a background response.',
  schema: { type: 'integer', minimum: 0 },
};

const FIELD_SCOPES = { conversation: 'chat:write' } as const;

/** The Responses API. */
export function responsesRoutes({
  responses,
  parseOptions,
  maxBodyBytes,
  heartbeatMs,
  ...options
}: ResponsesOptions): readonly Route[] {
  const wantsRequiresAction = (c: Context<Env>): boolean =>
    options.requiresAction || String(c.env.incoming.headers['treadle-status']).toLowerCase() === 'requires_action';

  return [
    route({
      method: 'GET',
      path: '/v1/responses',
      scope: 'agents:invoke',
      fieldScopes: FIELD_SCOPES,
      summary: 'List responses, or open a WebSocket for them',
      query: PAGE,
      headers: STATUS_HEADER,
      others: { '101': 'The connection is a WebSocket.', '426': 'A proxy has removed the headers of an upgrade.' },
      failureFor: codexUpgradeAnswer,
      async handle(c) {
        const { upgrade } = c.env;
        if (!upgrade) return listResponses(c);
        const { responsesSocket } = await import('./socket.ts');
        const socket = responsesSocket({
          responses,
          parseOptions,
          requiresAction: wantsRequiresAction(c),
          isCodex: isCodex(c.env.incoming.headers),
        });
        await upgrade.accept(c.get('caller'), { maxBytes: maxBodyBytes, heartbeatMs }, socket);
        return RESPONSE_ALREADY_SENT;
      },
    }),
    route({
      method: 'POST',
      path: '/v1/responses',
      scope: 'agents:invoke',
      fieldScopes: FIELD_SCOPES,
      summary: 'Create a response',
      body: RESPONSE_BODY,
      headers: { ...KEY_HEADER, ...STATUS_HEADER },
      answers: [JSON_TYPE, EVENTS],
      failureFor: codexAnswer,
      async handle(c) {
        const body = await readJson(c, maxBodyBytes);
        const request = parseRequest(body, parseOptions);
        const { 'idempotency-key': given } = c.env.incoming.headers;
        const key = given === undefined ? undefined : requestKey(given, 'responses', body);
        // Its stream may outlive the run, which the other limit counts.
        if (request.background && request.stream) c.env.exchange.openStream();
        const prepared = await responses.prepare(request, c.get('caller'), key);
        const requiresAction = wantsRequiresAction(c);
        if (request.stream) return streamResponse(c, prepared, requiresAction);
        const response = checkFinished(await prepared.run({ requiresAction }, disconnectSignal(c)));
        return sendJson(c, presentedResponse(response, requiresAction));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/responses/compact',
      scope: 'agents:invoke',
      fieldScopes: FIELD_SCOPES,
      summary: 'Compact a conversation',
      body: RESPONSE_BODY,
      async handle(c) {
        const request = parseCompactRequest(await readJson(c, maxBodyBytes), parseOptions);
        return sendJson(c, await responses.compact(request, c.get('caller'), disconnectSignal(c)));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/responses/input_tokens',
      scope: 'agents:invoke',
      fieldScopes: FIELD_SCOPES,
      summary: 'Estimate the input tokens of a request',
      body: RESPONSE_BODY,
      async handle(c) {
        const request = parseRequest(await readJson(c, maxBodyBytes), parseOptions);
        const input_tokens = await responses.countTokens(request, c.get('caller'));
        return sendJson(c, { object: 'response.input_tokens', input_tokens });
      },
    }),
    route({
      method: 'GET',
      path: '/v1/responses/:id',
      scope: 'agents:invoke',
      summary: 'Get a response, or follow its events',
      query: {
        stream: { description: 'With `true`, its events.', schema: { type: 'boolean', default: false } },
        starting_after: LAST_EVENT,
      },
      headers: {
        ...STATUS_HEADER,
        'Last-Event-ID': { description: 'Precedes `starting_after`.', schema: LAST_EVENT.schema },
      },
      answers: [JSON_TYPE, EVENTS],
      async handle(c) {
        const id = c.req.param('id');
        if (c.req.query('stream') === 'true') {
          const prepared = await responses.stream(id, lastEventOf(c), c.get('caller'));
          c.env.exchange.openStream();
          return streamResponse(c, prepared, wantsRequiresAction(c));
        }
        const response = await responses.retrieve(id, c.get('caller'));
        return sendJson(c, presentedResponse(response, wantsRequiresAction(c)));
      },
    }),
    route({
      method: 'DELETE',
      path: '/v1/responses/:id',
      scope: 'agents:invoke',
      summary: 'Delete a response and its run',
      async handle(c) {
        const id = c.req.param('id');
        await responses.delete(id, c.get('caller'));
        return sendJson(c, { id, object: 'response', deleted: true });
      },
    }),
    route({
      method: 'POST',
      path: '/v1/responses/:id/cancel',
      scope: 'agents:invoke',
      summary: 'Cancel a response',
      headers: STATUS_HEADER,
      async handle(c) {
        const response = await responses.cancel(c.req.param('id'), c.get('caller'));
        return sendJson(c, presentedResponse(response, wantsRequiresAction(c)));
      },
    }),
    route({
      method: 'GET',
      path: '/v1/responses/:id/input_items',
      scope: 'agents:invoke',
      summary: 'List the input of a response',
      query: PAGE,
      async handle(c) {
        const { input } = await responses.requestOf(c.req.param('id'), c.get('caller'));
        return sendJson(c, pageOf(input, c.req.query()));
      },
    }),
  ];

  async function listResponses(c: Context<Env>): Promise<Response> {
    if (c.env.incoming.headers['sec-websocket-key'] !== undefined) throw upgradeRequired();
    const { order, ...page } = pageQuery(c.req.query());
    if (order !== 'desc') throw badRequest('order must be "desc": the newest responses come first.', 'order');
    const { data, hasMore, lastId } = await responses.list(page, c.get('caller'));
    const requiresAction = wantsRequiresAction(c);
    const presented = data.map((one) => presentedResponse(one, requiresAction));
    return sendJson(c, { ...itemPage(presented, hasMore), ...(lastId !== undefined && { last_id: lastId }) });
  }

  async function streamResponse(
    c: Context<Env>,
    prepared: PreparedResponse,
    requiresAction: boolean,
  ): Promise<Response> {
    const signal = disconnectSignal(c);
    let opened: EventStream | undefined;
    const open = (): EventStream => (opened ??= eventStream(c, { heartbeatMs, onDisconnect: () => {} }));
    const send: EmitEvent = prepared.isResumable
      ? (event) => open().send(event.type, event, event.sequence_number)
      : (event) => (isLive(event) ? open().sendLive(event.type, event) : open().send(event.type, event));
    const start = isCodex(c.env.incoming.headers) ? heldStart(send) : undefined;
    if (!start) open();
    // Proxies close connections without an answer.
    const cancelTimer = start && systemClock.timer(heartbeatMs, () => void (signal.aborted || start.begin()));
    let isCut: boolean | undefined;
    try {
      const hold = (bytes: number): void => c.env.exchange.hold(bytes);
      const finished = await prepared.run({ requiresAction, emit: start?.emit ?? send, hold }, signal);
      ({ isCut } = finished);
      if (!opened) checkFinished(finished);
    } catch (error) {
      if (!opened) throw error;
      const { log } = c.get('caller');
      const level = error instanceof ApiError ? 'warn' : 'error';
      log[level]({ err: error, response: prepared.id }, 'a streamed response failed unexpectedly');
    } finally {
      cancelTimer?.();
    }
    open().end(isCut);
    return RESPONSE_ALREADY_SENT;
  }
}

function upgradeRequired(): ApiError {
  const message = 'GET opens a WebSocket: send the headers of an upgrade. A proxy may have removed them.';
  return new ApiError(426, 'invalid_request_error', message, {
    code: 'upgrade_required',
    headers: { Upgrade: 'websocket', Connection: 'Upgrade' },
  });
}

/** The number of the last event that the client has. A browser that reconnects sends the URL as before, and the newer number. */
function lastEventOf(c: Context<Env>): number | undefined {
  const { starting_after: start } = c.req.query();
  const header = c.req.header('last-event-id');
  const [name, text] = header ? ['Last-Event-ID', header] : ['starting_after', start];
  if (text === undefined) return undefined;
  const schema = { ...LAST_EVENT.schema, maximum: Number.MAX_SAFE_INTEGER - 1 };
  return wholeNumber({ [name]: text }, name, { ...LAST_EVENT, schema });
}

interface Identified {
  readonly id: string;
}

/** One page of a list. */
function pageOf(items: readonly Identified[], query: Query): object {
  const { order, after, limit } = pageQuery(query);
  const all = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) throw unknownCursor(after);
  return itemPage(all.slice(from, from + limit), from + limit < all.length);
}
