import {
  agentTool,
  Broken,
  TreadleError,
  type AgentToolDefinition,
  type CallAnswered,
  type CallStarted,
  type Item,
  type JsonSchema,
  type Model,
  type Principal,
  type Tool,
  type ToolContext,
} from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import type { NamedAgent } from '@treadle/core/named-agents';
import { ToolError } from '../tool-error.ts';

export interface TaskToolOptions extends Omit<
  AgentToolDefinition<JsonSchema>,
  'name' | 'description' | 'input' | 'prompt' | 'model' | 'models' | 'timeoutMs'
> {
  /** The models that a task can use, by the names that the calling model sees. The first is the default. */
  readonly models: Readonly<Record<string, Model>>;
  /** How many tasks can be inside each other; default 1: a task cannot start another one. */
  readonly maxDepth?: number;
  /** Agents that can do a task, as they are now. Absent: the tool has no parameter for them. */
  readonly namedAgents?: CallableAgents;
}

/** Agents that are called by name. `caller`: whoever the calling run acts for, who may be permitted to use only some of them. */
export interface CallableAgents {
  list(caller?: Principal): readonly NamedAgent[];
  /** The tool that calls the agent of this name, with its inputs; undefined if there is none. */
  tool(name: string, caller?: Principal): Tool | undefined;
  /** The models that they may use. */
  readonly models?: readonly Model[];
  /** Whether a caller may use models without an agent. If not, a task without one has the model of the calling run. Absent: it may. */
  mayUseModels?(caller?: Principal): boolean;
}

/** What a task reports as progress: its calls. */
export type TaskProgress = CallStarted | CallAnswered;

/** The call of a task that an item of the calling run reports; undefined for other items. */
export function taskProgress(item: Item): TaskProgress | undefined {
  return item.type === 'tool-report' && item.call.name === NAME ? (item.progress as TaskProgress) : undefined;
}

const NAME = 'task';

/** Not a list of names: they can change while a run goes on. */
const AGENT_INPUT = {
  agent: {
    type: 'string',
    description: 'The agent that does the task, by its name in agents_list; default: none of them',
  },
  inputs: {
    type: 'object',
    description: 'Only with agent: its inputs, if it takes others than "task", which is task_description',
  },
} as const;

interface AgentTask {
  readonly agent: string;
  readonly task_description: string;
  readonly inputs?: Readonly<Record<string, unknown>>;
}

/** The longest time limit. Tasks have no time limit of their own: the limits of the calling run apply. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * A tool that does a task as a run of its own, under the policy, the ledger and the limits of the calling run. It starts
 * with nothing but the description of the task. Its progress is `TaskProgress`. The other options are those of the run.
 */
export function taskTool({ models, maxDepth = 1, namedAgents: agents, ...options }: TaskToolOptions): Tool {
  const names = Object.keys(models);
  const [first] = names;
  if (first === undefined) throw new TypeError('taskTool needs at least one model: { models: { NAME: model } }.');
  if (!(Number.isSafeInteger(maxDepth) && maxDepth >= 1 && maxDepth <= 10)) {
    throw new TypeError(`taskTool got maxDepth ${maxDepth}. Give a whole number from 1 to 10.`);
  }
  const inner =
    maxDepth > 1
      ? [taskTool({ models, maxDepth: maxDepth - 1, ...(agents && { namedAgents: agents }), ...options })]
      : [];
  const definition = {
    ...options,
    tools: [...(options.tools ?? []), ...inner],
    name: NAME,
    description:
      'Let another agent do a task, and get its answer. It works in a conversation of its own and knows only ' +
      'task_description. Use it for a self-contained piece of work whose steps you do not need to see, such as a search ' +
      'through many files. Several calls in one reply run at the same time. It uses up the limits of this run. If it fails, ' +
      'give it less to do, or do it yourself. Do short work yourself.',
    input: {
      type: 'object',
      properties: {
        task_description: {
          type: 'string',
          minLength: 1,
          maxLength: 100_000,
          description: 'What to do, everything that has to be known for it, and what the answer has to contain',
        },
        model: { type: 'string', enum: names, description: `The model that does the task; default ${first}` },
        ...(agents && AGENT_INPUT),
      },
      required: ['task_description'],
      additionalProperties: false,
    },
    prompt: (input: Record<string, unknown>) => String(input['task_description']),
    touches: options.touches ?? (() => []),
    timeoutMs: NO_TIMEOUT_MS,
  } as const;
  const byModel = new Map(Object.entries(models).map(([name, model]) => [name, { ...definition, model }]));
  const made = Array.from(byModel.values(), agentTool);
  return {
    ...made[0]!,
    asks: [...made.flatMap(({ asks = [] }) => asks), ...(agents?.models ?? [])],
    execute(input, context) {
      const { model, agent } = input as { readonly model?: string; readonly agent?: string };
      if (agent !== undefined && agents) return callAgent(agents, input as AgentTask, context);
      const isBound = agents?.mayUseModels?.(context.principal) === false;
      if (isBound && model !== undefined) throw new ToolError(NO_CHOICE, 'permission_denied');
      const onItem = (item: Item): unknown => {
        if (item.type === 'call-started' || item.type === 'call-answered') context.report(item satisfies TaskProgress);
        return options.onItem?.(item);
      };
      const chosen = byModel.get(model ?? first)!;
      const own = isBound && context.run ? { model: context.run.options.model } : {};
      return agentTool({ ...chosen, ...own, onItem }).execute!(input, context);
    },
  };
}

const NO_CHOICE = 'The caller of this run may use only agents, so a task has the model of this run. Omit "model".';

/** An agent that takes a task gets its description. */
function callAgent(
  agents: CallableAgents,
  { agent: name, task_description: task, inputs = {} }: AgentTask,
  context: ToolContext,
): unknown {
  const called = agents.tool(name, context.principal);
  if (!called) {
    const why = unknownAgent(name, agents.list(context.principal));
    // Its run is there, and must not be left behind: the calling run is resumed when the agent is back.
    if (context.run?.child === 'begun') return new Broken(new TreadleError('unknown-agent', why));
    throw new ToolError(why, 'not_found');
  }
  const { properties = {} } = called.parameters as { readonly properties?: Readonly<Record<string, unknown>> };
  const takesTask = Object.hasOwn(properties, 'task') && !Object.hasOwn(inputs, 'task');
  return called.execute!(takesTask ? { ...inputs, task } : inputs, context);
}

function unknownAgent(name: string, agents: readonly NamedAgent[]): string {
  const names = agents.map((one) => one.name);
  const known = names.length === 0 ? 'There are no agents.' : `The agents are ${names.slice(0, 20).join(', ')}.`;
  return `There is no agent "${name}".${didYouMean(name, names)} ${known}`;
}
