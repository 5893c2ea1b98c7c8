import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import type { RequestTool } from '../executors/executor.ts';
import { checked, checkedList, isObject, missing, notOneOf, wrongType, type Body } from './fields.ts';
import type { ParsedTools } from './parse-tools.ts';
import type { WireToolChoice } from './request.ts';

export interface ParsedChoice {
  readonly choice: WireToolChoice;
  /** As the response repeats it. */
  readonly echo: unknown;
}

/** What there is to choose from. */
export interface Declared extends Pick<ParsedTools, 'functions' | 'others'> {
  /** Labels of servers whose tools every request is offered. */
  readonly labels: readonly string[];
}

const MODES = ['auto', 'required', 'none'] as const;
/** As many as the specification lets one name. */
const MOST_ALLOWED = 128;

export function parseToolChoice(given: unknown, declared: Declared): ParsedChoice {
  if (given == null) return { choice: 'auto', echo: 'auto' };
  if (typeof given === 'string') {
    const mode = MODES.find((word) => word === given);
    if (mode === undefined) throw notOneOf(given, MODES, 'tool_choice');
    return { choice: mode, echo: mode };
  }
  if (!isObject(given)) throw wrongType('a string or an object', given, 'tool_choice');
  if (given['type'] === 'allowed_tools' || (given['type'] === undefined && 'allowed_tools' in given)) {
    return allowed(given, declared);
  }
  const named = toolNamed(given, 'tool_choice', declared);
  if (named.type === 'function' || named.type === 'mcp') return { choice: named as WireToolChoice, echo: named };
  // A kind of tool is forced by allowing nothing else.
  return { choice: { type: 'allowed_tools', mode: 'required', tools: [named] }, echo: named };
}

/** Flat, as the Responses API has it, or nested, as the chat API does. */
function allowed(choice: Body, declared: Declared): ParsedChoice {
  const nested = choice['allowed_tools'];
  const at = nested == null ? 'tool_choice' : 'tool_choice.allowed_tools';
  const from = nested ?? choice;
  if (typeof from !== 'object' || from === null) throw wrongType('object', from, at);
  const { mode, tools } = from as Body;
  const meant = MODES.find((word) => word === (mode ?? 'auto'));
  if (meant === undefined) throw notOneOf(mode, MODES, `${at}.mode`);
  const list = checkedList(tools, `${at}.tools`, { kind: 'a list of tools', most: MOST_ALLOWED });
  if (list.length === 0) {
    throw badRequest(
      `Invalid '${at}.tools': it is empty. Name the tools that may be called, or use 'none' as 'tool_choice'.`,
      `${at}.tools`,
      'array_below_min_length',
    );
  }
  const names = list.map((tool, index) => {
    const place = `${at}.tools[${index}]`;
    if (!isObject(tool)) throw wrongType('object', tool, place);
    return toolNamed(tool, place, declared);
  });
  const echo = { type: 'allowed_tools', mode: meant, tools: names } as const;
  return { choice: meant === 'none' ? 'none' : { ...echo, mode: meant }, echo };
}

const functionName = z.object({ name: z.string().min(1) });
const mcpName = z.object({ server_label: z.string().min(1), name: z.string().min(1).nullish() });

/** A tool that the request has, by what names it. */
function toolNamed(tool: Body, at: string, declared: Declared): RequestTool {
  const { type } = tool;
  if (type === undefined) throw missing(`${at}.type`);
  if (type === 'function') {
    const nested = tool['name'] === undefined && typeof tool['function'] === 'object' && tool['function'] !== null;
    const place = nested ? `${at}.function` : at;
    const { name } = checked(functionName, nested ? tool['function'] : tool, place);
    if (!declared.functions.some((known) => known.name === name)) throw unknown(`function '${name}'`, `${place}.name`);
    return { type, name };
  }
  if (type === 'mcp') {
    const { server_label: label, name } = checked(mcpName, tool, at);
    const known = declared.others.some((other) => other.type === 'mcp' && other['server_label'] === label);
    if (!known && !declared.labels.includes(label)) throw unknown(`MCP server '${label}'`, `${at}.server_label`);
    return { type, server_label: label, ...(name != null && { name }) };
  }
  if (typeof type !== 'string') throw wrongType('string', type, `${at}.type`);
  if (!declared.others.some((other) => other.type === type))
    throw unknown(`tool of type '${type.slice(0, 60)}'`, `${at}.type`);
  return { type };
}

function unknown(what: string, param: string): Error {
  return badRequest(
    `Invalid '${param}': there is no ${what} in 'tools'. Declare it there, or choose another.`,
    param,
    'unknown_tool',
  );
}
