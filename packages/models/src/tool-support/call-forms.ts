import type { JsonSchema, ToolSpec } from '@treadle/core';
import { parsed } from '../json.ts';

/** A call that was written as text. */
export interface WrittenCall {
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

export type Tools = ReadonlyMap<string, ToolSpec>;

const NAMES = ['name', 'tool', 'tool_name'];
const ARGUMENTS = ['arguments', 'parameters', 'args', 'input'];

/**
 * The calls that a JSON value stands for: `{name, arguments}`, `{function: {…}}`, `{tool_calls: […]}` or a list of them,
 * of whatever tools. Undefined if any part of it is something else. Without a tag around it, only what has arguments is a
 * call: `{name}` alone may well be an answer.
 */
export function callsInValue(value: unknown, tagged: boolean): readonly WrittenCall[] | undefined {
  if (Array.isArray(value)) {
    const calls = value.map((item) => callsInValue(item, tagged));
    return calls.length > 0 && calls.every((call) => call !== undefined) ? calls.flat() : undefined;
  }
  if (!isRecord(value)) return undefined;
  const inner = value['tool_calls'] ?? value['function'];
  if (typeof inner === 'object') return callsInValue(inner, tagged);
  const name = NAMES.map((key) => value[key]).find((given) => typeof given === 'string' && given !== '');
  const key = ARGUMENTS.find((candidate) => Object.hasOwn(value, candidate));
  if (typeof name !== 'string' || (key === undefined && !tagged)) return undefined;
  const given = key === undefined ? {} : value[key];
  if (typeof given === 'string') return [{ name, arguments: given }];
  return isRecord(given) || given === null ? [{ name, arguments: JSON.stringify(given ?? {}) }] : undefined;
}

/** Where one begins inside of another, the first has lost its ending. */
const TAG = /<(?:tool|function)_calls?>/;
const BROKEN = /^\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:([^]*)\}\s*$/;

/**
 * What stands between the tags of a call: JSON, or elements. JSON that is broken inside the arguments is a call too: they
 * are kept as they are, and whoever checks them tells the model what is wrong.
 */
export function callsInTag(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const body = text.trim();
  if (body.startsWith('<')) return callsInElements(body, tools);
  const value = parsed(body);
  if (value !== undefined) return callsInValue(value, true);
  if (TAG.test(body)) return undefined;
  const [, name, json] = BROKEN.exec(body) ?? [];
  return name !== undefined ? [{ name, arguments: json!.trim() }] : undefined;
}

const OPEN = /\s*<(?:function=|invoke\s+name=)["']?([\w.-]+)["']?\s*>\s*/y;
const PARAMETER = /\s*<parameter(?:=|\s+name=)["']?([^"'<>]+?)["']?\s*>/y;
/** The next one may begin where the end of one was forgotten. */
const CLOSE = /\s*(?:<\/(?:function|invoke)>\s*|$|(?=<(?:function=|invoke\s)))/y;
const VALUE_END = '</parameter>';

/** `<function=name><parameter=key>value</parameter></function>` and `<invoke name="…"><parameter name="…">`, any number. */
export function callsInElements(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const calls: WrittenCall[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) at = pattern.lastIndex;
    return match;
  };
  while (at < text.length) {
    const name = take(OPEN)?.[1];
    if (name === undefined) return undefined;
    const parameters = tools.get(name)?.parameters ?? {};
    const given: Record<string, unknown> = {};
    let json: string | undefined;
    if (text[at] === '{') {
      const end = text.indexOf('</', at);
      json = text.slice(at, end === -1 ? undefined : end).trim();
      at += json.length;
    }
    for (let key = take(PARAMETER)?.[1]; key !== undefined; key = take(PARAMETER)?.[1]) {
      const end = text.indexOf(VALUE_END, at);
      if (end === -1) return undefined;
      define(given, key, typed(text.slice(at, end), propertyOf(parameters, key)));
      at = end + VALUE_END.length;
    }
    if (!take(CLOSE)) return undefined;
    calls.push({ name, arguments: json ?? JSON.stringify(given) });
  }
  return calls.length > 0 ? calls : undefined;
}

/** An element has only text; what it means depends on what the tool wants. What does not fit stays text and is refused. */
function typed(text: string, schema: unknown): unknown {
  const value = text.replace(/^\r?\n/, '').replace(/\r?\n$/, '');
  const type = isRecord(schema) ? schema['type'] : undefined;
  const isText = type === 'string' || (Array.isArray(type) && type.includes('string'));
  return isText ? value : (parsed(value) ?? value);
}

function propertyOf(parameters: JsonSchema, key: string): unknown {
  const properties = parameters['properties'];
  return isRecord(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

/** Also where the key is `__proto__`. */
function define(record: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(record, key, { value, enumerable: true, configurable: true, writable: true });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
