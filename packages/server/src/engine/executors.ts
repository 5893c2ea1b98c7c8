import type { Principal, Schema, Tool, ToolContext, ToolDefinition, ToolFacts } from '@treadle/core';
import { ApiError, badRequest } from '../api-error.ts';

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
  /** With `lists`: the functions that a run which is resumed has recorded, if the server cannot list them now. */
  recorded?(tool: RequestTool, recorded: readonly ToolFacts[]): readonly OfferedFunction[];
  /**
   * Tools that every request of this principal has, unless it names their label itself. `recorded`: the tools of a run that is
   * resumed. Never rejects.
   */
  defaults?(asker: Principal, recorded?: readonly ToolFacts[]): Promise<readonly RequestTool[]>;
  /** True: the functions are tools that were made with `tool`. A run calls them itself, unless the client approves their calls. */
  readonly offersTools?: boolean;
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
    offersTools: true,
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
    // What was offered is one of the tools, or another version of it.
    execute: ({ offered, input }, context) => (offered as Tool).execute!(input, context),
  };
}

/* The fields of a tool that select functions: `allowed_tools`, and `require_approval` */

/** Functions with these names, or that only read or do not, or both. */
interface Filter {
  readonly names?: readonly string[];
  readonly readOnly?: boolean;
}

type Selects = (offered: OfferedFunction) => boolean;

/** The functions that the request allows: those of `allowed_tools`, without those of `excluded_tools`. */
export function allowedBy(tool: RequestTool): Selects {
  const filter = filterOf(tool['allowed_tools'], 'allowed_tools');
  const excluded = filterOf(tool['excluded_tools'], 'excluded_tools');
  return (offered) => (!filter || matches(filter, offered)) && !(excluded && matches(excluded, offered));
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
      : field === 'allowed_tools' || field === 'excluded_tools'
        ? 'a list of tool names, or { tool_names, read_only }'
        : '{ tool_names, read_only }';
  return badRequest(`${field} must be ${forms}.`, `tools.${field}`, 'invalid_value');
}

/* Opening the tools of a request */

/** The tools that the server can execute. */
export interface ServerTools {
  readonly executors: readonly ToolExecutor[];
  /** Names of the server's own tools that are available to every request. */
  readonly defaultTools: readonly string[];
  /** The server's own tools in all versions that there are; default none. */
  readonly versions?: readonly Tool[];
  /** Labels of other servers whose tools are available to every request; default none. */
  readonly defaultServers?: readonly string[];
  /** For listing the tools of one server; default 15 seconds. */
  readonly listTimeoutMs?: number;
}

/** The tools that a server has listed, under the names that the model knows; or why it has not. Plain JSON. */
export interface ServerList {
  readonly label: string;
  readonly tools: readonly ListedTool[];
  readonly error?: string;
  /** An earlier response of the conversation has reported the server, so this one does not. */
  readonly isKnown?: true;
}

export interface ListedTool {
  readonly name: string;
  /** In the words of the server. */
  readonly description: string;
  readonly schema: unknown;
  readonly annotations?: Readonly<Record<string, unknown>>;
  /** Changes when the server describes the tool differently. */
  readonly fingerprint?: string;
}

export interface OpenOptions {
  /** The tools that a run which is resumed has recorded. */
  readonly recorded?: readonly ToolFacts[] | undefined;
  /**
   * The lists that the request was started with, in another process. Servers that it names by their URL are not available any
   * more: their URLs and credentials are not stored.
   */
  readonly lists?: readonly ServerList[] | undefined;
}

/**
 * Tools that clients such as Codex add to every request, and that only widen what the model can do. Without an executor the
 * model does not get them. All other types of tools are refused. `tool_search`: one that the server executes. The model gets
 * the deferred functions at once then.
 */
const LEFT_OUT: ReadonlySet<string> = new Set(['web_search', 'tool_search']);

/** Whether the model does not get a tool of a request, because no executor runs it. */
export function isLeftOut(tool: RequestTool, { executors }: Pick<ServerTools, 'executors'>): boolean {
  return LEFT_OUT.has(toolKind(tool.type)) && !executorFor(tool, executors);
}

function executorFor(tool: RequestTool, executors: readonly ToolExecutor[]): ToolExecutor | undefined {
  const kind = toolKind(tool.type);
  return executors.find((one) => toolKind(one.kind) === kind && one.canExecute(tool));
}

/** A tool of the request with its functions, or with the reason why its server has not listed them. */
export interface OpenedTool {
  readonly executor: ToolExecutor;
  readonly origin: RequestTool;
  readonly functions: readonly OfferedFunction[];
  readonly error?: string;
  /** Its calls fail, for this reason. */
  readonly gone?: string;
}

/**
 * Tools of this server that a run has in any case. `allowed_tools` names all of them, so that a key that may not execute one of them
 * is refused.
 */
export function openedTools(tools: readonly Tool[]): readonly OpenedTool[] {
  if (tools.length === 0) return [];
  const origin = { type: 'mcp', server_label: OWN_LABEL, allowed_tools: tools.map(({ name }) => name) };
  return [{ executor: registeredTools(tools), origin, functions: tools }];
}

const LIST_MS = 15_000;

/** Opens the tools of a request, at all servers at the same time. Rejects with an `ApiError` for tools that cannot be served. */
export async function openAll(
  requested: readonly RequestTool[],
  served: ServerTools,
  asker: Principal,
  options: OpenOptions,
): Promise<readonly OpenedTool[]> {
  const settled = await Promise.allSettled(requested.map((one) => openTool(one, served, asker, options)));
  const failed = settled.find(({ status }) => status === 'rejected');
  const opened = settled.flatMap((one) => (one.status === 'fulfilled' ? (one.value ?? []) : []));
  if (!failed) return opened;
  await Promise.allSettled(opened.map(async ({ executor, origin }) => executor.close?.(origin)));
  throw (failed as PromiseRejectedResult).reason;
}

/** Undefined: the request goes on without it. */
async function openTool(
  origin: RequestTool,
  served: ServerTools,
  asker: Principal,
  { lists, recorded }: OpenOptions,
): Promise<OpenedTool | undefined> {
  const { executors, versions = [], listTimeoutMs = LIST_MS } = served;
  if (isLeftOut(origin, served)) return undefined;
  const executor = executorFor(origin, executors);
  if (!executor) throw badRequest(unsupportedTool(origin), 'tools', 'unsupported_tool');
  if (!asker.scopes.some(isToolScope)) throw lacksScope('tools of the server', 'tools:execute');
  if (!executor.lists) {
    const functions = await functionsInTime(executor, origin, asker, listTimeoutMs);
    if (!recorded || labelOf(origin) !== OWN_LABEL) return { executor, origin, functions };
    return { executor, origin, functions: recordedVersions(functions, versions, recorded) };
  }
  // A key for single tools of this server is not for others.
  if (origin['server_url'] != null && !asker.scopes.includes('tools:execute')) {
    throw lacksScope(`the server ${JSON.stringify(labelOf(origin))}`, 'tools:execute');
  }
  const known = lists?.find(({ label }) => label === labelOf(origin));
  if (lists && origin['server_url'] != null) {
    return { executor, origin, ...knownFunctions(known ?? { label: '', tools: [] }), gone: GONE };
  }
  const listed = await listedFunctions(executor, origin, asker, listTimeoutMs);
  const kept = listed.error !== undefined && recorded ? (executor.recorded?.(origin, recorded) ?? []) : [];
  if (kept.length > 0) return { executor, origin, functions: kept };
  if (!known || listed.error === undefined) return { executor, origin, ...listed };
  return { executor, origin, ...knownFunctions(known), gone: listed.error };
}

/**
 * The functions of a run that is resumed, in the versions that it has recorded, as far as these are still there. They keep the
 * names that the run knows them by, also if another version has such a name now.
 */
function recordedVersions(
  functions: readonly OfferedFunction[],
  versions: readonly Tool[],
  recorded: NonNullable<OpenOptions['recorded']>,
): readonly OfferedFunction[] {
  const byFingerprint = new Map(versions.map((one) => [one.fingerprint, one]));
  const had = new Map(recorded.map(({ name, fingerprint }) => [name, fingerprint]));
  const prints = new Set(had.values());
  return functions.flatMap((one) => {
    const { name, fingerprint } = one;
    const known = had.get(name);
    if (fingerprint === undefined || known === fingerprint) return one;
    const version = known === undefined ? undefined : byFingerprint.get(known);
    if (version) return { ...version, name };
    // If the run knows this version by another name, it keeps that.
    return known === undefined && prints.has(fingerprint) ? [] : one;
  });
}

const GONE =
  'The connection to its MCP server is gone: the response was resumed by another process, and URLs and credentials of ' +
  'servers are not stored. Send a new request with the server.';

function knownFunctions({ tools, error }: ServerList): Pick<OpenedTool, 'functions' | 'error'> {
  return {
    functions: tools.map(({ schema, ...tool }) => ({
      ...tool,
      parameters: schema as Readonly<Record<string, unknown>>,
    })),
    ...(error !== undefined && { error }),
  };
}

/** The functions of a server, or why it has not listed them. */
async function listedFunctions(
  executor: ToolExecutor,
  origin: RequestTool,
  asker: Principal,
  timeoutMs: number,
): Promise<Pick<OpenedTool, 'functions' | 'error'>> {
  try {
    return { functions: await functionsInTime(executor, origin, asker, timeoutMs) };
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) throw error;
    return { functions: [], error: error instanceof Error ? error.message : String(error) };
  }
}

/** Does not wait for an executor that ignores its signal. */
async function functionsInTime(
  executor: ToolExecutor,
  origin: RequestTool,
  asker: Principal,
  timeoutMs: number,
): Promise<readonly OfferedFunction[]> {
  const late = new AbortController();
  const functions = executor.functions(origin, asker, late.signal);
  if (!(functions instanceof Promise)) return functions;
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const message = `The server did not list its tools within ${timeoutMs} ms.`;
    const error = new ApiError(503, 'server_error', message, { param: 'tools', code: 'tools_unavailable' });
    late.abort(error);
    reject(error);
  }, timeoutMs);
  try {
    return await Promise.race([functions, promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** The `server_label` of a tool. */
export function labelOf(tool: RequestTool): string {
  return String(tool['server_label']);
}

export function isToolScope(scope: string): boolean {
  return /^tools:execute(:|$)/.test(scope);
}

/** Whether the scopes of a caller permit a tool. */
export function mayExecute(scopes: readonly string[], name: string): boolean {
  return scopes.includes('tools:execute') || scopes.includes(`tools:execute:${name}`);
}

export function lacksScope(what: string, scope: string): ApiError {
  const message = `This key may not use ${what}: it lacks the scope "${scope}".`;
  return new ApiError(403, 'permission_error', message, { param: 'tools', code: 'insufficient_scope' });
}

function unsupportedTool(requested: RequestTool): string {
  if (requested.type === 'mcp') {
    const label = JSON.stringify(requested['server_label']);
    return `This server knows no MCP server ${label}. Send its server_url. Its own tools have the server_label "${OWN_LABEL}".`;
  }
  const type = JSON.stringify(requested.type);
  const environment = containerOf(requested);
  if (environment !== undefined) {
    return `This server does not execute the commands of a ${type} tool in a container, as ${JSON.stringify(environment)} asks for. Use the environment {"type": "local"}: the client executes the commands then.`;
  }
  return `This server does not support tools of type ${type}. Use "function", or "mcp" with server_label "${OWN_LABEL}".`;
}

/** The type of the environment of a shell that the server would have to execute. */
export function containerOf({ type, environment }: Readonly<Record<string, unknown>>): string | undefined {
  const { type: kind } = (environment ?? {}) as { readonly type?: unknown };
  return type === 'shell' && (kind === 'container_auto' || kind === 'container_reference') ? kind : undefined;
}
