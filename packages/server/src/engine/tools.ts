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
import { badRequest, type ApiError } from '../api-error.ts';
import type { Caller } from '../http/admission.ts';
import {
  allowedBy,
  approvedByClient,
  isToolScope,
  labelOf,
  lacksScope,
  mayExecute,
  openAll,
  OWN_LABEL,
  toolKind,
  type ListedTool,
  type OpenedTool,
  type OpenOptions,
  type RequestTool,
  type ServerList,
  type ServerTools,
} from './executors.ts';
import { builtInTool, type BuiltInName, type BuiltInTool } from './built-in-tools.ts';
import type { OwnName } from './namespaces.ts';
import { followChanges, type ToolChanges } from './tool-changes.ts';

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
  /** How the client knows it, if it belongs to a namespace. */
  readonly own?: OwnName;
  /** The client finds further tools with it: a tool of type `tool_search`. */
  readonly search?: true;
  /** It is `shell`, `local_shell` or `apply_patch`, whose calls are items of their own. */
  readonly builtIn?: BuiltInTool;
  /** The model gets it when a search of the client has found it. If the client has no search, at once. */
  readonly deferred?: true;
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

interface OfferedTools {
  readonly tools: readonly Tool[];
  /** Those that the run gets when it finds them with `tool_search`. */
  readonly foundTools: readonly Tool[];
}

/** The tools of a request, and which of them may be called. */
export interface Toolset extends OfferedTools {
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  readonly kinds: CallKinds;
  /** The `server_label` of every server that the request has, with those that are available to every request. */
  readonly labels: ReadonlySet<string>;
  /** The tools of other servers that the request names, in its order. */
  readonly lists: readonly ServerList[];
  /** Absent: the tools do not change. */
  readonly changes?: Pick<ToolChanges, 'give'> | undefined;
  /** Closes connections to other servers. Never rejects. */
  close(): Promise<void>;
}

/**
 * - `client`: the client executes the call. It is streamed as it arrives.
 * - `client-later`: the same, but the loop may still refuse the call. It is sent when that is decided.
 * - `server`: the server executes the call.
 * - `approved-later`: the same, after the client has approved it in its next request.
 * - `refused`: the loop answers the call with an error. The client does not execute it.
 */
export type CallKind = 'client' | 'client-later' | 'server' | 'approved-later' | 'refused';

/** Classifies a call when it opens, by its name and its index among the calls of the reply. */
export interface CallKinds {
  kindOf(name: string, index: number): CallKind;
  /** Whether the tool takes a text instead of JSON. Absent: none does. */
  isCustom?(name: string): boolean;
  /** Whether the client finds further tools with it. Absent: with none. */
  isSearch?(name: string): boolean;
  /** Whether it is `shell`, `local_shell` or `apply_patch`. Absent: none is. */
  builtInOf?(name: string): BuiltInName | undefined;
  /** How the client knows its tool. Absent or undefined: by the same name, without a namespace. */
  ownNameOf?(name: string): OwnName | undefined;
  /** The `server_label` of a call that the client does not execute; for a refused call the server's own label. */
  labelOf(name: string): string;
}

/** Clients parse the arguments of calls, so they must not be empty. */
export function parsableArguments(text: string): string {
  return text === '' ? '{}' : text;
}

/** The part of a caller that a run depends on. It is stored with a response, apart from the ids, which are for the log. */
export type RunCaller = Pick<Caller, 'tenant' | 'key' | 'scopes' | 'runId' | 'facts'> &
  Partial<Pick<Caller, 'requestId'>>;

/** The caller as runs and tools see it. */
export function principalOf({ key, tenant, scopes }: RunCaller): Principal {
  return { subject: key, tenant, scopes };
}

/** A tool that the server executes. */
interface Hosted {
  readonly tool: Tool;
  /** The tool of the request that it belongs to. */
  readonly origin: RequestTool;
  /** The name that its executor knows it by. */
  readonly ownName: string;
  /** The client approves its calls. */
  readonly isApproved: boolean;
  /** It is a tool of another server. */
  readonly isListed: boolean;
  /** The server does not list it any more. Its name stays taken. */
  readonly isGone?: true;
}

/** By the names that the model knows. */
type Origins = ReadonlyMap<string, Hosted>;

/** What of a server its tools depend on. */
export interface ToolsEngine {
  readonly serverTools: ServerTools;
  readonly policy?: Policy | undefined;
  /** Somebody other than the client approves calls of tools that need it themselves; default false. */
  readonly waits?: boolean | undefined;
}

interface ToolsetOptions extends OpenOptions {
  /** The client can approve calls; default false. */
  readonly approvals?: boolean;
  /** Tools that the run has instead of the default tools. */
  readonly own?: readonly OpenedTool[] | undefined;
}

/** Rejects with an `ApiError` for tools that cannot be served. `planRun` closes what it opens. */
export async function toolsetOf(
  request: ToolsRequest,
  { serverTools: served, policy, waits }: ToolsEngine,
  caller: RunCaller,
  options: ToolsetOptions = {},
): Promise<Toolset> {
  const offered = offeredFunctions(request.functions);
  const clientTools = offered.map(clientTool);
  const origins = new Map<string, Hosted>();
  const functions = functionsByName(offered);
  const lists: ServerList[] = [];
  const { own, ...opening } = options;
  const requested = own
    ? request.otherTools
    : [...request.otherTools, ...(await defaultTools(request, served, { caller, recorded: options.recorded }))];
  const opened = await openAll(requested, served, principalOf(caller), opening);
  const all = own ? [...own, ...opened] : opened;
  let changes: ToolChanges | undefined;
  let closing: Promise<unknown> | undefined;
  const close = async (): Promise<void> => {
    changes?.stop();
    closing ??= Promise.allSettled(all.map(async ({ origin, executor }) => executor.close?.(origin)));
    await closing;
  };
  const host = (opened: OpenedTool): readonly Hosted[] => {
    const { origin } = opened;
    const isTaken = (name: string): boolean => functions.has(name) || (origins.get(name)?.origin ?? origin) !== origin;
    const hosted = hostedTools(opened, { isTaken, caller, isWaiting: waits ?? false, ...options });
    replaceHosted(origins, origin, hosted);
    return hosted;
  };
  try {
    for (const opened of all) {
      const hosted = host(opened);
      if (opened.executor.lists && request.otherTools.includes(opened.origin)) lists.push(serverList(opened, hosted));
    }
    for (const name of functions.keys()) {
      if (!origins.has(name)) continue;
      throw badRequest(
        `The function ${JSON.stringify(name)} has the name of a server tool. ${functions.get(name)!.builtIn ? 'Leave one of them out' : 'Rename it'}.`,
        'tools',
        'duplicate_tool',
      );
    }
    const choice = choiceOf(request.toolChoice, { origins, functions, lists });
    checkChoice(choice, new Set([...functions.keys(), ...origins.keys()]));
    const isHosted = (): boolean => !functions.has(SEARCH) && isSearched(choice, origins);
    const searches = isHosted();
    let current: OfferedTools = { tools: [], foundTools: [] };
    if (searches) origins.set(SEARCH, await searchTool(origins, () => current.foundTools));
    // The run starts with these, which the client may have approved calls of.
    const first = (current = offeredTools(clientTools, origins, searches));
    if (all.some(({ executor }) => executor.follow)) {
      changes = followChanges(all, (opened) => {
        host(opened);
        if (!searches && isHosted()) throw new Error('There are too many tools now for this response.');
        current = offeredTools(clientTools, origins, searches);
        // A run that searches finds the changed tools.
        return searches ? undefined : current.tools;
      });
    }
    return {
      ...first,
      ...choice,
      kinds: callKinds(policy, choice, functions, origins),
      labels: new Set(all.map(({ origin }) => labelOf(origin))),
      lists,
      changes,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function serverList({ origin, functions, error }: OpenedTool, hosted: readonly Hosted[]): ServerList {
  const tools = hosted.map(({ tool: { name, description, parameters: schema, fingerprint }, ownName }): ListedTool => {
    const { annotations, serverDescription = description } = functions.find((one) => one.name === ownName)!;
    const facts = { ...(annotations && { annotations }), ...(fingerprint && { fingerprint }) };
    return { name, description: serverDescription, schema, ...facts };
  });
  return { label: labelOf(origin), tools, ...(error !== undefined && { error }) };
}

/**
 * Replaces the tools of one server. A name stays with the server that has had it first, so that no server gets the calls of
 * another one. Calls of the current turn may still need the approval that the tool required before.
 */
function replaceHosted(origins: Map<string, Hosted>, origin: RequestTool, hosted: readonly Hosted[]): void {
  for (const [name, one] of origins) if (one.origin === origin) origins.set(name, { ...one, isGone: true });
  for (const one of hosted) {
    const before = origins.get(one.tool.name);
    if (before && before.origin !== origin) continue;
    origins.set(one.tool.name, { ...one, isApproved: one.isApproved || before?.isApproved === true });
  }
}

function offeredTools(clientTools: readonly Tool[], origins: Origins, searches: boolean): OfferedTools {
  const tools = [...clientTools];
  const foundTools: Tool[] = [];
  for (const hosted of origins.values()) {
    if (!hosted.isGone) (searches && hosted.isListed ? foundTools : tools).push(hosted.tool);
  }
  return { tools, foundTools };
}

/** The functions that the model gets. */
function offeredFunctions(functions: readonly FunctionTool[]): readonly FunctionTool[] {
  const isSearched = functions.some(({ search }) => search);
  return isSearched ? functions.filter(({ deferred }) => !deferred) : functions;
}

type Functions = ReadonlyMap<string, FunctionTool>;

/** Shared: most requests have no functions, and each keeps this while its run goes on. */
const NO_FUNCTIONS: Functions = new Map();

function functionsByName(functions: readonly FunctionTool[]): Functions {
  return functions.length === 0 ? NO_FUNCTIONS : new Map(functions.map((one) => [one.name, one]));
}

/** The name under which the model gets a search for tools, of the client or of this server. */
export const SEARCH = 'tool_search';
/** With more tools of other servers, the model searches them. A copy, because loading the tools takes time. */
const MAX_OFFERED_TOOLS = 40;

/** Whether the model searches the tools of other servers. A choice that names tools needs them at once. */
function isSearched({ toolChoice, allowedTools }: Choice, origins: Origins): boolean {
  if (typeof toolChoice === 'object' || allowedTools || origins.has(SEARCH)) return false;
  let listed = 0;
  for (const { isListed, isGone } of origins.values()) if (isListed && !isGone) listed += 1;
  return listed > MAX_OFFERED_TOOLS;
}

async function searchTool(origins: Origins, tools: () => readonly Tool[]): Promise<Hosted> {
  const { toolSearchTool } = await import('@treadle/tools');
  const labels = [...origins.values()].flatMap(({ origin, isListed }) => (isListed ? labelOf(origin) : []));
  const about = `of the MCP servers ${[...new Set(labels)].join(', ')}`;
  const made = toolSearchTool({ tools, about });
  const origin = { type: 'mcp', server_label: OWN_LABEL };
  return { tool: made, origin, ownName: SEARCH, isApproved: false, isListed: false };
}

/** The schema and the arguments of a client's function are not validated: calls are returned as the model made them. */
function clientTool({ name, description, parameters, strict, custom, builtIn }: FunctionTool): Tool {
  if (builtIn) return builtInTool(builtIn);
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

/** The default tools, except those whose name a function of the client has, and the default servers. */
async function defaultTools(
  request: ToolsRequest,
  served: ServerTools,
  { caller, recorded }: Pick<OpenOptions, 'recorded'> & { readonly caller: RunCaller },
): Promise<readonly RequestTool[]> {
  const { scopes } = caller;
  const names = served.defaultTools.filter(
    (name) => mayExecute(scopes, name) && !request.functions.some((own) => own.name === name),
  );
  const own = names.length === 0 ? [] : [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: names }];
  const named = new Set(request.otherTools.map(labelOf));
  if (!scopes.some(isToolScope)) return own;
  const servers = (served.defaultServers ?? []).map((label) => ({ type: 'mcp', server_label: label }));
  const executed = served.executors.flatMap((one) => one.defaults?.(principalOf(caller), recorded) ?? []);
  const others = [...servers, ...(await Promise.all(executed)).flat()];
  return [...own, ...others.filter((one) => !named.has(labelOf(one)))];
}

interface HostOptions extends ToolsetOptions {
  readonly isTaken: (name: string) => boolean;
  readonly caller: RunCaller;
  /** Somebody else than the client approves calls of tools that need it themselves. */
  readonly isWaiting: boolean;
}

function hostedTools(
  { executor, origin, functions, gone }: OpenedTool,
  { isTaken, caller, isWaiting, approvals = false }: HostOptions,
): readonly Hosted[] {
  const isAllowed = allowedBy(origin);
  const isRemote = executor.lists === true && origin['server_url'] != null;
  const mustApprove = approvedByClient(origin, isRemote ? 'always' : 'never');
  const offered = functions.filter((one) => isAllowed(one));
  const permitted = offered.filter(({ name }) => mayExecute(caller.scopes, name));
  const refused = offered.find((one) => !permitted.includes(one));
  // Without a list of names, a request is for all tools that the key may use.
  if (refused && (permitted.length === 0 || origin['allowed_tools'] != null)) {
    throw lacksScope(`the tool ${JSON.stringify(refused.name)}`, `tools:execute:${refused.name}`);
  }
  const used = new Set(functions.map(({ name }) => name));
  const isUsed = (name: string): boolean => used.has(name) || isTaken(name);
  return permitted.map((one): Hosted => {
    const isAsked = mustApprove(one);
    if (isAsked && !approvals) throw noApprovals(origin);
    // Making a tool takes longer than the rest of its way to the model.
    if (executor.offersTools && !executor.lists && !isAsked) {
      return { tool: one as Tool, origin, ownName: one.name, isApproved: false, isListed: false };
    }
    const { annotations: _, serverName: __, serverDescription: ___, name: ownName, ...definition } = one;
    const name = executor.lists && isTaken(ownName) ? nameWithLabel(labelOf(origin), ownName, isUsed) : ownName;
    used.add(name);
    return {
      tool: tool({
        ...definition,
        name,
        ...(isAsked && { needsApproval: true }),
        execute: (input, context) => {
          if (gone !== undefined) throw new Error(gone);
          return executor.execute({ name: ownName, input, tool: origin, offered: one }, context);
        },
      }),
      origin,
      ownName,
      isApproved: isAsked && !(isWaiting && one.needsApproval !== undefined && one.needsApproval !== false),
      isListed: executor.lists === true,
    };
  });
}

const MAX_NAME = 64;

/** A name of the tool that no other has. A server may have taken that with the label of another one, to get its calls. */
function nameWithLabel(label: string, name: string, isUsed: (name: string) => boolean): string {
  const whole = `${label.replace(/\W/g, '_')}__${name}`;
  for (let number = 1; ; number++) {
    const end = number === 1 ? '' : `_${number}`;
    const free = whole.slice(0, MAX_NAME - end.length) + end;
    if (!isUsed(free)) return free;
  }
}

function noApprovals(origin: RequestTool): ApiError {
  const message = `Approvals of the calls of ${JSON.stringify(labelOf(origin))} are not supported by this API. Set require_approval to "never", or use the Responses API.`;
  return badRequest(message, 'tools.require_approval', 'unsupported_parameter');
}

interface KnownTools {
  readonly origins: Origins;
  readonly functions: Functions;
  readonly lists: readonly ServerList[];
}

type Choice = Pick<Toolset, 'toolChoice' | 'allowedTools'>;

/** A choice that only a server can satisfy which has not listed its tools is ignored: the loop goes on without the server. */
function choiceOf(choice: RequestToolChoice, known: KnownTools): Choice {
  const { lists } = known;
  if (typeof choice === 'string') return { toolChoice: choice };
  const isDown = (selected: RequestTool): boolean =>
    selected.type === 'mcp' && lists.some(({ label, error }) => error !== undefined && label === labelOf(selected));
  switch (choice.type) {
    case 'function':
    case 'custom':
      return { toolChoice: { tool: choice.name } };
    case 'mcp': {
      if (isDown(choice)) return { toolChoice: 'auto' };
      const names = namesOf(choice, known);
      return choice.name == null
        ? { toolChoice: 'required', allowedTools: names }
        : { toolChoice: { tool: names[0]! } };
    }
    case 'allowed_tools': {
      const allowedTools = choice.tools.flatMap((named) => (isDown(named) ? [] : namesOf(named, known)));
      return { toolChoice: allowedTools.length === 0 ? 'none' : choice.mode, allowedTools };
    }
    default:
      return choice satisfies never;
  }
}

/** The names of the tools that an entry of `tool_choice` selects: one by its name, or all of a tool of the request. */
function namesOf(selected: RequestTool, { origins, functions }: KnownTools): readonly string[] {
  const { type, name, server_label: label } = selected;
  if (functions.get(type)?.builtIn) return [type];
  if (type === 'function' || type === 'custom') return [String(name)];
  const names = [...origins].flatMap(([candidate, { origin, ownName }]) => {
    const matches = toolKind(origin.type) === toolKind(type) && (label == null || origin['server_label'] === label);
    return matches && (name == null || name === candidate || name === ownName) ? candidate : [];
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
    const message = 'tool_choice requires a call, but there is no tool to call. Send tools, or leave tool_choice out.';
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
  functions: Functions,
  origins: Origins,
): CallKinds {
  const forced = typeof toolChoice === 'object' ? toolChoice.tool : undefined;
  return {
    isCustom: (name) => functions.get(name)?.custom !== undefined,
    isSearch: (name) => functions.get(name)?.search === true,
    builtInOf: (name) => functions.get(name)?.builtIn?.type,
    ownNameOf: (name) => functions.get(name)?.own,
    labelOf(name) {
      const label = origins.get(name)?.origin['server_label'];
      return typeof label === 'string' ? label : OWN_LABEL;
    },
    kindOf(name, index) {
      if (!functions.has(name)) {
        const hosted = origins.get(name);
        return hosted ? (hosted.isApproved ? 'approved-later' : 'server') : 'refused';
      }
      if (toolChoice === 'none' || index >= MAX_CALLS_PER_REPLY || allowedTools?.includes(name) === false)
        return 'refused';
      // The loop validates the arguments of built-in tools.
      if (functions.get(name)!.builtIn || (policy && mayRefuse(policy, name))) return 'client-later';
      return forced !== undefined && forced !== name ? 'client-later' : 'client';
    },
  };
}
