import { isJsonSchema } from '@treadle/core';
import { schemaCheck } from '@treadle/core/json-schema';
import { didYouMean } from '@treadle/core/nearest';
import type { AgentProblem } from '@treadle/core/named-agents';
import type { CompiledStep } from './definition.ts';
import type { Template } from './expressions.ts';

/* The keys of steps that have values and no expressions. What is wrong is added to the problems. */

export type Path = readonly (string | number)[];
export type Table = Readonly<Record<string, unknown>>;

export interface Retry {
  readonly times: number;
  readonly delay: number;
  readonly factor: number;
  readonly on: readonly string[];
}

/** Errors that a call may have. */
const ERROR_TYPES = [
  'execution_failed',
  'timeout',
  'not_found',
  'invalid_params',
  'permission_denied',
  'denied',
  'interrupted',
];

/** The type and the choices of an answer. */
export function schemaOf(given: Table, path: Path, problems: AgentProblem[]): CompiledStep['schema'] {
  const { choices, schema } = given;
  if (choices === undefined && schema === undefined) return undefined;
  if (choices !== undefined && schema !== undefined) {
    problems.push({ path: [...path, 'schema'], message: 'It has "choices" and "schema". Give one of them.' });
  }
  if (choices !== undefined && !(Array.isArray(choices) && choices.length > 0 && choices.every(isText))) {
    problems.push({ path: [...path, 'choices'], message: `It is ${shown(choices)}. Use a list of texts.` });
  }
  if (schema !== undefined && !canBeAnswered(schema)) {
    problems.push({ path: [...path, 'schema'], message: `It is ${shown(schema)}. Use a JSON Schema.` });
  }
  return choices === undefined ? { schema } : { choices };
}

const TYPES = new Set<unknown>(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);

function canBeAnswered(schema: unknown): boolean {
  if (!isTable(schema) || !isJsonSchema(schema)) return false;
  const { type = [] } = schema;
  if (![type].flat().every((one) => TYPES.has(one))) return false;
  try {
    schemaCheck(schema)(null, () => true);
    return true;
  } catch {
    return false;
  }
}

/** `for: 5m` is a number of seconds. */
export function sleepTemplates(
  templates: Readonly<Record<string, Template>>,
  path: Path,
  problems: AgentProblem[],
): Readonly<Record<string, Template>> {
  const { for: given } = templates;
  if (given?.type !== 'value') return templates;
  const value = duration(given.value, path, problems);
  return { ...templates, for: { type: 'value', value } };
}

/** Milliseconds since 1970 of seconds, or of a text with a time. A text without a time zone is in UTC. NaN for anything else. */
export function timeOf(given: unknown): number {
  if (typeof given === 'number') return given * 1_000;
  if (typeof given !== 'string') return NaN;
  const text = given.trim();
  return Date.parse(/[T ]\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(text) ? `${text}Z` : text);
}

const UNITS: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3_600, d: 86_400 };

/** Seconds: a number, or a text such as `90s`, `5m` or `1d`. */
export function duration(given: unknown, path: Path, problems: AgentProblem[]): number | undefined {
  if (given === undefined || given === null) return undefined;
  const seconds = secondsOf(given);
  if (seconds > 0 && seconds <= 30 * 86_400) return seconds;
  problems.push({
    path,
    message: `It is ${shown(given)}. Use seconds, or a text such as "90s", "5m" or "1d", up to 30 days.`,
  });
  return undefined;
}

/** NaN for what is no duration. */
export function secondsOf(given: unknown): number {
  if (typeof given !== 'string') return typeof given === 'number' ? given : NaN;
  const [, amount, unit = ''] = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(given.trim()) ?? [];
  return Number(amount) * UNITS[unit]!;
}

const ONCE: Retry = { times: 1, delay: 0, factor: 1, on: [] };

export function retryOf(given: unknown, path: Path, problems: AgentProblem[]): Retry {
  if (given === undefined || given === null) return ONCE;
  const table = typeof given === 'number' ? { times: given } : given;
  const known = ['times', 'delay', 'factor', 'on'];
  if (!isTable(table)) {
    problems.push({ path, message: `It is ${shown(given)}. Use a number, or a table with ${known.join(', ')}.` });
    return ONCE;
  }
  for (const key of Object.keys(table).filter((one) => !known.includes(one))) {
    const message = `There is no such key.${didYouMean(key, known)} The keys are ${known.join(', ')}.`;
    problems.push({ path: [...path, key], message });
  }
  const { factor = 2, on = ['execution_failed'] } = table;
  const types = Array.isArray(on) ? (on as unknown[]) : [on];
  for (const [index, one] of types.entries()) {
    if (ERROR_TYPES.includes(one as string)) continue;
    const message = `It is ${shown(one)}.${didYouMean(String(one), ERROR_TYPES)} The types are ${ERROR_TYPES.join(', ')}.`;
    problems.push({ path: [...path, 'on', ...(Array.isArray(on) ? [index] : [])], message });
  }
  if (typeof factor !== 'number' || !(factor >= 1 && factor <= 10)) {
    problems.push({ path: [...path, 'factor'], message: `It is ${shown(factor)}. Use a number from 1 to 10.` });
  }
  const times = wholeNumber(table['times'] ?? 3, [...path, 'times'], problems, 1, 100) ?? 1;
  const delay = duration(table['delay'], [...path, 'delay'], problems) ?? 0;
  return { times, delay, factor: factor as number, on: types as string[] };
}

export function isTable(value: unknown): value is Table {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

export function shown(value: unknown): string {
  const given = JSON.stringify(value) ?? 'missing';
  return given.length > 80 ? `${given.slice(0, 80).toWellFormed()}…` : given;
}

export function text(given: unknown, path: Path, problems: AgentProblem[]): string | undefined {
  if (given === undefined || given === null) return undefined;
  if (isText(given)) return given;
  problems.push({ path, message: `It is ${shown(given)}. Use a text.` });
  return undefined;
}

export function wholeNumber(
  given: unknown,
  path: Path,
  problems: AgentProblem[],
  least: number,
  most: number,
): number | undefined {
  if (typeof given === 'number' && Number.isSafeInteger(given) && given >= least && given <= most) return given;
  problems.push({ path, message: `It is ${shown(given)}. Use a whole number from ${least} to ${most}.` });
  return undefined;
}
