import { inputSchema, pinnedAgent, type NamedAgent, type TerminationReason } from '@treadle/core/named-agents';
import type { WorkflowAgent } from '@treadle/tools/workflows';
import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import { agentNamed, mayInvoke, type Engine } from '../../engine/engine.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, sendJson } from '../../http/respond.ts';
import { EVENTS, route, type Route } from '../../http/routes.ts';
import { jsonObject, validateBody } from '../../parse/validate.ts';
import { KEY_HEADER, requestKey } from '../../requests/idempotency.ts';
import type { ListPage } from '../../wire.ts';
import type { InvocationAnswer, Invocations, PreparedInvocation } from '../agents/invocations.ts';
import { agentsOf, streamInvocation, UNFINISHED } from '../agents/routes.ts';
import type { WireIterativeResult } from '../agents/wire.ts';
import type { Runs } from '../runs/runs.ts';
import type {
  WireWorkflow,
  WireWorkflowCancel,
  WireWorkflowPlan,
  WireWorkflowRun,
  WireWorkflowSummary,
} from './wire.ts';

/*
 * The workflows API. A workflow is an agent whose model is a program, so its runs are invocations: stored, resumed, and waiting for
 * people. What is here is only about steps.
 */

const NAME = ':name{[\\w-]+}';

export interface WorkflowRoutesOptions {
  readonly engine: Engine;
  readonly invocations: Invocations;
  readonly runs: Pick<Runs, 'cancel'>;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
}

const executeBody = z.strictObject({
  inputs: jsonObject.nullish(),
  dry_run: z.boolean().nullish(),
  background: z.boolean().nullish(),
  task_id: z.string().min(1).max(200).nullish(),
  session_id: z.string().min(1).max(200).nullish(),
});

type ExecuteBody = z.infer<typeof executeBody>;

export function workflowRoutes(options: WorkflowRoutesOptions): readonly Route[] {
  const { engine, invocations, maxBodyBytes, heartbeatMs } = options;

  async function prepared(c: Context<Env>, { name }: NamedAgent, body: ExecuteBody): Promise<PreparedInvocation> {
    const { task_id, session_id, background, inputs } = body;
    const { 'idempotency-key': given } = c.env.incoming.headers;
    const key = given === undefined ? undefined : requestKey(given, `workflows/${name}`, body);
    const invoke = { ...(task_id != null && { task_id }), ...(session_id != null && { session_id }) };
    const request = { agent: name, mode: 'iterative', inputs: inputs ?? {}, options: invoke } as const;
    return invocations.prepare({ ...request, background: background ?? false }, c.get('caller'), key);
  }

  async function bodyOf(c: Context<Env>): Promise<ExecuteBody> {
    return validateBody(executeBody, await readJson(c, maxBodyBytes));
  }

  async function planOf(workflow: WorkflowAgent, given: unknown): Promise<WireWorkflowPlan> {
    const { dryRun, flowOf } = await import('@treadle/tools/workflows');
    const inputs = await invocations.checkedInputs(workflow, given);
    try {
      const steps = await dryRun(flowOf(workflow), inputs);
      return { object: 'workflow.plan', workflow: workflow.name, inputs, steps };
    } catch (error) {
      throw badRequest((error as Error).message, 'inputs', 'invalid_inputs');
    }
  }

  return [
    route({
      method: 'GET',
      path: '/v1/workflows',
      scope: 'agents:invoke',
      summary: 'List the workflows',
      handle: (c) =>
        sendJson(c, {
          object: 'list',
          data: agentsOf(engine, c.get('caller')).filter(isWorkflow).map(wireSummary),
          has_more: false,
          next_cursor: null,
        } satisfies ListPage<WireWorkflowSummary>),
    }),
    route({
      method: 'GET',
      path: `/v1/workflows/${NAME}`,
      scope: 'agents:invoke',
      summary: 'Get a workflow with its graph',
      async handle(c) {
        const workflow = workflowNamed(engine, c.req.param('name'), c.get('caller'));
        const { flowOf, workflowGraph } = await import('@treadle/tools/workflows');
        return sendJson(c, {
          ...wireSummary(workflow),
          definition: { ...workflow, ...workflow.workflow, workflow: undefined },
          input_schema: inputSchema(workflow),
          graph: workflowGraph(flowOf(workflow)),
        } satisfies WireWorkflow);
      },
    }),
    route({
      method: 'POST',
      path: `/v1/workflows/${NAME}/execute`,
      scope: 'agents:invoke',
      summary: 'Run a workflow, or show what it would do',
      body: executeBody,
      headers: KEY_HEADER,
      others: UNFINISHED,
      async handle(c) {
        const workflow = workflowNamed(engine, c.req.param('name'), c.get('caller'));
        const body = await bodyOf(c);
        if (body.dry_run) return sendJson(c, await planOf(workflow, body.inputs ?? {}));
        const invocation = await prepared(c, workflow, body);
        const answer = await (body.background ? invocation.start() : invocation.run(undefined, disconnectSignal(c)));
        return sendRun(c, workflow.name, answer);
      },
    }),
    route({
      method: 'POST',
      path: `/v1/workflows/${NAME}/execute/stream`,
      scope: 'agents:invoke',
      summary: 'Run a workflow, with the events of its run',
      body: executeBody,
      headers: KEY_HEADER,
      answers: [EVENTS],
      async handle(c) {
        const workflow = workflowNamed(engine, c.req.param('name'), c.get('caller'));
        const body = await bodyOf(c);
        for (const key of ['background', 'dry_run'] as const) {
          if (body[key]) throw badRequest(`'${key}' cannot be combined with a stream.`, key);
        }
        return streamInvocation(c, await prepared(c, workflow, body), heartbeatMs);
      },
    }),
    ...runRoutes(options),
  ];
}

/** About runs of workflows. */
function runRoutes({ engine, invocations, runs }: WorkflowRoutesOptions): readonly Route[] {
  const { store } = engine;

  /** Throws a 404 for a run of something else. The workflow may not exist any more. */
  async function runOf(
    c: Context<Env, string>,
  ): Promise<{ readonly answer: InvocationAnswer; readonly workflow: WorkflowAgent; readonly runId: string }> {
    const { name = '', run: runId = '' } = c.req.param() as Readonly<Record<string, string>>;
    const answer = await invocations.retrieve(name, runId, c.get('caller'), disconnectSignal(c));
    // It is recorded when the run begins, a moment after its start was answered.
    const workflow = (await pinnedAgent(store, runId)) ?? engine.namedAgents?.registry.get(name);
    if (workflow && isWorkflow(workflow)) return { answer, workflow, runId };
    throw new ApiError(404, 'not_found_error', `${JSON.stringify(name)} is not a workflow.`, {
      code: 'workflow_not_found',
    });
  }

  return [
    route({
      method: 'GET',
      path: `/v1/workflows/${NAME}/runs/:run`,
      scope: 'agents:invoke',
      summary: 'Get a run of a workflow, with the status of each step',
      async handle(c) {
        const { answer, workflow, runId } = await runOf(c);
        const { flowOf, stepStatuses, workflowGraph } = await import('@treadle/tools/workflows');
        const flow = flowOf(workflow);
        const steps = await stepStatuses(store, runId, flow);
        const graph = workflowGraph(flow);
        return sendJson(c, { ...wireRun(workflow.name, answer, runId), steps, graph } satisfies WireWorkflowRun);
      },
    }),
    route({
      method: 'POST',
      path: `/v1/workflows/${NAME}/runs/:run/cancel`,
      scope: 'agents:invoke',
      summary: 'Cancel a run of a workflow, and undo its steps if its definition says so',
      async handle(c) {
        const { runId } = await runOf(c);
        const undoing = await runs.cancel(runId, c.get('caller'));
        const body = { object: 'workflow.cancel', run_id: runId, undo_run_id: undoing } satisfies WireWorkflowCancel;
        return sendJson(c, body, undoing === null ? 200 : 202);
      },
    }),
  ];
}

function isWorkflow(agent: NamedAgent): agent is WorkflowAgent {
  return agent.workflow !== undefined;
}

/** Throws a 404 if there is none of this name, and a 403 for one that the caller may not use. */
function workflowNamed(engine: Engine, name: string, { scopes, key }: Caller): WorkflowAgent {
  const found = engine.namedAgents?.registry.get(name);
  if (!found || !isWorkflow(found)) {
    const known = (engine.namedAgents?.registry.list() ?? []).filter(
      (one) => isWorkflow(one) && mayInvoke(scopes, one.name),
    );
    const names =
      known.length === 0
        ? 'It has none'
        : `Its workflows: ${known
            .slice(0, 50)
            .map((one) => one.name)
            .join(', ')}`;
    const message = `This server has no workflow ${JSON.stringify(name.slice(0, 100))}. ${names}.`;
    throw new ApiError(404, 'not_found_error', message, { code: 'workflow_not_found' });
  }
  if (mayInvoke(scopes, agentNamed(engine, name, scopes).name)) return found;
  throw new ApiError(403, 'permission_error', `The key "${key}" may not use the workflow "${found.name}".`, {
    code: 'insufficient_scope',
  });
}

function wireSummary({ name, version, description }: NamedAgent): WireWorkflowSummary {
  return { object: 'workflow', name, version: version ?? null, description };
}

function runIdOf(answer: InvocationAnswer): string | null {
  if (answer.type === 'failed') throw answer.error;
  return answer.type === 'result' ? answer.result.run_id : answer.unfinished.run_id;
}

function sendRun(c: Context<Env>, workflow: string, answer: InvocationAnswer): Response | Promise<Response> {
  const run = wireRun(workflow, answer, runIdOf(answer)!);
  return answer.type === 'unfinished' ? sendJson(c, run, 202) : sendJson(c, run);
}

const STATUSES: Readonly<Record<TerminationReason, WireWorkflowRun['status']>> = {
  completed: 'completed',
  max_iterations: 'incomplete',
  budget_exceeded: 'incomplete',
  duration_exceeded: 'incomplete',
  error: 'failed',
  cancelled: 'cancelled',
};

function wireRun(workflow: string, answer: InvocationAnswer, runId: string): WireWorkflowRun {
  const run = { object: 'workflow.run', workflow, run_id: runId, output: null, error: null, waiting: [] } as const;
  switch (answer.type) {
    case 'unfinished':
      return { ...run, status: answer.unfinished.status, waiting: answer.unfinished.waiting };
    case 'failed':
      return {
        ...run,
        status: 'failed',
        error: { code: answer.error.code ?? answer.error.type, message: answer.error.message },
      };
    case 'result': {
      const { output, termination_reason: reason = 'completed', error = null } = answer.result as WireIterativeResult;
      return { ...run, status: STATUSES[reason], output: reason === 'completed' ? output : null, error };
    }
    default:
      return answer satisfies never;
  }
}
