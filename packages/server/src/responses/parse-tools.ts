import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import type { RequestTool } from '../executors/executor.ts';
import { checked, checkedList, isObject, missing, wrongType, type Body } from './fields.ts';
import { LONGEST, type RequestLimits } from './limits.ts';
import type { FunctionTool } from './request.ts';

export interface ParsedTools {
  readonly functions: readonly FunctionTool[];
  /** Everything that is not a function. */
  readonly others: readonly RequestTool[];
  /** As they came, without what is secret. */
  readonly echo: readonly unknown[];
}

const NAME = /^[a-zA-Z0-9_-]+$/;

const functionTool = z.object({
  name: z.string().min(1).max(LONGEST.name).regex(NAME, "a function's name has letters, digits, '_' and '-' only"),
  description: z.string().nullish(),
  parameters: z.custom<Body>().nullish(),
  strict: z.boolean().nullish(),
});
const mcpTool = z.object({
  server_label: z.string().min(1).max(LONGEST.id),
  server_url: z.string().max(2_048).nullish(),
  allowed_tools: z
    .union([z.array(z.string()), z.object({ tool_names: z.array(z.string()).nullish() })], 'expected a list of names')
    .nullish(),
});

export function parseTools(tools: unknown, limits: RequestLimits): ParsedTools {
  const functions: FunctionTool[] = [];
  const others: RequestTool[] = [];
  const echo: unknown[] = [];
  const names = new Set<string>();
  const labels = new Set<string>();
  const list = checkedList(tools ?? [], 'tools', { kind: 'a list of tools', most: limits.tools });
  for (const [index, tool] of list.entries()) {
    const at = `tools[${index}]`;
    if (!isObject(tool)) throw wrongType('object', tool, at);
    checkSize(tool, at, limits.toolChars);
    if (tool['type'] === undefined) throw missing(`${at}.type`);
    if (typeof tool['type'] !== 'string') throw wrongType('string', tool['type'], `${at}.type`);
    if (tool['type'] === 'function') {
      const made = functionOf(tool, at);
      once(names, made.name, `${at}.name`);
      functions.push(made);
      echo.push(made);
      continue;
    }
    if (tool['type'] === 'mcp') once(labels, checked(mcpTool, tool, at).server_label, `${at}.server_label`);
    others.push(tool as RequestTool);
    echo.push(withoutSecrets(tool));
  }
  return { functions, others, echo };
}

function functionOf(tool: Body, at: string): FunctionTool {
  if (tool['name'] === undefined && isObject(tool['function'])) {
    throw badRequest(
      `Missing required parameter: '${at}.name'. Here a function's fields stand in the tool itself, not under 'function'.`,
      `${at}.name`,
      'missing_required_parameter',
    );
  }
  const { name, description, parameters, strict } = checked(functionTool, tool, at);
  if (parameters != null) checkParameters(parameters, `${at}.parameters`);
  return {
    type: 'function',
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? null,
  };
}

function checkParameters(parameters: unknown, at: string): void {
  if (!isObject(parameters)) throw wrongType('object', parameters, at);
  const { type = 'object' } = parameters;
  if (type === 'object') return;
  throw badRequest(
    `Invalid '${at}': a function takes an object, so its schema must be of type 'object', not ${JSON.stringify(type)}.`,
    `${at}.type`,
    'invalid_function_parameters',
  );
}

function checkSize(tool: object, at: string, most: number): void {
  const { length } = JSON.stringify(tool);
  if (length <= most) return;
  throw badRequest(
    `'${at}' has ${length} characters as JSON, and this server takes at most ${most} for a tool. Shorten its schema or its description.`,
    at,
    'tool_too_large',
  );
}

function once(seen: Set<string>, name: string, at: string): void {
  if (seen.has(name)) {
    throw badRequest(`Invalid '${at}': '${name}' is declared twice. Names of tools must differ.`, at, 'duplicate_tool');
  }
  seen.add(name);
}

const SECRET =
  /auth|bearer|headers?$|cookie|secret|passw|(?<!max[-_])token|(^|[-_])(key|pat)$|api[-_]?key|credential|^env/i;

/** A tool as it may be repeated and stored: what gives access to something is left out. */
export function withoutSecrets(tool: Body): RequestTool {
  const kept = stripped(tool) as RequestTool;
  const url = tool['server_url'];
  return typeof url === 'string' ? { ...kept, server_url: hostOf(url) } : kept;
}

function stripped(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(stripped);
  if (!isObject(value)) return value;
  const kept: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) if (!SECRET.test(key)) kept[key] = stripped(field);
  return kept;
}

/** Paths and queries of such URLs often hold keys. */
function hostOf(url: string): string {
  if (!URL.canParse(url)) return '<redacted>';
  const { protocol, host, pathname, search } = new URL(url);
  return `${protocol}//${host}/${pathname === '/' && search === '' ? '' : '<redacted>'}`;
}
