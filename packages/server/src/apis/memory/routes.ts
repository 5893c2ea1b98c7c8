import { TreadleError } from '@treadle/core';
import {
  MEMORY_LEVELS,
  memoryOn,
  type Memory,
  type MemoryFilter,
  type MemoryItem,
  type MemoryLevel,
  type NewNote,
} from '@treadle/core/memory';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Caller } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, sendJson } from '../../http/respond.ts';
import { route, type Parameter, type Parameters, type Route } from '../../http/routes.ts';
import { checkedQuery, CURSOR, LIMIT, TIME, timeOf, wholeNumber, type Query } from '../../parse/query.ts';
import { validateBody } from '../../parse/validate.ts';
import type { ListPage } from '../../wire.ts';
import type { NoteBody, WireForgotten, WireMemory } from './wire.ts';
import { wireMemory } from './wire-memory.ts';

export interface MemoryRoutesOptions {
  readonly engine: Pick<Engine, 'store' | 'memory'>;
  readonly maxBodyBytes: number;
}

const TYPES = ['tool_call', 'llm_response', 'decision', 'error', 'note'] as const;
const SCOPES = ['agent', 'session', 'user', 'tenant'] as const;

const named = (what: string): Parameter => ({ description: `Only those of this ${what}.`, schema: { type: 'string' } });

const LEVEL: Parameter = {
  description: 'How much of each is told: a line, a paragraph, or everything.',
  schema: { type: 'string', enum: MEMORY_LEVELS, default: 'index' },
};

const LIST_QUERY = {
  query: {
    description: 'Words to search for, the best first. Only with `level`, `tag` and `limit`.',
    schema: { type: 'string' },
  },
  level: LEVEL,
  type: { description: 'Only these.', schema: { type: 'string', enum: TYPES } },
  run: named('run'),
  session: named('session'),
  agent: named('agent'),
  subject: named('key'),
  tag: named('tag'),
  since: TIME,
  until: TIME,
  limit: LIMIT,
  cursor: CURSOR,
} as const satisfies Parameters;

const FORGET_QUERY = {
  session: named('session'),
  subject: named('key'),
  until: { ...TIME, description: `Only those before. ${TIME.description}` },
  all: {
    description: 'Everything of the tenant: required without the others.',
    schema: { type: 'string', enum: ['true'] },
  },
} as const satisfies Parameters;

const name = z.string().min(1).max(200);

const noteBody: z.ZodType<NoteBody> = z.strictObject({
  key: name,
  text: z.string().min(1).max(8_000),
  tags: z.array(name).max(20).nullish(),
  scope: z.enum(SCOPES).nullish(),
  session_id: name.nullish(),
  agent_name: name.nullish(),
  subject: z.string().max(200).nullish(),
});

/** What runs did, and notes: for people, who can read, change and delete everything of their tenant. */
export function memoryRoutes({ engine, maxBodyBytes }: MemoryRoutesOptions): readonly Route[] {
  const { store } = engine;
  // Also without memory, what was remembered before can be read and deleted.
  const memory: Memory = engine.memory ?? memoryOn({ port: store.memory });

  async function found({ tenant }: Caller, id: string): Promise<MemoryItem> {
    const item = await store.memory.get({ tenant }, id);
    if (item) return item;
    const message = `There is nothing with the id ${JSON.stringify(id.slice(0, 300))}. "GET /v1/memory" lists what there is.`;
    throw new ApiError(404, 'not_found_error', message, { code: 'memory_not_found' });
  }

  return [
    route({
      method: 'GET',
      path: '/v1/memory',
      scope: 'memory:read',
      summary: 'List or search what was remembered',
      query: LIST_QUERY,
      async handle(c) {
        const caller = c.get('caller');
        const query = checkedQuery(c.req.query(), LIST_QUERY);
        const level = levelOf(query);
        const limit = wholeNumber(query, 'limit', LIMIT);
        const { query: text, tag } = query;
        if (text !== undefined) {
          checkedQuery(query, { query: LIST_QUERY.query, level: LEVEL, tag: LIST_QUERY.tag, limit: LIMIT });
          const searched = { level, topK: limit, signal: disconnectSignal(c) };
          const items = await memory.search(
            { tenant: caller.tenant, ...(tag !== undefined && { tag }) },
            text,
            searched,
          );
          return sendJson(c, pageOf(items, { level, hasMore: false }));
        }
        const filter = { ...filterOf(query), tenant: caller.tenant };
        await memory.refresh();
        const items = await store.memory.list({ ...filter, limit: limit + 1 });
        caller.hold?.(items.reduce((sum, { content }) => sum + content.length, 0));
        return sendJson(c, pageOf(items.slice(0, limit), { level, hasMore: items.length > limit }));
      },
    }),
    route({
      method: 'PUT',
      path: '/v1/memory',
      scope: 'memory:write',
      summary: 'Write a note, or replace the one with the same key and scope',
      body: noteBody,
      async handle(c) {
        const { tenant, key: subject } = c.get('caller');
        const note = noteOf(validateBody(noteBody, await readJson(c, maxBodyBytes)), { tenant, subject });
        try {
          return sendJson(c, wireMemory(await memory.remember(note), 'full'));
        } catch (error) {
          if (error instanceof TreadleError && error.code === 'invalid-input') throw badRequest(error.message);
          throw error;
        }
      },
    }),
    route({
      method: 'DELETE',
      path: '/v1/memory',
      scope: 'memory:write',
      summary: 'Forget what was remembered of a session, of a key, until a time, or everything',
      query: FORGET_QUERY,
      async handle(c) {
        const { session, subject, until, all } = checkedQuery(c.req.query(), FORGET_QUERY);
        if (all !== undefined && all !== 'true') throw badRequest('all must be "true".', 'all');
        const what = {
          ...(session !== undefined && { session }),
          ...(subject !== undefined && { subject }),
          ...(until !== undefined && { until: timeOf(until, 'until') - 1 }),
        };
        if ((Object.keys(what).length === 0) !== (all === 'true')) {
          throw badRequest('Say what to forget: session, subject or until, or else all=true for everything.', 'all');
        }
        await memory.refresh();
        const { tenant } = c.get('caller');
        const count = await store.memory.forget({ tenant, until: Date.now(), ...what });
        return sendJson(c, { object: 'memory.forgotten', count } satisfies WireForgotten);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/memory/:id{.+}',
      scope: 'memory:read',
      summary: 'Get what was remembered, completely',
      handle: async (c) => sendJson(c, wireMemory(await found(c.get('caller'), c.req.param('id')), 'full')),
    }),
    route({
      method: 'DELETE',
      path: '/v1/memory/:id{.+}',
      scope: 'memory:write',
      summary: 'Forget something',
      async handle(c) {
        const { id, tenant } = await found(c.get('caller'), c.req.param('id'));
        const count = await store.memory.forget({ ...(tenant !== undefined && { tenant }), id, until: Date.now() });
        return sendJson(c, { object: 'memory.forgotten', count } satisfies WireForgotten);
      },
    }),
  ];
}

function levelOf({ level = 'index' }: Query): MemoryLevel {
  const known = MEMORY_LEVELS.find((one) => one === level);
  if (known) return known;
  throw badRequest(`level must be one of ${MEMORY_LEVELS.join(', ')}.`, 'level');
}

function filterOf({ type: given, run, cursor, since, until, ...query }: Query): Omit<MemoryFilter, 'limit'> {
  const type = TYPES.find((one) => one === given);
  if (given !== undefined && !type) throw badRequest(`type must be one of ${TYPES.join(', ')}.`, 'type');
  const { session, agent, subject, tag } = query;
  return {
    ...(type && { type }),
    ...(run !== undefined && { runId: run }),
    ...(session !== undefined && { session }),
    ...(agent !== undefined && { agent }),
    ...(subject !== undefined && { subject }),
    ...(tag !== undefined && { tag }),
    ...(since !== undefined && { since: timeOf(since, 'since') }),
    ...(until !== undefined && { until: timeOf(until, 'until') }),
    ...(cursor !== undefined && { after: positionOf(cursor) }),
  };
}

function positionOf(cursor: string): NonNullable<MemoryFilter['after']> {
  try {
    const [at, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as [unknown, unknown];
    if (typeof at === 'number' && typeof id === 'string') return { at, id };
  } catch {}
  throw badRequest('cursor is not the next_cursor of a page.', 'cursor');
}

function pageOf(
  items: readonly MemoryItem[],
  { level, hasMore }: { readonly level: MemoryLevel; readonly hasMore: boolean },
): ListPage<WireMemory> {
  const last = items.at(-1);
  return {
    object: 'list',
    data: items.map((item) => wireMemory(item, level)),
    has_more: hasMore,
    next_cursor: hasMore && last ? Buffer.from(JSON.stringify([last.at, last.id])).toString('base64url') : null,
  };
}

function noteOf(body: NoteBody, caller: { readonly tenant: string; readonly subject: string }): NewNote {
  const { key, text, tags, session_id: session, agent_name: agent } = body;
  const scope = body.scope ?? 'user';
  const missing =
    (scope === 'session' && session == null && 'session_id') || (scope === 'agent' && agent == null && 'agent_name');
  if (missing)
    throw badRequest(`A note with the scope "${scope}" needs "${missing}".`, missing, 'missing_required_parameter');
  return {
    key,
    scope,
    content: text,
    tenant: caller.tenant,
    subject: body.subject ?? caller.subject,
    ...(tags && { tags }),
    ...(session != null && { session }),
    ...(agent != null && { agent }),
  };
}
