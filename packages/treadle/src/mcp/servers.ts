import { dirname, resolve } from 'node:path';
import { messageOf, type StartedRun, type Tool } from '@treadle/core';
import { MAX_OFFERED_TOOLS, toolSearchTool, type ExecOps } from '@treadle/tools';
import type { McpServer, McpServerOptions, SignInBrowser, SignInOptions } from '@treadle/tools/mcp';
import type * as McpPackage from '@treadle/tools/mcp';
import { didYouMean } from '@treadle/core/nearest';
import type { Secrets } from '@treadle/store';
import { CommandError } from '../command-line/command.ts';
import type { CommandContext } from '../config/context.ts';
import type { McpServerEntry } from '../config/mcp.ts';
import { RESERVED } from '../config/packages.ts';
import { loadStorePackage } from '../config/store.ts';
import type { Io } from '../terminal/io.ts';
import { exactLine } from '../terminal/printable.ts';

/** Loading the client takes longer than most commands. */
export function loadMcpPackage(): Promise<typeof McpPackage> {
  return import('@treadle/tools/mcp');
}

/** The entries of [mcp.servers] by name. */
export function serverEntries({ loaded }: CommandContext): ReadonlyMap<string, McpServerEntry> {
  return new Map(Object.entries(loaded.config.mcp?.servers ?? {}));
}

export function findEntry(context: CommandContext, name: string): McpServerEntry {
  const entries = serverEntries(context);
  const entry = entries.get(name);
  if (entry) return entry;
  const names = [...entries.keys()];
  throw new CommandError(
    `There is no MCP server ${JSON.stringify(name)}.${didYouMean(name, names)} ` +
      (names.length === 0
        ? `Add one to ${context.loaded.file ?? 'treadle.toml'}: [mcp.servers.${name}].`
        : `Servers: ${names.join(', ')}.`),
  );
}

/** Secrets are beside the store, and end with a store in memory. */
export async function openSecrets({ store }: CommandContext): Promise<Secrets> {
  const { fileSecrets, memorySecrets } = await loadStorePackage();
  return store.type === 'memory' ? memorySecrets() : fileSecrets(`${store.file}.secrets`);
}

/** What an entry needs of the command. */
export interface ServerPlace {
  readonly context: CommandContext;
  readonly env: Io['env'];
  readonly secrets: Secrets;
}

/** Undefined for a program, and for a server with a header `Authorization`. */
export function signInOptions(name: string, entry: McpServerEntry, place: ServerPlace): SignInOptions | undefined {
  const { url, oauth = {}, headers_env: headers = {} } = entry;
  if (url === undefined || Object.keys(headers).some((header) => header.toLowerCase() === 'authorization')) {
    return undefined;
  }
  const { client_id: id, client_secret_env: variable, scope } = oauth;
  const secret = variable === undefined ? undefined : variableOf(name, variable, place.env);
  return {
    name,
    url,
    secrets: place.secrets,
    ...(id !== undefined && { client: { id, ...(secret !== undefined && { secret }) } }),
    ...(scope !== undefined && { scope }),
  };
}

/** Throws if an environment variable is not set. */
export async function serverOptions(
  name: string,
  entry: McpServerEntry,
  place: ServerPlace,
  browser?: SignInBrowser,
): Promise<McpServerOptions> {
  const { context, env } = place;
  const { tools, prefix, timeout_ms: timeoutMs, park_after_ms: parkAfterMs } = entry;
  const { approval, trust_annotations: trustAnnotations } = entry;
  const use = {
    name,
    roots: [context.folder],
    ...(tools && { tools }),
    ...(prefix !== undefined && { prefix }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(parkAfterMs !== undefined && { parkAfterMs }),
    ...(approval !== undefined && { approval }),
    ...(trustAnnotations !== undefined && { trustAnnotations }),
  };
  const { command, args, url } = entry;
  if (command !== undefined) {
    const base = context.loaded.path === undefined ? context.folder : dirname(context.loaded.path);
    const cwd = entry.cwd === undefined ? context.folder : resolve(base, entry.cwd);
    const variables = Object.entries(entry.env ?? {}).map(([key, value]) => [
      key,
      value.startsWith('$') ? variableOf(name, value.slice(1), env) : value,
    ]);
    // A path is relative to the configuration, as it is for `cwd`. A name is looked up.
    const program = /[/\\]/.test(command) ? resolve(base, command) : command;
    const exec = entry.sandbox === true && (await sandboxedServer(name, { context, program, args, cwd }));
    return {
      ...use,
      command: program,
      ...(args && { args }),
      env: Object.fromEntries(variables),
      cwd,
      ...(exec && { exec }),
    };
  }
  const headers = Object.entries(entry.headers_env ?? {}).map(([header, variable]) => [
    header,
    headerValue(header, variableOf(name, variable, env)),
  ]);
  const signIn = signInOptions(name, entry, place);
  const { signInFetch } = await loadMcpPackage();
  return {
    ...use,
    url: url!,
    ...(headers.length > 0 && { headers: Object.fromEntries(headers) }),
    ...(signIn && { fetch: signInFetch({ ...signIn, ...(browser && { browser }) }) }),
  };
}

/** Throws if there is no sandbox: the server must not run without it. */
async function sandboxedServer(
  name: string,
  {
    context,
    program,
    args = [],
    cwd,
  }: { context: CommandContext; program: string; args?: readonly string[] | undefined; cwd: string },
): Promise<ExecOps> {
  const { chooseSandbox, serverFiles } = await import('../tools/sandbox.ts');
  const sandbox = await chooseSandbox(context);
  const ops = sandbox.serverOps(cwd, serverFiles(program, args));
  if (ops) return ops.exec;
  throw new CommandError(`The MCP server "${name}" has sandbox = true, and there is no sandbox. ${sandbox.notice}`);
}

function variableOf(name: string, variable: string, env: Io['env']): string {
  const value = env[variable]?.trim();
  if (value) return value;
  throw new CommandError(`The MCP server "${name}" needs the environment variable ${variable}. Set it.`);
}

/** A token for `Authorization` without a scheme is a bearer token. */
function headerValue(header: string, value: string): string {
  return header.toLowerCase() === 'authorization' && !value.includes(' ') ? `Bearer ${value}` : value;
}

/** Whether a word of a list of tools means MCP servers. */
export function isMcpWord(word: string): boolean {
  return /^mcp(:|$)/.test(word);
}

/**
 * Separates the words of a list of tools that mean MCP servers: `mcp` is all, `mcp:NAME` is one. `servers` has their names.
 * Throws for a server that is not configured.
 */
export function splitToolList(
  context: CommandContext,
  { words, from }: { readonly words: readonly string[]; readonly from: string },
): { readonly words: readonly string[]; readonly from: string; readonly servers: readonly string[] } {
  const own = words.filter((word) => !isMcpWord(word));
  if (own.includes('none') && own.length < words.length) {
    throw new CommandError(`${from} names "none" and other tools. Use "none" alone, or leave it out.`);
  }
  const named = words.flatMap((word) => (word.startsWith('mcp:') ? word.slice('mcp:'.length) : []));
  for (const name of named) findEntry(context, name);
  const isOff = context.loaded.config.orchestrator?.tool_loop_enabled === false;
  const servers = words.includes('mcp') ? [...serverEntries(context).keys()] : named;
  return { words: own, from, servers: isOff ? [] : servers };
}

/** The tools of the configured servers for runs, as they are now. */
export interface McpToolbox {
  /** For a new run: the tools, or `tool_search` in place of many. */
  offered(): readonly Tool[];
  /** For a run that is resumed: all that it may have been offered. */
  all(): readonly Tool[];
  /** Gives a run the changed tools of its servers from its next turn on. `own`: its other tools. */
  follow(live: Pick<StartedRun, 'changeTools' | 'result'>, own: readonly Tool[]): void;
  /** What to tell the user: servers that cannot be used, and why. */
  readonly problems: readonly string[];
  close(): Promise<void>;
}

const NO_MCP: McpToolbox = {
  offered: () => [],
  all: () => [],
  follow: () => {},
  problems: [],
  close: async () => {},
};

/** Connects to these servers of the configuration. One that cannot be used is left out. `taken`: the names of other tools. */
export async function openMcpTools(
  context: CommandContext,
  env: Io['env'],
  { taken: own, names }: { readonly taken: readonly string[]; readonly names: readonly string[] },
): Promise<McpToolbox> {
  const entries = [...serverEntries(context)].filter(([name]) => names.includes(name));
  if (entries.length === 0) return NO_MCP;
  const { followMcpTools, mcpServer, mcpTools } = await loadMcpPackage();
  const place: ServerPlace = { context, env, secrets: await openSecrets(context) };
  const opened = await Promise.all(
    entries.map(async ([name, entry]) => {
      let server: McpServer | undefined;
      try {
        server = mcpServer(await serverOptions(name, entry, place));
        await server.listTools();
        return { server };
      } catch (error) {
        await server?.close();
        return { problem: leftOutText(name, error) };
      }
    }),
  );
  const servers = opened.flatMap(({ server }) => server ?? []);
  const taken = [...own, ...RESERVED];
  let tools: readonly Tool[] = [];
  const listeners = new Set<() => void>();
  const changeTools = async (changed: readonly Tool[]): Promise<boolean> => {
    tools = changed;
    for (const listener of listeners) listener();
    return true;
  };
  const stopFollowing = followMcpTools({ changeTools, result: new Promise(() => {}) }, { servers, taken });
  const close = async (): Promise<void> => {
    stopFollowing();
    await Promise.allSettled(servers.map((server) => server.close()));
  };
  try {
    tools = await mcpTools(servers, { taken });
  } catch (error) {
    await close();
    throw error;
  }
  const about = `of the MCP servers ${servers.map(({ name }) => name).join(', ')}`;
  const search = toolSearchTool({ tools: () => tools, about });
  const isSearched = (): boolean => tools.length > MAX_OFFERED_TOOLS;
  return {
    offered: () => (isSearched() ? [search] : tools),
    all: () => [search, ...tools],
    follow(live, others) {
      // A run that searches finds the changed tools.
      if (isSearched()) return;
      const change = (): void => void live.changeTools([...others, ...tools]);
      listeners.add(change);
      const stop = (): void => void listeners.delete(change);
      live.result.then(stop, stop);
    },
    problems: opened.flatMap(({ problem }) => problem ?? []),
    close,
  };
}

/** All servers of the configuration, not connected yet. One whose environment variables are missing is left out. */
export async function configuredServers(
  context: CommandContext,
  env: Io['env'],
): Promise<{ readonly servers: readonly McpServer[]; readonly problems: readonly string[] }> {
  const servers: McpServer[] = [];
  const problems: string[] = [];
  const entries = context.loaded.config.orchestrator?.tool_loop_enabled === false ? [] : serverEntries(context);
  for (const [name, entry] of entries) {
    const { mcpServer } = await loadMcpPackage();
    try {
      servers.push(mcpServer(await serverOptions(name, entry, { context, env, secrets: await openSecrets(context) })));
    } catch (error) {
      problems.push(leftOutText(name, error));
    }
  }
  return { servers, problems };
}

function leftOutText(name: string, error: unknown): string {
  return `${exactLine(messageOf(error)).replace(/\.?$/, '.')} The MCP server "${name}" is left out.`;
}

/** The tools for runs inside of the run. Those cannot search: what they find would be missing when they are resumed. */
export function toolsForTasks({ offered }: McpToolbox): readonly Tool[] {
  return offered().filter(({ name }) => name !== 'tool_search');
}
