import type { JsonSchema } from '../model.ts';
import { canonicalJson } from '../plain.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import { toJsonSchema, validate, type StandardSchema, type Validated } from '../tools/schema.ts';
import { tool, type Tool, type ToolContext } from '../tools/tool.ts';
import type { AnyAgent, HelperContext, HelperTool } from './define.ts';

export const DEFAULT_SUBMIT = {
  name: 'submit',
  description: 'Submit your final output for validation. Call this when you are satisfied with your output.',
} as const;

/** The execution that the tools belong to. */
export interface ExecutionInfo {
  readonly input: unknown;
  /** The current attempt. */
  readonly attempt: () => number;
  /** For the schema of the output. */
  readonly matchPattern?: PatternMatcher | undefined;
}

/** All tools of an agent for the loop: the helpers, the output tool and the submit tool. */
export function agentTools(agent: AnyAgent, execution: ExecutionInfo): readonly Tool[] {
  const { helpers = [], output } = agent.tools;
  const tools = helpers.map((helper) => ('handler' in helper ? helperTool(helper, agent, execution) : helper));
  tools.push(outputTool(agent, execution));
  const submit = submitName(agent);
  if (submit !== undefined) {
    const description = output.submit?.description ?? DEFAULT_SUBMIT.description;
    tools.push(tool({ name: submit, description, effect: 'pure', execute: neverExecuted }));
  }
  return tools;
}

/** The name of the submit tool. Undefined without a reflection: then there is none. */
export function submitName({ tools: { output } }: AnyAgent): string | undefined {
  return output.reflectionHandler && (output.submit?.name ?? DEFAULT_SUBMIT.name);
}

/** The loop holds a call that ends an attempt, and answers it with the verdict of the validation. */
function neverExecuted(): never {
  throw new Error('A call that ends an attempt is never executed.');
}

function helperTool(helper: HelperTool, agent: AnyAgent, execution: ExecutionInfo): Tool {
  const { definition, cache } = helper;
  const { input_schema: inputSchema, input = inputSchema, ...rest } = definition;
  const writes = agent.state !== undefined && definition.effect !== 'pure';
  const handler: HelperTool['handler'] = cache
    ? cachedHandler(helper, execution)
    : (args, context) => helper.handler(args, context);
  const made = tool({
    ...rest,
    ...(input !== undefined && { input }),
    ...(writes && { resources: () => ['the state of the agent'] }),
    execute: (args, context) => handler(args, helperContext(context, writes, execution)),
  });
  return agent.state ? { ...made, remembers: HELPER_MEMORY } : made;
}

/** The memory that helpers share: `state.run` and `state.attempt`. */
const HELPER_MEMORY = ['run', 'attempt'];

function helperContext(
  { memory, run: _, ask, hold, ...context }: ToolContext,
  writes: boolean,
  { input: agentInput, attempt }: ExecutionInfo,
): HelperContext {
  const state = (memory ?? {}) as HelperContext['state'];
  return { ...context, ask, hold, agentInput, state: writes ? state : deepFreeze(state), attempt: attempt() };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null)
    for (const inner of Object.values(Object.freeze(value))) deepFreeze(inner);
  return value;
}

/** Calls of one attempt with the same input share one result, also while the first of them still runs. */
function cachedHandler(helper: HelperTool, { attempt }: ExecutionInfo): HelperTool['handler'] {
  const results = new Map<string, unknown>();
  let cachedAttempt = 0;
  return (input, context) => {
    if (cachedAttempt !== attempt()) results.clear();
    cachedAttempt = attempt();
    const key = canonicalJson(input);
    if (key !== undefined && results.has(key)) return results.get(key);
    const result = helper.handler(input, context);
    if (key === undefined || !isCacheable(result)) return result;
    results.set(key, result);
    const forget = (): boolean => results.get(key) === result && results.delete(key);
    if (result instanceof Promise) {
      result.then((value) => isCacheable(value) || forget(), forget);
      context.signal.addEventListener('abort', forget, { once: true });
    }
    return result;
  };
}

/** Errors are not cached, and neither is an iterable, which can be read only once. */
function isCacheable(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return true;
  return !(Symbol.asyncIterator in result) && (result as { isError?: unknown }).isError !== true;
}

const ANYTHING: JsonSchema = {};

function outputTool(agent: AnyAgent, execution: ExecutionInfo): Tool {
  const { name, description, reflectionHandler, touches } = agent.tools.output;
  const parameters = outputParameters(agent);
  if (!reflectionHandler)
    return tool({ name, description, input: ANYTHING, parameters, effect: 'pure', execute: neverExecuted });
  return tool({
    name,
    description,
    input: outputToolSchema(agent, execution.matchPattern),
    parameters,
    effect: 'pure',
    ...(touches && { touches }),
    resources: () => ['the output of the agent'],
    execute: (output, { signal, context }) =>
      reflectionHandler(output, { signal, context, attempt: execution.attempt() }),
  });
}

/* The schema of the output tool */

/** Models call tools with an object. An output that is not an object is wrapped in one, with this key. */
const WRAPPER_KEY = 'output';

function isWrapped(agent: AnyAgent): boolean {
  return outputJsonSchema(agent)['type'] !== 'object';
}

const jsonSchemas = new WeakMap<AnyAgent, JsonSchema>();

function outputJsonSchema(agent: AnyAgent): JsonSchema {
  let schema = jsonSchemas.get(agent);
  if (!schema) {
    const { name, validation, tools } = agent;
    const what = `The outputSchema of agent "${name}"`;
    schema = tools.output.parameters ?? toJsonSchema(what, validation.outputSchema, 'invalid-agent');
    jsonSchemas.set(agent, schema);
  }
  return schema;
}

/** The parameters of the output tool. */
function outputParameters(agent: AnyAgent): JsonSchema {
  const schema = outputJsonSchema(agent);
  if (!isWrapped(agent)) return schema;
  return { type: 'object', properties: { [WRAPPER_KEY]: withMovedRefs(schema) }, required: [WRAPPER_KEY] };
}

/** Rewrites the local references of a schema that is now a part of another one. */
function withMovedRefs(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withMovedRefs);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([key, value]) => {
      // References to an anchor (`#name`) do not depend on the position.
      const isLocal = key === '$ref' && typeof value === 'string' && /^#(\/|$)/.test(value);
      return [key, isLocal ? `#/properties/${WRAPPER_KEY}${value.slice(1)}` : withMovedRefs(value)];
    }),
  );
}

/** Unwraps the arguments of the output tool and validates the output against `outputSchema`. */
export function validateOutput(
  agent: AnyAgent,
  args: unknown,
  matchPattern?: PatternMatcher,
): Validated | Promise<Validated> {
  const { outputSchema } = agent.validation;
  if (!isWrapped(agent)) return validate(outputSchema, args, matchPattern);
  if (typeof args !== 'object' || args === null || !(WRAPPER_KEY in args)) {
    return { type: 'invalid', problems: [`the output is missing: give it as "${WRAPPER_KEY}"`] };
  }
  return validate(outputSchema, args[WRAPPER_KEY], matchPattern);
}

/** `validateOutput` as the input schema of the output tool. */
function outputToolSchema(agent: AnyAgent, matchPattern: PatternMatcher | undefined): StandardSchema {
  const toVerdict = (verdict: Validated): ReturnType<StandardSchema['~standard']['validate']> =>
    verdict.type === 'valid' ? { value: verdict.value } : { issues: verdict.problems.map((message) => ({ message })) };
  return {
    '~standard': {
      version: 1,
      vendor: 'treadle',
      validate: (args) => {
        const verdict = validateOutput(agent, args, matchPattern);
        return verdict instanceof Promise ? verdict.then(toVerdict) : toVerdict(verdict);
      },
    },
  } as StandardSchema;
}
