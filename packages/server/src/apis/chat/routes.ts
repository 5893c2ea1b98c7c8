import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { ConversationFilter, ConversationRecord } from '@treadle/store';
import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest, toApiError } from '../../api-error.ts';
import { follow } from '../../requests/event-log.ts';
import { rejectKey } from '../../requests/idempotency.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { unknownRoute } from '../../http/app.ts';
import { readJson } from '../../http/body.ts';
import { eventStream, sendBytes, sendJson, type EventStream } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Parameters, type Route } from '../../http/routes.ts';
import type { ListPage } from '../../request/list-page.ts';
import { checkedQuery, CURSOR, LIMIT, wholeNumber, type NumberParameter, type Query } from '../../request/query.ts';
import { list, validateBody } from '../../request/validate.ts';
import { agUiEncoder, type AgUiIds } from './ag-ui.ts';
import { attachmentsSchema, messageWith } from './attachments.ts';
import type { Conversations } from './conversations.ts';
import type {
  ChatAnswer,
  ChatBody,
  ChatConversation,
  ChatEvent,
  ChatMessage,
  ChatSummary,
  NumberedEvent,
} from './wire.ts';
import { FRONT_END_BODIES, parseAgUiRequest, parseUiRequest, type FrontEndRequest } from './front-end-requests.ts';
import type { FrontEndEncoder } from './front-ends.ts';
import type { ChatRequest, StartedChat } from './start-chat.ts';
import { UI_HEADERS, uiEncoder } from './ui-stream.ts';

export interface ConversationsRoutesOptions {
  readonly conversations: Conversations;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
  /** Aborts when the server shuts down: streams end, and are continued at another process or after the restart. */
  readonly stopping: AbortSignal;
}

/** `/v1/chat` and the routes below it, without `/v1/chat/completions`. */
export function conversationsRoutes({
  conversations,
  maxBodyBytes,
  heartbeatMs,
  stopping,
}: ConversationsRoutesOptions): readonly Route[] {
  async function sendConversation(c: Context<Env>, id: string): Promise<Response> {
    const caller = c.get('caller');
    const found = await conversations.find(id, caller);
    const messages = await conversations.messages(id, caller);
    return sendJson(c, { ...wireConversation(found), messages } satisfies ChatConversation);
  }

  /** Sends events until `send` resolves. `signal` aborts when the client disconnects. The stream has to be counted before. */
  async function streamEvents(
    c: Context<Env>,
    send: (stream: EventStream, signal: AbortSignal) => Promise<void>,
    { hasEndMark = false, framesOf = (failure) => [failure] }: StreamOptions = {},
  ): Promise<Response> {
    const { log, requestId } = c.get('caller');
    const disconnected = new AbortController();
    const onDisconnect = (): void => disconnected.abort();
    const stream = eventStream(c.env.outgoing, { heartbeatMs, onDisconnect, hasEndMark });
    try {
      await send(stream, disconnected.signal);
    } catch (error) {
      log.error({ err: error }, 'the events of a conversation could not be sent');
      const { code, message } = toApiError(error, requestId);
      for (const frame of framesOf({ type: 'error', code: code ?? 'internal_error', message }))
        void stream.send(undefined, frame);
    }
    stream.end();
    return RESPONSE_ALREADY_SENT;
  }

  /** Answers a request of a front end: with a new message, or with answers for the calls that wait. */
  async function serveFrontEnd(c: Context<Env>, request: FrontEndRequest, frontEnd: FrontEnd): Promise<Response> {
    const caller = c.get('caller');
    c.env.exchange.openStream();
    const {
      chat,
      message,
      clientId,
      list: clientList,
      instructions,
      attachments,
      model,
      tools,
      onDisconnect,
    } = request;
    const id = await conversations.idOf(chat, caller);
    const { events = [], after = 0 } =
      (request.answersTo && (await conversations.progress(id, caller, { includeEnded: true }))) ?? {};
    const { answers, expired } = request.answersTo?.(events) ?? { answers: [], expired: [] };
    if (answers.length === 0 && message) {
      const { run } = await conversations.start(
        {
          createAs: id,
          message,
          ...(clientId !== undefined && { clientId }),
          ...(clientList && { list: clientList }),
          ...(instructions && { instructions }),
          ...(attachments && { attachments }),
          ...(model !== undefined && { model }),
          ...(tools && { tools }),
          // The events are stored, because the answer may go on in the stream of another request.
          onDisconnect: 'continue',
        },
        caller,
      );
      return streamFrontEnd(c, { id, onDisconnect }, { ...frontEnd, follow: run });
    }
    if (answers.length === 0 && expired.length === 0) {
      throw badRequest('The last message is neither of the user nor an answer to an approval.', 'messages');
    }
    // Rejects if nothing is in progress.
    if (answers.length > 0) await conversations.answer(id, answers, caller);
    const settled = new Set([...answers.map((answer) => answer.id), ...expired]);
    const encoder = frontEnd.encoderFor(answers);
    const last = encodeUntilWaiting(encoder, events, settled) ?? after;
    const first = encoder.continueAfter(settled);
    const stream = { ...frontEnd, encoder, first, follow: followFrom(id, caller, last) };
    return streamFrontEnd(c, { id, onDisconnect }, stream);
  }

  function followFrom(id: string, caller: Caller, after: number): StartedChat['run'] {
    return (deliver, signal) =>
      follow(conversations.events(id, caller), { after, signal, hold: caller.hold }, ({ event }) => deliver(event));
  }

  /** Encodes events until the run has ended, or waits for answers in the next request. */
  function streamFrontEnd(
    c: Context<Env>,
    { id, onDisconnect }: { readonly id: string } & Pick<FrontEndRequest, 'onDisconnect'>,
    { encoderFor, encoder = encoderFor([]), headers = {}, hasEndMark, first = [], follow: run }: FrontEndStream,
  ): Promise<Response> {
    const caller = c.get('caller');
    const framesOf = (failure: Failure): readonly object[] => [
      ...encoder.encode(failure),
      ...encoder.encode({ type: 'done', status: 'failed' }),
    ];
    for (const [name, value] of Object.entries(headers)) c.env.outgoing.setHeader(name, value);
    return streamEvents(
      c,
      async (stream, disconnected) => {
        const waits = new AbortController();
        let isDone = false;
        for (const frame of first) void stream.send(undefined, frame);
        await run(
          async (event) => {
            isDone = event.type === 'done';
            for (const frame of encoder.encode(event)) await stream.send(undefined, frame);
            if (encoder.isWaiting()) waits.abort();
          },
          AbortSignal.any([disconnected, stopping, waits.signal]),
        );
        if (waits.signal.aborted) for (const frame of encoder.endWaiting()) void stream.send(undefined, frame);
        // Cancelled or ended meanwhile.
        else if (disconnected.aborted && onDisconnect === 'cancel')
          await conversations.cancel(id, caller).catch(() => {});
        else if (stopping.aborted && !isDone)
          for (const frame of framesOf(STOPPING)) void stream.send(undefined, frame);
      },
      { hasEndMark, framesOf },
    );
  }

  async function answerUi(c: Context<Env>): Promise<Response> {
    rejectKey(c.env.incoming.headers);
    return serveFrontEnd(c, parseUiRequest(await readJson(c, maxBodyBytes)), UI);
  }

  /** Streams the answer in progress from its beginning. `chat`: what the front end calls the conversation. */
  async function resumeFrontEnd(c: Context<Env>, chat: string, protocol: Protocol): Promise<Response> {
    const caller = c.get('caller');
    const id = await conversations.idOf(chat, caller);
    const progress = await conversations.progress(id, caller);
    if (!progress) return c.body(null, 204);
    c.env.exchange.openStream();
    const { runId, after } = progress;
    const frontEnd = protocol === 'ag-ui' ? agUi({ threadId: chat, runId }) : RESUMED_UI;
    return streamFrontEnd(c, { id, onDisconnect: 'continue' }, { ...frontEnd, follow: followFrom(id, caller, after) });
  }

  async function answerAgUi(c: Context<Env>): Promise<Response> {
    rejectKey(c.env.incoming.headers);
    const { ids, request } = parseAgUiRequest(await readJson(c, maxBodyBytes));
    return serveFrontEnd(c, request, agUi(ids));
  }

  return [
    route({
      method: 'POST',
      path: '/v1/chat/ui',
      scope: 'chat:write',
      summary: 'Answer a front end with the AI SDK',
      body: FRONT_END_BODIES.ui,
      answers: [EVENTS],
      handle: answerUi,
    }),
    route({
      method: 'GET',
      path: '/v1/chat/ui/:chat/stream',
      scope: 'chat:read',
      summary: 'Resume the stream of a front end with the AI SDK',
      answers: [EVENTS],
      others: { '204': 'Nothing is in progress.' },
      handle: (c) => resumeFrontEnd(c, c.req.param('chat'), 'ui-message-stream'),
    }),
    route({
      method: 'POST',
      path: '/v1/chat/ag-ui',
      scope: 'chat:write',
      summary: 'Answer a front end with AG-UI',
      body: FRONT_END_BODIES.agUi,
      answers: [EVENTS],
      handle: answerAgUi,
    }),
    route({
      method: 'GET',
      path: '/v1/chat/ag-ui/:chat/stream',
      scope: 'chat:read',
      summary: 'Resume the stream of a front end with AG-UI',
      answers: [EVENTS],
      others: { '204': 'Nothing is in progress.' },
      handle: (c) => resumeFrontEnd(c, c.req.param('chat'), 'ag-ui'),
    }),
    route({
      method: 'POST',
      path: '/v1/chat',
      scope: 'chat:write',
      summary: 'Send a message to a conversation and follow the answer',
      body: chatBody,
      answers: [EVENTS],
      async handle(c) {
        const protocol = acceptedProtocol(c);
        if (protocol !== undefined) return protocol === 'ag-ui' ? answerAgUi(c) : answerUi(c);
        rejectKey(c.env.incoming.headers);
        const request = parseChat(await readJson(c, maxBodyBytes));
        c.env.exchange.openStream();
        const { run } = await conversations.start(request, c.get('caller'));
        return streamEvents(c, (stream, signal) => run((event) => stream.send(undefined, event), signal));
      },
    }),
    route({
      method: 'GET',
      path: '/v1/chat',
      scope: 'chat:read',
      summary: 'List conversations',
      query: LIST_QUERY,
      async handle(c) {
        const filter = parseFilter(c.req.query());
        const { limit } = filter;
        const found = await conversations.list({ ...filter, limit: limit + 1 }, c.get('caller'));
        const page = found.slice(0, limit);
        const hasMore = found.length > limit;
        return sendJson(c, {
          object: 'list',
          data: page.map(wireConversation),
          has_more: hasMore,
          next_cursor: hasMore ? cursorOf(page.at(-1)!) : null,
        } satisfies ListPage<ChatSummary>);
      },
    }),
    route({
      method: 'GET',
      path: `/v1/chat/${CONVERSATION}`,
      scope: 'chat:read',
      summary: 'Get a conversation with its messages',
      handle: (c) => sendConversation(c, c.req.param('id')),
    }),
    route({
      method: 'PATCH',
      path: `/v1/chat/${CONVERSATION}`,
      scope: 'chat:write',
      summary: 'Rename a conversation',
      body: renameBody,
      async handle(c) {
        const { title } = validateBody(renameBody, await readJson(c, maxBodyBytes));
        await conversations.rename(c.req.param('id'), title, c.get('caller'));
        return sendConversation(c, c.req.param('id'));
      },
    }),
    route({
      method: 'DELETE',
      path: `/v1/chat/${CONVERSATION}`,
      scope: 'chat:write',
      summary: 'Delete a conversation and its runs',
      async handle(c) {
        const id = c.req.param('id');
        await conversations.delete(id, c.get('caller'));
        return sendJson(c, { id, object: 'conversation', deleted: true });
      },
    }),
    route({
      method: 'GET',
      // A front end may call the conversation anything.
      path: '/v1/chat/:id/stream',
      scope: 'chat:read',
      summary: 'Follow the answer of a conversation',
      query: { after: LAST_EVENT },
      answers: [EVENTS],
      others: { '204': 'Nothing is in progress, for the protocol of a front end.' },
      async handle(c) {
        const id = c.req.param('id');
        const protocol = acceptedProtocol(c);
        if (protocol !== undefined) return resumeFrontEnd(c, id, protocol);
        if (!CONVERSATION_ID.test(id)) throw unknownRoute(c);
        const caller = c.get('caller');
        const after = wholeNumber(checkedQuery(c.req.query(), { after: LAST_EVENT }), 'after', LAST_EVENT);
        await conversations.find(id, caller);
        c.env.exchange.openStream();
        return streamEvents(c, (stream, disconnected) => {
          const signal = AbortSignal.any([disconnected, stopping]);
          return follow(conversations.events(id, caller), { after, signal, hold: caller.hold }, ({ event }) =>
            stream.send(undefined, event),
          );
        });
      },
    }),
    route({
      method: 'GET',
      path: `/v1/chat/${CONVERSATION}/attachments/:attachment`,
      scope: 'chat:read',
      summary: 'Get an attachment',
      answers: ['application/octet-stream'],
      async handle(c) {
        const { id, attachment } = c.req.param();
        const { media_type, bytes } = await conversations.attachment(id, attachment, c.get('caller'));
        // Never shown as a page of this server.
        const headers = {
          'content-type': media_type,
          'content-disposition': 'attachment',
          'x-content-type-options': 'nosniff',
        };
        return sendBytes(c, bytes, headers);
      },
    }),
    route({
      method: 'GET',
      path: `/v1/chat/${CONVERSATION}/export`,
      scope: 'chat:read',
      summary: 'Export a conversation',
      query: EXPORT_QUERY,
      answers: [JSON_TYPE, 'text/markdown'],
      async handle(c) {
        const { format = 'json' } = checkedQuery(c.req.query(), EXPORT_QUERY);
        if (format !== 'json' && format !== 'markdown') throw badRequest('format must be json or markdown.', 'format');
        const id = c.req.param('id');
        if (format === 'json') return sendConversation(c, id);
        const { title } = await conversations.find(id, c.get('caller'));
        const text = markdownOf(title, await conversations.messages(id, c.get('caller')));
        return sendBytes(c, Buffer.from(text), { 'content-type': 'text/markdown; charset=utf-8' });
      },
    }),
    route({
      method: 'POST',
      path: `/v1/chat/${CONVERSATION}/branch`,
      scope: 'chat:write',
      summary: 'Copy a conversation up to a message',
      body: branchBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { message_id: messageId } = validateBody(branchBody, await readJson(c, maxBodyBytes));
        return sendConversation(c, await conversations.branch(c.req.param('id'), messageId, c.get('caller')));
      },
    }),
    route({
      method: 'POST',
      path: `/v1/chat/${CONVERSATION}/answers`,
      scope: 'chat:write',
      summary: 'Approve calls and answer questions',
      body: z.union([answersBody, answer]),
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const answers = parseAnswers(await readJson(c, maxBodyBytes));
        await conversations.answer(c.req.param('id'), answers, c.get('caller'));
        return sendJson(c, { id: c.req.param('id'), object: 'conversation.answers', accepted: answers.length });
      },
    }),
    route({
      method: 'POST',
      path: `/v1/chat/${CONVERSATION}/messages`,
      scope: 'chat:write',
      summary: 'Send a message to the answer in progress',
      body: messageBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { message } = validateBody(messageBody, await readJson(c, maxBodyBytes));
        await conversations.steer(c.req.param('id'), message, c.get('caller'));
        return sendJson(c, { id: c.req.param('id'), object: 'conversation.message' });
      },
    }),
    route({
      method: 'POST',
      path: `/v1/chat/${CONVERSATION}/cancel`,
      scope: 'chat:write',
      summary: 'Cancel the answer in progress',
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const id = c.req.param('id');
        await conversations.cancel(id, c.get('caller'));
        return sendConversation(c, id);
      },
    }),
  ];
}

interface StreamOptions {
  readonly hasEndMark?: boolean;
  /** The last frames of a stream that failed. */
  readonly framesOf?: (failure: Failure) => readonly object[];
}

type Failure = Extract<ChatEvent, { type: 'error' }>;

/** For clients whose protocol needs an end. The others continue after their last event. */
const STOPPING: Failure = {
  type: 'error',
  code: 'server_stopping',
  message: 'The server is shutting down. The answer continues after the restart: resume its stream.',
};

/** A protocol of front ends. */
interface FrontEnd {
  /** `answers`: those of the request. */
  readonly encoderFor: (answers: readonly ChatAnswer[]) => FrontEndEncoder;
  readonly headers?: Readonly<Record<string, string>>;
  readonly hasEndMark: boolean;
}

interface FrontEndStream extends FrontEnd {
  readonly encoder?: FrontEndEncoder;
  /** The frames before the events. */
  readonly first?: readonly object[];
  readonly follow: StartedChat['run'];
}

const UI: FrontEnd = {
  encoderFor(answers) {
    const denied = answers.filter((answer) => 'approved' in answer && !answer.approved);
    return uiEncoder({ denied: new Set(denied.map(({ id }) => id)) });
  },
  headers: UI_HEADERS,
  hasEndMark: true,
};

const RESUMED_UI: FrontEnd = { ...UI, encoderFor: () => uiEncoder({ isResumed: true }) };

function agUi(ids: AgUiIds): FrontEnd {
  return { encoderFor: () => agUiEncoder(ids), hasEndMark: false };
}

const PROTOCOLS = ['ui-message-stream', 'ag-ui'] as const;
type Protocol = (typeof PROTOCOLS)[number];

/** The protocol that `Accept` names: `text/event-stream; protocol=ag-ui`. Undefined if it names none. Throws a 406 for another. */
function acceptedProtocol(c: Context<Env>): Protocol | undefined {
  const [, name] = /text\/event-stream\s*;\s*protocol="?([\w-]*)/i.exec(c.req.header('accept') ?? '') ?? [];
  const found = PROTOCOLS.find((one) => one === name);
  if (found !== undefined || name === undefined) return found;
  const message = `Accept names the protocol ${JSON.stringify(name)}. Use ${PROTOCOLS.join(' or ')}, or leave it out.`;
  throw new ApiError(406, 'invalid_request_error', message, { param: 'Accept', code: 'unsupported_protocol' });
}

/**
 * Encodes the events that the client has: its stream ended when everything waited, after it had got what it answers now
 * (`settled`). Returns the number of the last one.
 */
function encodeUntilWaiting(
  encoder: FrontEndEncoder,
  events: readonly NumberedEvent[],
  settled: ReadonlySet<string>,
): number | undefined {
  const missing = new Set(settled);
  for (const event of events) {
    encoder.encode(event);
    if ('id' in event) missing.delete(event.id);
    if (missing.size === 0 && encoder.isWaiting()) return event.seq;
  }
  return events.at(-1)?.seq;
}

const CONVERSATION_ID = /^conv_[\w-]+$/;
/** Only ids of conversations, so that other paths below `/v1/chat` are not taken for one. */
const CONVERSATION = ':id{conv_[\\w-]+}';

// Queries

const LIST_QUERY: Parameters = {
  search: { description: 'Words in titles and messages.', schema: { type: 'string' } },
  cursor: CURSOR,
  limit: LIMIT,
};

const EXPORT_QUERY: Parameters = {
  format: { description: 'The format.', schema: { enum: ['json', 'markdown'], default: 'json' } },
};

const LAST_EVENT: NumberParameter = {
  description: '`seq` of the last event that the client has.',
  schema: { type: 'integer', minimum: 0 },
};

function parseFilter(given: Query): Omit<ConversationFilter, 'tenant'> {
  const query = checkedQuery(given, LIST_QUERY);
  const { search, cursor } = query;
  return {
    ...(search !== undefined && { search }),
    ...(cursor !== undefined && { after: positionOf(cursor) }),
    limit: wholeNumber(query, 'limit', LIMIT),
  };
}

function cursorOf({ updatedAt, id }: ConversationRecord): string {
  return Buffer.from(JSON.stringify([updatedAt, id])).toString('base64url');
}

function positionOf(cursor: string): NonNullable<ConversationFilter['after']> {
  try {
    const [updatedAt, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as [unknown, unknown];
    if (typeof updatedAt === 'number' && typeof id === 'string') return { updatedAt, id };
  } catch {}
  throw badRequest('cursor is not the next_cursor of a page.', 'cursor');
}

// Bodies

const MAX_MESSAGE_CHARS = 1_000_000;
const text = z.string().min(1).max(MAX_MESSAGE_CHARS);
const name = z.string().min(1).max(200);

const chatBody: z.ZodType<ChatBody> = z.strictObject({
  conversation_id: name.nullish(),
  // May be empty if there are attachments.
  message: z.string().max(MAX_MESSAGE_CHARS),
  attachments: attachmentsSchema.nullish(),
  model: name.nullish(),
  tools: list(name, { expected: 'a list of tool names', max: 128 }).nullish(),
  approvals: z.enum(['ask']).nullish(),
  on_disconnect: z.enum(['cancel', 'continue']).nullish(),
} satisfies Record<keyof ChatBody, z.ZodType>);

function parseChat(body: unknown): ChatRequest {
  const { conversation_id, message, attachments, model, tools, approvals, on_disconnect } = validateBody(
    chatBody,
    body,
  );
  if (message === '' && !attachments?.length) {
    throw badRequest('The message has neither a text nor attachments.', 'message', 'empty_input');
  }
  return {
    ...(conversation_id != null && { conversation: conversation_id }),
    ...messageWith(message, attachments ?? []),
    ...(model != null && { model }),
    ...(tools != null && { tools }),
    ...(approvals != null && { approvals }),
    onDisconnect: on_disconnect ?? 'cancel',
  };
}

const renameBody = z.strictObject({ title: z.string().min(1).max(200) });
const branchBody = z.strictObject({ message_id: name });
const messageBody = z.strictObject({ message: text });

const answer = z.strictObject({
  id: name,
  approved: z.boolean().optional(),
  digest: name.optional(),
  reason: z.string().max(2_000).optional(),
  answer: z.unknown().optional(),
});
const answersBody = z.strictObject({ answers: list(answer, { expected: 'a list of answers', max: 100 }) });

/** One answer, or a list of them in `answers`. */
function parseAnswers(body: unknown): readonly ChatAnswer[] {
  const isList = typeof body === 'object' && body !== null && 'answers' in body;
  const answers = isList ? validateBody(answersBody, body).answers : [validateBody(answer, body)];
  if (answers.length === 0) throw badRequest('The list has no answers.', 'answers');
  return answers.map(({ id, approved, digest, reason, answer: value }) => {
    if ((approved === undefined) === (value === undefined)) {
      throw badRequest("Send 'approved' and 'digest', or 'answer'.", 'approved');
    }
    if (approved === undefined) return { id, answer: value };
    if (digest === undefined) throw badRequest('An approval needs the digest of its request.', 'digest');
    return { id, approved, digest, ...(reason !== undefined && { reason }) };
  });
}

// Answers

function wireConversation({ id, title, createdAt, updatedAt }: ConversationRecord): ChatSummary {
  return { id, object: 'conversation', title: title || null, created_at: createdAt, updated_at: updatedAt };
}

function markdownOf(title: string, messages: readonly ChatMessage[]): string {
  const blocks = [`# ${title || 'Conversation'}`];
  for (const message of messages) {
    blocks.push(message.role === 'user' ? '## User' : '## Assistant');
    if (message.role === 'user') {
      blocks.push(message.content);
      for (const { name: file, media_type } of message.attachments) blocks.push(`(${file ?? 'file'}, ${media_type})`);
      continue;
    }
    for (const part of message.parts) {
      if (part.type === 'text') blocks.push(part.text, ...(part.stopped ? ['(stopped)'] : []));
      else if (part.type === 'input') blocks.push('## User', part.text, '## Assistant');
      else if (part.type === 'tool_call') {
        blocks.push(`Call of \`${part.name}\`:`, fenced(part.arguments), 'Result:', fenced(part.result?.content ?? ''));
      }
    }
    if (message.error) blocks.push(`Error: ${message.error.message}`);
  }
  return `${blocks.join('\n\n')}\n`;
}

/** A block that its content cannot end. */
function fenced(content: string): string {
  let longest = 2;
  for (const [ticks] of content.matchAll(/`+/g)) longest = Math.max(longest, ticks.length);
  const fence = '`'.repeat(longest + 1);
  return `${fence}\n${content}\n${fence}`;
}
