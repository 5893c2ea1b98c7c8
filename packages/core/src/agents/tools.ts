import type { JsonSchema } from '../model.ts';
import { describe, type StandardSchema } from '../tools/schema.ts';
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
  return { ...context, state: writes ? state : frozen(state), attempt: progress.attempt() };
}

function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null)
    for (const inner of Object.values(Object.freeze(value))) frozen(inner);
  return value;
}

/** Calls of one attempt with the same input share what the first of them gave, also while it still runs. */
function cached(helper: HelperTool, { attempt }: Progress): HelperTool['handler'] {
  const results = new Map<string, unknown>();
  let of = 0;
  return (input, context) => {
    if (of !== attempt()) results.clear();
    of = attempt();
    const key = isPlain(input) ? JSON.stringify(input) : undefined;
    if (key !== undefined && results.has(key)) return results.get(key);
    const result = helper.handler(input, context);
    if (key === undefined || !isKept(result)) return result;
    results.set(key, result);
    const forget = (): boolean => results.get(key) === result && results.delete(key);
    if (result instanceof Promise) {
      result.then((given) => isKept(given) || forget(), forget);
      context.signal.addEventListener('abort', forget, { once: true });
    }
    return result;
  };
}

/** Neither an error nor what can be read only once. */
function isKept(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return true;
  return !(Symbol.asyncIterator in result) && (result as { isError?: unknown }).isError !== true;
}

/** Whether its JSON tells it from every other input, which that of a set does not. */
function isPlain(input: unknown): boolean {
  if (typeof input === 'number') return Number.isFinite(input);
  if (typeof input !== 'object' || input === null) return ['string', 'boolean', 'object'].includes(typeof input);
  const prototype: unknown = Object.getPrototypeOf(input);
  const isOwn = Array.isArray(input) || prototype === Object.prototype || prototype === null;
  return isOwn && Object.values(input).every(isPlain);
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

function isWrapped(agent: AnyAgent): boolean {
  return describedOutput(agent)['type'] !== 'object';
}

const described = new WeakMap<AnyAgent, JsonSchema>();

function describedOutput(agent: AnyAgent): JsonSchema {
  let schema = described.get(agent);
  if (!schema) {
    const { name, validation, tools } = agent;
    const what = `The outputSchema of agent "${name}"`;
    schema = tools.output.parameters ?? describe(what, validation.outputSchema, 'invalid-agent');
    described.set(agent, schema);
  }
  return schema;
}

function outputParameters(agent: AnyAgent): JsonSchema {
  const schema = describedOutput(agent);
  if (!isWrapped(agent)) return schema;
  return { type: 'object', properties: { [PART]: rooted(schema) }, required: [PART] };
}

/** A schema that is now part of another one: what it refers to has moved with it. */
function rooted(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(rooted);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([key, value]) => {
      // One that names an anchor finds it wherever it is.
      const isLocal = key === '$ref' && typeof value === 'string' && /^#(\/|$)/.test(value);
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
