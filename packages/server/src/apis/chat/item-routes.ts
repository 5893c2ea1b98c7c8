import type { ConversationRecord } from '@treadle/store';
import type { Context } from 'hono';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { KEY_HEADER, requestKey, type RequestKey } from '../../requests/idempotency.ts';
import type { Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Parameters, type Route } from '../../http/routes.ts';
import { DEFAULT_LIMITS, SHARED_FIELDS } from '../../parse/fields.ts';
import { itemPage, PAGE, pageQuery } from '../../parse/query.ts';
import { checkJson, validateBody } from '../../parse/validate.ts';
import { inputSchema } from '../responses/parse-input.ts';
import { checkIncluded } from '../responses/parse-request.ts';
import type { ConversationItems } from './conversation-items.ts';
import type { Conversations } from './conversations.ts';
import { instructionsField } from './routes.ts';

interface ItemRoutesOptions {
  readonly items: ConversationItems;
  readonly conversations: Pick<Conversations, 'find' | 'delete'>;
  readonly maxBodyBytes: number;
}

/** The Conversations API. */
export function itemRoutes({ items, conversations, maxBodyBytes }: ItemRoutesOptions): readonly Route[] {
  async function bodyOf<T>(c: Context<Env>, schema: z.ZodType<T>): Promise<T> {
    return (await keyedBodyOf(c, schema, '')).body;
  }

  /** With the key of the request, if it has one. `endpoint`: its name for `requestKey`. */
  async function keyedBodyOf<T>(
    c: Context<Env>,
    schema: z.ZodType<T>,
    endpoint: string,
  ): Promise<{ readonly body: T; readonly key: RequestKey | undefined }> {
    const body = await readJson(c, maxBodyBytes);
    checkJson(body, DEFAULT_LIMITS.depth);
    const { 'idempotency-key': given } = c.env.incoming.headers;
    const valid = validateBody(schema, body);
    return { body: valid, key: given === undefined ? undefined : requestKey(given, endpoint, body) };
  }

  return [
    route({
      method: 'POST',
      path: '/v1/conversations',
      scope: 'chat:write',
      summary: 'Create a conversation',
      body: createBody,
      headers: KEY_HEADER,
      async handle(c) {
        const { body, key } = await keyedBodyOf(c, createBody, 'conversations');
        const { metadata: given, instructions } = body;
        const created = { items: body.items ?? [], metadata: given ?? {}, instructions: instructions ?? undefined };
        return sendJson(c, wireConversation(await items.create(created, c.get('caller'), key)));
      },
    }),
    route({
      method: 'GET',
      path: '/v1/conversations/:id',
      scope: 'chat:read',
      summary: 'Get a conversation',
      async handle(c) {
        return sendJson(c, wireConversation(await conversations.find(c.req.param('id'), c.get('caller'))));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/conversations/:id',
      scope: 'chat:write',
      summary: 'Replace the metadata or the instructions of a conversation',
      body: updateBody,
      async handle(c) {
        const { metadata: given, instructions } = await bodyOf(c, updateBody);
        if (given === undefined && instructions === undefined) {
          throw badRequest("Missing required parameter: 'metadata'.", 'metadata', 'missing_required_parameter');
        }
        const changes = {
          ...(given !== undefined && { metadata: given ?? {} }),
          ...(instructions !== undefined && { instructions: instructions ?? '' }),
        };
        return sendJson(c, wireConversation(await items.update(c.req.param('id'), changes, c.get('caller'))));
      },
    }),
    route({
      method: 'DELETE',
      path: '/v1/conversations/:id',
      scope: 'chat:write',
      summary: 'Delete a conversation and its runs',
      async handle(c) {
        const id = c.req.param('id');
        await conversations.delete(id, c.get('caller'));
        return sendJson(c, { id, object: 'conversation.deleted', deleted: true });
      },
    }),
    route({
      method: 'GET',
      path: '/v1/conversations/:id/items',
      scope: 'chat:read',
      summary: 'List the items of a conversation',
      query: { ...PAGE, ...INCLUDE },
      async handle(c) {
        checkInclude(c);
        const { data, hasMore } = await items.list(c.req.param('id'), pageQuery(c.req.query()), c.get('caller'));
        return sendJson(c, itemPage(data, hasMore));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/conversations/:id/items',
      scope: 'chat:write',
      summary: 'Add items to a conversation',
      query: INCLUDE,
      body: itemsBody,
      headers: KEY_HEADER,
      async handle(c) {
        checkInclude(c);
        const id = c.req.param('id');
        const { body, key } = await keyedBodyOf(c, itemsBody, `conversations/${id}/items`);
        const { items: given } = body;
        if (given.length === 0) throw badRequest("'items' is empty. Send at least one item.", 'items', 'empty_items');
        return sendJson(c, itemPage(await items.add(id, given, c.get('caller'), key), false));
      },
    }),
    route({
      method: 'GET',
      path: '/v1/conversations/:id/items/:item',
      scope: 'chat:read',
      summary: 'Get an item of a conversation',
      query: INCLUDE,
      async handle(c) {
        checkInclude(c);
        return sendJson(c, await items.retrieve(c.req.param('id'), c.req.param('item'), c.get('caller')));
      },
    }),
    route({
      method: 'DELETE',
      path: '/v1/conversations/:id/items/:item',
      scope: 'chat:write',
      summary: 'Delete an item that no run has read',
      async handle(c) {
        const { id, item } = c.req.param();
        return sendJson(c, wireConversation(await items.delete(id, item, c.get('caller'))));
      },
    }),
  ];
}

const list = inputSchema(DEFAULT_LIMITS);
const { metadata } = SHARED_FIELDS;

/** Unknown fields are ignored. */
const createBody = z.object({ items: list.nullish(), metadata, instructions: instructionsField });
const updateBody = z.object({ metadata, instructions: instructionsField });
const itemsBody = z.object({ items: list });

const INCLUDE: Parameters = {
  include: {
    description: 'Accepted for clients of OpenAI. Items are returned as they are stored.',
    schema: { type: 'array', items: { type: 'string' } },
  },
};

/** Items are returned as they are stored, so there is nothing to add. */
function checkInclude(c: Context<Env>): void {
  checkIncluded([...(c.req.queries('include') ?? []), ...(c.req.queries('include[]') ?? [])]);
}

/** `instructions` is not of the API of OpenAI, so it is there only if the conversation has some. */
function wireConversation({ id, createdAt, metadata: attached = {}, instructions }: ConversationRecord): object {
  const told = instructions === undefined ? {} : { instructions };
  return { id, object: 'conversation', created_at: Math.floor(createdAt / 1000), metadata: attached, ...told };
}
