import { tool, TreadleError, type Tool, type ToolChoice } from '@treadle/core';
import { ApiError, badRequest } from '../api-error.ts';
import type { RequestTool, ToolExecutor } from '../executors/executor.ts';
import { OWN_LABEL } from '../executors/registered.ts';
import type { Caller } from '../http/env.ts';
import type { CallKinds } from './call-kinds.ts';
import type { FunctionTool, ResponseRequest } from '../responses/request.ts';
import { principalOf } from './principal.ts';

/** More calls in one reply are refused by the loop. */
const MOST_CALLS = 128;

export interface Offer {
  readonly executors: readonly ToolExecutor[];
  /** Names of the server's own tools that every request is offered. */
  readonly defaultTools: readonly string[];
}

/** The tools of a request, all kinds alike, and which of them may be called. */
export interface Toolset {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  readonly kinds: CallKinds;
}

/** Of the tools that are executed here: which tool of the request each came with. */
type Origins = Map<string, RequestTool>;

type Scoped = Pick<Caller, 'scopes' | 'tenant' | 'key'>;

type Asked = Pick<ResponseRequest, 'functions' | 'otherTools' | 'toolChoice' | 'maxToolCalls'>;

/** Throws an `ApiError` for tools that cannot be served. */
export async function toolsetOf(asked: Asked, offer: Offer, caller: Scoped): Promise<Toolset> {
  const own = asked.functions.map(clientTool);
  const origins: Origins = new Map();
  const hosted: Tool[] = [];
  for (const requested of [...asked.otherTools, ...defaults(asked, offer, caller)]) {
    for (const made of await hostedTools(requested, offer, caller)) {
      if (origins.has(made.name)) continue;
      origins.set(made.name, requested);
      hosted.push(made);
    }
  }
  for (const { name } of asked.functions) {
    if (!origins.has(name)) continue;
    throw badRequest(
      `The function ${JSON.stringify(name)} has the name of a server tool. Rename it.`,
      'tools',
      'duplicate_tool',
    );
  }
  const choice = choiceOf(asked.toolChoice, origins);
  const clients = new Set(own.map(({ name }) => name));
  const known = new Set([...clients, ...origins.keys()]);
  for (const name of [...(choice.allowedTools ?? []), ...demanded(choice.toolChoice)]) {
    if (known.has(name)) continue;
    throw badRequest(
      `tool_choice names ${JSON.stringify(name)}, which is none of the tools.`,
      'tool_choice',
      'unknown_tool',
    );
  }
  if (choice.toolChoice === 'required' && (choice.allowedTools ?? [...known]).length === 0) {
    const message = 'tool_choice is "required", and there is no tool to call. Give tools, or leave it out.';
    throw badRequest(message, 'tool_choice', 'unknown_tool');
  }
  return { tools: [...own, ...hosted], ...choice, kinds: kindsOf(asked, choice, clients, origins) };
}

/** What the client executes gets no look from us: it is returned as single-shot inference would return it. */
function clientTool({ name, description, parameters, strict }: FunctionTool): Tool {
  try {
    return tool({
      name,
      description: description ?? '',
      parameters: { type: 'object', properties: {}, ...parameters },
      asWritten: true,
      ...(strict !== null && { strict }),
    });
  } catch (error) {
    if (error instanceof TreadleError) throw badRequest(error.message, 'tools');
    throw error;
  }
}

/** Those that the client has not asked for itself, nor declared functions of the same name. */
function defaults(asked: Asked, { defaultTools }: Offer, { scopes }: Scoped): readonly RequestTool[] {
  const names = defaultTools.filter((name) => !asked.functions.some((own) => own.name === name));
  if (names.length === 0 || !scopes.includes('tools:execute')) return [];
  return [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: names }];
}

async function hostedTools(requested: RequestTool, { executors }: Offer, caller: Scoped): Promise<readonly Tool[]> {
  const executor = executors.find((one) => one.kind === requested.type && one.canExecute(requested));
  if (!executor) throw badRequest(unserved(requested), 'tools', 'unsupported_tool');
  if (!caller.scopes.includes('tools:execute')) {
    const message = 'This key may not use tools of the server: it lacks the scope "tools:execute".';
    throw new ApiError(403, 'permission_error', message, { param: 'tools', code: 'insufficient_scope' });
  }
  const functions = await executor.functions(requested, principalOf(caller));
  return functions.map((offered) =>
    tool({
      ...offered,
      execute: (input, context) => executor.execute({ name: offered.name, input, tool: requested }, context),
    }),
  );
}

function labelOf(requested: RequestTool | undefined): string {
  const label = requested?.['server_label'];
  return typeof label === 'string' ? label : OWN_LABEL;
}

function unserved(requested: RequestTool): string {
  if (requested.type === 'mcp') {
    const label = JSON.stringify(requested['server_label']);
    return `This server does not reach the MCP server ${label}. Its own tools have the server_label "${OWN_LABEL}".`;
  }
  const type = JSON.stringify(requested.type);
  return `Tools of type ${type} are not supported here. Use "function", or "mcp" with server_label "${OWN_LABEL}".`;
}

type Choice = Pick<Toolset, 'toolChoice' | 'allowedTools'>;

function choiceOf(choice: ResponseRequest['toolChoice'], origins: Origins): Choice {
  if (typeof choice === 'string') return { toolChoice: choice };
  switch (choice.type) {
    case 'function':
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

/** A function by its name; of what is executed here one by its name, or all that came with such a tool. */
function namesOf(named: RequestTool, origins: Origins): readonly string[] {
  const { type, name, server_label: label } = named;
  if (type === 'function') return [String(name)];
  const names = [...origins].flatMap(([its, origin]) => {
    const isMeant = origin.type === type && (label == null || origin['server_label'] === label);
    return isMeant && (name == null || name === its) ? its : [];
  });
  if (names.length > 0) return names;
  const what = [type, label, name].filter((word) => word != null).join(' ');
  throw badRequest(
    `tool_choice names ${JSON.stringify(what)}, of which the request has no tools.`,
    'tool_choice',
    'unknown_tool',
  );
}

function demanded(choice: ToolChoice): readonly string[] {
  return typeof choice === 'object' ? [choice.tool] : [];
}

/** What becomes of a call is clear by its name, unless a limit or another forced tool may yet come in between. */
function kindsOf(
  { maxToolCalls }: Asked,
  { toolChoice, allowedTools }: Choice,
  clients: ReadonlySet<string>,
  origins: Origins,
): CallKinds {
  const forced = typeof toolChoice === 'object' ? toolChoice.tool : undefined;
  return {
    labelOf: (name) => labelOf(origins.get(name)),
    kindOf(name, index) {
      if (!clients.has(name)) return origins.has(name) ? 'server' : 'refused';
      if (toolChoice === 'none' || index >= MOST_CALLS || allowedTools?.includes(name) === false) return 'refused';
      return maxToolCalls !== undefined || (forced !== undefined && forced !== name) ? 'client-later' : 'client';
    },
  };
}
