import type { JsonSchema, ToolSpec } from '@treadle/core';
import { parsed } from '../json.ts';

/** A call in the text of a model. */
export interface WrittenCall {
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

export type Tools = ReadonlyMap<string, ToolSpec>;

/**
 * The calls in a JSON value: `{name, arguments}` or a list of them. Llama writes `parameters` instead of `arguments`.
 * Undefined if any part of the value is something else. Outside of a tag, an object without arguments is not a call:
 * `{name}` may well be an answer.
 */
function callsInValue(value: unknown, inTag: boolean): readonly WrittenCall[] | undefined {
  if (Array.isArray(value)) {
    const calls = value.map((item) => callsInValue(item, inTag));
    return calls.length > 0 && calls.every((call) => call !== undefined) ? calls.flat() : undefined;
  }
  if (!isRecord(value)) return undefined;
  const { name } = value;
  const key = ['arguments', 'parameters'].find((candidate) => Object.hasOwn(value, candidate));
  if (typeof name !== 'string' || name === '' || (key === undefined && !inTag)) return undefined;
  const input = key === undefined ? {} : value[key];
  if (typeof input === 'string') return [{ name, arguments: input }];
  return isRecord(input) || input === null ? [{ name, arguments: JSON.stringify(input ?? {}) }] : undefined;
}

/**
 * The calls in JSON without a tag. Before it Llama may write `<|python_tag|>`, and Mistral `[TOOL_CALLS]`, in newer
 * models with the name of the tool: `[TOOL_CALLS]name[ARGS]{…}`.
 */
export function callsInJson(text: string): readonly WrittenCall[] | undefined {
  const [, name, json] = /^\[TOOL_CALLS\]\s*([\w.-]+)\[ARGS\]\s*(\{[^]*)$/.exec(text) ?? [];
  if (name !== undefined) return [{ name, arguments: json! }];
  return callsInValue(parsed(text.replace(/^(?:\[TOOL_CALLS\]|<\|python_tag\|>)/, '')), false);
}

const BROKEN = /^\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:([^]*)\}\s*$/;

/**
 * The calls between `<tool_call>` and its end: JSON, or elements. If only the arguments are invalid JSON, it is a call
 * too: the loop rejects the arguments, and the result names the problem.
 */
export function callsInTag(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const body = text.trim();
  if (body.startsWith('<')) return callsInElements(body, tools);
  const value = parsed(body);
  if (value !== undefined) return callsInValue(value, true);
  // A tag inside means that this one has lost its end.
  if (body.includes('<tool_call>')) return undefined;
  const [, name, json] = BROKEN.exec(body) ?? [];
  return name !== undefined ? [{ name, arguments: json!.trim() }] : undefined;
}

const OPEN = /\s*<function=["']?([\w.-]+)["']?\s*>\s*/y;
const PARAMETER = /\s*<parameter=["']?([^"'<>]+?)["']?\s*>/y;
/** Also matches where the next element starts before this one ends. */
const CLOSE = /\s*(?:<\/function>\s*|$|(?=<function=))/y;
const VALUE_END = '</parameter>';

/** Any number of `<function=name><parameter=key>value</parameter></function>` or `<function=name>{"key": …}</function>`. */
export function callsInElements(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const calls: WrittenCall[] = [];
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found;
  };
  while (at < text.length) {
    const name = match(OPEN)?.[1];
    if (name === undefined) return undefined;
    const parameters = tools.get(name)?.parameters ?? {};
    const input: Record<string, unknown> = {};
    let json: string | undefined;
    if (text[at] === '{') {
      const end = text.indexOf('</', at);
      json = text.slice(at, end === -1 ? undefined : end).trim();
      at += json.length;
    }
    for (let key = match(PARAMETER)?.[1]; key !== undefined; key = match(PARAMETER)?.[1]) {
      const end = text.indexOf(VALUE_END, at);
      if (end === -1) return undefined;
      const value = valueOf(text.slice(at, end), propertyOf(parameters, key));
      // Unlike an assignment, this also sets `__proto__`.
      Object.defineProperty(input, key, { value, enumerable: true, configurable: true, writable: true });
      at = end + VALUE_END.length;
    }
    if (!match(CLOSE)) return undefined;
    calls.push({ name, arguments: json ?? JSON.stringify(input) });
  }
  return calls.length > 0 ? calls : undefined;
}

/** The text of an element as a string where the schema has one, else as JSON if it is valid. */
function valueOf(text: string, schema: unknown): unknown {
  const value = text.replace(/^\r?\n/, '').replace(/\r?\n$/, '');
  const type = isRecord(schema) ? schema['type'] : undefined;
  const isText = type === 'string' || (Array.isArray(type) && type.includes('string'));
  return isText ? value : (parsed(value) ?? value);
}

function propertyOf({ properties }: JsonSchema, key: string): unknown {
  return isRecord(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
