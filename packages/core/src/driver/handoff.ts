import { TreadleError } from '../errors.ts';
import type { Handoff } from '../machine/rules.ts';
import type { Model } from '../model.ts';
import { checkOptions, type KnownOptions, type OptionNames } from '../known-options.ts';
import { tool, toolsByName, type Tool } from '../tools/tool.ts';
import type { ContinueOptions, LoopOptions } from './options.ts';

/** An agent that a run can be handed to: it continues the same conversation with its own instructions, tools and model. */
export interface HandoffAgent {
  readonly name: string;
  /** For the model that hands over: what the agent is for. */
  readonly description?: string;
  readonly instructions?: string;
  readonly tools?: readonly Tool[];
  /** Default: the model of the run. */
  readonly model?: Model;
}

/**
 * The tool `hand_off_to_NAME`, which hands the run over to the agent from the next turn on. Only the name of an agent is
 * enough if `agents` of the run has it, such as for two agents that hand over to each other.
 */
export function handoff(agent: HandoffAgent): Tool {
  checkHandoffAgent(agent);
  const { name, description } = agent;
  const made = tool({
    name: `hand_off_to_${name}`,
    description: `Hands the conversation over to "${name}"${description === undefined ? '' : `: ${description}`}`,
    effect: 'pure',
    touches: () => [],
    // Several in one reply take effect in call order.
    resources: () => ['the agent of the run'],
    execute: () => `The conversation is handed over to "${name}".`,
  });
  return isNameOnly(agent) ? { ...made, handsTo: name } : { ...made, handsTo: name, agent };
}

const HANDOFF_OPTIONS: KnownOptions = {
  names: {
    name: 'name',
    description: 'string',
    instructions: 'string',
    tools: 'array',
    model: '.reply',
  } satisfies OptionNames<HandoffAgent>,
};

function checkHandoffAgent(agent: HandoffAgent): void {
  checkOptions('An agent', agent, HANDOFF_OPTIONS);
  if (agent.name === undefined)
    throw new TreadleError(
      'invalid-options',
      'An agent has no name. Give one that its handoff tool can be named after.',
    );
}

function isNameOnly({ instructions, tools, model }: HandoffAgent): boolean {
  return instructions === undefined && tools === undefined && model === undefined;
}

/** Adds the agents of handoff tools, also of those that these agents have, to `agents`. Those that are in it have precedence. */
export function withHandoffAgents<Options extends Agents>(options: Options): Options {
  const { agents = [], tools = [] } = options;
  const all = [...agents];
  agents.forEach(checkHandoffAgent);
  const add = (some: readonly Tool[] = []): void => {
    for (const { agent } of some) {
      if (!agent || all.some(({ name }) => name === agent.name)) continue;
      all.push(agent);
      add(agent.tools);
    }
  };
  add(tools);
  for (const agent of agents) add(agent.tools);
  return all.length === agents.length ? options : { ...options, agents: all };
}

type Agents = Pick<LoopOptions | ContinueOptions, 'agents' | 'tools' | 'model'>;

/** Throws for agents that are not valid, and for handoffs to an agent that the run does not have. */
export function checkAgents({ agents = [], tools = [] }: Agents): void {
  const names = agents.map(({ name }) => name);
  const repeated = names.find((name, index) => names.indexOf(name) !== index);
  if (repeated !== undefined) throw new TreadleError('invalid-options', `There are two agents named "${repeated}".`);
  for (const some of [tools, ...agents.map((agent) => [...toolsByName(agent.tools ?? []).values()])]) {
    for (const { name, handsTo } of some) {
      if (handsTo === undefined || names.includes(handsTo)) continue;
      const what = `The tool "${name}" hands over to "${handsTo}", which is not in "agents"`;
      throw new TreadleError('invalid-options', `${what} (${names.join(', ') || 'none'}).`);
    }
  }
}

/** The names of all tools that the run may have. */
export function toolNames({ tools = [], agents = [] }: Agents): readonly string[] {
  return [...tools, ...agents.flatMap((agent) => agent.tools ?? [])].map(({ name }) => name);
}

/** The agent with this name; for undefined, the one that the options describe themselves. */
export function agentNamed(options: Agents, name: string | undefined): Omit<HandoffAgent, 'name'> | undefined {
  return name === undefined ? options : options.agents?.find((agent) => agent.name === name);
}

/** What the journal records about a handoff: everything that the next turns need. */
export function handoffFacts(options: Agents, agent: string, tools: Handoff['tools']): Handoff {
  const { model, instructions } = agentNamed(options, agent)!;
  const { id } = model ?? options.model;
  return { agent, model: id, tools, ...(instructions !== undefined && { instructions }) };
}
