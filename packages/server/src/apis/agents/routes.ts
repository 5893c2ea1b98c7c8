import {
  checkNamedAgent,
  inputSchema,
  outputSchema,
  type InvokeOptions,
  type NamedAgent,
} from '@treadle/core/named-agents';
import type { Context } from 'hono';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import { permitted, planAgent, type AgentInvocation } from '../../engine/agent-plan.ts';
import { agentModelName, agentNamed, mayInvoke, type Engine } from '../../engine/engine.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal, sendJson } from '../../http/respond.ts';
import { EVENTS, route, type Route } from '../../http/routes.ts';
import { jsonObject, validateBody } from '../../parse/validate.ts';
import { KEY_HEADER, requestKey } from '../../requests/idempotency.ts';
import type { ListPage } from '../../wire.ts';
import { sendEvents } from '../chat/chat-streams.ts';
import type { InvocationAnswer, InvocationRequest, Invocations, PreparedInvocation } from './invocations.ts';
import type { AgentEvent, WireAgent, WireAgentSummary } from './wire.ts';

/** No agent can have the name of the other route. */
const NAME = ':name{(?!validate$)[\\w-]+}';

/** Stores definitions, such as the first folder of agents. */
export interface AgentWriter {
  /** Adds or replaces a definition. It is used from the next request on. */
  write(agent: NamedAgent): Promise<void>;
  remove(name: string): Promise<void>;
}

export interface AgentRoutesOptions {
  readonly engine: Engine;
  readonly invocations: Invocations;
  /** Undefined: definitions cannot be changed over HTTP. */
  readonly writer: () => AgentWriter | undefined;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
}

/** The agents API. */
export function agentRoutes(options: AgentRoutesOptions): readonly Route[] {
  return [...definitionRoutes(options), ...invocationRoutes(options)];
}

function definitionRoutes({ engine, writer, maxBodyBytes }: AgentRoutesOptions): readonly Route[] {
  function writable(): AgentWriter {
    const found = writer();
    if (found) return found;
    const message = 'Agents cannot be changed over HTTP. To allow it, set write = true in [agents] of treadle.toml.';
    throw new ApiError(403, 'permission_error', message, { code: 'agents_not_writable' });
  }

  return [
    route({
      method: 'GET',
      path: '/v1/agents',
      scope: 'agents:invoke',
      summary: 'List the agents',
      handle: (c) =>
        sendJson(c, {
          object: 'list',
          data: agentsOf(engine, c.get('caller')).map(wireSummary),
          has_more: false,
          next_cursor: null,
        } satisfies ListPage<WireAgentSummary>),
    }),
    route({
      method: 'POST',
      path: '/v1/agents/validate',
      scope: 'agents:invoke',
      summary: 'Check the definition of an agent',
      body: jsonObject,
      async handle(c) {
        const checked = checkNamedAgent(await readJson(c, maxBodyBytes));
        const isValid = checked.type === 'agent';
        return sendJson(c, {
          object: 'agent.validation',
          valid: isValid,
          problems: isValid ? [] : checked.problems,
          warnings: isValid ? checked.warnings : [],
        });
      },
    }),
    route({
      method: 'GET',
      path: `/v1/agents/${NAME}`,
      scope: 'agents:invoke',
      summary: 'Get an agent',
      handle: (c) => sendJson(c, wireAgent(agentOf(engine, c.req.param('name'), c.get('caller')))),
    }),
    route({
      method: 'GET',
      path: `/v1/agents/${NAME}/prompt`,
      scope: 'agents:invoke',
      summary: 'Get the system prompt of an agent',
      handle(c) {
        const caller = c.get('caller');
        const { name } = agentOf(engine, c.req.param('name'), caller);
        const { policy, skills } = engine;
        const { options } = planAgent(engine, { name, otherTools: [], caller, policy, skills });
        return sendJson(c, { object: 'agent.prompt', name, prompt: options.instructions ?? '' });
      },
    }),
    route({
      method: 'PUT',
      path: `/v1/agents/${NAME}`,
      scope: 'agents:write',
      summary: 'Add or replace an agent',
      body: jsonObject,
      async handle(c) {
        const store = writable();
        const name = c.req.param('name');
        const given = validateBody(jsonObject, await readJson(c, maxBodyBytes));
        const checked = checkNamedAgent({ name, ...given });
        if (checked.type === 'invalid') {
          const problems = checked.problems.map(({ path, message }) =>
            [path.join('.'), message].filter(Boolean).join(': '),
          );
          throw badRequest(problems.join(' '), checked.problems[0]?.path.join('.'), 'invalid_agent');
        }
        const { agent } = checked;
        if (agent.name !== name) {
          throw badRequest(
            `The path names the agent "${name}", and the definition "${agent.name}".`,
            'name',
            'invalid_agent',
          );
        }
        await changed(() => store.write(agent));
        return sendJson(c, wireAgent(agent));
      },
    }),
    route({
      method: 'DELETE',
      path: `/v1/agents/${NAME}`,
      scope: 'agents:write',
      summary: 'Remove an agent',
      async handle(c) {
        const store = writable();
        const { name } = agentNamed(engine, c.req.param('name'));
        await changed(() => store.remove(name));
        return sendJson(c, { name, object: 'agent', deleted: true });
      },
    }),
  ];
}

/** A definition may belong to a file that is not written. */
async function changed(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    const { AgentFileError } = await import('@treadle/tools/agents');
    if (!(error instanceof AgentFileError)) throw error;
    throw new ApiError(409, 'invalid_request_error', error.message, { param: 'name', code: 'invalid_agent' });
  }
}

function invocationRoutes(options: AgentRoutesOptions): readonly Route[] {
  const { invocations, maxBodyBytes, heartbeatMs } = options;

  async function prepared(c: Context<Env>, name: string, mode: AgentInvocation['mode']) {
    const body = await readJson(c, maxBodyBytes);
    const request = mode === 'single' ? parseInvoke(name, body) : parseIterative(name, body);
    const { 'idempotency-key': given } = c.env.incoming.headers;
    const key = given === undefined ? undefined : requestKey(given, `agents/${name}/${mode}`, body);
    return { request, invocation: await invocations.prepare(request, c.get('caller'), key) };
  }

  async function invoke(c: Context<Env>, name: string, mode: AgentInvocation['mode']): Promise<Response> {
    const { request, invocation } = await prepared(c, name, mode);
    if (request.background) return sendAnswer(c, await invocation.start());
    return sendAnswer(c, await invocation.run(undefined, disconnectSignal(c)));
  }

  return [
    route({
      method: 'POST',
      path: `/v1/agents/${NAME}/invoke`,
      scope: 'agents:invoke',
      summary: 'Ask an agent once, without tools',
      body: invokeBody,
      headers: KEY_HEADER,
      others: UNFINISHED,
      handle: (c) => invoke(c, c.req.param('name'), 'single'),
    }),
    route({
      method: 'POST',
      path: `/v1/agents/${NAME}/invoke-iterative`,
      scope: 'agents:invoke',
      summary: 'Let an agent work with its tools until it is done',
      body: iterativeBody,
      headers: KEY_HEADER,
      others: UNFINISHED,
      handle: (c) => invoke(c, c.req.param('name'), 'iterative'),
    }),
    route({
      method: 'POST',
      path: `/v1/agents/${NAME}/invoke-iterative/stream`,
      scope: 'agents:invoke',
      summary: 'The same, with the events of the run',
      body: iterativeBody,
      headers: KEY_HEADER,
      answers: [EVENTS],
      async handle(c) {
        const { request, invocation } = await prepared(c, c.req.param('name'), 'iterative');
        if (request.background) throw badRequest("'background' cannot be combined with a stream.", 'background');
        return streamInvocation(c, invocation, heartbeatMs);
      },
    }),
    route({
      method: 'GET',
      path: `/v1/agents/${NAME}/runs/:run`,
      scope: 'agents:invoke',
      summary: 'Get the result of an invocation',
      others: UNFINISHED,
      async handle(c) {
        const { name, run } = c.req.param();
        return sendAnswer(c, await invocations.retrieve(name, run, c.get('caller'), disconnectSignal(c)));
      },
    }),
  ];
}

/** Sends the events of a run, and its result after them. */
export function streamInvocation(
  c: Context<Env>,
  invocation: PreparedInvocation,
  heartbeatMs: number,
): Promise<Response> {
  c.env.exchange.openStream();
  return sendEvents(c, heartbeatMs, async (stream, signal) => {
    // The error of a failed invocation has its code, that of the run only a general one.
    let runError: AgentEvent | undefined;
    const emit = (event: AgentEvent, isLive = false): void | Promise<void> => {
      if (event.type === 'error') return void (runError = event);
      return isLive ? stream.sendLive(undefined, event) : stream.send(undefined, event);
    };
    const answer = await invocation.run(emit, signal);
    if (runError && answer.type !== 'failed') void stream.send(undefined, runError);
    for (const event of lastEvents(answer)) void stream.send(undefined, event);
  });
}

export const UNFINISHED = { '202': 'The run goes on: it waits for an answer, or in the background.' };

function sendAnswer(c: Context<Env>, answer: InvocationAnswer): Response | Promise<Response> {
  if (answer.type === 'failed') throw answer.error;
  return answer.type === 'result' ? sendJson(c, answer.result) : sendJson(c, answer.unfinished, 202);
}

/** The result, and how the stream ends. */
function lastEvents(answer: InvocationAnswer): readonly AgentEvent[] {
  if (answer.type === 'unfinished') return [{ type: 'unfinished', ...answer.unfinished }];
  if (answer.type === 'failed') {
    const { code, type, message } = answer.error;
    return [
      { type: 'error', code: code ?? type, message },
      { type: 'done', status: 'failed' },
    ];
  }
  const result = { termination_reason: 'completed' as const, ...ITERATIVE, ...answer.result };
  const status = result.termination_reason === 'completed' ? 'completed' : STATUSES[result.termination_reason];
  return [
    { type: 'result', ...result },
    { type: 'done', status },
  ];
}

const ITERATIVE = { iterations: 1, tool_calls_made: 0, tools_used: [], error: null };

const STATUSES = {
  completed: 'completed',
  max_iterations: 'incomplete',
  budget_exceeded: 'incomplete',
  duration_exceeded: 'incomplete',
  error: 'failed',
  cancelled: 'cancelled',
} as const;

// Bodies

const count = z.int().min(1).max(1_000);
const id = z.string().min(1).max(200);

const invokeFields = {
  inputs: jsonObject.nullish(),
  model: id.nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  task_id: id.nullish(),
  session_id: id.nullish(),
  background: z.boolean().nullish(),
};

const invokeBody = z.strictObject(invokeFields);

const iterativeBody = z.strictObject({
  ...invokeFields,
  max_iterations: count.nullish(),
  max_tool_calls_per_iteration: count.nullish(),
  enable_double_confirmation: z.boolean().nullish(),
  error_threshold: count.nullish(),
  tool_call_timeout_seconds: z.number().positive().max(86_400).nullish(),
  loop_detection_threshold: count.nullish(),
  autonomy_level: z.enum(['read-only', 'supervised', 'bounded', 'full']).nullish(),
});

function parseInvoke(agent: string, body: unknown): InvocationRequest {
  return requestOf(agent, 'single', validateBody(invokeBody, body));
}

function parseIterative(agent: string, body: unknown): InvocationRequest {
  return requestOf(agent, 'iterative', validateBody(iterativeBody, body));
}

function requestOf(
  agent: string,
  mode: AgentInvocation['mode'],
  { inputs, background, ...given }: z.infer<typeof iterativeBody>,
): InvocationRequest {
  const options = Object.fromEntries(Object.entries(given).filter(([, value]) => value != null)) as InvokeOptions;
  return { agent, mode, inputs: inputs ?? {}, options, background: background ?? false };
}

// Answers

/** The agents that a caller may use. */
export function agentsOf(
  { namedAgents }: Pick<Engine, 'namedAgents'>,
  { scopes }: Pick<Caller, 'scopes'>,
): readonly NamedAgent[] {
  return namedAgents ? permitted(namedAgents.registry, scopes).list() : [];
}

/** Throws a 404 for an agent that does not exist, and a 403 for one that the caller may not use. */
function agentOf(engine: Pick<Engine, 'namedAgents'>, name: string, { scopes }: Caller): NamedAgent {
  const agent = agentNamed(engine, name, scopes);
  if (mayInvoke(scopes, agent.name)) return agent;
  throw new ApiError(403, 'permission_error', `This key may not use the agent "${agent.name}".`, {
    code: 'insufficient_scope',
  });
}

function wireSummary({ name, version, role, description }: NamedAgent): WireAgentSummary {
  const facts = { version: version ?? null, role: role ?? null };
  return { object: 'agent', name, ...facts, description, model_id: agentModelName(name) };
}

function wireAgent(agent: NamedAgent): WireAgent {
  return {
    ...wireSummary(agent),
    definition: agent,
    input_schema: inputSchema(agent),
    output_schema: outputSchema(agent) ?? null,
  };
}
