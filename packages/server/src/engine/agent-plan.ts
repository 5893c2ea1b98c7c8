import { TreadleError, type ForkChanges, type Model, type Policy, type Principal, type Tool } from '@treadle/core';
import {
  agentBounds,
  agentHost,
  agentModel,
  agentRun,
  agentTools,
  lackingParts,
  pinnedAgent,
  recordedAgent,
  type AgentHost,
  type AgentLoopOptions,
  type AgentRegistry,
  type InvokeOptions,
  type NamedAgent,
} from '@treadle/core/named-agents';
import type { Skill } from '@treadle/core/skills';
import type { CallableAgents } from '@treadle/tools';
import { flowOf, resultsOf, workflowHost } from '@treadle/tools/workflows';
import { ApiError, badRequest } from '../api-error.ts';
import {
  agentNamed,
  agentNameIn,
  mayInvoke,
  modelNamed,
  modelNotFound,
  type Engine,
  type ServedAgents,
  type ServedModels,
} from './engine.ts';
import { isLeftOut, lacksScope, mayExecute, openedTools, type OpenedTool, type RequestTool } from './executors.ts';

/*
 * The run of an agent that a request names, whichever API it uses: the definition becomes options of the run. Loaded with the first
 * such request.
 */

/** What a request says about the run of an agent. */
export interface AgentInvocation {
  /** `single`: one model call without tools. */
  readonly mode: 'single' | 'iterative';
  readonly options: InvokeOptions;
  /** A definition that is not in a folder, such as of a workflow that undoes the steps of a run. */
  readonly definition?: NamedAgent;
}

/** How an agent answers that was chosen as a model: clients get every text, so that an answer is not asked for twice. */
const AS_MODEL: AgentInvocation = { mode: 'iterative', options: { enable_double_confirmation: false } };

export interface AgentPlan {
  readonly agent: NamedAgent;
  /** The options of its run. Of a run that is resumed, only those that are not recorded. */
  readonly options: Partial<AgentLoopOptions> & Pick<AgentLoopOptions, 'model' | 'agents'>;
  /** Its tools. */
  readonly own: readonly OpenedTool[];
}

export interface PlannedAgent {
  readonly name: string;
  readonly invocation?: AgentInvocation | undefined;
  /** The definition that the run was started with, if it has started. */
  readonly definition?: unknown;
  /** Tools that the request names besides functions of its client. */
  readonly otherTools: readonly RequestTool[];
  readonly caller: Pick<Principal, 'scopes'>;
  readonly policy?: Policy | undefined;
  readonly skills?: readonly Skill[] | undefined;
}

/** What of a server agents are planned with. */
type AgentEngine = Pick<Engine, 'models' | 'namedAgents'> & Partial<Pick<Engine, 'store' | 'stopRun' | 'memory'>>;

/** Throws an `ApiError` if there is no such agent, or if it cannot run here. */
export function planAgent(
  engine: AgentEngine,
  { name, invocation = AS_MODEL, definition, otherTools, caller, policy, skills }: PlannedAgent,
): AgentPlan {
  const recorded = recordedAgent(definition);
  const agent = recorded ?? invocation.definition ?? agentNamed(engine, name, caller.scopes);
  for (const one of otherTools) {
    if (isLeftOut(one, { executors: [] })) continue;
    const message = `The agent "${agent.name}" has its own tools, so that the request can add only functions of its client.`;
    throw badRequest(message, 'tools', 'unsupported_tool');
  }
  const host = hostFor(engine, { caller, policy, skills });
  const { mode, options } = invocation;
  if (mode === 'iterative') checkCalled(agent, engine, caller);
  try {
    const planned = recorded
      ? { ...agentTools(agent, host), model: agentModel(agent, host, options), maxTurns: turnsOf(agent, options, host) }
      : agentRun(agent, { messages: [], mode, options }, host);
    return { agent, options: planned, own: mode === 'single' ? [] : openedTools(planned.tools ?? []) };
  } catch (error) {
    const facts = { param: 'model', code: 'invalid_agent' } as const;
    if (error instanceof TreadleError) throw new ApiError(400, 'invalid_request_error', error.message, facts);
    // The request names no model, so that it cannot be about that.
    if (!(error instanceof ApiError) || options.model !== undefined) throw error;
    throw badRequest(`The agent "${agent.name}" cannot run here: ${error.message}`, facts.param, facts.code);
  }
}

/** Throws a 403 if an agent needs one that the caller may not use: the scopes of a key name every agent that works for it. */
function checkCalled(
  { name, tools = [], dependencies = [] }: NamedAgent,
  { namedAgents }: Pick<Engine, 'namedAgents'>,
  { scopes }: Pick<Principal, 'scopes'>,
): void {
  const called = tools.flatMap((entry) => /^(?:agent|handoff):(.*)$/.exec(entry)?.[1] ?? []);
  const needed = [...called, ...dependencies.flatMap(({ agent, optional }) => (optional ? [] : agent))];
  for (const other of needed) {
    const found = namedAgents!.registry.get(other);
    if (!found || mayInvoke(scopes, found.name)) continue;
    const message = `This key may not use the agent "${found.name}", which the agent "${name}" needs: it lacks the scope "agents:invoke:${found.name}".`;
    throw new ApiError(403, 'permission_error', message, { param: 'model', code: 'insufficient_scope' });
  }
}

/** What a fork records that uses the definition of a workflow as it is now. */
export function currentWorkflow(
  engine: AgentEngine,
  name: string,
  caller: PlannedAgent['caller'],
): Required<Pick<ForkChanges, 'definition' | 'program' | 'tools'>> {
  const agent = agentNamed(engine, name, caller.scopes);
  checkCalled(agent, engine, caller);
  const host = hostFor(engine, { caller });
  const [lacking] = lackingParts(agent, host);
  if (lacking)
    throw badRequest(
      `The workflow "${name}" cannot run here: ${lacking.path.join('.')}: ${lacking.message}`,
      'definition',
      'invalid_agent',
    );
  return { definition: agent, program: agentModel(agent, host).program, tools: agentTools(agent, host).tools };
}

/** Agents have models of the server, and not each other. */
function ownModel(models: ServedModels, name: string | undefined): Model {
  if (agentNameIn(name) === undefined) return modelNamed({ models }, name);
  throw modelNotFound(name!, [...models.models.keys()]);
}

function turnsOf(agent: NamedAgent, options: InvokeOptions, { bounds = {} }: AgentHost): number {
  return agentBounds(agent, options, bounds).maxTurns!;
}

/** What the server offers to the agents of a caller. */
function hostFor(
  { models, namedAgents, store, stopRun, memory }: AgentEngine,
  { caller, policy, skills }: Pick<PlannedAgent, 'caller' | 'policy' | 'skills'>,
): AgentHost {
  const { registry, tools, bounds, maxDepth } = namedAgents!;
  return agentHost({
    registry: permitted(registry, caller.scopes),
    model: (model) => ownModel(models, model),
    tools: tools.map((one) => (mayExecute(caller.scopes, one.name) ? one : refusing(one))),
    bounds,
    workflows: workflowHost(
      store && stopRun
        ? {
            async stopRun(runId, { principal }) {
              await stopRun(runId, principal!);
              return resultsOf(store, runId, flowOf((await pinnedAgent(store, runId))!));
            },
          }
        : {},
    ),
    ...(policy && { policy }),
    ...(skills && { skills }),
    ...(memory && { memory }),
    ...(maxDepth !== undefined && { maxDepth }),
  });
}

/** A tool that the key may not use. Agents that are called, or that take over, may still name it. */
function refusing(tool: Tool): Tool {
  const { name } = tool;
  return {
    ...tool,
    execute() {
      throw lacksScope(`the tool ${JSON.stringify(name)}`, `tools:execute:${name}`);
    },
  };
}

/** The agents that a caller may invoke, as tools. One that needs a tool that the caller may not execute is left out. */
export function agentsAsTools(engine: Engine, caller: Pick<Principal, 'scopes'>): readonly Tool[] {
  const { namedAgents, policy, skills } = engine;
  const { scopes } = caller;
  if (!namedAgents || !scopes.some((scope) => /^agents:invoke(:|$)/.test(scope))) return [];
  const host = hostFor(engine, { caller, policy, skills });
  return permitted(namedAgents.registry, scopes)
    .list()
    .flatMap((agent) => {
      try {
        const { tools } = agentTools(agent, host);
        return tools.every(({ name }) => mayExecute(scopes, name)) ? (host.agentTool!(agent.name) ?? []) : [];
      } catch (error) {
        // It cannot run here.
        if (error instanceof TreadleError || error instanceof ApiError) return [];
        throw error;
      }
    });
}

/** The agents for the tools `task` and `agents_list`: those that the caller of the run may invoke, under its scopes. */
export function callableAgents(
  engine: () => Pick<Engine, 'models' | 'namedAgents' | 'policy' | 'skills' | 'memory'>,
  models: readonly Model[],
): CallableAgents {
  const isInvoker = (caller?: Principal): caller is Principal =>
    caller?.scopes.some((scope) => /^agents:invoke(:|$)/.test(scope)) ?? false;
  return {
    models,
    mayUseModels: (caller) => mayInvoke(caller?.scopes ?? []),
    list: (caller) => (isInvoker(caller) ? permitted(engine().namedAgents!.registry, caller.scopes).list() : []),
    tool(name, caller) {
      const { policy, skills } = engine();
      return isInvoker(caller) ? hostFor(engine(), { caller, policy, skills }).agentTool!(name) : undefined;
    },
  };
}

/** The agents that a key may use. Others do not exist for the agents that it invokes. */
export function permitted(registry: ServedAgents['registry'], scopes: readonly string[]): AgentRegistry {
  const isPermitted = (agent: NamedAgent | undefined): agent is NamedAgent =>
    agent !== undefined && mayInvoke(scopes, agent.name);
  return {
    ...registry,
    list: () => registry.list().filter(isPermitted),
    get(name) {
      const agent = registry.get(name);
      return isPermitted(agent) ? agent : undefined;
    },
  };
}
