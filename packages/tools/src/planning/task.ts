import {
  agentTool,
  type AgentToolDefinition,
  type CallAnswered,
  type CallStarted,
  type Item,
  type JsonSchema,
  type Model,
  type Tool,
} from '@treadle/core';

export interface TaskToolOptions extends Omit<
  AgentToolDefinition<JsonSchema>,
  'name' | 'description' | 'input' | 'prompt' | 'model' | 'models' | 'timeoutMs'
> {
  /** The models that a task can use, by the names that the calling model sees. The first is the default. */
  readonly models: Readonly<Record<string, Model>>;
  /** How many tasks can be inside each other; default 1: a task cannot start another one. */
  readonly maxDepth?: number;
}

/** What a task reports as progress: its calls. */
export type TaskProgress = CallStarted | CallAnswered;

/** The call of a task that an item of the calling run reports; undefined for other items. */
export function taskProgress(item: Item): TaskProgress | undefined {
  return item.type === 'tool-report' && item.call.name === NAME ? (item.progress as TaskProgress) : undefined;
}

const NAME = 'task';

/** The longest time limit. Tasks have no time limit of their own: the limits of the calling run apply. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * A tool that does a task as a run of its own, under the policy, the ledger and the limits of the calling run. It starts
 * with nothing but the description of the task. Its progress is `TaskProgress`. The other options are those of the run.
 */
export function taskTool({ models, maxDepth = 1, ...options }: TaskToolOptions): Tool {
  const names = Object.keys(models);
  const [first] = names;
  if (first === undefined) throw new TypeError('taskTool needs at least one model: { models: { NAME: model } }.');
  if (!(Number.isSafeInteger(maxDepth) && maxDepth >= 1 && maxDepth <= 10)) {
    throw new TypeError(`taskTool got maxDepth ${maxDepth}. Give a whole number from 1 to 10.`);
  }
  const inner = maxDepth > 1 ? [taskTool({ models, maxDepth: maxDepth - 1, ...options })] : [];
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
    asks: made.flatMap(({ asks = [] }) => asks),
    execute(input, context) {
      const { model = first } = input as { readonly model?: string };
      const onItem = (item: Item): unknown => {
        if (item.type === 'call-started' || item.type === 'call-answered') context.report(item satisfies TaskProgress);
        return options.onItem?.(item);
      };
      return agentTool({ ...byModel.get(model)!, onItem }).execute!(input, context);
    },
  };
}
