import { agentTool } from '../agents/agent-tool.ts';
import type { ChildRun } from '../agents/child-run.ts';
import { childRunId } from '../journal/family.ts';
import type { Journal } from '../journal/port.ts';
import { stableJson } from '../machine/history.ts';
import type { ErrorFacts } from '../messages.ts';
import type { Model } from '../model.ts';
import { errorResult, Finished } from '../tools/result.ts';
import type { Tool } from '../tools/tool.ts';
import {
  agentModel,
  agentRun,
  CHAIN_LABEL,
  LINK,
  recalledBy,
  runOwner,
  withRecalled,
  type AgentHost,
} from './agent-run.ts';
import { callSchema, checkInputs } from './fields.ts';
import type { AgentRegistry, NamedAgent } from './named-agent.ts';
import { agentToolName } from './prompt.ts';

/*
 * Agents that call agents. A call is a child run of the calling run, under its policy and with a share of its limits.
 *
 * 1. Agents may call each other in a cycle. Each run has the chain of agents that led to it as a label, which its child runs take
 *    over, and at most `maxDepth` are inside each other: a call beyond that is answered with an error that names the chain.
 * 2. The run of a call keeps the definition that it was started with.
 */

/** What a host offers, before the agents that it has. */
export interface AgentHostOptions extends Omit<AgentHost, 'agentTool' | 'agent'> {
  readonly registry: AgentRegistry;
  /** How many agents may be inside each other; default 10. */
  readonly maxDepth?: number;
}

/** A host whose agents can call each other and hand over to each other. */
export function agentHost(options: AgentHostOptions): AgentHost {
  const { registry, maxDepth: _, ...host } = options;
  return {
    ...host,
    agent: (name) => registry.get(name),
    agentTool: (name) => {
      const agent = registry.get(name);
      return agent && callingTool(agent, options);
    },
    ...(registry.protects && { protects: registry.protects }),
  };
}

/** The longest time limit. The limits of the definition and of the calling run apply. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

function callingTool(agent: NamedAgent, options: AgentHostOptions): Tool {
  const name = agentToolName(agent.name);
  const made = agentTool({
    name,
    description: `Calls the agent "${agent.name}", and returns its answer: ${agent.description}`,
    input: callSchema(agent),
    model: agent.workflow ? agentModel(agent, options) : options.model(agent.model),
    touches: () => [],
    timeoutMs: NO_TIMEOUT_MS,
  });
  return {
    ...made,
    asks: modelsFrom(agent, options),
    async execute(input, context) {
      const { maxDepth = 10, registry } = options;
      const { run, principal, signal } = context;
      if (!run) return refused(`The tool "${name}" is a run of its own and can only be called by a run.`);
      const pinned = await pinnedAgent(run.journal, childRunId(run.runId, run.effect));
      const current = pinned ?? registry.get(agent.name);
      if (!current) return refused(`There is no agent "${agent.name}" any more.`);
      const started = await run.started();
      const { labels = {}, session } = started ?? {};
      const chain = labels[CHAIN_LABEL]?.split(LINK) ?? [];
      if (chain.length >= maxDepth) return refused(tooDeep(agent.name, chain, maxDepth));
      const checked = await checkInputs(current, input, run.options.matchPattern);
      if (checked.type === 'invalid') {
        return refused(checked.problems.map(({ message }) => message).join(' '), { errorType: 'invalid_params' });
      }
      const { limits, narrow, input: task, policy: _, ...rest } = agentRun(current, checked, agentHost(options));
      const own = { ...labels, ...rest.labels, [CHAIN_LABEL]: [...chain, agent.name].join(LINK) };
      const owner = runOwner({
        ...(principal && { principal }),
        ...(session !== undefined && { session }),
        labels,
        signal,
      });
      const recalled = pinned ? undefined : await recalledBy(current, options, task, owner);
      const child = {
        name,
        prompt: () => task,
        limits,
        narrow,
        exposure: recalled?.exposure,
        options: { ...rest, ...withRecalled(rest, recalled), labels: own },
      };
      const { runChild } = await import('../agents/child-run.ts');
      return runChild(child as ChildRun, input, context);
    },
  };
}

function refused(why: string, facts?: ErrorFacts): Finished {
  return new Finished(errorResult(why, facts));
}

function tooDeep(name: string, chain: readonly string[], maxDepth: number): string {
  return (
    `The agent "${name}" was not called: ${chain.length} agents are inside each other (${chain.join(LINK)}), and at most ` +
    `${maxDepth} may be. Answer without it.`
  );
}

/** The models that an agent and those that it may call use. */
function modelsFrom(agent: NamedAgent, { model, registry }: AgentHostOptions): readonly Model[] {
  const seen = new Set<string>();
  const models = new Set<Model>();
  const add = (one: NamedAgent): void => {
    if (seen.has(one.name)) return;
    seen.add(one.name);
    if (!one.workflow) models.add(model(one.model));
    const entries = (one.tools ?? []).flatMap((entry) => /^(?:agent|handoff):(.*)$/.exec(entry)?.[1] ?? []);
    for (const name of [...entries, ...(one.dependencies ?? []).map((dependency) => dependency.agent)]) {
      const other = registry.get(name);
      if (other) add(other);
    }
  };
  add(agent);
  return [...models];
}

/* Runs that go on */

/** The definition that a run was started with; undefined if it is not the run of an agent, or does not exist. */
export async function pinnedAgent(journal: Journal, runId: string): Promise<NamedAgent | undefined> {
  const [first] = await journal.read(runId);
  return recordedAgent((first?.event as { readonly definition?: unknown } | undefined)?.definition);
}

/**
 * The agent of a recorded definition; undefined if it is another definition, which programs may record. It was checked before it was
 * recorded, and is not checked again: a later version may check more.
 */
export function recordedAgent(definition: unknown): NamedAgent | undefined {
  const { name, description } = (definition ?? {}) as Partial<NamedAgent>;
  const isAgent = typeof name === 'string' && typeof description === 'string';
  return isAgent ? (definition as NamedAgent) : undefined;
}

/** What has changed in the definition of an agent since a run was started, for people; undefined: nothing. */
export function agentChange(pinned: NamedAgent, registry: AgentRegistry): string | undefined {
  const current = registry.get(pinned.name);
  const kept = 'The run keeps the definition that it was started with.';
  if (!current) return `The agent "${pinned.name}" does not exist any more. ${kept}`;
  const keys = new Set([...Object.keys(pinned), ...Object.keys(current)] as (keyof NamedAgent)[]);
  const changed = [...keys].filter((key) => stableJson(pinned[key] ?? null) !== stableJson(current[key] ?? null));
  return changed.length === 0
    ? undefined
    : `The definition of the agent "${pinned.name}" has changed (${changed.join(', ')}). ${kept}`;
}
