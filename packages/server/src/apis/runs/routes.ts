import type { Answer, Effect, ErrorType, ResultBlock, RunFilter, RunStatus, RunSummary, Waiting } from '@treadle/core';
import { exactText } from '@treadle/core/describe';
import type { Trace } from '@treadle/core/trace';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest, errorBody, toApiError } from '../../api-error.ts';
import { follow, type EventSource } from '../../requests/event-log.ts';
import { rejectKey } from '../../requests/idempotency.ts';
import type { Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { eventStream, sendBytes, sendJson, type EventStream } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Parameters, type Route } from '../../http/routes.ts';
import type { ListPage } from '../../wire.ts';
import {
  checkedQuery,
  CURSOR,
  LIMIT,
  TIME,
  timeOf,
  wholeNumber,
  type NumberParameter,
  type Query,
} from '../../parse/query.ts';
import { jsonObject, list, signature, textOr, validateBody, variants } from '../../parse/validate.ts';
import { wireTrace, wireTraceSummary } from './traces.ts';
import type { RunChange } from './run-changes.ts';
import type { ForkRequest } from './forks.ts';
import type { RunDetails, Runs } from './runs.ts';
import type {
  ForkBody,
  ForkLimits,
  WireAnswer,
  WireEffect,
  WireEntryPage,
  WireForkPreview,
  WireRun,
  WireRunDetails,
  WireTraceSummary,
  WireWaiting,
} from './wire.ts';

export interface RunsOptions {
  readonly runs: Runs;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
  /** Aborts when the server shuts down: streams end, and are continued at another process or after the restart. */
  readonly stopping: AbortSignal;
}

/** The runs API. */
export function runsRoutes({ runs, maxBodyBytes, heartbeatMs, stopping }: RunsOptions): readonly Route[] {
  async function sendRun(c: Context<Env>, id: string): Promise<Response> {
    return sendJson(c, wireDetails(await runs.retrieve(id, c.get('caller'))));
  }

  /** Sends all events of a source, until it has ended, the client has gone or the server shuts down. */
  async function streamFrom<T extends { readonly seq: number }>(
    c: Context<Env>,
    source: EventSource<T>,
    { after = -1, stopped, deliver }: Streaming<T>,
  ): Promise<Response> {
    const caller = c.get('caller');
    const { exchange } = c.env;
    exchange.openStream();
    const reading = new AbortController();
    const stop = (): void => reading.abort();
    const stream = eventStream(c, { heartbeatMs, onDisconnect: stop });
    stopping.addEventListener('abort', stop, { once: true });
    if (stopping.aborted) stop();
    try {
      const { hold } = exchange;
      await follow(source, { after, signal: reading.signal, hold }, (event) => deliver(stream, event));
      if (stopping.aborted) void stream.send('error', errorBody(stopped));
    } catch (error) {
      const level = error instanceof ApiError ? 'warn' : 'error';
      caller.log[level]({ err: error, path: c.req.path }, 'the events of a run could not be sent');
      void stream.send('error', errorBody(toApiError(error, caller.requestId)));
    } finally {
      stopping.removeEventListener('abort', stop);
    }
    stream.end();
    return RESPONSE_ALREADY_SENT;
  }

  return [
    route({
      method: 'GET',
      path: '/v1/runs',
      scope: 'runs:read',
      summary: 'List runs, or follow the changes of all runs',
      query: LIST_QUERY,
      answers: [JSON_TYPE, EVENTS],
      async handle(c) {
        const caller = c.get('caller');
        if (c.req.header('accept')?.includes(EVENTS)) {
          checkedQuery(c.req.query(), {});
          return streamFrom(c, runs.changes(caller), { stopped: STOPPING_CHANGES, deliver: sendChange });
        }
        const filter = parseFilter(c.req.query(), c.req.queries('label'));
        const { limit } = filter;
        const withWaiting = isWaitingIncluded(c.req.query());
        const found = await runs.list({ ...filter, limit: limit + 1 }, caller);
        const open = withWaiting ? await runs.waitingOf(found.slice(0, limit), caller) : undefined;
        const page = found.slice(0, open?.length ?? limit);
        const hasMore = found.length > page.length;
        return sendJson(c, {
          object: 'list',
          data: page.map((summary, index) => ({
            ...wireSummary(summary),
            ...(open && { waiting: open[index]!.map(wireWaiting) }),
          })),
          has_more: hasMore,
          next_cursor: hasMore ? cursorOf(page.at(-1)!) : null,
        } satisfies ListPage<WireRun>);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/runs/:id',
      scope: 'runs:read',
      summary: 'Get a run',
      handle: (c) => sendRun(c, c.req.param('id')),
    }),
    route({
      method: 'GET',
      path: '/v1/runs/:id/events',
      scope: 'runs:read',
      summary: 'Read or follow the entries of a run',
      query: ENTRIES_QUERY,
      answers: [JSON_TYPE, EVENTS],
      async handle(c) {
        const caller = c.get('caller');
        const id = c.req.param('id');
        const query = checkedQuery(c.req.query(), ENTRIES_QUERY);
        const after = wholeNumber(query, 'after', ENTRIES_QUERY.after);
        const limit = wholeNumber(query, 'limit', ENTRIES_QUERY.limit);
        await runs.find(id, caller);
        const source = runs.entries(id, caller);
        if (c.req.header('accept')?.includes(EVENTS))
          return streamFrom(c, source, {
            after,
            stopped: STOPPING,
            deliver: (stream, entry) => stream.send(entry.event.type, entry),
          });
        c.env.exchange.hold(await source.size!(after));
        const read = await source.read(after);
        const data = read.slice(0, limit);
        const last = data.at(-1)?.seq ?? after;
        const { entries } = await runs.find(id, caller);
        const page: WireEntryPage = { object: 'list', data, last_seq: last, has_more: last + 1 < entries };
        return sendJson(c, page);
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/input',
      scope: 'runs:write',
      summary: 'Steer a run',
      body: inputBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { input } = validateBody(inputBody, await readJson(c, maxBodyBytes));
        await runs.send(c.req.param('id'), input, c.get('caller'));
        return sendJson(c, { id: c.req.param('id'), object: 'run.input' });
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/answers',
      scope: 'runs:write',
      summary: 'Answer what a run waits for',
      body: answersBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { answers } = validateBody(answersBody, await readJson(c, maxBodyBytes));
        await runs.answer(c.req.param('id'), answers.map(answerOf), c.get('caller'));
        return sendRun(c, c.req.param('id'));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/lift-narrowing',
      scope: 'runs:write',
      summary: 'Undo what a source narrows in a run',
      body: liftBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { source } = validateBody(liftBody, await readJson(c, maxBodyBytes));
        await runs.liftNarrowing(c.req.param('id'), source, c.get('caller'));
        return sendRun(c, c.req.param('id'));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/cancel',
      scope: 'runs:write',
      summary: 'Cancel a run',
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        await runs.cancel(c.req.param('id'), c.get('caller'));
        return sendRun(c, c.req.param('id'));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/fork',
      scope: 'runs:write',
      summary: 'Fork a run',
      body: forkBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { preview, ...body } = validateBody(forkBody, await readJson(c, maxBodyBytes));
        const id = c.req.param('id');
        const caller = c.get('caller');
        if (!preview) return sendRun(c, await runs.fork(id, forkOf(body), caller));
        const { shared, copied, performs, waiting } = await runs.previewFork(id, forkOf(body), caller);
        return sendJson(c, {
          id,
          object: 'run.fork_preview',
          shared,
          copied,
          performs: performs.map(wireEffect),
          waiting: waiting.map(wireWaiting),
        } satisfies WireForkPreview);
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/resume',
      scope: 'runs:write',
      summary: 'Resume an interrupted run now',
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        await runs.resume(c.req.param('id'), c.get('caller'));
        return sendRun(c, c.req.param('id'));
      },
    }),
    route({
      method: 'GET',
      path: '/v1/runs/:id/export',
      scope: 'runs:read',
      summary: 'Export a run with its child runs',
      answers: ['application/x-ndjson'],
      async handle(c) {
        const id = c.req.param('id');
        return sendBytes(c, await runs.exported(id, c.get('caller')), {
          'content-type': 'application/x-ndjson; charset=utf-8',
          'content-disposition': `attachment; filename="${id.replaceAll(/[^\w.-]/g, '_')}.jsonl"`,
        });
      },
    }),
    route({
      method: 'POST',
      path: '/v1/runs/:id/replay',
      scope: 'runs:read',
      summary: 'Check that a run replays',
      async handle(c) {
        const id = c.req.param('id');
        const { entries, replayed } = await runs.replay(id, c.get('caller'));
        if (replayed.type === 'replayed') return sendJson(c, { id, object: 'run.replay', entries, equal: true });
        const { seq, event, effect = null, difference } = replayed;
        return sendJson(c, {
          id,
          object: 'run.replay',
          entries,
          equal: false,
          first: { seq, event, effect, difference },
        });
      },
    }),
    route({
      method: 'GET',
      path: '/v1/traces',
      scope: 'runs:read',
      summary: 'List the traces of runs',
      query: FILTER_QUERY,
      async handle(c) {
        const caller = c.get('caller');
        const { limit, ...filter } = parseFilter(c.req.query(), c.req.queries('label'), FILTER_QUERY);
        const found = await runs.list({ ...filter, limit: limit + 1 }, caller);
        const data: WireTraceSummary[] = [];
        for (const { runId } of found.slice(0, limit)) {
          const trace = await runs.trace(runId, caller);
          if (trace) data.push(wireTraceSummary(trace));
        }
        const hasMore = found.length > limit;
        return sendJson(c, {
          object: 'list',
          data,
          has_more: hasMore,
          next_cursor: hasMore ? cursorOf(found[limit - 1]!) : null,
        } satisfies ListPage<WireTraceSummary>);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/traces/:id',
      scope: 'runs:read',
      summary: 'Get the trace of a run, with those of its child runs',
      async handle(c) {
        const caller = c.get('caller');
        const { runId } = await runs.find(c.req.param('id'), caller);
        const trace = await runs.trace(runId, caller);
        if (!trace) throw notReplayable(runId);
        const { children, forks } = await runs.family(runId, caller);
        const traces: Trace[] = [];
        for (const child of children) {
          const one = await runs.trace(child.runId, caller);
          if (one) traces.push(one);
        }
        return sendJson(
          c,
          wireTrace(
            trace,
            traces,
            forks.map((fork) => fork.runId),
          ),
        );
      },
    }),
  ];
}

function notReplayable(runId: string): ApiError {
  const message =
    `The entries of the run ${JSON.stringify(runId)} do not replay, so it has no trace. ` +
    `POST /v1/runs/${runId}/replay shows the first entry that differs.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'run_id', code: 'run_not_replayable' });
}

interface Streaming<T> {
  /** The number of the last event that the client has. */
  readonly after?: number;
  /** Sent as the last event when the server shuts down. */
  readonly stopped: ApiError;
  readonly deliver: (stream: EventStream, event: T) => void | Promise<void>;
}

const STOPPING = new ApiError(503, 'server_error', 'The server is shutting down. Continue after the last entry.', {
  code: 'server_stopping',
});
const STOPPING_CHANGES = new ApiError(503, 'server_error', 'The server is shutting down. Open the stream again.', {
  code: 'server_stopping',
});

function sendChange(stream: EventStream, change: RunChange): void | Promise<void> {
  switch (change.type) {
    case 'ready':
      return stream.send('ready', { object: 'run.changes' });
    case 'changed':
      return stream.send('run.changed', wireSummary(change.run));
    case 'deleted':
      return stream.send('run.deleted', { id: change.runId, object: 'run', deleted: true });
    default:
      return change satisfies never;
  }
}

// Queries

const STATUSES: readonly RunStatus[] = ['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'];

const anyText = { type: 'string' };

const FILTER_QUERY: Parameters = {
  status: { description: `Some of ${STATUSES.join(', ')}, separated by commas.`, schema: anyText },
  model: { description: 'The name of the model.', schema: anyText },
  since: TIME,
  until: TIME,
  parent: { description: 'The id of the run that started it.', schema: anyText },
  session: { description: 'The session or conversation that it is part of.', schema: anyText },
  task: { description: 'The task that it works on.', schema: anyText },
  label: {
    description: 'A label that it has, as `NAME=VALUE`. Several: it has all of them.',
    schema: { type: 'array', items: anyText },
  },
  search: { description: 'Words in the title.', schema: anyText },
  cursor: CURSOR,
  limit: LIMIT,
};

const LIST_QUERY: Parameters = {
  ...FILTER_QUERY,
  include: {
    description: 'With `waiting`, each run has what it waits for.',
    schema: { type: 'string', enum: ['waiting'] },
  },
};

const ENTRIES_QUERY = {
  after: {
    description: '`seq` of the last entry that the client has.',
    schema: { type: 'integer', minimum: -1 },
  },
  limit: {
    description: 'The most entries of the page.',
    schema: { type: 'integer', minimum: 1, maximum: 500, default: 100 },
  },
} as const satisfies Record<string, NumberParameter>;

function isWaitingIncluded({ include }: Query): boolean {
  if (include === undefined || include === 'waiting') return include !== undefined;
  throw badRequest('include must be waiting.', 'include');
}

function parseFilter(
  given: Query,
  labels: readonly string[] = [],
  known: Parameters = LIST_QUERY,
): RunFilter & { readonly limit: number } {
  const query = checkedQuery(given, known);
  const { status, model, since, until, parent, session, task, search, cursor } = query;
  const statuses = status?.split(',');
  const unknown = statuses?.find((one) => !STATUSES.includes(one as RunStatus));
  if (unknown !== undefined) {
    throw badRequest(`status ${JSON.stringify(unknown)} is not one of ${STATUSES.join(', ')}.`, 'status');
  }
  return {
    ...(statuses && { status: statuses as RunStatus[] }),
    ...(model !== undefined && { model }),
    ...(parent !== undefined && { parent }),
    ...(session !== undefined && { session }),
    ...(task !== undefined && { task }),
    ...(labels.length > 0 && { labels: Object.fromEntries(labels.map(labelOf)) }),
    ...(search !== undefined && { title: search }),
    ...(since !== undefined && { since: timeOf(since, 'since') }),
    ...(until !== undefined && { before: timeOf(until, 'until') }),
    ...(cursor !== undefined && { after: positionOf(cursor) }),
    limit: wholeNumber(query, 'limit', LIMIT),
  };
}

function labelOf(text: string): readonly [name: string, value: string] {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name !== undefined) return [name, value!];
  throw badRequest('label must be NAME=VALUE.', 'label');
}

export function cursorOf({ startedAt, runId }: RunSummary): string {
  return Buffer.from(JSON.stringify([startedAt, runId])).toString('base64url');
}

export function positionOf(cursor: string): NonNullable<RunFilter['after']> {
  try {
    const [startedAt, runId] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as [unknown, unknown];
    if (typeof startedAt === 'number' && typeof runId === 'string') return { startedAt, runId };
  } catch {}
  throw badRequest('cursor is not the next_cursor of a page.', 'cursor');
}

// Bodies

const text = z.string().min(1);

const inputBody = z.strictObject({ input: text });
const liftBody = z.strictObject({ source: text.max(200) });

/** What all answers have. */
const answered = { effect: text, signature: signature.optional() };

const answersBody: z.ZodType<{ readonly answers: readonly WireAnswer[] }> = z.strictObject({
  answers: list(
    variants(
      'type',
      ['approval', 'answer', 'result'],
      [
        z.strictObject({
          type: z.literal('approval'),
          ...answered,
          digest: text,
          approved: z.boolean(),
          reason: z.string().optional(),
          for_run: z.boolean().optional(),
        }),
        z.strictObject({ type: z.literal('answer'), ...answered, value: z.unknown() }),
        z.strictObject({
          type: z.literal('result'),
          ...answered,
          content: textOr(z.string(), list(jsonObject, { expected: 'a text or a list of content blocks', max: 100 })),
          is_error: z.boolean().optional(),
          error_type: text.optional(),
          exit_code: z.int().optional(),
          stderr: z.string().optional(),
        }),
      ],
    ),
    { expected: 'a list of answers', max: 100 },
  ),
});

function answerOf({ signature: given, ...answer }: WireAnswer): Answer {
  return { ...unsignedAnswer(answer), ...(given !== undefined && { signature: given }) };
}

function unsignedAnswer(answer: WireAnswer): Answer {
  switch (answer.type) {
    case 'approval': {
      const { type, effect, digest, approved, reason, for_run: forRun } = answer;
      const optional = { ...(reason !== undefined && { reason }), ...(forRun !== undefined && { forRun }) };
      return { type, effect, digest, approved, ...optional };
    }
    case 'answer':
      return { type: 'answer', effect: answer.effect, value: answer.value };
    case 'result': {
      const { type, effect, content, is_error: isError = false, stderr } = answer;
      const { error_type: errorType, exit_code: exitCode } = answer;
      return {
        type,
        effect,
        // The loop refuses blocks and error types that it does not know.
        content: content as string | readonly ResultBlock[],
        isError,
        ...(errorType !== undefined && { errorType: errorType as ErrorType }),
        ...(exitCode !== undefined && { exitCode }),
        ...(stderr !== undefined && { stderr }),
      };
    }
    default:
      return answer satisfies never;
  }
}

const forkBody: z.ZodType<ForkBody> = z.strictObject({
  at: z.int().min(0).optional(),
  step: text.optional(),
  definition: z.literal('current').optional(),
  model: text.optional(),
  instructions: z.string().optional(),
  results: z.record(z.string(), z.string()).optional(),
  input: text.optional(),
  tools: z.array(z.string()).optional(),
  limits: z
    .strictObject({
      turns: z.int().min(1).optional(),
      calls: z.int().min(0).optional(),
      tokens: z.int().min(1).optional(),
      duration_ms: z.int().min(1).optional(),
    } satisfies Record<keyof ForkLimits, z.ZodType>)
    .optional(),
  preview: z.boolean().optional(),
} satisfies Record<keyof ForkBody, z.ZodType>);

function forkOf({ at: entry, step, limits, ...changes }: Omit<ForkBody, 'preview'>): ForkRequest {
  const at = entry ?? (step === undefined ? undefined : { step });
  if (at === undefined)
    throw badRequest("'at' is missing: send the last entry that the fork shares, or a 'step'.", 'at');
  if (entry !== undefined && step !== undefined) throw badRequest("Send either 'at' or 'step'.", 'step');
  const { definition, model, instructions, results, input, tools } = changes;
  const { duration_ms: durationMs, turns, calls, tokens } = limits ?? {};
  return {
    at,
    ...(definition && { definition }),
    ...(model !== undefined && { model }),
    ...(instructions !== undefined && { instructions }),
    ...(results && { results }),
    ...(input !== undefined && { input }),
    ...(tools && { tools }),
    ...(limits && {
      limits: {
        ...(turns !== undefined && { turns }),
        ...(calls !== undefined && { calls }),
        ...(tokens !== undefined && { tokens }),
        ...(durationMs !== undefined && { durationMs }),
      },
    }),
  };
}

// Answers

function wireSummary(summary: RunSummary): WireRun {
  const { runId, status, startedAt, updatedAt, entries, model, title, parent, wakeAt, recovered } = summary;
  const { session, task, labels } = summary;
  return {
    id: runId,
    object: 'run',
    status,
    model,
    title,
    parent: parent ?? null,
    session: session ?? null,
    task: task ?? null,
    labels: labels ?? {},
    started_at: startedAt,
    updated_at: updatedAt,
    wake_at: wakeAt ?? null,
    entries,
    recovered: recovered?.times ?? 0,
  };
}

export function wireDetails(details: RunDetails): WireRunDetails {
  const { summary, isDriven, waiting, outcome, usage, turns, calls, narrowedBy, definitionChange } = details;
  return {
    ...wireSummary(summary),
    driven: isDriven,
    waiting: waiting.map(wireWaiting),
    outcome: outcome ?? null,
    turns,
    calls,
    narrowed_by: narrowedBy,
    definition_change: definitionChange ?? null,
    usage: { input_tokens: usage.inputTokens, output_tokens: usage.outputTokens, cost: usage.cost ?? null },
  };
}

/** Something that a run performs. */
function wireEffect(effect: Effect): WireEffect {
  const { type, id } = effect;
  if (!('call' in effect)) return { type, effect: id };
  const { name, arguments: text, effect: kind } = effect.call;
  return { type, effect: id, tool: name, arguments: text, tool_effect: kind };
}

/** What somebody needs to know to answer. `effect` and `digest` are sent back with the answer. */
export function wireWaiting(waiting: Waiting): WireWaiting {
  const { effect, call, expiresAt } = waiting;
  const common = {
    effect,
    tool: call.name,
    call_id: call.id,
    ...(call.label !== undefined && { step: call.label }),
    arguments: call.arguments,
    expires_at: expiresAt ?? null,
  };
  switch (waiting.type) {
    case 'approval': {
      const { digest, reason, rule, touches, shown, required = 1, approvers, approvedBy = [] } = waiting;
      const optional = {
        ...(reason !== undefined && { reason: exactText(reason) }),
        ...(rule !== undefined && { rule }),
      };
      const about = { ...(touches && { touches }), ...(shown !== undefined && { shown }) };
      return {
        type: 'approval',
        ...common,
        digest,
        ...optional,
        ...about,
        required,
        approvers: approvers ?? null,
        approved_by: approvedBy,
      };
    }
    case 'question':
      return { type: 'question', ...common, question: waiting.question };
    case 'parked':
      return { type: 'parked', ...common, on: waiting.on, wake_at: waiting.wakeAt ?? null };
    case 'client':
      return { type: 'client', ...common };
    default:
      return waiting satisfies never;
  }
}
