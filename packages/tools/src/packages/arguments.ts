import type { JsonSchema } from '@treadle/core';
import { ToolError } from '../tool-error.ts';
import { PARAMETER_NAME } from './parameters.ts';

/*
 * The arguments of a call as words of a command line, and back. No shell is involved: each word reaches the program as it is.
 *
 * 1. `--name value`; true is `--name`, and false and null are left out. A list repeats its name, an object is JSON.
 * 2. A value that begins with "-" is written as `--name=value`, so that no program takes it for another option.
 */

type Input = Readonly<Record<string, unknown>>;

/** In the order of the parameters. Throws for what cannot be a word of a command line. */
export function toArguments(input: Input, parameters: JsonSchema): readonly string[] {
  const known = Object.keys((parameters['properties'] as object | undefined) ?? {});
  const given = Object.keys(input);
  const names = [...known.filter((name) => given.includes(name)), ...given.filter((name) => !known.includes(name))];
  return names.flatMap((name) => {
    if (!PARAMETER_NAME.test(name)) throw invalid(`There can be no argument ${JSON.stringify(name)}.`);
    const value = input[name];
    return (Array.isArray(value) ? (value as readonly unknown[]) : [value]).flatMap((one) => wordsFor(name, one));
  });
}

function wordsFor(name: string, value: unknown): readonly string[] {
  if (value === undefined || value === null || value === false) return [];
  if (value === true) return [`--${name}`];
  const word = typeof value === 'object' ? JSON.stringify(value) : String(value);
  if (word.includes('\0')) throw invalid(`The argument ${name} contains a NUL byte. Remove it.`);
  return word.startsWith('-') ? [`--${name}=${word}`] : [`--${name}`, word];
}

/** The input that words mean. Throws an `Error` that says what is wrong with them. */
export function fromArguments(words: readonly string[], parameters: JsonSchema): Input {
  const properties = (parameters['properties'] ?? {}) as Readonly<Record<string, JsonSchema>>;
  const input: Record<string, unknown> = {};
  for (let at = 0; at < words.length; at++) {
    const [, name = '', own] = /^--([^=]+)(?:=(.*))?$/s.exec(words[at]!) ?? [];
    if (!Object.hasOwn(properties, name)) {
      const known = Object.keys(properties).map((one) => `--${one}`);
      throw new Error(`${JSON.stringify(words[at])} is not an option. Options: ${known.join(', ') || 'none'}.`);
    }
    const schema = properties[name]!;
    const isList = schema['type'] === 'array';
    const { type } = isList ? ((schema['items'] ?? {}) as JsonSchema) : schema;
    const isBare = own === undefined && type === 'boolean';
    const word = isBare ? 'true' : (own ?? words[++at]);
    if (word === undefined) throw new Error(`--${name} needs a value.`);
    const value = valueOf(name, word, type);
    input[name] = isList ? [...((input[name] as readonly unknown[] | undefined) ?? []), value] : value;
  }
  return input;
}

function valueOf(name: string, word: string, type: unknown): unknown {
  if (type === 'boolean' && word !== 'true' && word !== 'false') throw new Error(`--${name} must be true or false.`);
  if (typeof type !== 'string' || type === 'string') return word;
  try {
    return JSON.parse(word) as unknown;
  } catch {
    throw new Error(`--${name} must be a value of the type ${type}.`);
  }
}

function invalid(message: string): ToolError {
  return new ToolError(message, 'invalid_params');
}
