import type { Principal, Schema, Tool, ToolContext, ToolDefinition } from '@treadle/core';
import { badRequest } from '../api-error.ts';

/** A tool of a request that is not a function: `{ type: 'mcp', server_label: 'treadle', … }`. */
export interface RequestTool {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** The type of a tool without its version: `web_search_preview` and names with a date are `web_search`. */
export function toolKind(type: string): string {
  return /^web_search(?:_preview)?(?:_\d{4}_\d{2}_\d{2})?$/.test(type) ? 'web_search' : type;
}

/** A function that an executor can run: what is sent to the model, and the rules that the loop applies to its calls. */
export type OfferedFunction = Omit<ToolDefinition<Schema>, 'execute'> & {
  /** As the server of the function describes it: `readOnlyHint` and others. Absent: an effect `pure` means that it only reads. */
  readonly annotations?: Readonly<Record<string, unknown>>;
  /** The name that the server has for it, if it is another one. Requests may use both. */
  readonly serverName?: string;
  /** The description that the server has for it, if the model gets another one. */
  readonly serverDescription?: string;
};

/** A call that an executor has to run. */
export interface ExecutorCall {
  /** The name of one of the offered functions. */
  readonly name: string;
  /** The arguments, validated against the function's schema. */
  readonly input: unknown;
  /** The tool of the request that the function belongs to. */
  readonly tool: RequestTool;
  /** The function as it was offered to the model. `follow` may have replaced it since. */
  readonly offered: OfferedFunction;
}

/**
 * Runs tools of one kind on the server. A request with a tool that no executor accepts is rejected. Functions belong to
 * the client: their calls are returned to it, as in single-shot inference.
 */
export interface ToolExecutor {
  /**
   * The `type` of the request's tools that it may run: `mcp`, `sandbox`, … Never `function`. `web_search` includes
   * `web_search_preview` and names with a date.
   */
  readonly kind: string;
  /** Whether it runs this tool. The first executor that returns true is used. */
  canExecute(tool: RequestTool): boolean;
  /**
   * The functions of the tool for this principal. Rejects with an `ApiError` if the request cannot be served. `signal` aborts
   * when the time for it is over.
   */
  functions(
    tool: RequestTool,
    asker: Principal,
    signal: AbortSignal,
  ): readonly OfferedFunction[] | Promise<readonly OfferedFunction[]>;
  /**
   * True: the functions are those of another server. A response reports them as an `mcp_list_tools` item. If they cannot be
   * listed, the item has the error, and the response goes on without them. Names that are taken get the label in front.
   */
  readonly lists?: boolean;
  /**
   * Runs a call. Returns what a tool may return: a text, `{ content, isError }`, a value with a JSON form, or a promise. An
   * error that it throws becomes an error result for the model, and the run continues.
   */
  execute(call: ExecutorCall, context: ToolContext): unknown;
  /**
   * Passes the functions of the tool to `change` when they have changed, until the returned function is called. The run has them
   * from its next turn on. `change` rejects if they cannot be used; the run keeps those that it has.
   */
  follow?(tool: RequestTool, change: (functions: readonly OfferedFunction[]) => Promise<void>): () => void;
  /** The run of the request does not need the tool any more. */
  close?(tool: RequestTool): void | Promise<void>;
}

/** The `server_label` of the server's own tools. */
export const OWN_LABEL = 'treadle';

/** Runs the tools that the program registered: `{ type: 'mcp', server_label: 'treadle' }`. */
export function registeredTools(tools: readonly Tool[]): ToolExecutor {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return {
    kind: 'mcp',
    canExecute: (tool) => tool['server_label'] === OWN_LABEL,
    functions(tool) {
      const allowed = allowedNames(tool);
      for (const name of allowed ?? []) {
        if (byName.has(name)) continue;
        const known = [...byName.keys()].join(', ') || 'none';
        throw badRequest(
          `This server has no tool ${JSON.stringify(name)}. Its tools: ${known}.`,
          'tools.allowed_tools',
          'unknown_tool',
        );
      }
      return allowed === undefined ? tools : allowed.map((name) => byName.get(name)!);
    },
    execute: ({ name, input }, context) => byName.get(name)!.execute!(input, context),
  };
}

/* The fields of a tool that select functions: `allowed_tools`, and `require_approval` */

/** Functions with these names, or that only read or do not, or both. */
interface Filter {
  readonly names?: readonly string[];
  readonly readOnly?: boolean;
}

type Selects = (offered: OfferedFunction) => boolean;

/** The functions that the request allows. */
export function allowedBy(tool: RequestTool): Selects {
  const filter = filterOf(tool['allowed_tools'], 'allowed_tools');
  return (offered) => !filter || matches(filter, offered);
}

/** The names in `allowed_tools`; undefined if it has none. */
function allowedNames(tool: RequestTool): readonly string[] | undefined {
  return filterOf(tool['allowed_tools'], 'allowed_tools')?.names;
}

/**
 * The functions whose calls the client has to approve. `standard`: without the field. A function that neither filter selects
 * needs no approval if there is only `always`.
 */
export function approvedByClient(tool: RequestTool, standard: 'always' | 'never'): Selects {
  const given = tool['require_approval'] ?? standard;
  if (given === 'always' || given === 'never') return () => given === 'always';
  const { always, never } = objectIn(given, 'require_approval');
  const asked = filterOf(always, 'require_approval.always');
  const exempt = filterOf(never, 'require_approval.never');
  return (offered) => {
    if (asked && matches(asked, offered)) return true;
    if (exempt && matches(exempt, offered)) return false;
    return exempt !== undefined || (asked === undefined && standard === 'always');
  };
}

/** `["read"]`, `{ tool_names: ["read"] }` or `{ read_only: true }`. */
function filterOf(given: unknown, field: string): Filter | undefined {
  if (given === undefined || given === null) return undefined;
  const { tool_names: names, read_only: readOnly } = Array.isArray(given)
    ? { tool_names: given as unknown, read_only: undefined }
    : objectIn(given, field);
  const areNames = names == null || (Array.isArray(names) && names.every((name) => typeof name === 'string'));
  if (!areNames || (readOnly != null && typeof readOnly !== 'boolean')) throw malformed(field);
  return {
    ...(names != null && { names: [...new Set<string>(names as string[])] }),
    ...(readOnly != null && { readOnly }),
  };
}

function matches({ names, readOnly }: Filter, offered: OfferedFunction): boolean {
  const { name, serverName = name } = offered;
  if (names && !names.includes(name) && !names.includes(serverName)) return false;
  return readOnly === undefined || isReadOnly(offered) === readOnly;
}

function isReadOnly({ annotations, effect }: OfferedFunction): boolean {
  return annotations ? annotations['readOnlyHint'] === true : effect === 'pure';
}

function objectIn(given: unknown, field: string): Readonly<Record<string, unknown>> {
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return given as Record<string, unknown>;
  throw malformed(field);
}

function malformed(field: string): Error {
  const forms =
    field === 'require_approval'
      ? '"always", "never", or { always, never } with filters'
      : field === 'allowed_tools'
        ? 'a list of tool names, or { tool_names, read_only }'
        : '{ tool_names, read_only }';
  return badRequest(`${field} must be ${forms}.`, `tools.${field}`, 'invalid_value');
}
