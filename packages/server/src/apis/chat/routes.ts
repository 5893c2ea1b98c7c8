import type { ConversationFilter, ConversationRecord } from '@treadle/store';
import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import { follow } from '../../requests/event-log.ts';
import { rejectKey } from '../../requests/idempotency.ts';
import { requireScope, type Env } from '../../http/admission.ts';
import { unknownRoute } from '../../http/app.ts';
import { readJson } from '../../http/body.ts';
import { sendBytes, sendJson } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Parameters, type Route } from '../../http/routes.ts';
import type { ListPage } from '../../wire.ts';
import { checkedQuery, CURSOR, LIMIT, wholeNumber, type NumberParameter, type Query } from '../../parse/query.ts';
import { list, signature, validateBody } from '../../parse/validate.ts';
import { attachmentsSchema, messageWith } from './attachments.ts';
import { sendEvents } from './chat-streams.ts';
import type { Conversations } from './conversations.ts';
import type { ChatAnswer, ChatBody, ChatConversation, ChatMessage, ChatSummary } from './wire.ts';
import { frontEndRoutes, type ChatRoutesOptions, type FrontEndRoutes } from './front-end-routes.ts';
import { PROTOCOLS, type FrontEndProtocol } from './front-ends.ts';
import type { ChatRequest } from './start-chat.ts';

/** `/v1/chat` and the routes below it, without `/v1/chat/completions`. */
export function conversationsRoutes(options: ChatRoutesOptions): readonly Route[] {
  const frontEnds = frontEndRoutes(options);
  return [...frontEnds.routes, ...answerRoutes(options, frontEnds), ...storedRoutes(options)];
}

/** Messages, and the answers in progress. */
function answerRoutes(
  { conversations, maxBodyBytes, heartbeatMs, stopping }: ChatRoutesOptions,
  frontEnds: FrontEndRoutes,
): readonly Route[] {
  return [
    route({
      method: 'POST',
      path: '/v1/chat',
      scope: 'chat:write',
      summary: 'Send a message to a conversation and follow the answer',
      fieldScopes: FIELD_SCOPES,
      body: chatBody,
      answers: [EVENTS],
      async handle(c) {
        const protocol = acceptedProtocol(c);
        if (protocol !== undefined) return frontEnds.answer(c, protocol);
        rejectKey(c.env.incoming.headers);
        const request = parseChat(await readJson(c, maxBodyBytes));
        // Who may only send messages must not undo what limits their answers.
        if (request.lift) requireScope(c.get('caller'), FIELD_SCOPES.lift_narrowing);
        c.env.exchange.openStream();
        const { run } = await conversations.start(request, c.get('caller'));
        return sendEvents(c, heartbeatMs, (stream, signal) =>
          run((event, isLive) => (isLive ? stream.sendLive(undefined, event) : stream.send(undefined, event)), signal),
        );
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
        if (protocol !== undefined) return frontEnds.resume(c, id, protocol);
        if (!CONVERSATION_ID.test(id)) throw unknownRoute(c);
        const caller = c.get('caller');
        const after = wholeNumber(checkedQuery(c.req.query(), { after: LAST_EVENT }), 'after', LAST_EVENT);
        await conversations.find(id, caller);
        c.env.exchange.openStream();
        return sendEvents(c, heartbeatMs, (stream, disconnected) => {
          const signal = AbortSignal.any([disconnected, stopping]);
          return follow(conversations.events(id, caller), { after, signal, hold: caller.hold }, ({ event }) =>
            stream.send(undefined, event),
          );
        });
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
        return sendConversation(c, conversations, id);
      },
    }),
  ];
}

/** Conversations as they are stored. */
function storedRoutes({ conversations, maxBodyBytes }: ChatRoutesOptions): readonly Route[] {
  return [
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
      handle: (c) => sendConversation(c, conversations, c.req.param('id')),
    }),
    route({
      method: 'PATCH',
      path: `/v1/chat/${CONVERSATION}`,
      scope: 'chat:write',
      summary: 'Change the title or the instructions of a conversation',
      body: changesBody,
      async handle(c) {
        const { title, instructions } = validateBody(changesBody, await readJson(c, maxBodyBytes));
        if (title === undefined && instructions === undefined) {
          throw badRequest("Send 'title' or 'instructions'.", 'title', 'missing_required_parameter');
        }
        const told = instructions === undefined ? undefined : (instructions ?? '');
        await conversations.update(c.req.param('id'), { title, instructions: told }, c.get('caller'));
        return sendConversation(c, conversations, c.req.param('id'));
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
        if (format === 'json') return sendConversation(c, conversations, id);
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
        return sendConversation(
          c,
          conversations,
          await conversations.branch(c.req.param('id'), messageId, c.get('caller')),
        );
      },
    }),
  ];
}

async function sendConversation(c: Context<Env>, conversations: Conversations, id: string): Promise<Response> {
  const caller = c.get('caller');
  const found = await conversations.find(id, caller);
  const messages = await conversations.messages(id, caller);
  const { instructions = null } = found;
  const memory = await conversations.memoryOf(found);
  return sendJson(c, { ...wireConversation(found), instructions, memory, messages } satisfies ChatConversation);
}

/** The protocol that `Accept` names: `text/event-stream; protocol=ag-ui`. Undefined if it names none. Throws a 406 for another. */
function acceptedProtocol(c: Context<Env>): FrontEndProtocol | undefined {
  const [, name] = /text\/event-stream\s*;\s*protocol="?([\w-]*)/i.exec(c.req.header('accept') ?? '') ?? [];
  const found = PROTOCOLS.find((one) => one === name);
  if (found !== undefined || name === undefined) return found;
  const message = `Accept names the protocol ${JSON.stringify(name)}. Use ${PROTOCOLS.join(' or ')}, or leave it out.`;
  throw new ApiError(406, 'invalid_request_error', message, { param: 'Accept', code: 'unsupported_protocol' });
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

/** What the model is told in a conversation. Null or empty: nothing. */
export const instructionsField: z.ZodOptional<z.ZodNullable<z.ZodString>> = z.string().max(100_000).nullish();

const chatBody: z.ZodType<ChatBody> = z.strictObject({
  conversation_id: name.nullish(),
  // May be empty if there are attachments.
  message: z.string().max(MAX_MESSAGE_CHARS),
  attachments: attachmentsSchema.nullish(),
  model: name.nullish(),
  instructions: instructionsField,
  tools: list(name, { expected: 'a list of tool names', max: 128 }).nullish(),
  device: name.nullish(),
  approvals: z.enum(['ask']).nullish(),
  lift_narrowing: list(name, { expected: 'a list of sources', max: 32 }).nullish(),
  memory: z.enum(['on', 'off', 'incognito']).nullish(),
  on_disconnect: z.enum(['cancel', 'continue']).nullish(),
} satisfies Record<keyof ChatBody, z.ZodType>);

const FIELD_SCOPES = { lift_narrowing: 'runs:write' } as const;

function parseChat(body: unknown): ChatRequest {
  const valid = validateBody(chatBody, body);
  const { conversation_id, message, attachments, model, instructions, tools, approvals, on_disconnect } = valid;
  const { lift_narrowing, device, memory } = valid;
  if (conversation_id != null && instructions != null) {
    throw badRequest(
      "'instructions' is for a new conversation. Change those of an existing one with PATCH /v1/chat/{id}.",
      'instructions',
    );
  }
  if (message === '' && !attachments?.length) {
    throw badRequest('The message has neither a text nor attachments.', 'message', 'empty_input');
  }
  return {
    ...(conversation_id != null && { conversation: conversation_id }),
    ...messageWith(message, attachments ?? []),
    ...(model != null && { model }),
    ...(instructions != null && { told: instructions }),
    ...(memory != null && { uses: memory }),
    ...(tools != null && { tools }),
    ...(device != null && { device }),
    ...(approvals != null && { approvals }),
    ...(lift_narrowing?.length && { lift: lift_narrowing }),
    onDisconnect: on_disconnect ?? 'cancel',
  };
}

const changesBody = z.strictObject({
  title: z.string().min(1).max(200).optional(),
  instructions: instructionsField,
});
const branchBody = z.strictObject({ message_id: name });
const messageBody = z.strictObject({ message: text });

const answer = z.strictObject({
  id: name,
  approved: z.boolean().optional(),
  digest: name.optional(),
  reason: z.string().max(2_000).optional(),
  for_run: z.boolean().optional(),
  answer: z.unknown().optional(),
  signature: signature.optional(),
});
const answersBody = z.strictObject({ answers: list(answer, { expected: 'a list of answers', max: 100 }) });

/** One answer, or a list of them in `answers`. */
function parseAnswers(body: unknown): readonly ChatAnswer[] {
  const isList = typeof body === 'object' && body !== null && 'answers' in body;
  const answers = isList ? validateBody(answersBody, body).answers : [validateBody(answer, body)];
  if (answers.length === 0) throw badRequest('The list has no answers.', 'answers');
  return answers.map(({ id, approved, digest, reason, for_run, answer: value, signature: given }) => {
    const signed = { id, ...(given !== undefined && { signature: given }) };
    if ((approved === undefined) === (value === undefined)) {
      throw badRequest("Send 'approved' and 'digest', or 'answer'.", 'approved');
    }
    if (approved === undefined) return { ...signed, answer: value };
    if (digest === undefined) throw badRequest('An approval needs the digest of its request.', 'digest');
    return {
      ...signed,
      approved,
      digest,
      ...(reason !== undefined && { reason }),
      ...(for_run !== undefined && { for_run }),
    };
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
