import type { LoopOptions } from '../driver/options.ts';
import { handoff, type HandoffAgent } from '../driver/handoff.ts';
import { TreadleError } from '../errors.ts';
import { withExposure } from '../machine/exposure.ts';
import type { Narrowing } from '../machine/narrowing.ts';
import type { Memory } from '../memory/memory.ts';
import { recalledFor, type Recalled, type RecallingRun } from '../memory/recall.ts';
import { textOf, type InputMessage } from '../messages.ts';
import type { Model, Settings } from '../model.ts';
import { didYouMean } from '../nearest.ts';
import type { Policy } from '../policy/port.ts';
import { activateSkills } from '../skills/activate.ts';
import type { Skill } from '../skills/skill.ts';
import { toolEntry } from '../skills/skill-narrowing.ts';
import type { Tool } from '../tools/tool.ts';
import { agentNarrowings, agentSource, autonomyOf, toolEntriesOf } from './governance.ts';
import { outputSchema, textField, type Inputs } from './fields.ts';
import type { AgentProblem, NamedAgent } from './named-agent.ts';
import { buildPrompt, inputMessage } from './prompt.ts';
import { retriedModel } from './retried-model.ts';

/*
 * From a definition to the options of one run. Of each bound the strictest applies: that of the definition, of the host and of the
 * request. The policy of the host judges every call; what the definition says is added to it as narrowings.
 */

/** What a host offers to the agents that it runs. */
export interface AgentHost {
  /** The model of this name, or the default model. Throws if there is none, and names the nearest. */
  readonly model: (name: string | undefined) => Model;
  /** The tools that agents may be given. */
  readonly tools: readonly Tool[];
  readonly policy?: Policy;
  readonly skills?: readonly Skill[];
  /** The tool that calls the agent of this name, for `agent:NAME` and dependencies; undefined if there is no such agent. */
  readonly agentTool?: (name: string) => Tool | undefined;
  /** The agent of this name, for `handoff:NAME`; undefined if there is none. */
  readonly agent?: (name: string) => NamedAgent | undefined;
  /** What runs may use at most. */
  readonly bounds?: AgentBounds;
  /** Absent: the host has no workflows. */
  readonly workflows?: WorkflowHost;
  /** For agents with `memory`. Absent: nothing is known from before. */
  readonly memory?: Pick<Memory, 'search'>;
  /** Globs of what agents may neither read nor write, such as their definitions. */
  readonly protects?: readonly string[];
}

/** Knows what agents that are workflows do. */
export interface WorkflowHost {
  /** The model and the tools of the run of a workflow. `tools`: those that its definition names. Throws `invalid-agent`. */
  readonly parts: (
    agent: NamedAgent,
    tools: readonly Tool[],
  ) => { readonly model: Model; readonly tools: readonly Tool[]; readonly maxParallel: number };
  /** What a workflow names and the host lacks. */
  readonly lacking: (agent: NamedAgent, host: AgentHost) => readonly AgentProblem[];
}

/** Bounds of the loop. Those of a definition and of a request can only be stricter. */
export interface AgentBounds extends Pick<
  LoopOptions,
  'maxTurns' | 'maxCallsPerTurn' | 'errorLimit' | 'repeatLimit' | 'toolTimeoutMs' | 'limits'
> {}

/** What a request may set, by the names of the agents API. */
export interface InvokeOptions {
  /** Another model of the host. */
  readonly model?: string;
  readonly temperature?: number;
  /** Model calls; default 20. */
  readonly max_iterations?: number;
  /** Default 5. */
  readonly max_tool_calls_per_iteration?: number;
  /** Before an answer is accepted, the model is asked once whether everything is done; default true. */
  readonly enable_double_confirmation?: boolean;
  /** Consecutive turns with only errors that end the run; default 3. */
  readonly error_threshold?: number;
  /** For tools without a timeout of their own; default 60. */
  readonly tool_call_timeout_seconds?: number;
  /** Consecutive identical calls with identical results after which the next one is refused; default 3. */
  readonly loop_detection_threshold?: number;
  /** It can only lower that of the definition and of the host. */
  readonly autonomy_level?: NamedAgent['autonomy_level'];
  /** What the run belongs to, for lists of runs. */
  readonly task_id?: string;
  readonly session_id?: string;
}

/** What to run an agent with: validated inputs (`checkInputs`), or a conversation to continue. */
export interface AgentRequest {
  readonly inputs?: Inputs;
  readonly messages?: readonly InputMessage[];
  /** `single`: one model call without tools. Default `iterative`. */
  readonly mode?: 'single' | 'iterative';
  readonly options?: InvokeOptions;
}

/** The options of the run of an agent. The host adds its environment: journal, ledger, listeners, principal. */
export type AgentLoopOptions = Pick<
  LoopOptions,
  | 'model'
  | 'input'
  | 'instructions'
  | 'tools'
  | 'agents'
  | 'policy'
  | 'settings'
  | 'maxTurns'
  | 'maxCallsPerTurn'
  | 'maxParallel'
  | 'errorLimit'
  | 'repeatLimit'
  | 'toolTimeoutMs'
  | 'parallel'
  | 'compaction'
  | 'limits'
  | 'finish'
  | 'output'
  | 'outputText'
  | 'narrow'
  | 'definition'
  | 'labels'
  | 'session'
  | 'task'
>;

/** The label of the runs of agents, with the name of the agent. */
export const AGENT_LABEL = 'agent';
/** Another label of them: the agents that called each other, outermost first. */
export const CHAIN_LABEL = 'agent-chain';
export const LINK = ' > ';

/**
 * The options of one run of an agent. Throws `invalid-agent` if the host lacks what the definition names, such as a tool, and
 * what the host throws for a model.
 */
export function agentRun(agent: NamedAgent, request: AgentRequest, host: AgentHost): AgentLoopOptions {
  const { inputs, messages, mode = 'iterative', options = {} } = request;
  const isSingle = mode === 'single' && !agent.workflow;
  const { tools, agents } = isSingle ? NO_TOOLS : agentTools(agent, host);
  const model = agentModel(agent, host, options);
  const narrow = tools.length === 0 ? [] : narrowingsOf(agent, options, host);
  requirePolicy(agent, narrow, host);
  for (const target of isSingle ? [] : handoffTargets(agent, host)) {
    requirePolicy(target, narrowingsOf(target, {}, host), host);
  }
  const output = outputSchema(agent);
  const { task_id: task, session_id: session } = options;
  const common = {
    model,
    input: messages ?? inputMessage(inputs ?? {}),
    tools,
    ...(host.policy && { policy: host.policy }),
    ...(narrow.length > 0 && { narrow }),
    definition: agent,
    labels: { [AGENT_LABEL]: agent.name, [CHAIN_LABEL]: agent.name },
    ...(task !== undefined && { task }),
    ...(session !== undefined && { session }),
  };
  if (agent.workflow) {
    const [lacking] = host.workflows?.lacking(agent, host) ?? [];
    if (lacking) throw invalidAgent(agent, `${lacking.path.join('.')}: ${lacking.message}`);
    return { ...common, ...workflowRules(agent, options, host) };
  }
  return {
    ...common,
    instructions: buildPrompt(agent, { skills: activatedSkills(agent, host).text }),
    ...(agents.length > 0 && { agents }),
    settings: agentSettings(agent, model, options),
    ...agentBounds(agent, options, host.bounds ?? {}),
    ...(agent.constraints?.parallel_allowed === false && { parallel: false }),
    ...(isSingle && { maxTurns: output ? 2 : 1 }),
    // Without tools the model is not asked: see the strategy `confirm`.
    finish: isSingle || options.enable_double_confirmation === false ? 'plain' : 'confirm',
    ...(output && { output, outputText: textField(agent) }),
  };
}

/** What a new run of an agent is told from before; undefined: nothing. `input`: what people say in the end is looked for. */
export async function recalledBy(
  { name, memory: isOn, workflow }: NamedAgent,
  { memory }: Pick<AgentHost, 'memory'>,
  input: LoopOptions['input'],
  run: Omit<RecallingRun, 'agent'>,
): Promise<Recalled | undefined> {
  if (!isOn || !memory || workflow) return undefined;
  return recalledFor(memory, lastSaid(input), { ...run, agent: name });
}

/** Who a run is for its memory. */
export function runOwner({ principal, session, labels, signal }: Partial<LoopOptions>): Omit<RecallingRun, 'agent'> {
  return {
    ...(principal && { tenant: principal.tenant, subject: principal.subject }),
    ...(session !== undefined && { session }),
    ...(labels && { labels }),
    ...(signal && { signal }),
  };
}

/** The options of a run that is told something from before. */
export function withRecalled(
  { instructions = '', carried }: Partial<LoopOptions>,
  recalled: Recalled | undefined,
): Pick<LoopOptions, 'instructions' | 'carried'> {
  if (!recalled) return {};
  const exposure = withExposure(carried?.exposure, recalled.exposure);
  return {
    instructions: [instructions, recalled.instructions].filter((text) => text !== '').join('\n\n'),
    ...(exposure && { carried: { ...carried, exposure } }),
  };
}

function lastSaid(input: LoopOptions['input']): string {
  if (typeof input === 'string') return input;
  const last = input.findLast(({ role }) => role === 'user');
  if (!last) return '';
  return typeof last.content === 'string' ? last.content : textOf(last.content);
}

/** The bounds that are for models do not apply to a program. */
function workflowRules(agent: NamedAgent, options: InvokeOptions, host: AgentHost): Partial<AgentLoopOptions> {
  const { limits, toolTimeoutMs } = agentBounds(agent, options, host.bounds ?? {});
  return {
    maxTurns: 100_000,
    errorLimit: 0,
    repeatLimit: 0,
    compaction: false,
    maxParallel: workflowParts(agent, [], host).maxParallel,
    ...(toolTimeoutMs !== undefined && { toolTimeoutMs }),
    ...(limits && { limits }),
  };
}

function workflowParts(
  agent: NamedAgent,
  tools: readonly Tool[],
  { workflows }: Pick<AgentHost, 'workflows'>,
): ReturnType<WorkflowHost['parts']> {
  if (workflows) return workflows.parts(agent, tools);
  throw invalidAgent(agent, 'it is a workflow, and the host runs none.');
}

/** Everything that a definition names and the host lacks, or else why the agent cannot run there. Empty: it can. */
export function lackingParts(agent: NamedAgent, host: AgentHost): readonly AgentProblem[] {
  const { tools = [], dependencies = [], skills = [] } = agent;
  if (agent.workflow && host.workflows) return host.workflows.lacking(agent, host);
  const bare: NamedAgent = { ...agent, tools: [], dependencies: [], skills: [] };
  const found = [
    ...problemOf(['model'], () => agentModel(agent, host)),
    ...tools.flatMap((entry, index) =>
      problemOf(['tools', index], () => agentTools({ ...bare, tools: [entry] }, host)),
    ),
    ...skills.flatMap((name, index) =>
      problemOf(['skills', index], () => activatedSkills({ ...bare, skills: [name] }, host)),
    ),
    ...dependencies.flatMap((one, index) =>
      problemOf(['dependencies', index], () => agentTools({ ...bare, dependencies: [one] }, host)),
    ),
  ];
  return found.length > 0 ? found : problemOf([], () => agentRun(agent, {}, host));
}

function problemOf(path: AgentProblem['path'], use: () => unknown): readonly AgentProblem[] {
  try {
    use();
    return [];
  } catch (error) {
    return [{ path, message: (error as Error).message }];
  }
}

const NO_TOOLS = { tools: [], agents: [] };

function invalidAgent({ name }: NamedAgent, why: string): TreadleError {
  return new TreadleError('invalid-agent', `The agent "${name}" cannot run here: ${why}`);
}

/* Model */

/** The model of an agent, which repeats failed calls as `max_retries` says. */
export function agentModel(
  agent: NamedAgent,
  host: Pick<AgentHost, 'model' | 'workflows'>,
  { model }: InvokeOptions = {},
): Model {
  if (agent.workflow) return workflowParts(agent, [], host).model;
  return retriedModel(host.model(model ?? agent.model), agent.constraints?.max_retries ?? 0);
}

const DEFAULT_TEMPERATURE = 0.7;

function agentSettings({ temperature, constraints }: NamedAgent, model: Model, options: InvokeOptions): Settings {
  const chosen = options.temperature ?? temperature;
  const tokens = constraints?.max_tokens;
  const limited = tokens === undefined ? {} : { maxOutputTokens: tokens };
  const wanted = { ...limited, temperature: chosen ?? DEFAULT_TEMPERATURE };
  const takes = model.takes?.includes('temperature') ?? true;
  return takes && !model.omits?.(wanted).includes('temperature') ? wanted : limited;
}

/* Tools */

/** The tools of an agent, and the agents that the run may be handed over to. For a resumed run, by its recorded definition. */
export function agentTools(
  agent: NamedAgent,
  host: AgentHost,
): { readonly tools: readonly Tool[]; readonly agents: readonly HandoffAgent[] } {
  const targets = handoffTargets(agent, host);
  const agents = targets.map((target): HandoffAgent => ({
    name: target.name,
    description: target.description,
    instructions: buildPrompt(target, { skills: activatedSkills(target, host).text }),
    tools: toolsOf(target, host),
    model: agentModel(target, host),
  }));
  const tools = toolsOf(agent, host);
  return { tools: agent.workflow ? workflowParts(agent, tools, host).tools : tools, agents };
}

function toolsOf(agent: NamedAgent, host: AgentHost): readonly Tool[] {
  const { tools: entries = [], dependencies = [] } = agent;
  const called = dependencies.flatMap(({ agent: name, optional }) => {
    const made = host.agentTool?.(name);
    if (!made && !optional) throw invalidAgent(agent, `it depends on the agent "${name}", which does not exist.`);
    return made ?? [];
  });
  const named = namesAfter('agent:', entries).map((name) => host.agentTool?.(name) ?? missing(agent, 'agent', name));
  const handing = namesAfter('handoff:', entries).map((name) => handoffTool(handoffTarget(agent, name, host), host));
  const all = [...ownTools(agent, host), ...called, ...named, ...handing];
  return [...new Map(all.map((tool) => [tool.name, tool])).values()];
}

function namesAfter(prefix: string, entries: readonly string[]): readonly string[] {
  return entries.flatMap((entry) => (entry.startsWith(prefix) ? entry.slice(prefix.length) : []));
}

function missing(agent: NamedAgent, kind: string, name: string): never {
  throw invalidAgent(agent, `its tools have "${kind}:${name}", and there is no agent "${name}".`);
}

function ownTools(agent: NamedAgent, { tools }: AgentHost): readonly Tool[] {
  const entries = toolEntriesOf(agent);
  if (!entries) return tools;
  const names = new Set(tools.map(({ name }) => name));
  const chosen = new Set<string>();
  for (const entry of entries) {
    const { tools: meant } = toolEntry(entry);
    const found = meant.filter((name) => names.has(name));
    if (found.length === 0) {
      const known = names.size === 0 ? 'There are no tools.' : `The tools are ${[...names].join(', ')}.`;
      throw invalidAgent(agent, `there is no tool "${meant[0]}".${didYouMean(meant[0]!, names)} ${known}`);
    }
    for (const name of found) chosen.add(name);
  }
  return tools.filter(({ name }) => chosen.has(name));
}

/* Handing over */

/** All agents that the run may be handed over to, also by one of them, each once. */
function handoffTargets(agent: NamedAgent, host: AgentHost): readonly NamedAgent[] {
  const found = new Map<string, NamedAgent>();
  const add = (from: NamedAgent): void => {
    for (const name of namesAfter('handoff:', from.tools ?? [])) {
      if (found.has(name)) continue;
      const target = name === agent.name ? agent : handoffTarget(from, name, host);
      found.set(name, target);
      add(target);
    }
  };
  add(agent);
  return [...found.values()];
}

function handoffTarget(from: NamedAgent, name: string, { agent }: AgentHost): NamedAgent {
  return agent?.(name) ?? missing(from, 'handoff', name);
}

/** What the other agent may do at most applies from the next turn on, besides what applies already. */
function handoffTool(target: NamedAgent, host: AgentHost): Tool {
  const { name, description } = target;
  const made = handoff({ name, description });
  const narrow = [...agentNarrowings(target), ...activatedSkills(target, host).narrow];
  if (narrow.length === 0) return made;
  return { ...made, execute: () => ({ content: `The conversation is handed over to "${name}".`, narrow }) };
}

/* What it may do at most */

function activatedSkills(
  agent: NamedAgent,
  { skills = [] }: AgentHost,
): { readonly text: string; readonly narrow: readonly Narrowing[] } {
  const { skills: names = [] } = agent;
  if (names.length === 0) return { text: '', narrow: [] };
  const activation = activateSkills(skills, names, { by: 'user' });
  if (activation.type === 'refused') throw invalidAgent(agent, activation.reason);
  return activation;
}

function narrowingsOf(
  agent: NamedAgent,
  { autonomy_level: level }: InvokeOptions,
  host: AgentHost,
): readonly Narrowing[] {
  const asked = level && { source: agentSource(agent.name), autonomy: autonomyOf(level), fixed: true as const };
  const protects: readonly Narrowing[] =
    host.protects && host.policy?.withRules
      ? [{ source: agentSource(agent.name), rules: { paths: { deny: host.protects } }, fixed: true }]
      : [];
  return [...agentNarrowings(agent), ...protects, ...activatedSkills(agent, host).narrow, ...(asked ? [asked] : [])];
}

/** Without a policy that can apply rules, nothing would enforce them. */
function requirePolicy(agent: NamedAgent, narrow: readonly Narrowing[], { policy }: AgentHost): void {
  if (policy?.withRules || !narrow.some(({ autonomy = 3, rules }) => autonomy < 3 || rules)) return;
  throw invalidAgent(
    agent,
    'its governance, its autonomy level or its skills are enforced by a policy, and the host has none that can apply rules. ' +
      'Pass policy({ autonomy: 3 }) of @treadle/core/policy, or a stricter one.',
  );
}

/** The strictest of the definition, the request and the host. What none of them sets has the default of the agents API. */
export function agentBounds({ constraints = {} }: NamedAgent, options: InvokeOptions, host: AgentBounds): AgentBounds {
  const { timeout_seconds: seconds, max_iterations, max_tool_calls_per_iteration: calls } = constraints;
  const { tool_call_timeout_seconds: timeout = 60 } = options;
  const durationMs = lowest(seconds && Math.ceil(seconds * 1_000), host.limits?.durationMs);
  const limits = { ...host.limits, ...(durationMs !== undefined && { durationMs }) };
  return {
    maxTurns: lowest(
      max_iterations,
      options.max_iterations ?? (max_iterations === undefined ? 20 : undefined),
      host.maxTurns,
    )!,
    maxCallsPerTurn: lowest(
      calls,
      options.max_tool_calls_per_iteration ?? (calls === undefined ? 5 : undefined),
      host.maxCallsPerTurn,
    )!,
    // For the host, 0 is off.
    errorLimit: lowest(options.error_threshold ?? 3, host.errorLimit || undefined)!,
    repeatLimit: lowest(options.loop_detection_threshold ?? 3, host.repeatLimit || undefined)!,
    toolTimeoutMs: lowest(Math.ceil(timeout * 1_000), host.toolTimeoutMs)!,
    ...(Object.keys(limits).length > 0 && { limits }),
  };
}

function lowest(...bounds: readonly (number | undefined)[]): number | undefined {
  const given = bounds.filter((one) => one !== undefined);
  return given.length === 0 ? undefined : Math.min(...given);
}
