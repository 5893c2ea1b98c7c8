import type { JsonSchema } from '../model.ts';
import { describe, type Schema, type StandardSchema } from '../tools/schema.ts';
import { tool, type Tool, type ToolContext } from '../tools/tool.ts';
import { validate, type Validated } from '../tools/validate.ts';
import type { Agent, HelperContext, HelperTool } from './define.ts';

/** Where types do not matter any more: inputs and outputs are what the schemas let through. */
export type AnyAgent = Agent<unknown, unknown>;

export const DEFAULT_SUBMIT = {
  name: 'submit',
  description: 'Submit your final output for validation. Call this when you are satisfied with your output.',
} as const;

export interface Progress {
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

export function submitName({ tools: { output } }: AnyAgent): string | undefined {
  return output.reflectionHandler && (output.submit?.name ?? DEFAULT_SUBMIT.name);
}

/** It is answered by the validation. */
function held(): never {
  throw new Error('A call that ends an attempt is never executed.');
}

function helperTool({ definition, handler, cache }: HelperTool, agent: AnyAgent, progress: Progress): Tool {
  const { input_schema: inputSchema, input = inputSchema, ...rest } = definition;
  const writes = agent.state !== undefined && definition.effect !== 'pure';
  const run = cache ? cached(handler, progress) : handler;
  return tool({
    ...rest,
    ...(input && { input }),
    ...(writes && { resources: () => ['the state of the agent'] }),
    execute: (given, context) => run(given, contextOf(context, writes, progress)),
  });
}

function contextOf({ memory, run: _, ...context }: ToolContext, writes: boolean, progress: Progress): HelperContext {
  const state = (memory ?? {}) as HelperContext['state'];
  return { ...context, state: writes ? state : frozen(state), attempt: progress.attempt() };
}

function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null)
    for (const inner of Object.values(Object.freeze(value))) frozen(inner);
  return value;
}

/** Calls of one attempt with the same input share what the first of them gave, also while it still runs. */
function cached(handler: HelperTool['handler'], { attempt }: Progress): HelperTool['handler'] {
  const results = new Map<string, unknown>();
  let of = 0;
  return (input, context) => {
    if (of !== attempt()) results.clear();
    of = attempt();
    const key = JSON.stringify(input);
    if (results.has(key)) return results.get(key);
    const result = handler(input, context);
    const once = typeof result === 'object' && result !== null && Symbol.asyncIterator in result;
    if (!once) results.set(key, result);
    if (result instanceof Promise) result.catch(() => results.delete(key));
    return result;
  };
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

/** What an output that is no object is called in the arguments of the output tool, which models give as an object. */
const PART = 'output';

function isWrapped({ validation, tools, name }: AnyAgent): boolean {
  return describedOutput(validation.outputSchema, tools.output.parameters, name)['type'] !== 'object';
}

function describedOutput(schema: Schema, parameters: JsonSchema | undefined, name: string): JsonSchema {
  return parameters ?? describe(`The outputSchema of agent "${name}"`, schema, 'invalid-agent');
}

function outputParameters(agent: AnyAgent): JsonSchema {
  const described = describedOutput(agent.validation.outputSchema, agent.tools.output.parameters, agent.name);
  if (described['type'] === 'object') return described;
  return { type: 'object', properties: { [PART]: rooted(described) }, required: [PART] };
}

/** A schema that is now part of another one: what it refers to has moved with it. */
function rooted(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(rooted);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([key, value]) => {
      const isLocal = key === '$ref' && typeof value === 'string' && value.startsWith('#');
      return [key, isLocal ? `#/properties/${PART}${value.slice(1)}` : rooted(value)];
    }),
  );
}

/** Reads an output from the arguments of the output tool, and holds it against its schema. */
export function validateOutput(agent: AnyAgent, given: unknown): Validated | Promise<Validated> {
  const { outputSchema } = agent.validation;
  if (!isWrapped(agent)) return validate(outputSchema, given);
  if (typeof given !== 'object' || given === null || !(PART in given)) {
    return { type: 'invalid', problems: [`the output is missing: give it as "${PART}"`] };
  }
  return validate(outputSchema, given[PART]);
}

function unwrapped(agent: AnyAgent): StandardSchema {
  const verdictOn = (verdict: Validated): ReturnType<StandardSchema['~standard']['validate']> =>
    verdict.type === 'valid' ? { value: verdict.value } : { issues: verdict.problems.map((message) => ({ message })) };
  return {
    '~standard': {
      version: 1,
      vendor: 'treadle',
      validate: (given) => {
        const verdict = validateOutput(agent, given);
        return verdict instanceof Promise ? verdict.then(verdictOn) : verdictOn(verdict);
      },
    },
  } as StandardSchema;
}
