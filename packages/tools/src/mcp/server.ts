import {
  Client,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  UnauthorizedError,
  type PriorDiscovery,
  type Transport,
} from '@modelcontextprotocol/client';
import { messageOf, TreadleError, type ToolContext, type ToolOutput } from '@treadle/core';
import { outputOf } from './content.ts';
import { cleanText, describeTools } from './describe.ts';
import { httpTransport } from './http.ts';
import {
  McpError,
  type LeftOutTool,
  type McpServer,
  type McpServerInfo,
  type McpServerOptions,
  type McpTool,
} from './options.ts';
import { safeValidator } from './schemas.ts';
import { stdioTransport, type StdioTransport } from './stdio.ts';

/*
 * The connection to one MCP server.
 *
 * 1. It is opened at the first use, by one attempt at a time. A lost one is opened again at the next use; the time between
 *    failed attempts grows.
 * 2. The version of the protocol is negotiated once. The result is kept for the connections that follow.
 * 3. Nothing that a server does takes longer than `listTimeoutMs` or `timeoutMs`, or needs more memory than a few messages.
 */

const DEFAULT_TIMEOUT_MS = 60_000;
const DEFAULT_LIST_TIMEOUT_MS = 30_000;
/** A server that is a process and does not answer the question for its version for so long speaks an older version. */
const MAX_PROBE_MS = 10_000;
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
const MAX_PAGES = 64;
const MAX_TOOLS = 5_000;
const MAX_LIST_CHARS = 16 * 1024 * 1024;
/** The SDK limits every request. Calls have a limit of their own that does not count the time of people. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 30_000;
/** Attempts to connect within one use. */
const MAX_ATTEMPTS = 3;

interface Connection {
  readonly client: Client;
  readonly transport: Transport;
  readonly info: McpServerInfo;
  isOpen: boolean;
  /** Why this side ended it. */
  readonly failure: () => McpError | undefined;
}

export function mcpServer(options: McpServerOptions): McpServer {
  checkOptions(options);
  const { name, timeoutMs = DEFAULT_TIMEOUT_MS, listTimeoutMs = DEFAULT_LIST_TIMEOUT_MS } = options;
  const listeners = new Set<() => void>();
  let current: Promise<Connection> | undefined;
  let prior: PriorDiscovery | undefined;
  let failures = 0;
  let mayConnectAt = 0;
  let isClosed = false;
  let leftOut: readonly LeftOutTool[] = [];

  async function connected(signal: AbortSignal): Promise<Connection> {
    for (let attempt = 1; ; attempt++) {
      if (isClosed) throw new McpError('closed', `MCP server "${name}" was closed.`);
      const connecting = (current ??= connectLater());
      try {
        const connection = await abortable(connecting, signal);
        if (connection.isOpen) return connection;
        if (current === connecting) current = undefined;
      } catch (error) {
        if (signal.aborted) throw abortError(name, signal);
        const problem = problemOf(error);
        if (attempt >= MAX_ATTEMPTS || !RETRIED.has(problem.code)) throw problem;
      }
    }
  }

  /** Waits until the time of the next attempt. */
  async function connectLater(): Promise<Connection> {
    try {
      const wait = mayConnectAt - Date.now();
      if (wait > 0) await new Promise((done) => void setTimeout(done, wait));
      const connection = await open();
      failures = 0;
      return connection;
    } catch (error) {
      current = undefined;
      mayConnectAt = Date.now() + Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures++);
      throw error;
    }
  }

  async function open(): Promise<Connection> {
    const wasProbed = prior !== undefined;
    try {
      return await openOnce();
    } catch (error) {
      const isNegotiation = error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed;
      // Some servers end at any request before `initialize`.
      if (!isNegotiation || wasProbed || !('command' in options)) throw error;
      return openOnce({ kind: 'legacy' });
    }
  }

  async function openOnce(verdict = prior): Promise<Connection> {
    /** Why this side ended the connection. */
    let failure: McpError | undefined;
    const fail = (error: McpError): void => {
      failure ??= error;
      void transport.close();
    };
    const transport: Transport | StdioTransport =
      'command' in options
        ? stdioTransport(options, MAX_MESSAGE_BYTES)
        : httpTransport(options, MAX_MESSAGE_BYTES, fail);
    const client = new Client(
      { name: 'treadle', version: '0.0.0' },
      {
        capabilities: {},
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(MAX_PROBE_MS, listTimeoutMs / 2) } },
        listMaxPages: MAX_PAGES,
        jsonSchemaValidator: safeValidator,
      },
    );
    limitLists(client, name);
    client.setNotificationHandler('notifications/tools/list_changed', () => {
      for (const listener of listeners) listener();
    });
    try {
      await client.connect(transport, { timeout: listTimeoutMs, ...(verdict && { prior: verdict }) });
    } catch (error) {
      await client.close().catch(() => {});
      await transport.close().catch(() => {});
      if (failure) throw failure;
      throw explained(error, transport);
    }
    const discover = client.getDiscoverResult();
    prior = discover && client.getProtocolEra() === 'modern' ? { kind: 'modern', discover } : { kind: 'legacy' };
    const version = client.getServerVersion();
    const instructions = client.getInstructions();
    const connection: Connection = {
      client,
      transport,
      isOpen: true,
      failure: () => failure,
      info: {
        name: version && cleanText(version.name, 256),
        version: version && cleanText(version.version, 256),
        protocolVersion: client.getNegotiatedProtocolVersion() ?? '',
        capabilities: { ...client.getServerCapabilities() },
        instructions: instructions === undefined ? undefined : cleanText(instructions),
      },
    };
    Object.assign(client, { onclose: () => (connection.isOpen = false) });
    return connection;
  }

  function explained(error: unknown, transport: Transport): unknown {
    const end = 'describeEnd' in transport ? (transport as StdioTransport).describeEnd() : undefined;
    const failure = 'failure' in transport ? (transport as StdioTransport).failure : undefined;
    if (failure) return failure;
    if (end === undefined || error instanceof McpError) return error;
    if (error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed) return error;
    return new McpError('ended', `MCP server "${name}" ended while it was connected to: ${end}.`, { cause: error });
  }

  function problemOf(error: unknown): McpError {
    return error instanceof McpError ? error : mcpErrorOf(name, error);
  }

  async function listTools(signal?: AbortSignal): Promise<readonly McpTool[]> {
    return within(name, listTimeoutMs, signal, async (limited) => {
      const { client } = await connected(limited);
      try {
        const { tools } = await client.listTools(undefined, {
          signal: limited,
          timeout: listTimeoutMs,
          cacheMode: 'refresh',
        });
        const described = describeTools(tools);
        leftOut = described.leftOut;
        const { tools: wanted } = options;
        return wanted ? described.tools.filter((one) => wanted.includes(one.name)) : described.tools;
      } catch (error) {
        throw limited.aborted ? abortError(name, limited) : problemOf(error);
      }
    });
  }

  async function callTool(tool: string, input: unknown, context: ToolContext): Promise<ToolOutput> {
    return within(name, timeoutMs, context.signal, async (signal) => {
      const { client } = await connected(signal);
      try {
        const result = await client.callTool(
          { name: tool, arguments: input as Record<string, unknown> },
          { signal, timeout: NO_TIMEOUT_MS, onprogress: (progress) => context.report(progress) },
        );
        return outputOf(result);
      } catch (error) {
        throw signal.aborted ? abortError(name, signal) : problemOf(error);
      }
    });
  }

  return {
    name,
    options,
    connect: (signal) => within(name, listTimeoutMs, signal, async (limited) => (await connected(limited)).info),
    listTools,
    get leftOut() {
      return leftOut;
    },
    callTool,
    onToolsChanged(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async close() {
      isClosed = true;
      const connection = await current?.catch(() => undefined);
      await connection?.client.close();
      await connection?.transport.close();
    },
  };
}

/** Worth another attempt. */
const RETRIED: ReadonlySet<string> = new Set(['ended', 'unreachable']);

/** Runs `work` with a signal that aborts with `signal`, and after `timeoutMs`. Rejects then, also if `work` goes on. */
async function within<T>(
  name: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
  work: (limited: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  const timer = setTimeout(() => {
    const remedy = 'Call it with less to do, or raise its time limit.';
    controller.abort(new McpError('timeout', `MCP server "${name}" took longer than ${timeoutMs} ms. ${remedy}`));
  }, timeoutMs);
  signal?.addEventListener('abort', abort);
  if (signal?.aborted) abort();
  try {
    return await abortable(work(controller.signal), controller.signal);
  } catch (error) {
    throw controller.signal.aborted ? abortError(name, controller.signal) : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function abortError(name: string, { reason }: AbortSignal): Error {
  if (reason instanceof McpError) return reason;
  return new McpError('aborted', `The request to MCP server "${name}" was cancelled.`, { cause: reason });
}

/** Counts what the pages of a listing contain. The SDK limits only their number. */
function limitLists(client: Client, name: string): void {
  const request = client.request.bind(client) as (...args: readonly unknown[]) => Promise<unknown>;
  let tools = 0;
  let chars = 0;
  const counted = async (
    asked: { method: string; params?: { cursor?: string } },
    ...rest: unknown[]
  ): Promise<unknown> => {
    const result = await request(asked, ...rest);
    if (asked.method !== 'tools/list') return result;
    if (asked.params?.cursor === undefined) tools = chars = 0;
    tools += (result as { tools: readonly unknown[] }).tools.length;
    chars += JSON.stringify(result).length;
    if (tools <= MAX_TOOLS && chars <= MAX_LIST_CHARS) return result;
    const what = tools > MAX_TOOLS ? `more than ${MAX_TOOLS} tools` : `more than ${MAX_LIST_CHARS} characters`;
    throw new McpError('too-large', `MCP server "${name}" lists ${what}. Choose some with its own options.`);
  };
  client.request = counted as unknown as Client['request'];
}

function mcpErrorOf(name: string, error: unknown): McpError {
  const about = `MCP server "${name}"`;
  const why = cleanText(messageOf(error), 1_000);
  const cause = { cause: error };
  if (error instanceof UnauthorizedError) {
    return new McpError(
      'unauthorized',
      `${about} wants a sign-in. Sign in, or give credentials in its headers.`,
      cause,
    );
  }
  if (error instanceof SdkHttpError) {
    const { status } = error.data;
    if (status === 401 || status === 403) {
      const remedy = 'Sign in, or check the credentials in its headers';
      return new McpError('unauthorized', `${about} refused the credentials (HTTP ${status}). ${remedy}.`, cause);
    }
    const code = status >= 500 || status === 429 ? 'unreachable' : 'protocol';
    return new McpError(code, `${about} answered with HTTP ${status}: ${why}`, cause);
  }
  if (error instanceof ProtocolError) return new McpError('refused', `${about} refused: ${why}`, cause);
  if (error instanceof SdkError) {
    if (error.code === SdkErrorCode.RequestTimeout)
      return new McpError('timeout', `${about} did not answer in time.`, cause);
    if (error.code === SdkErrorCode.ConnectionClosed || error.code === SdkErrorCode.NotConnected) {
      return new McpError('ended', `The connection to ${about} has ended.`, cause);
    }
    return new McpError('protocol', `${about} does not follow the protocol: ${why}`, cause);
  }
  if (error instanceof TypeError) {
    const { cause: inner } = error as { cause?: unknown };
    const reason = inner === undefined ? why : cleanText(messageOf(inner), 1_000);
    return new McpError('unreachable', `${about} cannot be reached: ${reason}`, cause);
  }
  return new McpError('protocol', `${about} failed: ${why}`, cause);
}

function checkOptions(options: McpServerOptions): void {
  const { name, timeoutMs, listTimeoutMs } = options;
  const misuse = (what: string): TreadleError => new TreadleError('invalid-options', `MCP server ${what}`);
  if (typeof name !== 'string' || name === '') throw misuse('has no name. Give "name".');
  if ('command' in options === 'url' in options) throw misuse(`"${name}" needs either "command" or "url".`);
  for (const [key, value] of Object.entries({ timeoutMs, listTimeoutMs })) {
    if (value !== undefined && !(value > 0 && value <= NO_TIMEOUT_MS)) {
      throw misuse(`"${name}" has ${key} ${String(value)}. Give a number above 0.`);
    }
  }
  if ('url' in options && !/^https?:$/.test(URL.parse(options.url)?.protocol ?? '')) {
    throw misuse(`"${name}" has a url that is not an http or https address.`);
  }
}
