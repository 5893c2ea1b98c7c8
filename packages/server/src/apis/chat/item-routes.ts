import type { ConversationRecord } from '@treadle/store';
import { Hono, type Context } from 'hono';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { requestKey, type RequestKey } from '../../requests/idempotency.ts';
import { requireScope, type Caller, type Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { sendJson } from '../../http/respond.ts';
import { DEFAULT_LIMITS, SHARED_FIELDS } from '../../request/fields.ts';
import { itemPage, pageQuery } from '../../request/query.ts';
import { checkJson, validateBody } from '../../request/validate.ts';
import { inputSchema } from '../responses/parse-input.ts';
import { checkIncluded } from '../responses/parse-request.ts';
import type { ConversationItems } from './conversation-items.ts';
import type { Conversations } from './conversations.ts';

interface ItemRoutesOptions {
  readonly items: ConversationItems;
  readonly conversations: Pick<Conversations, 'find' | 'delete'>;
  readonly maxBodyBytes: number;
}

/** `/conversations` and the routes below it: the Conversations API. They need the scopes `chat:read` and `chat:write`. */
export function itemRoutes({ items, conversations, maxBodyBytes }: ItemRoutesOptions): Hono<Env> {
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

  return new Hono<Env>()
    .post('/conversations', async (c) => {
      const caller = writer(c);
      const { body, key } = await keyedBodyOf(c, createBody, 'conversations');
      const created = { items: body.items ?? [], metadata: body.metadata ?? {} };
      return sendJson(c, wireConversation(await items.create(created, caller, key)));
    })
    .get('/conversations/:id', async (c) => {
      return sendJson(c, wireConversation(await conversations.find(c.req.param('id'), reader(c))));
    })
    .post('/conversations/:id', async (c) => {
      const caller = writer(c);
      const { metadata } = await bodyOf(c, updateBody);
      if (metadata === undefined) {
        throw badRequest("Missing required parameter: 'metadata'.", 'metadata', 'missing_required_parameter');
      }
      return sendJson(c, wireConversation(await items.update(c.req.param('id'), metadata ?? {}, caller)));
    })
    .delete('/conversations/:id', async (c) => {
      const id = c.req.param('id');
      await conversations.delete(id, writer(c));
      return sendJson(c, { id, object: 'conversation.deleted', deleted: true });
    })
    .get('/conversations/:id/items', async (c) => {
      const caller = reader(c);
      checkInclude(c);
      const { data, hasMore } = await items.list(c.req.param('id'), pageQuery(c.req.query()), caller);
      return sendJson(c, itemPage(data, hasMore));
    })
    .post('/conversations/:id/items', async (c) => {
      const caller = writer(c);
      checkInclude(c);
      const id = c.req.param('id');
      const { body, key } = await keyedBodyOf(c, itemsBody, `conversations/${id}/items`);
      const { items: given } = body;
      if (given.length === 0) throw badRequest("'items' is empty. Send at least one item.", 'items', 'empty_items');
      return sendJson(c, itemPage(await items.add(id, given, caller, key), false));
    })
    .get('/conversations/:id/items/:item', async (c) => {
      const caller = reader(c);
      checkInclude(c);
      return sendJson(c, await items.retrieve(c.req.param('id'), c.req.param('item'), caller));
    })
    .delete('/conversations/:id/items/:item', async (c) => {
      const { id, item } = c.req.param();
      return sendJson(c, wireConversation(await items.delete(id, item, writer(c))));
    });
}

const reader = (c: Context<Env>): Caller => callerWith(c, 'chat:read');
const writer = (c: Context<Env>): Caller => callerWith(c, 'chat:write');

function callerWith(c: Context<Env>, scope: 'chat:read' | 'chat:write'): Caller {
  const caller = c.get('caller');
  requireScope(caller, scope);
  return caller;
}

const list = inputSchema(DEFAULT_LIMITS);
const { metadata } = SHARED_FIELDS;

/** Unknown fields are ignored. */
const createBody = z.object({ items: list.nullish(), metadata });
const updateBody = z.object({ metadata });
const itemsBody = z.object({ items: list });

/** The bodies of requests, for `/openapi.json`. */
export const CONVERSATION_BODIES: Readonly<Record<'create' | 'update' | 'items', z.ZodType>> = {
  create: createBody,
  update: updateBody,
  items: itemsBody,
};

/** Items are returned as they are stored, so there is nothing to add. */
function checkInclude(c: Context<Env>): void {
  checkIncluded([...(c.req.queries('include') ?? []), ...(c.req.queries('include[]') ?? [])]);
}

function wireConversation({ id, createdAt, metadata: attached = {} }: ConversationRecord): object {
  return { id, object: 'conversation', created_at: Math.floor(createdAt / 1000), metadata: attached };
}
