import type { JsonSchema } from '../model.ts';
import { didYouMean } from '../nearest.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import { validate } from '../tools/schema.ts';
import type { Field, Fields, NamedAgent } from './named-agent.ts';

/* Inputs and outputs of an agent: named fields, or a JSON Schema. */

/** Whether fields are a JSON Schema. A field that is called `type` is a table. */
export function isSchema(fields: Fields): fields is JsonSchema {
  return fields['type'] === 'object';
}

export function fieldSchema({ type, description, default: value, enum: values }: Field): JsonSchema {
  return {
    type,
    ...(description !== undefined && { description }),
    ...(values && { enum: values }),
    ...(value !== undefined && { default: value }),
  };
}

function schemaOf(fields: Fields): JsonSchema {
  if (isSchema(fields)) return fields;
  const named = Object.entries(fields as Readonly<Record<string, Field>>);
  const required = named.flatMap(([name, field]) => (field.required && field.default === undefined ? name : []));
  return {
    type: 'object',
    properties: Object.fromEntries(named.map(([name, field]) => [name, fieldSchema(field)])),
    ...(required.length > 0 && { required }),
  };
}

/** Schemas are prepared once for each definition. */
const schemas = new WeakMap<Fields, JsonSchema>();

function keptSchema(fields: Fields): JsonSchema {
  const known = schemas.get(fields);
  if (known) return known;
  const made = schemaOf(fields);
  schemas.set(fields, made);
  return made;
}

/** The schema of the inputs, for forms and for tools. Without inputs: one text, `task`. */
export function inputSchema({ inputs }: NamedAgent): JsonSchema {
  return inputs ? keptSchema(inputs) : TASK;
}

const TASK: JsonSchema = {
  type: 'object',
  properties: { task: { type: 'string', description: 'What to do, with everything that has to be known for it' } },
};
const REQUIRED_TASK: JsonSchema = { ...TASK, required: ['task'] };

/** The schema of a call of the agent as a tool: without inputs, the task is required. */
export function callSchema(agent: NamedAgent): JsonSchema {
  return agent.inputs ? inputSchema(agent) : REQUIRED_TASK;
}

/** The schema of the output; undefined if the agent describes none. */
export function outputSchema({ outputs }: NamedAgent): JsonSchema | undefined {
  return outputs && Object.keys(outputs).length > 0 ? keptSchema(outputs) : undefined;
}

/** The field that has the answer if the model answers with a text: the first output, or `result`. */
export function textField({ outputs = {} }: NamedAgent): string {
  const { properties } = isSchema(outputs) ? (outputs as { readonly properties?: object }) : { properties: outputs };
  return Object.keys(properties ?? {})[0] ?? 'result';
}

export type Inputs = Readonly<Record<string, unknown>>;

export type CheckedInputs =
  /** With the defaults of those that were not given. */
  | { readonly type: 'valid'; readonly inputs: Inputs }
  | { readonly type: 'invalid'; readonly problems: readonly InputProblem[] };

export interface InputProblem {
  /** The name of the input; absent if it is about all of them. */
  readonly input?: string;
  readonly message: string;
}

/** Checks the inputs of an invocation, and names each problem. Never throws. */
export async function checkInputs(agent: NamedAgent, given: unknown, matches?: PatternMatcher): Promise<CheckedInputs> {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    return { type: 'invalid', problems: [{ message: 'The inputs must be an object with a value for each input.' }] };
  }
  const schema = inputSchema(agent);
  const properties = (schema['properties'] ?? {}) as Readonly<Record<string, JsonSchema | boolean>>;
  const inputs = { ...defaultsOf(properties), ...given };
  const problems: InputProblem[] = [];
  if (agent.inputs && !isSchema(agent.inputs)) {
    const names = Object.keys(properties);
    for (const name of Object.keys(given).filter((one) => !Object.hasOwn(properties, one))) {
      const known = names.length === 0 ? 'It takes none' : `Its inputs are ${names.join(', ')}`;
      const message = `The agent "${agent.name}" has no input ${JSON.stringify(name.slice(0, 100))}.`;
      problems.push({ input: name, message: `${message}${didYouMean(name, names)} ${known}.` });
    }
  }
  const { required = [] } = schema as { readonly required?: readonly string[] };
  const missing = required.filter((name) => !Object.hasOwn(inputs, name));
  for (const name of missing)
    problems.push({ input: name, message: `${name}: It is missing${about(properties[name])}.` });
  // A missing input has one problem.
  const checked = await validate(missing.length === 0 ? schema : withoutRequired(schema), inputs, matches);
  if (checked.type === 'invalid')
    for (const message of checked.problems) problems.push(inputProblem(message, properties));
  return problems.length === 0 ? { type: 'valid', inputs } : { type: 'invalid', problems };
}

function withoutRequired({ required: _, ...schema }: JsonSchema): JsonSchema {
  return schema;
}

function about(schema: JsonSchema | boolean | undefined): string {
  const { description } = (typeof schema === 'object' ? schema : {}) as { readonly description?: unknown };
  return typeof description === 'string' ? ` (${description})` : '';
}

function defaultsOf(properties: Readonly<Record<string, JsonSchema | boolean>>): Inputs {
  const defaults = Object.entries(properties).flatMap(([name, schema]) =>
    typeof schema === 'object' && schema['default'] !== undefined ? [[name, schema['default']] as const] : [],
  );
  return Object.fromEntries(defaults);
}

/** A problem begins with the path of what it is about. */
function inputProblem(message: string, properties: Inputs): InputProblem {
  const [, name] = /^([^:.[\s]+)/.exec(message) ?? [];
  return name !== undefined && Object.hasOwn(properties, name) ? { input: name, message } : { message };
}
