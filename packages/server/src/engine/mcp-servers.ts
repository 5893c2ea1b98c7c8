import type { Policy, Question, Tool, ToolContext } from '@treadle/core';
import type { RulePolicy } from '@treadle/core/policy';
import type { UrlCheck } from '@treadle/tools';
import type { followMcpTools, McpServer, mcpTools, McpTool } from '@treadle/tools/mcp';
import type { Logger } from 'pino';
import { badRequest } from '../api-error.ts';
import type { ExecutorCall, OfferedFunction, RequestTool, ToolExecutor } from './executors.ts';

/*
 * The tools of MCP servers: `{ type: 'mcp', server_label, server_url, … }`.
 *
 * 1. A request names a server by its URL, or one that the program has configured by its label alone.
 * 2. A URL is connected to only if the policy allows it. Without one it has to be a public address. That applies to every
 *    address of the host and to every redirect.
 * 3. Headers and tokens of a request are held until its run has ended. They are not stored, logged or sent elsewhere, and
 *    texts of the server in which they occur are cleaned of them.
 */

export interface McpServersOptions {
  /** Servers that requests may name by their `name`. The caller closes them. */
  readonly servers?: readonly McpServer[];
  /** Names of `servers` whose tools are available to every request; default none. */
  readonly defaults?: readonly string[];
  /** `server_url` may be an address of this machine or of a private network; default false. Ignored if the policy has rules. */
  readonly allowPrivate?: boolean;
  /** For connecting to a server and listing its tools; default 15 seconds. */
  readonly listTimeoutMs?: number;
}

interface Parts {
  readonly policy: Policy | undefined;
  /** For one call of a server that a request names by its URL. */
  readonly toolTimeoutMs: number;
  readonly log: Logger;
}

/** A server for one request. */
interface Session {
  /** What it sends has no secrets of the request. */
  readonly server: McpServer;
  readonly mcp: McpPackage;
  /** The tools that it has listed, by their fingerprints. */
  readonly described: Map<string, McpTool>;
  /** Present if the server is only for this request, with its credentials. */
  readonly cleaners?: Cleaners;
  readonly stopWatching: () => void;
}

/** Loaded when the first server is used. */
interface McpPackage {
  readonly mcpTools: typeof mcpTools;
  readonly followMcpTools: typeof followMcpTools;
}

type Clean = (text: string) => string;

/** Remove secrets: from errors, and from everything else that the server sends. */
interface Cleaners {
  readonly cleanError: Clean;
  readonly clean: Clean;
}

type CallableTool = OfferedFunction & { readonly execute?: (input: unknown, context: never) => unknown };

export function mcpExecutor(
  { servers = [], allowPrivate = false }: McpServersOptions,
  { policy, toolTimeoutMs: timeoutMs, log }: Parts,
): ToolExecutor {
  const configured = new Map(servers.map((server) => [server.name, server]));
  const sessions = new WeakMap<RequestTool, Session>();

  async function openSession(tool: RequestTool): Promise<Session> {
    const label = String(tool['server_label']);
    const url = tool['server_url'];
    const mcp = await import('@treadle/tools/mcp');
    if (typeof url !== 'string') return sessionWith(configured.get(label)!, mcp);
    const headers = headersOf(tool);
    const cleaners = cleanersOf(url, headers);
    const fetch = await guardedFetch(urlCheck(policy, allowPrivate), timeoutMs);
    return sessionWith(mcp.mcpServer({ name: label, url, headers, fetch, timeoutMs }), mcp, cleaners);
  }

  async function listFirst(session: Session, signal: AbortSignal): Promise<readonly OfferedFunction[]> {
    const { server, mcp, cleaners } = session;
    try {
      return offeredFunctions(session, await mcp.mcpTools(server, { signal }));
    } catch (error) {
      session.stopWatching();
      if (!cleaners) throw error;
      await server.close().catch(() => {});
      // Without the cause, which may contain secrets.
      // oxlint-disable-next-line preserve-caught-error
      throw new Error(cleaners.cleanError(messageOf(error)));
    }
  }

  async function closeSession(tool: RequestTool): Promise<void> {
    const session = sessions.get(tool);
    sessions.delete(tool);
    session?.stopWatching();
    if (session?.cleaners) await session.server.close();
  }

  return {
    kind: 'mcp',
    lists: true,
    canExecute: (tool) =>
      tool['server_url'] != null || tool['connector_id'] != null || configured.has(String(tool['server_label'])),
    async functions(tool, _, signal) {
      checkFields(tool);
      try {
        const session = await openSession(tool);
        const functions = await listFirst(session, signal);
        sessions.set(tool, session);
        if (signal.aborted) void closeSession(tool).catch(() => {});
        return functions;
      } catch (error) {
        log.warn({ server: tool['server_label'], why: messageOf(error) }, 'an MCP server did not list its tools');
        throw error;
      }
    },
    follow(tool, change) {
      const session = sessions.get(tool);
      if (!session) return () => {};
      const { server, mcp, cleaners } = session;
      const onProblem = (problem: string): void => {
        const why = cleaners ? cleaners.cleanError(problem) : problem;
        log.warn({ server: server.name, why }, 'an MCP server has changed its tools, and they are not used');
      };
      const changeTools = async (tools: readonly Tool[]): Promise<boolean> => {
        await change(offeredFunctions(session, tools));
        return true;
      };
      return mcp.followMcpTools({ changeTools, result: new Promise(() => {}) }, { servers: [server], onProblem });
    },
    async execute({ input, tool, offered }: ExecutorCall, context) {
      const { cleaners } = sessions.get(tool)!;
      const { execute } = offered as CallableTool;
      if (!cleaners) return execute!(input, context as never);
      const { clean, cleanError } = cleaners;
      try {
        const result = await execute!(input, cleanedContext(context, clean) as never);
        return isOutput(result) ? { ...result, content: cleaned(result.content, clean) } : result;
      } catch (error) {
        if (error instanceof Error) error.message = cleanError(error.message);
        throw error;
      }
    },
    close: closeSession,
  };
}

function sessionWith(server: McpServer, mcp: McpPackage, cleaners?: Cleaners): Session {
  const described = new Map<string, McpTool>();
  // A change before anybody follows the tools is reported when that begins.
  let hasChanged = false;
  const stopWatching = server.onToolsChanged(() => (hasChanged = true));
  function onToolsChanged(listener: () => void): () => void {
    stopWatching();
    if (hasChanged) queueMicrotask(listener);
    return server.onToolsChanged(listener);
  }
  async function listTools(signal?: AbortSignal): Promise<readonly McpTool[]> {
    const all = await server.listTools(signal);
    const listed = cleaners ? all.flatMap((one) => cleanedTool(one, cleaners.clean)) : all;
    described.clear();
    for (const one of listed) described.set(one.fingerprint, one);
    return listed;
  }
  const watched = { ...server, listTools, onToolsChanged };
  return { server: watched, mcp, described, ...(cleaners && { cleaners }), stopWatching };
}

/** The tools under legal names, each with what the server says about it. */
function offeredFunctions({ described }: Session, tools: readonly Tool[]): readonly CallableTool[] {
  return tools.map((one) => {
    const { annotations, name: serverName, description: serverDescription } = described.get(one.fingerprint!)!;
    const facts = { serverName, serverDescription, ...(annotations && { annotations }) };
    return { ...(one as CallableTool), ...facts };
  });
}

function checkFields(tool: RequestTool): void {
  const { server_url: url, headers, authorization } = tool;
  for (const field of ['connector_id', 'tunnel_id']) {
    if (tool[field] == null) continue;
    const message = `This server does not support '${field}'. Send the 'server_url' of the MCP server.`;
    throw badRequest(message, `tools.${field}`, 'unsupported_parameter');
  }
  if (url != null && (typeof url !== 'string' || !/^https?:$/.test(URL.parse(url)?.protocol ?? ''))) {
    throw badRequest('server_url must be an http or https URL.', 'tools.server_url', 'invalid_value');
  }
  if (url == null && (headers != null || authorization != null)) {
    const field = headers == null ? 'authorization' : 'headers';
    const message = `The server ${JSON.stringify(tool['server_label'])} is configured here, with its own credentials. Leave '${field}' out.`;
    throw badRequest(message, `tools.${field}`, 'invalid_value');
  }
}

/** The headers of a request's server, with `authorization` as a bearer token. */
function headersOf({ headers, authorization }: RequestTool): Readonly<Record<string, string>> {
  const given = Object.entries((headers ?? {}) as Readonly<Record<string, unknown>>);
  if (!given.every(([name, value]) => typeof value === 'string' && isHeader(name, value))) {
    throw badRequest('headers must be an object of HTTP headers, with texts.', 'tools.headers', 'invalid_value');
  }
  const all = Object.fromEntries(given) as Record<string, string>;
  if (authorization == null) return all;
  if (typeof authorization !== 'string' || !isHeader('authorization', authorization)) {
    throw badRequest('authorization must be a token.', 'tools.authorization', 'invalid_value');
  }
  if (given.some(([name]) => name.toLowerCase() === 'authorization')) {
    const message = 'The header Authorization and the field authorization are both set. Leave one of them out.';
    throw badRequest(message, 'tools.authorization', 'invalid_value');
  }
  return { ...all, Authorization: `Bearer ${authorization}` };
}

function isHeader(name: string, value: string): boolean {
  try {
    return new Headers([[name, value]]).has(name);
  } catch {
    return false;
  }
}

/** Bytes of one reply, or of one stream of a server. */
const MAX_BYTES = 32 * 1024 * 1024;

/** Loaded when the first server is connected to. */
async function guardedFetch(check: UrlCheck, timeoutMs: number): Promise<typeof fetch> {
  const { httpClient } = await import('@treadle/tools');
  return httpClient({ check, timeoutMs, maxBytes: MAX_BYTES }).fetch;
}

/** What the domain rules of the policy say. Without rules, only public addresses are allowed. */
function urlCheck(policy: Policy | undefined, allowPrivate: boolean): UrlCheck {
  if (policy && 'explain' in policy) {
    return async (url) => {
      const { rules } = await (policy as RulePolicy).explain({ name: '', touches: [{ type: 'url', url }] });
      const refusal = rules.find(
        ({ rule, verdict }) => (rule === 'domains' || rule === 'facts') && (verdict === 'deny' || verdict === 'ask'),
      );
      return (
        refusal &&
        `The policy does not allow this server: ${(refusal.reason ?? 'it has to be approved').replace(/\.?$/, '.')}`
      );
    };
  }
  return async (url, resolvedFrom) => {
    const { urlFacts } = await import('@treadle/tools');
    const { host, range } = urlFacts(url);
    const isPublic = range === 'public' || (range === undefined && resolvedFrom === undefined);
    if (isPublic || (allowPrivate && range !== 'metadata')) return undefined;
    return `${resolvedFrom ?? host} is not a public address (${range}), and this server connects only to those.`;
  };
}

/** Texts shorter than this are not secrets. */
const LEAST_SECRET = 6;
/** Longer ones may be secrets, whatever their name is. */
const MOST_PLAIN = 15;

const SECRET = /auth|key|token|secret|cookie|passw|credential/i;
/** The first word of an `Authorization` header. */
const SCHEME = /^(?:bearer|basic|digest|negotiate|token)$/i;
const REDACTED = '<redacted>';

type Named = readonly [name: string, value: string];

/** An error may quote the whole URL and any header. Anything else that a server sends may repeat a credential. */
function cleanersOf(url: string, headers: Readonly<Record<string, string>>): Cleaners {
  const { href, pathname, search, searchParams, username, password } = new URL(url);
  const whole = [url, href, pathname + search, pathname];
  const user = [password, decodedUri(password), `${username}:${password}`];
  const query = [search, search.slice(1)];
  const named: readonly Named[] = [
    ...Object.entries(headers).flatMap(([name, value]) =>
      [value, ...value.split(/\s+/).filter((part) => !SCHEME.test(part))].map((part): Named => [name, part]),
    ),
    ...searchParams,
    ...query[1]!.split('&').map((one): Named => [one.split('=')[0]!, one.slice(one.indexOf('=') + 1)]),
    ...pathname.split('/').flatMap((part): readonly Named[] => [
      ['', part],
      ['', decodedUri(part)],
    ]),
  ];
  const isSecret = ([name, value]: Named): boolean => SECRET.test(name) || value.length > MOST_PLAIN;
  const valueOf = ([, value]: Named): string => value;
  return {
    cleanError: without([...whole, ...user, ...query, ...named.map(valueOf)]),
    clean: without([...user, ...query, ...named.filter(isSecret).map(valueOf)]),
  };
}

function decodedUri(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function without(secrets: readonly string[]): Clean {
  const inJson = secrets.map((secret) => JSON.stringify(secret).slice(1, -1));
  // The longest first: one may contain another.
  const ordered = [...new Set([...secrets, ...inJson].filter(({ length }) => length >= LEAST_SECRET))].toSorted(
    (a, b) => b.length - a.length,
  );
  return (text) => ordered.reduce((rest, secret) => rest.replaceAll(secret, REDACTED), text);
}

/** A value with JSON, without secrets in its texts and in its names. Files are as they were. */
function cleaned(value: unknown, clean: Clean): unknown {
  if (typeof value === 'string') return clean(value);
  if (Array.isArray(value)) return value.map((one) => cleaned(one, clean));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [clean(key), key === 'data' ? one : cleaned(one, clean)]),
  );
}

/** A tool without secrets in what the server says about it. None if its name has one: it could not be called by another. */
function cleanedTool(described: McpTool, clean: Clean): readonly McpTool[] {
  const { name, fingerprint } = described;
  if (clean(name) !== name) return [];
  return [{ ...(cleaned(described, clean) as McpTool), fingerprint }];
}

function isOutput(result: unknown): result is { readonly content: unknown } {
  return typeof result === 'object' && result !== null && 'content' in result;
}

/** What a server asks and reports during a call is stored and sent, too. */
function cleanedContext(context: ToolContext, clean: Clean): ToolContext {
  return new Proxy(context, {
    get(target, key) {
      if (key === 'ask') return (question: Question) => target.ask(cleaned(question, clean) as Question);
      if (key === 'report') return (progress: unknown) => target.report(cleaned(progress, clean));
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
