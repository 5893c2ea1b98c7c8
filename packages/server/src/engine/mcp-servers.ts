import type { Policy, Tool } from '@treadle/core';
import type { RulePolicy } from '@treadle/core/policy';
import type { UrlCheck } from '@treadle/tools';
import type { McpServer, McpTool } from '@treadle/tools/mcp';
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
  readonly log: Logger;
}

/** A server for one request. */
interface Session {
  readonly server: McpServer;
  readonly tools: ReadonlyMap<string, CallableTool>;
  /** Removes secrets from errors, and from results. */
  readonly cleanError: Clean;
  readonly cleanResult: Clean;
  /** The server is only for this request. */
  readonly isOwned: boolean;
}

type Clean = (text: string) => string;

type CallableTool = OfferedFunction & { readonly execute?: (input: unknown, context: never) => unknown };

export function mcpExecutor(
  { servers = [], allowPrivate = false }: McpServersOptions,
  { policy, log }: Parts,
): ToolExecutor {
  const configured = new Map(servers.map((server) => [server.name, server]));
  const sessions = new WeakMap<RequestTool, Session>();

  async function openSession(tool: RequestTool, signal: AbortSignal): Promise<Session> {
    const label = String(tool['server_label']);
    const url = tool['server_url'];
    const { mcpServer, mcpTools } = await import('@treadle/tools/mcp');
    if (typeof url !== 'string') {
      const server = configured.get(label)!;
      return { server, tools: await toolsOf(server, mcpTools, signal), ...NO_SECRETS, isOwned: false };
    }
    const headers = headersOf(tool);
    const cleaners = cleanersOf(url, headers);
    const fetch = await guardedFetch(urlCheck(policy, allowPrivate));
    const server = mcpServer({ name: label, url, headers, fetch });
    try {
      return { server, tools: await toolsOf(server, mcpTools, signal), ...cleaners, isOwned: true };
    } catch (error) {
      await server.close().catch(() => {});
      // Without the cause, which may contain secrets.
      // oxlint-disable-next-line preserve-caught-error
      throw new Error(cleaners.cleanError(messageOf(error)));
    }
  }

  return {
    kind: 'mcp',
    lists: true,
    canExecute: (tool) =>
      tool['server_url'] != null || tool['connector_id'] != null || configured.has(String(tool['server_label'])),
    async functions(tool, _, signal) {
      checkFields(tool);
      try {
        const session = await openSession(tool, signal);
        if (signal.aborted && session.isOwned) void session.server.close().catch(() => {});
        sessions.set(tool, session);
        return [...session.tools.values()];
      } catch (error) {
        log.warn({ server: tool['server_label'], why: messageOf(error) }, 'an MCP server did not list its tools');
        throw error;
      }
    },
    async execute({ name, input, tool }: ExecutorCall, context) {
      const { tools, cleanError, cleanResult } = sessions.get(tool)!;
      try {
        return cleaned(await tools.get(name)!.execute!(input, context as never), cleanResult);
      } catch (error) {
        if (error instanceof Error) error.message = cleanError(error.message);
        throw error;
      }
    },
    async close(tool) {
      const session = sessions.get(tool);
      sessions.delete(tool);
      if (session?.isOwned) await session.server.close();
    },
  };
}

/** The tools under legal names, each with the annotations of the server. */
async function toolsOf(
  server: McpServer,
  mcpTools: (server: McpServer, options: { readonly signal: AbortSignal }) => Promise<readonly Tool[]>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, CallableTool>> {
  const listed = await server.listTools(signal);
  // The same list, so that both are in the same order.
  const tools = await mcpTools({ ...server, listTools: async (): Promise<readonly McpTool[]> => listed }, { signal });
  return new Map(
    tools.map((one, index) => {
      const { annotations, name: serverName } = listed[index]!;
      return [one.name, { ...(one as CallableTool), serverName, ...(annotations && { annotations }) }];
    }),
  );
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
async function guardedFetch(check: UrlCheck): Promise<typeof fetch> {
  const { httpClient } = await import('@treadle/tools');
  return httpClient({ check, maxBytes: MAX_BYTES }).fetch;
}

/** What the domain rules of the policy say. Without rules, only public addresses are allowed. */
function urlCheck(policy: Policy | undefined, allowPrivate: boolean): UrlCheck {
  if (policy && 'explain' in policy) {
    return async (url) => {
      const { rules } = await (policy as RulePolicy).explain({ name: '', touches: [{ type: 'url', url }] });
      const refusal = rules.find(
        ({ rule, verdict }) => (rule === 'domains' || rule === 'facts') && (verdict === 'deny' || verdict === 'ask'),
      );
      return refusal && `The policy does not allow this server: ${refusal.reason ?? 'it has to be approved'}.`;
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

const SECRET = /auth|key|token|secret|cookie|passw|credential/i;

const NO_SECRETS: Pick<Session, 'cleanError' | 'cleanResult'> = {
  cleanError: (text) => text,
  cleanResult: (text) => text,
};

/** An error may quote the URL, whose path and query may be a key, and any header; a result may repeat a credential. */
function cleanersOf(
  url: string,
  headers: Readonly<Record<string, string>>,
): Pick<Session, 'cleanError' | 'cleanResult'> {
  const { pathname, search } = new URL(url);
  const partsOf = (entries: readonly (readonly [string, string])[]): string[] =>
    entries.flatMap(([, value]) => [value, ...value.split(/\s+/)]);
  const all = Object.entries(headers);
  const query = [search, search.slice(1)];
  return {
    cleanError: without([url, pathname + search, pathname, ...query, ...partsOf(all)]),
    cleanResult: without([...query, ...partsOf(all.filter(([name]) => SECRET.test(name)))]),
  };
}

function without(secrets: readonly string[]): Clean {
  // The longest first: one may contain another.
  const ordered = [...new Set(secrets.filter(({ length }) => length >= LEAST_SECRET))].toSorted(
    (a, b) => b.length - a.length,
  );
  return (text) => ordered.reduce((rest, secret) => rest.replaceAll(secret, '<redacted>'), text);
}

/** A result without secrets in its texts. */
function cleaned(result: unknown, clean: Clean): unknown {
  const { content } = (result ?? {}) as { readonly content?: unknown };
  if (typeof content === 'string') return { ...(result as object), content: clean(content) };
  if (!Array.isArray(content)) return result;
  const blocks = content.map((block: { readonly text?: unknown }) =>
    typeof block.text === 'string' ? { ...block, text: clean(block.text) } : block,
  );
  return { ...(result as object), content: blocks };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
