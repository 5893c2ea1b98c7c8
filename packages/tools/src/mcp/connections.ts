import {
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type Client,
  type PriorDiscovery,
  type Transport,
} from '@modelcontextprotocol/client';
import type { ActiveCall } from './calls.ts';
import { makeClient } from './client.ts';
import { cleanText } from './describe.ts';
import { abortError, isConnectionLost, problemOf, refusesPosts, wasNotAccepted } from './errors.ts';
import { httpTransport } from './http.ts';
import {
  DEFAULT_LIST_TIMEOUT_MS,
  DEFAULT_TIMEOUT_MS,
  McpError,
  type McpServerInfo,
  type McpServerOptions,
} from './options.ts';
import { stdioTransport, type StdioTransport } from './stdio.ts';
import { passTasks } from './tasks.ts';
import { abortable } from './time-limit.ts';

/*
 * The connections to one MCP server, one after the other.
 *
 * 1. A connection is opened at the first use, by one attempt at a time. A lost one is opened again at the next use; the time between
 *    failed attempts grows.
 * 2. The version of the protocol is negotiated once. The result is kept for the connections that follow.
 */

const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 30_000;
/** Attempts to connect within one use. */
const MAX_ATTEMPTS = 3;
const MAX_LISTEN_ATTEMPTS = 10;

/** How long a server may take to show that it is alive; less if its calls have less. */
const MIN_PING_MS = 1_000;
const MAX_PING_MS = 5_000;

export interface Connection {
  readonly client: Client;
  readonly transport: Transport;
  readonly info: McpServerInfo;
  readonly calls: Set<ActiveCall>;
  isOpen: boolean;
  /** Changes of the list are reported. */
  isFollowed: boolean;
  /** Resolves when it is known whether the server hangs. */
  checked: Promise<void> | undefined;
  readonly endReason: () => McpError | undefined;
}

export interface Connections {
  /** The open connection, or a new one. */
  connected(signal: AbortSignal): Promise<Connection>;
  /** Runs something that has no effect on an open connection, and again on a new one if the server did not accept it. */
  use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T>;
  drop(connection: Connection): Promise<void>;
  /** A server that does not even answer a ping hangs. It is ended, and started again at the next use, which waits for that. */
  checkAlive(): Promise<void>;
  /** Calls the listener when the list of tools may have changed. Returns how to stop that. */
  onListChanged(listener: () => void): () => void;
  close(): Promise<void>;
}

export function openConnections(
  options: McpServerOptions,
  { onListChanged }: { readonly onListChanged: () => void },
): Connections {
  const { name, timeoutMs = DEFAULT_TIMEOUT_MS, listTimeoutMs = DEFAULT_LIST_TIMEOUT_MS } = options;
  const listeners = new Set<() => void>();
  let current: Promise<Connection> | undefined;
  let prior: PriorDiscovery | undefined;
  /** The server speaks HTTP with server-sent events, as before 2025-03-26. Known when it was connected. */
  let isSse = false;
  let wasConnected = false;
  let failures = 0;
  let mayConnectAt = 0;
  /** Aborts when the server is closed. */
  const closing = new AbortController();

  async function connected(signal: AbortSignal): Promise<Connection> {
    for (let attempt = 1; ; attempt++) {
      if (closing.signal.aborted) throw new McpError('closed', `MCP server "${name}" was closed.`);
      const connecting = (current ??= connectLater());
      try {
        const connection = await abortable(connecting, signal);
        if (connection.checked) await abortable(connection.checked, signal);
        if (connection.isOpen) return connection;
        if (current === connecting) current = undefined;
        if (attempt < MAX_ATTEMPTS) continue;
        throw connection.endReason() ?? new McpError('ended', `The connection to MCP server "${name}" ends at once.`);
      } catch (error) {
        if (signal.aborted) throw abortError(name, signal);
        const problem = problemOf(name, error);
        if (attempt >= MAX_ATTEMPTS || !RETRIED.has(problem.code)) throw problem;
      }
    }
  }

  /** Waits until the time of the next attempt. */
  async function connectLater(): Promise<Connection> {
    try {
      const wait = mayConnectAt - Date.now();
      if (wait > 0) await abortable(new Promise((done) => void setTimeout(done, wait)), closing.signal);
      const connection = await open();
      failures = 0;
      // The list may have changed while there was no connection.
      if (wasConnected && listeners.size > 0) queueMicrotask(listChanged);
      wasConnected = true;
      follow(connection);
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
      return await openOnce(prior);
    } catch (error) {
      if ('url' in options && refusesPosts(error)) return openSse(error);
      const isNegotiation = error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed;
      // Some servers end at any request before `initialize`.
      if (!isNegotiation || wasProbed || !('command' in options)) throw error;
      return openOnce({ kind: 'legacy' });
    }
  }

  /** The server may be an older one. `refusal`: what it has answered to a newer request. */
  async function openSse(refusal: unknown): Promise<Connection> {
    isSse = !isSse;
    try {
      return await openOnce(isSse ? { kind: 'legacy' } : undefined);
    } catch {
      isSse = !isSse;
      throw refusal;
    }
  }

  async function openOnce(verdict: PriorDiscovery | undefined): Promise<Connection> {
    /** Why this side ended the connection. */
    let failure: McpError | undefined;
    const transport: ReturnType<typeof httpTransport> | StdioTransport =
      'command' in options
        ? stdioTransport(options, MAX_MESSAGE_BYTES)
        : httpTransport(options, {
            maxMessageBytes: MAX_MESSAGE_BYTES,
            onFailure: (error) => {
              failure ??= error;
              void transport.close();
            },
            isSse,
          });
    const calls = new Set<ActiveCall>();
    const client = makeClient(options, { calls, onListChanged: listChanged });
    /** Why the connection ended, if that is known. */
    const endReason = (): McpError | undefined => {
      if (!('describeEnd' in transport)) return failure;
      const end = transport.describeEnd();
      return (
        transport.failure ??
        (end === undefined ? undefined : new McpError('ended', `MCP server "${name}" ended: ${end}.`))
      );
    };
    const stop = (): void => void transport.close().catch(ignore);
    closing.signal.addEventListener('abort', stop);
    passTasks(transport);
    try {
      const connecting = client.connect(transport, { timeout: listTimeoutMs, ...(verdict && { prior: verdict }) });
      await abortable(connecting, closing.signal);
    } catch (error) {
      await client.close().catch(() => {});
      await transport.close().catch(() => {});
      const isNegotiation = error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed;
      throw (isNegotiation ? failure : endReason()) ?? error;
    } finally {
      closing.signal.removeEventListener('abort', stop);
    }
    const discover = client.getDiscoverResult();
    prior = discover && client.getProtocolEra() === 'modern' ? { kind: 'modern', discover } : { kind: 'legacy' };
    const version = client.getServerVersion();
    const instructions = client.getInstructions();
    const connection: Connection = {
      client,
      transport,
      calls,
      isOpen: true,
      isFollowed: false,
      checked: undefined,
      endReason,
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

  function listChanged(): void {
    onListChanged();
    for (const listener of listeners) {
      try {
        listener();
      } catch {
        // Errors thrown by a listener are ignored.
      }
    }
  }

  /** Servers of newer versions report changes only to those who ask for it. */
  function follow(connection: Connection): void {
    const { client, info } = connection;
    const { tools } = info.capabilities as { readonly tools?: { readonly listChanged?: boolean } };
    if (connection.isFollowed || !connection.isOpen || listeners.size === 0) return;
    if (client.getProtocolEra() !== 'modern' || tools?.listChanged !== true) return;
    connection.isFollowed = true;
    void (async () => {
      for (let attempt = 0; connection.isOpen && listeners.size > 0 && attempt < MAX_LISTEN_ATTEMPTS; attempt++) {
        try {
          const subscription = await client.listen({ toolsListChanged: true }, { timeout: listTimeoutMs });
          const started = Date.now();
          if ((await subscription.closed) === 'local') break;
          if (Date.now() - started > MAX_DELAY_MS) attempt = 0;
        } catch {
          // It is tried again.
        }
        await new Promise(
          (done) => void setTimeout(done, Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt)).unref(),
        );
        if (connection.isOpen) listChanged();
      }
      connection.isFollowed = false;
    })();
  }

  async function use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    for (let isRepeated = false; ; isRepeated = true) {
      const connection = await connected(signal);
      try {
        return await abortable(work(connection), signal);
      } catch (error) {
        if (signal.aborted) throw error;
        if (!mayConnectAgain(error) || isRepeated) throw connection.endReason() ?? problemOf(name, error);
        await drop(connection);
      }
    }
  }

  /**
   * Whether another connection could succeed. A server that spoke the newer version may have been replaced by an older one,
   * so its version is negotiated again.
   */
  function mayConnectAgain(error: unknown): boolean {
    const isRefused = error instanceof ProtocolError || error instanceof SdkHttpError;
    if (prior?.kind !== 'modern' || !(isRefused || wasNotAccepted(error))) return wasNotAccepted(error);
    prior = undefined;
    return true;
  }

  async function checkAlive(): Promise<void> {
    const connection = await current?.catch(ignore);
    if (!connection?.isOpen) return;
    connection.checked ??= ping(connection).finally(() => (connection.checked = undefined));
    await connection.checked;
  }

  async function ping(connection: Connection): Promise<void> {
    const { client } = connection;
    const request = { timeout: Math.max(MIN_PING_MS, Math.min(MAX_PING_MS, timeoutMs / 2)) };
    try {
      await (client.getProtocolEra() === 'modern' ? client.discover(request) : client.ping(request));
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      if (code === SdkErrorCode.RequestTimeout || isConnectionLost(error)) void drop(connection);
    }
  }

  async function drop(connection: Connection): Promise<void> {
    connection.isOpen = false;
    await connection.client.close().catch(ignore);
    await connection.transport.close().catch(ignore);
  }

  return {
    connected,
    use,
    drop,
    checkAlive,
    onListChanged(listener) {
      listeners.add(listener);
      void current?.then(follow, ignore);
      return () => void listeners.delete(listener);
    },
    async close() {
      closing.abort(new McpError('closed', `MCP server "${name}" was closed.`));
      const connection = await current?.catch(ignore);
      if (connection) await drop(connection);
    },
  };
}

/** Worth another attempt. A process that ends while it is connected to would end again. */
const RETRIED: ReadonlySet<string> = new Set(['unreachable']);

function ignore(): void {}
