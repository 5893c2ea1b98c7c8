import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import { agentNamed, mayInvoke, type Engine } from '../../engine/engine.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Route } from '../../http/routes.ts';
import { jsonObject, validateBody } from '../../parse/validate.ts';
import { KEY_HEADER, rejectKey, requestKey } from '../../requests/idempotency.ts';
import { checkSchedule, type GivenSchedule } from '../../schedules/definition.ts';
import type { KnownSchedule, Scheduler } from '../../schedules/scheduler.ts';
import type { ListPage } from '../../wire.ts';
import type { Invocations } from '../agents/invocations.ts';
import type { WireSchedule, WireScheduleDeleted, WireScheduleRun } from './wire.ts';

export interface ScheduleRoutesOptions {
  readonly engine: Engine;
  readonly scheduler: Scheduler;
  readonly invocations: Invocations;
  readonly maxBodyBytes: number;
}

/** The most schedules of one tenant that clients may add. */
const MOST_SCHEDULES = 1_000;

const NAME = ':name{[\\w-]+}';

const scheduleBody = z.strictObject({
  name: z.string().min(1).max(64),
  workflow: z.string().min(1).max(64).nullish(),
  agent: z.string().min(1).max(64).nullish(),
  inputs: jsonObject.nullish(),
  cron: z.string().min(1).max(200).nullish(),
  time_zone: z.string().min(1).max(100).nullish(),
  every: z.union([z.number(), z.string()]).nullish(),
  missed: z.enum(['skip', 'once', 'all']).nullish(),
  overlap: z.enum(['skip', 'wait', 'allow']).nullish(),
});

/** The schedules API. Its runs are invocations of agents and workflows, with the label `schedule`. */
export function scheduleRoutes({
  engine,
  scheduler,
  invocations,
  maxBodyBytes,
}: ScheduleRoutesOptions): readonly Route[] {
  async function visible({ tenant, scopes }: Caller): Promise<readonly KnownSchedule[]> {
    return (await scheduler.list(tenant)).filter(({ definition }) => mayInvoke(scopes, definition.agent));
  }

  /** Throws a 404 if there is none of this name that the caller may see. */
  async function found(c: Context<Env, string>): Promise<KnownSchedule> {
    const { tenant, scopes } = c.get('caller');
    const name = c.req.param('name') ?? '';
    const schedule = await scheduler.find(tenant, name);
    if (schedule && mayInvoke(scopes, schedule.definition.agent)) return schedule;
    const message = `There is no schedule ${JSON.stringify(name)}. "GET /v1/schedules" lists them.`;
    throw new ApiError(404, 'not_found_error', message, { code: 'schedule_not_found' });
  }

  /** Whether what a schedule starts exists, may be used and takes these inputs. */
  async function checkTarget(given: GivenSchedule, { scopes, key }: Caller): Promise<void> {
    const name = (given.workflow ?? given.agent)!;
    const agent = agentNamed(engine, name, scopes);
    if (!mayInvoke(scopes, agent.name)) {
      const message = `The key "${key}" may not use "${agent.name}": its scopes name others.`;
      throw new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
    }
    if (given.workflow != null && agent.workflow === undefined) {
      throw badRequest(`"${name}" is an agent, and not a workflow. Name it with "agent".`, 'workflow');
    }
    await invocations.checkedInputs(agent, given.inputs ?? {});
  }

  return [
    route({
      method: 'GET',
      path: '/v1/schedules',
      scope: 'agents:invoke',
      summary: 'List the schedules, with their next and last due times',
      handle: async (c) =>
        sendJson(c, {
          object: 'list',
          data: (await visible(c.get('caller'))).map(wireSchedule),
          has_more: false,
          next_cursor: null,
        } satisfies ListPage<WireSchedule>),
    }),
    route({
      method: 'POST',
      path: '/v1/schedules',
      scope: 'agents:invoke',
      summary: 'Start a workflow or an agent at times',
      body: scheduleBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const caller = c.get('caller');
        const given = validateBody(scheduleBody, await readJson(c, maxBodyBytes));
        const checked = checkSchedule(given);
        if (checked.type === 'problem') throw badRequest(checked.message, checked.key, 'invalid_value');
        await checkTarget(given, caller);
        if ((await scheduler.list(caller.tenant)).length >= MOST_SCHEDULES) {
          throw badRequest(
            `There are ${MOST_SCHEDULES} schedules, which is the most. Delete one.`,
            undefined,
            'too_many_schedules',
          );
        }
        if (!(await scheduler.add(caller, given.name, checked.definition))) {
          const message = `There is a schedule "${given.name}" already. Delete it, or choose another name.`;
          const details = { param: 'name', code: 'schedule_exists', headers: { 'x-should-retry': 'false' } } as const;
          throw new ApiError(409, 'invalid_request_error', message, details);
        }
        const added = await scheduler.find(caller.tenant, given.name);
        return sendJson(c, added ? wireSchedule(added) : {}, 201);
      },
    }),
    route({
      method: 'GET',
      path: `/v1/schedules/${NAME}`,
      scope: 'agents:invoke',
      summary: 'Get a schedule',
      handle: async (c) => sendJson(c, wireSchedule(await found(c))),
    }),
    route({
      method: 'DELETE',
      path: `/v1/schedules/${NAME}`,
      scope: 'agents:invoke',
      summary: 'Delete a schedule. The runs that it has started go on',
      async handle(c) {
        const { tenant, name, source } = await found(c);
        if (source === 'config') {
          const message = `The schedule "${name}" is in the configuration of the server. Remove it there.`;
          throw new ApiError(409, 'invalid_request_error', message, { code: 'schedule_configured' });
        }
        await scheduler.remove(tenant, name);
        return sendJson(c, { object: 'schedule.deleted', name, deleted: true } satisfies WireScheduleDeleted);
      },
    }),
    route({
      method: 'POST',
      path: `/v1/schedules/${NAME}/run`,
      scope: 'agents:invoke',
      summary: 'Start what a schedule starts, now',
      headers: KEY_HEADER,
      async handle(c) {
        const { name, definition } = await found(c);
        const { 'idempotency-key': given } = c.env.incoming.headers;
        const key = given === undefined ? undefined : requestKey(given, `schedules/${name}/run`, {});
        const { agent, inputs } = definition;
        const caller = c.get('caller');
        const own = { ...caller, facts: { ...caller.facts, labels: { ...caller.facts?.labels, schedule: name } } };
        const request = { agent, mode: 'iterative', inputs, options: {}, background: true } as const;
        const answer = await (await invocations.prepare(request, own, key)).start();
        if (answer.type === 'failed') throw answer.error;
        const runId = answer.type === 'result' ? answer.result.run_id : answer.unfinished.run_id;
        return sendJson(
          c,
          { object: 'schedule.run', schedule: name, agent, run_id: runId } satisfies WireScheduleRun,
          202,
        );
      },
    }),
  ];
}

function wireSchedule({ name, source, definition, ...state }: KnownSchedule): WireSchedule {
  const { agent, inputs, timing, missed, overlap } = definition;
  const { next, pending, last, skipped, problem } = state;
  return {
    object: 'schedule',
    name,
    source,
    agent,
    inputs,
    cron: 'cron' in timing ? timing.cron : null,
    time_zone: 'cron' in timing ? (timing.time_zone ?? 'UTC') : null,
    every: 'every' in timing ? timing.every : null,
    missed,
    overlap,
    next_at: next === null ? null : isoTime(next),
    pending: pending.map(isoTime),
    last: last && { due_at: isoTime(last.due), run_id: last.run },
    skipped,
    problem: problem && { due_at: isoTime(problem.due), message: problem.message },
  };
}

function isoTime(time: number): string {
  return new Date(time).toISOString();
}
