import type { JsonSchema } from '../model.ts';
import { tool, type Tool, type ToolContext } from '../tools/tool.ts';
import { cached } from './cache.ts';
import type { Agent, HelperContext, HelperTool } from './define.ts';
import { outputParameters, unwrapped } from './output-form.ts';

/** Where types do not matter any more: inputs and outputs are what the schemas let through. */
export type AnyAgent = Agent<unknown, unknown>;

export const DEFAULT_SUBMIT = {
  name: 'submit',
  description: 'Submit your final output for validation. Call this when you are satisfied with your output.',
} as const;

/** What tools know of the execution that they work for. */
export interface Progress {
  readonly input: unknown;
  /** The attempt that goes on. */
  readonly attempt: () => number;
}

/** All tools of an agent, as the loop takes them. */
export function agentTools(agent: AnyAgent, progress: Progress): readonly Tool[] {
  const { helpers = [], output } = agent.tools;
  const made = helpers.map((helper) => ('handler' in helper ? helperTool(helper, agent, progress) : helper));
  const submit = submitName(agent);
  if (submit === undefined) return [...made, outputTool(agent, progress)];
  const description = output.submit?.description ?? DEFAULT_SUBMIT.description;
  return [...made, outputTool(agent, progress), tool({ name: submit, description, effect: 'pure', execute: held })];
}

const MAX_ITERATIONS = 15;

export function maxIterationsOf({ validation }: AnyAgent): number {
  return validation.maxIterationsPerAttempt ?? MAX_ITERATIONS;
}

export function submitName({ tools: { output } }: AnyAgent): string | undefined {
  return output.reflectionHandler && (output.submit?.name ?? DEFAULT_SUBMIT.name);
}

/** It is answered by the validation. */
function held(): never {
  throw new Error('A call that ends an attempt is never executed.');
}

function helperTool(helper: HelperTool, agent: AnyAgent, progress: Progress): Tool {
  const { definition, cache } = helper;
  const { input_schema: inputSchema, input = inputSchema, ...rest } = definition;
  const writes = agent.state !== undefined && definition.effect !== 'pure';
  const run: HelperTool['handler'] = cache
    ? cached(helper, progress)
    : (given, context) => helper.handler(given, context);
  const made = tool({
    ...rest,
    ...(input !== undefined && { input }),
    ...(writes && { resources: () => ['the state of the agent'] }),
    execute: (given, context) => run(given, contextOf(context, writes, progress)),
  });
  return { ...made, remembers: true };
}

function contextOf({ memory, run: _, ...context }: ToolContext, writes: boolean, progress: Progress): HelperContext {
  const state = (memory ?? {}) as HelperContext['state'];
  const { input: agentInput, attempt } = progress;
  return { ...context, agentInput, state: writes ? state : frozen(state), attempt: attempt() };
}

function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null)
    for (const inner of Object.values(Object.freeze(value))) frozen(inner);
  return value;
}

const ANYTHING: JsonSchema = {};

function outputTool(agent: AnyAgent, progress: Progress): Tool {
  const { name, description, reflectionHandler } = agent.tools.output;
  const parameters = outputParameters(agent);
  if (!reflectionHandler)
    return tool({ name, description, input: ANYTHING, parameters, effect: 'pure', execute: held });
  return tool({
    name,
    description,
    input: unwrapped(agent),
    parameters,
    effect: 'pure',
    resources: () => ['the output of the agent'],
    execute: (output, { signal, context }) =>
      reflectionHandler(output, { signal, context, attempt: progress.attempt() }),
  });
}
