import type { JsonSchema } from '../model.ts';
import { describe, validate, type StandardSchema, type Validated } from '../tools/schema.ts';
import type { AnyAgent } from './tools.ts';

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

/** What the model is told of the output. */
export function outputParameters(agent: AnyAgent): JsonSchema {
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

/** The output's schema, for the arguments of the output tool. */
export function unwrapped(agent: AnyAgent): StandardSchema {
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
