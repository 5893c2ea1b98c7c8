import {
  tool,
  TreadleError,
  type CustomForm,
  type Policy,
  type Principal,
  type Tool,
  type ToolChoice,
} from '@treadle/core';
import type { PolicyRules } from '@treadle/core/policy';
import { ApiError, badRequest } from '../api-error.ts';
import type { Caller } from '../http/admission.ts';
import type { Engine } from './engine.ts';
import { OWN_LABEL, type RequestTool, type ToolExecutor } from './executors.ts';

/** The loop refuses further calls of one reply. */
const MAX_CALLS_PER_REPLY = 128;

/** A function that the client executes. */
export interface FunctionTool {
  readonly type: 'function';
  readonly name: string;
  readonly description: string | null;
  readonly parameters: Readonly<Record<string, unknown>> | null;
  readonly strict: boolean | null;
  /** It takes a text instead of JSON: a tool of type `custom`. */
  readonly custom?: { readonly format?: CustomForm['format'] };
}

export type RequestToolChoice =
  | 'auto'
  | 'required'
  | 'none'
  | { readonly type: 'function' | 'custom'; readonly name: string }
  | { readonly type: 'mcp'; readonly server_label: string; readonly name?: string | null }
  | { readonly type: 'allowed_tools'; readonly mode: 'auto' | 'required'; readonly tools: readonly RequestTool[] };

/** The fields of a request that determine its tools. */
export interface ToolsRequest {
  readonly functions: readonly FunctionTool[];
  /** The tools that are not functions. They may contain secrets. */
  readonly otherTools: readonly RequestTool[];
  readonly toolChoice: RequestToolChoice;
  readonly maxToolCalls?: number;
}

/** The tools that the server can execute. */
export interface ServerTools {
  readonly executors: readonly ToolExecutor[];
  /** Names of the server's own tools that are available to every request. */
  readonly defaultTools: readonly string[];
}

/** The tools of a request, and which of them may be called. */
export interface Toolset {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  readonly kinds: CallKinds;
}

/**
 * - `client`: the client executes the call. It is streamed as it arrives.
 * - `client-later`: the same, but the loop may still refuse the call. It is sent when that is decided.
 * - `server`: the server executes the call.
 * - `refused`: the loop answers the call with an error. The client does not execute it.
 */
export type CallKind = 'client' | 'client-later' | 'server' | 'refused';

/** Classifies a call when it opens, by its name and its index among the calls of the reply. */
export interface CallKinds {
  kindOf(name: string, index: number): CallKind;
  /** Whether the tool takes a text instead of JSON. Absent: none does. */
  isCustom?(name: string): boolean;
  /** The `server_label` of a call that the client does not execute; for a refused call the server's own label. */
  labelOf(name: string): string;
}

/** Clients parse the arguments of calls, so they must not be empty. */
export function parsableArguments(text: string): string {
  return text === '' ? '{}' : text;
}

/** The part of a caller that a run depends on. It is stored with a response. */
export type RunCaller = Pick<Caller, 'tenant' | 'key' | 'scopes'>;

/** The caller as runs and tools see it. */
export function principalOf({ key, tenant, scopes }: RunCaller): Principal {
  return { subject: key, tenant, scopes };
}

/** The names of the tools that the server executes, each with the tool of the request that it belongs to. */
type Origins = Map<string, RequestTool>;

/** Rejects with an `ApiError` for tools that cannot be served. */
export async function toolsetOf(
  request: ToolsRequest,
  { serverTools: served, policy }: Pick<Engine, 'serverTools' | 'policy'>,
  caller: RunCaller,
): Promise<Toolset> {
  const clientTools = request.functions.map(clientTool);
  const origins: Origins = new Map();
  const hosted: Tool[] = [];
  for (const requested of [...request.otherTools, ...defaultTools(request, served, caller)]) {
    for (const added of await hostedTools(requested, served, caller)) {
      if (origins.has(added.name)) continue;
      origins.set(added.name, requested);
      hosted.push(added);
    }
  }
  for (const { name } of request.functions) {
    if (!origins.has(name)) continue;
    throw badRequest(
      `The function ${JSON.stringify(name)} has the name of a server tool. Rename it.`,
      'tools',
      'duplicate_tool',
    );
  }
  const choice = choiceOf(request.toolChoice, origins);
  const clientNames = new Set(clientTools.map(({ name }) => name));
  checkChoice(choice, new Set([...clientNames, ...origins.keys()]));
  return {
    tools: [...clientTools, ...hosted],
    ...choice,
    kinds: callKinds(policy, choice, request.functions, origins),
  };
}

/** The schema and the arguments of a client's function are not validated: calls are returned as the model made them. */
function clientTool({ name, description, parameters, strict, custom }: FunctionTool): Tool {
  const common = { name, asWritten: true, uncounted: true, description: description ?? '' };
  try {
    if (custom) return tool({ ...common, ...customParts(common.description, custom.format) });
    return tool({
      ...common,
      parameters: { type: 'object', properties: {}, ...parameters },
      ...(strict !== null && { strict }),
    });
  } catch (error) {
    if (error instanceof TreadleError) throw badRequest(error.message, 'tools');
    throw error;
  }
}

const CUSTOM_INPUT = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole text, exactly as the tool is to receive it.' } },
  required: ['input'],
  additionalProperties: false,
} as const;

/** Models without such tools get a function. Its description has the grammar of the text, which nothing enforces then. */
function customParts(
  description: string,
  format: CustomForm['format'],
): Pick<Tool, 'description' | 'parameters'> & { readonly custom: CustomForm } {
  const { type, syntax, definition } = format ?? {};
  const grammar =
    type === 'grammar' ? `The input must match this grammar (${String(syntax)}):\n${String(definition)}` : '';
  return {
    description: [description, grammar].filter((text) => text !== '').join('\n\n'),
    parameters: CUSTOM_INPUT,
    custom: { description, ...(format && { format }) },
  };
}

/** The default tools, except those whose name a function of the client has. */
function defaultTools(request: ToolsRequest, served: ServerTools, { scopes }: RunCaller): readonly RequestTool[] {
  const names = served.defaultTools.filter(
    (name) => mayExecute(scopes, name) && !request.functions.some((own) => own.name === name),
  );
  if (names.length === 0) return [];
  return [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: names }];
}

/**
 * Tools that clients such as Codex add to every request, and that only widen what the model can do. Without an executor the
 * model does not get them. All other types of tools are refused.
 */
const LEFT_OUT: ReadonlySet<string> = new Set(['web_search']);

async function hostedTools(
  requested: RequestTool,
  { executors }: ServerTools,
  caller: RunCaller,
): Promise<readonly Tool[]> {
  const executor = executors.find((one) => one.kind === requested.type && one.canExecute(requested));
  if (!executor) {
    if (LEFT_OUT.has(requested.type)) return [];
    throw badRequest(unsupportedTool(requested), 'tools', 'unsupported_tool');
  }
  if (!caller.scopes.some((scope) => /^tools:execute(:|$)/.test(scope))) {
    throw lacksScope('tools of the server', 'tools:execute');
  }
  const functions = await executor.functions(requested, principalOf(caller));
  const permitted = functions.filter(({ name }) => mayExecute(caller.scopes, name));
  const refused = functions.find((one) => !permitted.includes(one));
  // Without a list of names, a request is for all tools that the key may use.
  if (refused && (permitted.length === 0 || requested['allowed_tools'] != null)) {
    throw lacksScope(`the tool ${JSON.stringify(refused.name)}`, `tools:execute:${refused.name}`);
  }
  return permitted.map((offered) =>
    tool({
      ...offered,
      execute: (input, context) => executor.execute({ name: offered.name, input, tool: requested }, context),
    }),
  );
}

/** Whether the scopes of a caller permit a tool. */
function mayExecute(scopes: readonly string[], name: string): boolean {
  return scopes.includes('tools:execute') || scopes.includes(`tools:execute:${name}`);
}

function lacksScope(what: string, scope: string): ApiError {
  const message = `This key may not use ${what}: it lacks the scope "${scope}".`;
  return new ApiError(403, 'permission_error', message, { param: 'tools', code: 'insufficient_scope' });
}

function unsupportedTool(requested: RequestTool): string {
  if (requested.type === 'mcp') {
    const label = JSON.stringify(requested['server_label']);
    return `This server does not connect to the MCP server ${label}. Its own tools have the server_label "${OWN_LABEL}".`;
  }
  const type = JSON.stringify(requested.type);
  return `This server does not support tools of type ${type}. Use "function", or "mcp" with server_label "${OWN_LABEL}".`;
}

type Choice = Pick<Toolset, 'toolChoice' | 'allowedTools'>;

function choiceOf(choice: RequestToolChoice, origins: Origins): Choice {
  if (typeof choice === 'string') return { toolChoice: choice };
  switch (choice.type) {
    case 'function':
    case 'custom':
      return { toolChoice: { tool: choice.name } };
    case 'mcp': {
      const names = namesOf(choice, origins);
      return choice.name == null
        ? { toolChoice: 'required', allowedTools: names }
        : { toolChoice: { tool: names[0]! } };
    }
    case 'allowed_tools':
      return { toolChoice: choice.mode, allowedTools: choice.tools.flatMap((named) => namesOf(named, origins)) };
    default:
      return choice satisfies never;
  }
}

/** The names of the tools that an entry of `tool_choice` selects: one by its name, or all of a tool of the request. */
function namesOf(selected: RequestTool, origins: Origins): readonly string[] {
  const { type, name, server_label: label } = selected;
  if (type === 'function' || type === 'custom') return [String(name)];
  const names = [...origins].flatMap(([candidate, origin]) => {
    const matches = origin.type === type && (label == null || origin['server_label'] === label);
    return matches && (name == null || name === candidate) ? candidate : [];
  });
  if (names.length > 0) return names;
  const what = [type, label, name].filter((word) => word != null).join(' ');
  throw badRequest(
    `tool_choice names ${JSON.stringify(what)}, but the request has no such tools.`,
    'tool_choice',
    'unknown_tool',
  );
}

function checkChoice({ toolChoice, allowedTools }: Choice, known: ReadonlySet<string>): void {
  for (const name of [...(allowedTools ?? []), ...(typeof toolChoice === 'object' ? [toolChoice.tool] : [])]) {
    if (known.has(name)) continue;
    throw badRequest(
      `tool_choice names ${JSON.stringify(name)}, but the request has no such tool.`,
      'tool_choice',
      'unknown_tool',
    );
  }
  if (toolChoice === 'required' && (allowedTools ?? [...known]).length === 0) {
    const message = 'tool_choice is "required", but there is no tool to call. Send tools, or leave tool_choice out.';
    throw badRequest(message, 'tool_choice', 'unknown_tool');
  }
}

/** The rules of a policy that is made of them; undefined for one that is code. */
export function rulesIn(policy: Policy): PolicyRules | undefined {
  return 'explain' in policy ? (policy.rules as PolicyRules) : undefined;
}

/** Whether a policy may refuse a function of a client. Rules apply to it only if they name it; code may do anything. */
function mayRefuse(policy: Policy, name: string): boolean {
  const rules = rulesIn(policy);
  return !rules || Object.hasOwn(rules.tools ?? {}, name);
}

/**
 * The kind of a call follows from its name, unless another forced tool or the policy may make the loop refuse it.
 */
function callKinds(
  policy: Policy | undefined,
  { toolChoice, allowedTools }: Choice,
  functions: readonly FunctionTool[],
  origins: Origins,
): CallKinds {
  const clientNames = new Set(functions.map(({ name }) => name));
  const custom = new Set(functions.flatMap((one) => (one.custom ? one.name : [])));
  const forced = typeof toolChoice === 'object' ? toolChoice.tool : undefined;
  return {
    isCustom: (name) => custom.has(name),
    labelOf(name) {
      const label = origins.get(name)?.['server_label'];
      return typeof label === 'string' ? label : OWN_LABEL;
    },
    kindOf(name, index) {
      if (!clientNames.has(name)) return origins.has(name) ? 'server' : 'refused';
      if (toolChoice === 'none' || index >= MAX_CALLS_PER_REPLY || allowedTools?.includes(name) === false)
        return 'refused';
      if (policy && mayRefuse(policy, name)) return 'client-later';
      return forced !== undefined && forced !== name ? 'client-later' : 'client';
    },
  };
}
