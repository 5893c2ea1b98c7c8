import { parseArgs } from 'node:util';
import { messageOf, type JsonSchema } from '@treadle/core';
import type { Inputs, NamedAgent } from '@treadle/core/named-agents';
import { CommandError, type Flag, type Flags } from '../command-line/command.ts';
import { readTextFile } from '../run/task-input.ts';
import { readStdin, type Io } from '../terminal/io.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';

/* The inputs of an agent on a command line: a flag for each, a JSON object, a file, a text, or answers on the terminal. */

type InputSchemas = Readonly<Record<string, JsonSchema>>;

export function inputsOf(schema: JsonSchema): InputSchemas {
  const properties = Object.entries((schema['properties'] ?? {}) as Readonly<Record<string, unknown>>);
  return Object.fromEntries(
    properties.map(([name, value]) => [name, typeof value === 'object' ? (value as JsonSchema) : {}]),
  );
}

/** The first word that is not a flag: the name of the agent. */
export function agentWord(args: readonly string[]): string | undefined {
  return args[0]?.startsWith('-') ? undefined : args[0];
}

/** What `--config` and `--cwd` say, before the flags of the inputs are known. */
export function placeOf(args: readonly string[]): { readonly config?: string; readonly cwd?: string } {
  const { values } = parseArgs({
    args: [...args],
    strict: false,
    options: { config: { type: 'string', short: 'c' }, cwd: { type: 'string', short: 'C' } },
  });
  const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
  const [config, cwd] = [text(values['config']), text(values['cwd'])];
  return { ...(config !== undefined && { config }), ...(cwd !== undefined && { cwd }) };
}

/** The name of the flag for an input: its own, unless the command has such a flag. */
function flagName(name: string, taken: Flags): string {
  return Object.hasOwn(taken, name) || name === 'help' ? `input-${name}` : name;
}

/** A flag for each input. */
export function inputFlags(schema: JsonSchema, taken: Flags): Flags {
  const { required = [] } = schema as { readonly required?: readonly string[] };
  return Object.fromEntries(
    Object.entries(inputsOf(schema)).map(([name, input]) => [
      flagName(name, taken),
      inputFlag(input, required.includes(name)),
    ]),
  );
}

function inputFlag(input: JsonSchema, isRequired: boolean): Flag {
  const { type, description, enum: values, default: byDefault } = input;
  const about = typeof description === 'string' ? oneLine(description, 70) : 'An input of the agent';
  const help = `${about}${byDefault === undefined ? (isRequired ? ' (required)' : '') : `; default: ${JSON.stringify(byDefault)}`}`;
  if (type === 'boolean') return { type: 'choice', choices: ['true', 'false'], bare: 'true', help };
  if (Array.isArray(values) && values.every((one) => typeof one === 'string')) {
    return { type: 'choice', choices: values, help };
  }
  return { type: 'text', value: type === 'string' || type === undefined ? 'TEXT|@FILE' : 'JSON', help };
}

/** The inputs of a command line, without those that are missing. */
export async function givenInputs(
  schema: JsonSchema,
  given: {
    readonly agent: NamedAgent;
    readonly values: Readonly<Record<string, unknown>>;
    readonly words: readonly string[];
    readonly taken: Flags;
  },
  io: Io,
): Promise<Inputs> {
  const { agent, values, words, taken } = given;
  const schemas = inputsOf(schema);
  const inputs: Record<string, unknown> = {};
  for (const word of words) Object.assign(inputs, await inputsFrom(word, agent, schema, io));
  for (const [name, input] of Object.entries(schemas)) {
    const flag = flagName(name, taken);
    const value = values[flag];
    if (typeof value === 'string') inputs[name] = await valueOf(value, input, `--${flag}`, io);
  }
  return inputs;
}

/** A JSON object, a file after an @ with one, or the text of the only input that is a text. */
async function inputsFrom(word: string, agent: NamedAgent, schema: JsonSchema, io: Io): Promise<Inputs> {
  const text = word === '-' ? await readStdin(io) : /^@\S/.test(word) ? await readTextFile(word.slice(1), io) : word;
  const parsed = objectIn(text);
  if (parsed) return parsed;
  const name = textInput(schema);
  if (name !== undefined && !text.trimStart().startsWith('{')) return { [name]: text.trim() };
  const names = Object.keys(inputsOf(schema));
  throw new CommandError(
    `${JSON.stringify(word.slice(0, 80))} is not a JSON object with the inputs of "${agent.name}", such as ` +
      `'{"${names[0] ?? 'name'}": …}'. Or use a flag for each: ${names.map((one) => `--${one}`).join(', ') || 'it has none'}.`,
  );
}

function objectIn(text: string): Inputs | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Inputs) : undefined;
  } catch {
    return undefined;
  }
}

/** The input that a plain text is for: the only one that is required, or the only one. */
function textInput(schema: JsonSchema): string | undefined {
  const schemas = inputsOf(schema);
  const { required = [] } = schema as { readonly required?: readonly string[] };
  const names = required.length > 0 ? required : Object.keys(schemas);
  const [only] = names;
  const isText = only !== undefined && schemas[only]?.['type'] === 'string';
  return names.length === 1 && isText ? only : undefined;
}

async function valueOf(text: string, schema: JsonSchema, from: string, io: Io): Promise<unknown> {
  const { type } = schema;
  if (type === 'string' || type === undefined) {
    return /^@\S/.test(text) ? readTextFile(text.slice(1), io) : text;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new CommandError(
      `${from} cannot be ${JSON.stringify(text)}. It takes JSON (${String(type)}): ${messageOf(error)}.`,
    );
  }
}

/** Asks for the inputs that are required and missing. Undefined: the user gave up. */
export async function askInputs(
  schema: JsonSchema,
  inputs: Inputs,
  ask: (prompt: string) => Promise<string | undefined>,
  io: Io,
): Promise<Inputs | undefined> {
  const { required = [] } = schema as { readonly required?: readonly string[] };
  const schemas = inputsOf(schema);
  const names = required.length > 0 || schemas['task'] === undefined ? required : ['task'];
  const all: Record<string, unknown> = { ...inputs };
  for (const name of names.filter((one) => !Object.hasOwn(inputs, one))) {
    const input = schemas[name] ?? {};
    const { description, type, enum: values } = input;
    const about = typeof description === 'string' ? `${exactLine(oneLine(description, 200))}\n` : '';
    const choices = Array.isArray(values) ? ` (${values.map((one) => JSON.stringify(one)).join(', ')})` : '';
    for (;;) {
      const answer = await ask(`${about}${exactLine(`${name}${choices}`)}: `);
      if (answer === undefined) return undefined;
      if (answer.trim() === '') continue;
      try {
        all[name] = await valueOf(answer.trim(), input, name, io);
        break;
      } catch (error) {
        io.stderr.write(`${exactLine(messageOf(error))} Give ${String(type)}.\n`);
      }
    }
  }
  return all;
}
