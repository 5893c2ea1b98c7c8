import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { systemClock } from '@treadle/core';
import type { AnthropicEvent } from '@treadle/models/anthropic-wire';
import type { Context } from 'hono';
import { ApiError, toApiError } from '../../api-error.ts';
import type { Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, eventStream, sendJson, type EventStream } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Route } from '../../http/routes.ts';
import type { RequestLimits } from '../../parse/fields.ts';
import { KEY_HEADER, rejectKey, requestKey } from '../../requests/idempotency.ts';
import { ANTHROPIC_ERRORS, anthropicErrorBody } from './errors.ts';
import type { EmitMessage, Messages, PreparedMessage } from './messages.ts';
import { COUNT_BODY, MESSAGE_BODY, parseCountRequest, parseMessageRequest } from './parse-request.ts';

export interface MessagesOptions {
  readonly messages: Messages;
  readonly parseOptions?: Partial<RequestLimits>;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
}

const QUERY = { beta: { description: 'Ignored.', schema: { type: 'string' } } };

/** Anthropic's Messages API. */
export function messagesRoutes({
  messages,
  parseOptions,
  maxBodyBytes,
  heartbeatMs,
}: MessagesOptions): readonly Route[] {
  return [
    route({
      method: 'POST',
      path: '/v1/messages',
      scope: 'agents:invoke',
      summary: 'Create a message',
      body: MESSAGE_BODY,
      query: QUERY,
      headers: KEY_HEADER,
      answers: [JSON_TYPE, EVENTS],
      errorForm: ANTHROPIC_ERRORS,
      async handle(c) {
        const body = await readJson(c, maxBodyBytes);
        const request = parseMessageRequest(body, parseOptions);
        const { 'idempotency-key': given, [SESSION]: session } = c.env.incoming.headers;
        const key = given === undefined ? undefined : requestKey(given, 'messages', body);
        const options = { key, session: sessionIn(session) };
        const prepared = await messages.prepare(request, c.get('caller'), options);
        if (request.stream) return streamMessage(c, prepared);
        const message = await prepared.run(undefined, disconnectSignal(c));
        if (message instanceof ApiError) throw message;
        return sendJson(c, message);
      },
    }),
    route({
      method: 'POST',
      path: '/v1/messages/count_tokens',
      scope: 'agents:invoke',
      summary: 'Estimate the tokens of a message',
      body: COUNT_BODY,
      query: QUERY,
      errorForm: ANTHROPIC_ERRORS,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const request = parseCountRequest(await readJson(c, maxBodyBytes), parseOptions);
        return sendJson(c, await messages.countTokens(request, c.get('caller')));
      },
    }),
  ];

  /** The stream begins with the first block, so that an error before it has a status, which clients act on. */
  async function streamMessage(c: Context<Env>, prepared: PreparedMessage): Promise<Response> {
    const { requestId, log } = c.get('caller');
    const signal = disconnectSignal(c);
    const begun: AnthropicEvent[] = [];
    let stream: EventStream | undefined;
    const open = (): EventStream => {
      cancelTimer();
      if (stream) return stream;
      stream = eventStream(c, { heartbeatMs, onDisconnect: () => {}, hasEndMark: false });
      for (const event of begun) void stream.send(event.type, event);
      return stream;
    };
    // Proxies close connections without an answer.
    const cancelTimer = systemClock.timer(heartbeatMs, () => void (signal.aborted || open()));
    const emit: EmitMessage = (event) => {
      if (event.type === 'message_start' && !stream) return void begun.push(event);
      return isLive(event) ? open().sendLive(event.type, event) : open().send(event.type, event);
    };
    try {
      const message = await prepared.run(emit, signal);
      if (message instanceof ApiError) throw message;
    } catch (error) {
      if (!stream) throw error;
      const level = error instanceof ApiError ? 'warn' : 'error';
      log[level]({ err: error, message: prepared.id }, 'a streamed message failed');
      void stream.send('error', anthropicErrorBody(toApiError(error, requestId), requestId));
    } finally {
      cancelTimer();
    }
    open().end();
    return RESPONSE_ALREADY_SENT;
  }
}

/** Whether an event tells nothing that is stored. */
function isLive(event: AnthropicEvent): boolean {
  if (event.type === 'content_block_start') return event.content_block.type !== 'mcp_tool_result';
  return event.type === 'content_block_delta';
}

/** The session of Claude Code. */
const SESSION = 'x-claude-code-session-id';

function sessionIn(header: string | readonly string[] | undefined): string | undefined {
  return typeof header === 'string' && /^[\w-]{1,200}$/.test(header) ? header : undefined;
}
