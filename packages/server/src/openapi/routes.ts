import type { z } from 'zod';
import { COMPLETION_BODY } from '../apis/completions/parse-request.ts';
import { FRONT_END_BODIES } from '../apis/chat/front-end-requests.ts';
import { CONVERSATION_BODIES } from '../apis/chat/item-routes.ts';
import { CHAT_BODIES } from '../apis/chat/routes.ts';
import type { Scope } from '../http/keys.ts';
import { RESPONSE_BODY } from '../apis/responses/parse-request.ts';
import { RUN_BODIES, STATUSES } from '../apis/runs/routes.ts';
import { TEST_BODY } from '../server-routes.ts';
import type { JsonSchema } from './json-schema.ts';

/** What a route does, beyond its method and its path. */
export interface RouteDescription {
  readonly summary: string;
  /** Absent: every key with a scope other than `metrics:read` can use it, or `isOpen`. */
  readonly scope?: Scope;
  /** It needs no key. */
  readonly isOpen?: boolean;
  readonly query?: Readonly<Record<string, Parameter>>;
  readonly headers?: Readonly<Record<string, Parameter>>;
  readonly body?: z.ZodType;
  /** The content types of the answer; default: JSON. */
  readonly answers?: readonly string[];
  /** Further statuses without content, and their meaning. */
  readonly others?: Readonly<Record<string, string>>;
}

interface Parameter {
  readonly description: string;
  readonly schema: JsonSchema;
}

const JSON_TYPE = 'application/json';
const EVENTS = 'text/event-stream';

const limit: Parameter = {
  description: 'The most entries of the page.',
  schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 },
};
const cursor: Parameter = { description: '`next_cursor` of the page before.', schema: { type: 'string' } };
const idempotencyKey = {
  'Idempotency-Key': {
    description: 'Makes the request repeatable: the same key and body get the same answer for 24 hours.',
    schema: { type: 'string', maxLength: 255 },
  },
};
const status = {
  'Treadle-Status': {
    description: 'With `requires_action`, a response that waits for its client has this status.',
    schema: { type: 'string', enum: ['requires_action'] },
  },
};
const text = { type: 'string' };
const time = { description: 'Milliseconds since 1970, or a date such as 2026-11-15T12:00:00Z.', schema: text };

const page = {
  limit,
  after: { description: 'The id of the last item of the page before.', schema: text },
  order: { description: 'By time.', schema: { type: 'string', enum: ['asc', 'desc'], default: 'desc' } },
};
const include: Parameter = {
  description: 'Accepted for clients of OpenAI. Items are returned as they are stored.',
  schema: { type: 'array', items: text },
};

/** All routes, by method and pattern. A test compares them with the routes of the server. */
export const DESCRIPTIONS: Readonly<Record<string, RouteDescription>> = {
  'GET /': { summary: 'The page: chat and runs for people', isOpen: true, answers: ['text/html'] },
  'GET /assets/{file}': {
    summary: 'A file of the page',
    isOpen: true,
    answers: ['text/javascript', 'text/css', 'image/svg+xml'],
  },
  'GET /healthz': { summary: 'The process is alive', isOpen: true },
  'GET /readyz': {
    summary: 'The server accepts requests and its store can be written',
    isOpen: true,
    others: { '503': 'The server is shutting down, or the store cannot be written.' },
  },
  'GET /metrics': {
    summary: 'Metrics for Prometheus',
    scope: 'metrics:read',
    answers: ['text/plain; version=0.0.4; charset=utf-8'],
  },
  'GET /openapi.json': { summary: 'This description' },
  'GET /v1/server': { summary: 'Describe the caller, the models and the tools' },
  'POST /v1/server/test': { summary: 'Test whether a model works', scope: 'chat:write', body: TEST_BODY },
  'GET /v1/models': { summary: 'List the models', scope: 'agents:invoke' },
  'GET /v1/models/{id}': { summary: 'Get a model', scope: 'agents:invoke' },
  'GET /v1/responses': {
    summary: 'Open a WebSocket for responses',
    scope: 'agents:invoke',
    headers: status,
    others: { '101': 'The connection is a WebSocket.', '426': 'The request does not ask for a WebSocket.' },
  },
  'POST /v1/responses': {
    summary: 'Create a response',
    scope: 'agents:invoke',
    body: RESPONSE_BODY,
    headers: { ...idempotencyKey, ...status },
    answers: [JSON_TYPE, EVENTS],
  },
  'POST /v1/responses/compact': {
    summary: 'Compact a conversation',
    scope: 'agents:invoke',
    body: RESPONSE_BODY,
  },
  'POST /v1/responses/input_tokens': {
    summary: 'Estimate the input tokens of a request',
    scope: 'agents:invoke',
    body: RESPONSE_BODY,
  },
  'GET /v1/responses/{id}': {
    summary: 'Get a response, or follow its events',
    scope: 'agents:invoke',
    query: {
      stream: { description: 'With `true`, its events.', schema: { type: 'boolean', default: false } },
      starting_after: {
        description: '`sequence_number` of the last event that the client has, of a background response.',
        schema: { type: 'integer', minimum: 0 },
      },
    },
    headers: {
      ...status,
      'Last-Event-ID': { description: 'Precedes `starting_after`.', schema: { type: 'integer', minimum: 0 } },
    },
    answers: [JSON_TYPE, EVENTS],
  },
  'DELETE /v1/responses/{id}': { summary: 'Delete a response and its run', scope: 'agents:invoke' },
  'POST /v1/responses/{id}/cancel': { summary: 'Cancel a response', scope: 'agents:invoke', headers: status },
  'GET /v1/responses/{id}/input_items': {
    summary: 'List the input of a response',
    scope: 'agents:invoke',
    query: page,
  },
  'POST /v1/conversations': {
    summary: 'Create a conversation',
    scope: 'chat:write',
    body: CONVERSATION_BODIES.create,
    headers: idempotencyKey,
  },
  'GET /v1/conversations/{id}': { summary: 'Get a conversation', scope: 'chat:read' },
  'POST /v1/conversations/{id}': {
    summary: 'Replace the metadata of a conversation',
    scope: 'chat:write',
    body: CONVERSATION_BODIES.update,
  },
  'DELETE /v1/conversations/{id}': { summary: 'Delete a conversation and its runs', scope: 'chat:write' },
  'GET /v1/conversations/{id}/items': {
    summary: 'List the items of a conversation',
    scope: 'chat:read',
    query: { ...page, include },
  },
  'POST /v1/conversations/{id}/items': {
    summary: 'Add items to a conversation',
    scope: 'chat:write',
    query: { include },
    body: CONVERSATION_BODIES.items,
    headers: idempotencyKey,
  },
  'GET /v1/conversations/{id}/items/{item}': {
    summary: 'Get an item of a conversation',
    scope: 'chat:read',
    query: { include },
  },
  'DELETE /v1/conversations/{id}/items/{item}': {
    summary: 'Delete an item that no run has read',
    scope: 'chat:write',
  },
  'POST /v1/chat/completions': {
    summary: 'Create a chat completion',
    scope: 'agents:invoke',
    body: COMPLETION_BODY,
    headers: idempotencyKey,
    answers: [JSON_TYPE, EVENTS],
  },
  'POST /v1/chat': {
    summary: 'Send a message to a conversation and follow the answer',
    scope: 'chat:write',
    body: CHAT_BODIES.chat,
    answers: [EVENTS],
  },
  'GET /v1/chat': {
    summary: 'List conversations',
    scope: 'chat:read',
    query: { search: { description: 'Words in titles and messages.', schema: text }, cursor, limit },
  },
  'GET /v1/chat/{id}': { summary: 'Get a conversation with its messages', scope: 'chat:read' },
  'PATCH /v1/chat/{id}': { summary: 'Rename a conversation', scope: 'chat:write', body: CHAT_BODIES.rename },
  'DELETE /v1/chat/{id}': { summary: 'Delete a conversation and its runs', scope: 'chat:write' },
  'GET /v1/chat/{id}/stream': {
    summary: 'Follow the answer of a conversation',
    scope: 'chat:read',
    query: {
      after: { description: '`seq` of the last event that the client has.', schema: { type: 'integer', minimum: 0 } },
    },
    answers: [EVENTS],
    others: { '204': 'Nothing is in progress, for the protocol of a front end.' },
  },
  'GET /v1/chat/{id}/attachments/{attachment}': {
    summary: 'Get an attachment',
    scope: 'chat:read',
    answers: ['application/octet-stream'],
  },
  'GET /v1/chat/{id}/export': {
    summary: 'Export a conversation',
    scope: 'chat:read',
    query: { format: { description: 'The format.', schema: { enum: ['json', 'markdown'], default: 'json' } } },
    answers: [JSON_TYPE, 'text/markdown'],
  },
  'POST /v1/chat/{id}/branch': {
    summary: 'Copy a conversation up to a message',
    scope: 'chat:write',
    body: CHAT_BODIES.branch,
  },
  'POST /v1/chat/{id}/answers': {
    summary: 'Approve calls and answer questions',
    scope: 'chat:write',
    body: CHAT_BODIES.answers,
  },
  'POST /v1/chat/{id}/messages': {
    summary: 'Send a message to the answer in progress',
    scope: 'chat:write',
    body: CHAT_BODIES.message,
  },
  'POST /v1/chat/{id}/cancel': { summary: 'Cancel the answer in progress', scope: 'chat:write' },
  'POST /v1/chat/ui': {
    summary: 'Answer a front end with the AI SDK',
    scope: 'chat:write',
    body: FRONT_END_BODIES.ui,
    answers: [EVENTS],
  },
  'GET /v1/chat/ui/{chat}/stream': {
    summary: 'Resume the stream of a front end with the AI SDK',
    scope: 'chat:read',
    answers: [EVENTS],
    others: { '204': 'Nothing is in progress.' },
  },
  'POST /v1/chat/ag-ui': {
    summary: 'Answer a front end with AG-UI',
    scope: 'chat:write',
    body: FRONT_END_BODIES.agUi,
    answers: [EVENTS],
  },
  'GET /v1/chat/ag-ui/{chat}/stream': {
    summary: 'Resume the stream of a front end with AG-UI',
    scope: 'chat:read',
    answers: [EVENTS],
    others: { '204': 'Nothing is in progress.' },
  },
  'POST /mcp': {
    summary: 'Send a message of the Model Context Protocol',
    answers: [JSON_TYPE, EVENTS],
    others: { '202': 'The message needs no answer.' },
  },
  'GET /mcp': { summary: 'Open the stream of an MCP session', answers: [EVENTS] },
  'DELETE /mcp': { summary: 'End an MCP session' },
  'GET /v1/runs': {
    summary: 'List runs, or follow the changes of all runs',
    scope: 'runs:read',
    query: {
      status: { description: `Some of ${STATUSES.join(', ')}, separated by commas.`, schema: text },
      model: { description: 'The name of the model.', schema: text },
      since: time,
      until: time,
      parent: { description: 'The id of the run that started it.', schema: text },
      search: { description: 'Words in the title.', schema: text },
      include: {
        description: 'With `waiting`, each run has what it waits for.',
        schema: { type: 'string', enum: ['waiting'] },
      },
      cursor,
      limit,
    },
    answers: [JSON_TYPE, EVENTS],
  },
  'GET /v1/runs/{id}': { summary: 'Get a run', scope: 'runs:read' },
  'GET /v1/runs/{id}/export': {
    summary: 'Export a run with its child runs',
    scope: 'runs:read',
    answers: ['application/x-ndjson'],
  },
  'GET /v1/runs/{id}/events': {
    summary: 'Read or follow the entries of a run',
    scope: 'runs:read',
    query: {
      after: { description: '`seq` of the last entry that the client has.', schema: { type: 'integer', minimum: -1 } },
      limit: {
        description: 'The most entries of the page.',
        schema: { type: 'integer', minimum: 1, maximum: 500, default: 100 },
      },
    },
    answers: [JSON_TYPE, EVENTS],
  },
  'POST /v1/runs/{id}/input': { summary: 'Steer a run', scope: 'runs:write', body: RUN_BODIES.input },
  'POST /v1/runs/{id}/answers': {
    summary: 'Answer what a run waits for',
    scope: 'runs:write',
    body: RUN_BODIES.answers,
  },
  'POST /v1/runs/{id}/cancel': { summary: 'Cancel a run', scope: 'runs:write' },
  'POST /v1/runs/{id}/resume': { summary: 'Resume an interrupted run now', scope: 'runs:write' },
  'POST /v1/runs/{id}/fork': { summary: 'Fork a run', scope: 'runs:write', body: RUN_BODIES.fork },
  'POST /v1/runs/{id}/replay': { summary: 'Check that a run replays', scope: 'runs:read' },
};
