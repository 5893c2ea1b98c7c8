import {
  Client,
  INVALID_REQUEST,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SseError,
  UnauthorizedError,
  type CallToolResult,
  type PriorDiscovery,
  type Transport,
} from '@modelcontextprotocol/client';
import {
  messageOf,
  Parked,
  TreadleError,
  type Broken,
  type Finished,
  isDetached,
  type ToolContext,
  type ToolOutput,
  type Verification,
} from '@treadle/core';
import { sample, startCall, withUsage, type ActiveCall } from './calls.ts';
import { outputOf } from './content.ts';
import { cleanText, describeTools } from './describe.ts';
import { httpTransport, STREAM_ENDED } from './http.ts';
import {
  DEFAULT_TIMEOUT_MS,
  McpError,
  type LeftOutTool,
  type McpServer,
  type McpServerInfo,
  type McpServerOptions,
  type McpTool,
} from './options.ts';
import { elicit } from './questions.ts';
import { fulfil, requestTool, rootsOf } from './request-tool.ts';
import { safeValidator } from './schemas.ts';
import { stdioTransport, type StdioTransport } from './stdio.ts';
import {
  cancelTask,
  followTask,
  lookAtTask,
  mayBecomeTask,
  passTasks,
  relatedTask,
  taskIn,
  taskOfCall,
  taskQuestion,
  TASKS,
  type FollowedTask,
} from './tasks.ts';

/*
 * The connection to one MCP server.
 *
 * 1. It is opened at the first use, by one attempt at a time. A lost one is opened again at the next use; the time between
 *    failed attempts grows.
 * 2. The version of the protocol is negotiated once. The result is kept for the connections that follow.
 * 3. Nothing that a server does takes longer than `listTimeoutMs` or `timeoutMs`, or needs more memory than a few messages.
 */

const DEFAULT_LIST_TIMEOUT_MS = 30_000;
/** A server that is a process and does not answer the question for its version for so long speaks an older version. */
const MAX_PROBE_MS = 10_000;
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
const MAX_PAGES = 64;
const MAX_TOOLS = 5_000;
const MAX_LIST_CHARS = 16 * 1024 * 1024;
const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 30_000;
/** The part of the time of a call after which one that is a task is parked, at the latest: before its time is over. */
const PARK_AFTER = 0.9;
/** Attempts to connect within one use. */
const MAX_ATTEMPTS = 3;

/** How long a server may take to show that it is alive; less if its calls have less. */
const MIN_PING_MS = 1_000;
const MAX_PING_MS = 5_000;
const MAX_LISTEN_ATTEMPTS = 10;
const HEADER_MISMATCH = -32020;

interface Connection {
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

interface Listed {
  readonly tools: readonly McpTool[];
  readonly leftOut: readonly LeftOutTool[];
}

/** What a server lists. */
interface Listing {
  readonly connection: Connection;
  readonly listed: Promise<Listed>;
  /** The server has reported a change since. */
  isStale: boolean;
}

export function mcpServer(options: McpServerOptions): McpServer {
  checkOptions(options);
  const { name, timeoutMs = DEFAULT_TIMEOUT_MS, listTimeoutMs = DEFAULT_LIST_TIMEOUT_MS } = options;
  const listeners = new Set<() => void>();
  let current: Promise<Connection> | undefined;
  let prior: PriorDiscovery | undefined;
  /** The server speaks HTTP with server-sent events, as before 2025-03-26. Known when it was connected. */
  let isSse = false;
  let listing: Listing | undefined;
  let leftOut: readonly LeftOutTool[] = [];
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
        const problem = problemOf(error);
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
      if (listing && listeners.size > 0) queueMicrotask(listChanged);
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
    const client = makeClient(calls);
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

  function makeClient(calls: ReadonlySet<ActiveCall>): Client {
    const { roots, sampling } = options;
    const client = new Client(
      { name: 'treadle', version: '0.0.0' },
      {
        capabilities: {
          elicitation: { form: {}, url: {} },
          ...(roots && { roots: {} }),
          ...(sampling && { sampling: {} }),
          extensions: { [TASKS]: {} },
        },
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(MAX_PROBE_MS, listTimeoutMs / 2) } },
        listMaxPages: MAX_PAGES,
        jsonSchemaValidator: safeValidator,
      },
    );
    limitLists(client, name);
    client.setNotificationHandler('notifications/tools/list_changed', listChanged);
    client.setRequestHandler('elicitation/create', async ({ params }, { mcpReq }) => {
      const call = callAsking(calls, params);
      reportTo(client, mcpReq._meta?.progressToken, 'A person is asked.');
      const id = `elicitation ${call.questions++}`;
      return elicit(name, call, params, call.task === undefined ? id : taskQuestion(call.task, id));
    });
    if (roots) client.setRequestHandler('roots/list', () => ({ roots: rootsOf(roots) }));
    if (sampling) {
      client.setRequestHandler('sampling/createMessage', async ({ params }, { mcpReq }) => {
        reportTo(client, mcpReq._meta?.progressToken, 'A model is asked.');
        return sample(name, callAsking(calls, params), sampling, params, mcpReq.signal);
      });
    }
    return client;
  }

  /**
   * The call that a request of the server is about. Servers of older versions say that only of tasks. Calls of one run ask the
   * same people and share their limits, so any of them will do; those of several runs must not be mixed up.
   */
  function callAsking(calls: ReadonlySet<ActiveCall>, params: Parameters<typeof relatedTask>[0]): ActiveCall {
    const task = relatedTask(params);
    const [first, ...others] = [...calls].filter((call) => task === undefined || call.task === task);
    if (!first) throw new ProtocolError(INVALID_REQUEST, 'There is no call in progress that could ask.');
    if (others.every(({ runId }) => runId === first.runId)) return first;
    throw new ProtocolError(
      INVALID_REQUEST,
      'Calls of several runs are in progress, and the request does not name one.',
    );
  }

  function listChanged(): void {
    if (listing) listing.isStale = true;
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

  function problemOf(error: unknown): McpError {
    if (error instanceof McpError) return error;
    // The SDK wraps what fails while it negotiates the version.
    const wraps =
      error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed && error.cause instanceof Error;
    return wraps ? problemOf(error.cause) : mcpErrorOf(name, error);
  }

  /** Several callers may wait for it, so it has no signal of theirs. */
  function list(connection: Connection): Promise<Listed> {
    const made: Listing = { connection, isStale: false, listed: listNow(connection) };
    listing = made;
    made.listed.catch(() => {
      if (listing === made) listing = undefined;
    });
    return made.listed;
  }

  async function listNow({ client }: Connection): Promise<Listed> {
    const signal = AbortSignal.timeout(listTimeoutMs);
    const { tools } = await client.listTools(undefined, { signal, timeout: listTimeoutMs, cacheMode: 'refresh' });
    const described = describeTools(tools);
    ({ leftOut } = described);
    return described;
  }

  /** Runs something that has no effect on an open connection, and again on a new one if the server did not accept it. */
  async function onConnection<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    for (let isRepeated = false; ; isRepeated = true) {
      const connection = await connected(signal);
      try {
        return await abortable(work(connection), signal);
      } catch (error) {
        if (signal.aborted) throw error;
        if (!mayConnectAgain(error) || isRepeated) throw connection.endReason() ?? problemOf(error);
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

  async function listTools(signal?: AbortSignal): Promise<readonly McpTool[]> {
    const { tools } = await within(name, listTimeoutMs, signal, (limited) => onConnection(limited, list));
    const { tools: wanted } = options;
    return wanted ? tools.filter((one) => wanted.includes(one.name)) : tools;
  }

  /** The tool as the server describes it now. */
  async function definitionOf(connection: Connection, tool: string): Promise<McpTool> {
    const { tools: wanted } = options;
    if (wanted && !wanted.includes(tool)) {
      throw new McpError('refused', `The tool ${JSON.stringify(tool)} of MCP server "${name}" is not among "tools".`);
    }
    const isCurrent = listing?.connection === connection && !listing.isStale;
    const { tools } = await (isCurrent ? listing!.listed : list(connection));
    const found = tools.find((one) => one.name === tool);
    if (found) return found;
    throw new McpError(
      'refused',
      `MCP server "${name}" has no tool ${JSON.stringify(tool)} any more. Use another one.`,
    );
  }

  async function callTool(
    tool: string,
    input: unknown,
    context: ToolContext,
    fingerprint?: string,
  ): Promise<ToolOutput | Finished | Broken | Parked> {
    const call = startCall(name, timeoutMs, context);
    const known = taskOfCall(name, context);
    const work = async (): Promise<CallToolResult | Parked> => {
      if (known !== undefined) return resumeTask(call, tool, { id: known });
      const result = await callWithin(call, tool, input, fingerprint);
      const created = taskIn(result);
      return created ? resumeTask(call, tool, { id: created.id, created }) : result;
    };
    try {
      const result = await abortable(work(), call.signal);
      if (result instanceof Parked) return call.broken ?? result;
      return call.broken ?? withUsage(outputOf(result), call);
    } catch (error) {
      if (call.broken) return call.broken;
      const problem = call.signal.aborted ? abortError(name, call.signal) : problemOf(error);
      if (call.signal.aborted && !call.isWaiting()) void checkAlive();
      if (call.used.length === 0) throw problem;
      return withUsage({ content: [{ type: 'error', text: problem.message }], isError: true }, call);
    } finally {
      call.end();
    }
  }

  async function callWithin(
    call: ActiveCall,
    tool: string,
    input: unknown,
    fingerprint: string | undefined,
  ): Promise<CallToolResult> {
    for (let isRepeated = false; ; isRepeated = true) {
      const { connection, definition } = await onConnection(call.signal, async (opened) => ({
        connection: opened,
        definition: await definitionOf(opened, tool),
      }));
      if (fingerprint !== undefined && definition.fingerprint !== fingerprint) {
        const what = `MCP server "${name}" has changed the tool ${JSON.stringify(tool)} since it was offered`;
        throw new McpError(
          'changed',
          `${what}, so it was not called. It can be called when it is offered as it is now.`,
        );
      }
      await hold(connection, call);
      // The server asks its questions again from the first one on.
      call.questions = call.asked = 0;
      connection.calls.add(call);
      try {
        const result = await requestTool({ options, client: connection.client, definition, input, call });
        return taskIn(result) ? result : checkedResult(definition, result);
      } catch (error) {
        if (call.signal.aborted) throw error;
        const isLost = isConnectionLost(error) || !connection.isOpen;
        const wasRefused = wasNotAccepted(error);
        if (wasRefused || isLost) await drop(connection);
        if (isHeaderMismatch(error) && listing) listing.isStale = true;
        const mayRepeat = wasRefused || isHeaderMismatch(error) || (isLost && isRepeatable(options, definition));
        if (mayRepeat && !isRepeated) continue;
        if (!isLost) throw error;
        const why = connection.endReason()?.message ?? `The connection to MCP server "${name}" was lost.`;
        throw new McpError('ended', `${why} It is not known whether the call took effect.`, { cause: error });
      } finally {
        connection.calls.delete(call);
      }
    }
  }

  /** A call that is a task, on any connection. */
  function following(call: ActiveCall, task: Pick<FollowedTask, 'id' | 'created'>): FollowedTask {
    const { parkAfterMs = timeoutMs * PARK_AFTER } = options;
    return {
      ...task,
      server: name,
      call,
      // A run without a journal could not be resumed.
      parkAfterMs: call.context.lease === undefined ? undefined : Math.min(parkAfterMs, timeoutMs * PARK_AFTER),
      onClient: (signal, work) =>
        onConnection(signal, async (connection) => {
          await hold(connection, call);
          connection.calls.add(call);
          try {
            return await work(connection.client);
          } catch (error) {
            // It is the task that is refused, and not the version.
            throw error instanceof ProtocolError ? mcpErrorOf(name, error) : error;
          } finally {
            connection.calls.delete(call);
          }
        }),
      fulfil: (requests, idOf) => fulfil({ options, call }, requests, idOf),
    };
  }

  /** Waits for the result of a call that is a task. */
  async function resumeTask(
    call: ActiveCall,
    tool: string,
    { follow: followed = followTask, ...task }: Pick<FollowedTask, 'id' | 'created'> & { follow?: typeof followTask },
  ): Promise<CallToolResult | Parked> {
    const result = await followed(following(call, task));
    if (result instanceof Parked) return result;
    return checkedResult(await onConnection(call.signal, (opened) => definitionOf(opened, tool)), result);
  }

  async function verifyCall(tool: string, context: ToolContext): Promise<Verification> {
    const id = taskOfCall(name, context);
    if (id === undefined) return { type: 'unknown' };
    const call = startCall(name, timeoutMs, context);
    try {
      if (runHasEnded(context)) {
        await cancelTask(following(call, { id }));
        return { type: 'unknown' };
      }
      const result = await abortable(resumeTask(call, tool, { id, follow: lookAtTask }), call.signal);
      return result instanceof Parked ? result : { type: 'done', result: outputOf(result) };
    } catch (error) {
      const problem = call.signal.aborted ? abortError(name, call.signal) : problemOf(error);
      // Anything else may pass: the call stays parked.
      if (!(problem instanceof McpError) || !FINAL.has(problem.code)) throw problem;
      const content = [{ type: 'error' as const, text: problem.message }];
      return { type: 'done', result: { content, isError: true, errorType: problem.errorType } };
    } finally {
      call.end();
    }
  }

  function checkedResult(definition: McpTool, result: CallToolResult): CallToolResult {
    const { outputSchema } = definition;
    if (!outputSchema || result.isError === true) return result;
    const about = `The call was made, but MCP server "${name}" returned a result that does not match its own output schema`;
    if (result.structuredContent === undefined)
      throw new McpError('protocol', `${about}: it has no structured content.`);
    const { valid, errorMessage } = safeValidator.getValidator(outputSchema)(result.structuredContent);
    if (valid) return result;
    throw new McpError('protocol', `${about}: ${cleanText(errorMessage, 1_000)}`);
  }

  /** Records the process with the run, so that it is killed if it survives this process. */
  async function hold({ transport }: Connection, { context }: ActiveCall): Promise<void> {
    const started = 'process' in transport ? (transport as StdioTransport).process : undefined;
    if (!started || runHasEnded(context)) return;
    try {
      await context.hold(`mcp ${name} ${started.pid}`, () => transport, ignore, { process: () => started });
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'no-run') throw error;
    }
  }

  /** A server that does not even answer a ping hangs. It is ended, and started again at the next use, which waits for that. */
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
    name,
    options,
    connect: (signal) => within(name, listTimeoutMs, signal, async (limited) => (await connected(limited)).info),
    listTools,
    get leftOut() {
      return leftOut;
    },
    callTool,
    verifyCall,
    mayBecomeTask: (tool) => listing !== undefined && mayBecomeTask(listing.connection.client, tool),
    onToolsChanged(listener) {
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

function ignore(): void {}

/** Tells a server that its request is being worked on. */
function reportTo(client: Client, progressToken: string | number | undefined, message: string): void {
  if (progressToken === undefined) return;
  client
    .notification({ method: 'notifications/progress', params: { progressToken, progress: 0, message } })
    .catch(ignore);
}

function isConnectionLost(error: unknown): boolean {
  if (error instanceof ProtocolError) return error.code === STREAM_ENDED;
  if (error instanceof McpError) return error.code === 'ended' || error.code === 'too-large';
  return (
    error instanceof SdkError &&
    (error.code === SdkErrorCode.ConnectionClosed || error.code === SdkErrorCode.NotConnected)
  );
}

/** Whether the address does not take messages, as one that only sends events, or the reverse. */
function refusesPosts(error: unknown): boolean {
  if (error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed) return refusesPosts(error.cause);
  const status = error instanceof SdkHttpError ? error.status : error instanceof SseError ? error.code : undefined;
  return status === 400 || status === 404 || status === 405;
}

/** Nothing has reached the server, or it does not know the session any more: it was started again, for example. */
function wasNotAccepted(error: unknown): boolean {
  if (error instanceof SdkHttpError) {
    const { status, text } = error.data as { readonly status: number; readonly text?: unknown };
    // Many servers answer 400 instead of the 404 that the protocol requires.
    return status === 404 || (status === 400 && typeof text === 'string' && /session/i.test(text));
  }
  const { cause } = (error ?? {}) as { readonly cause?: { readonly code?: unknown } };
  return error instanceof TypeError && cause?.code === 'ECONNREFUSED';
}

function isHeaderMismatch(error: unknown): boolean {
  return error instanceof ProtocolError && error.code === HEADER_MISMATCH;
}

/** The server says that the call may be made twice, and is believed. */
function isRepeatable({ trustAnnotations }: McpServerOptions, { annotations }: McpTool): boolean {
  return (
    trustAnnotations === true && (annotations?.['readOnlyHint'] === true || annotations?.['idempotentHint'] === true)
  );
}

/** What a server says of a task for good. */
const FINAL: ReadonlySet<string> = new Set(['refused', 'protocol', 'too-large']);

/** Worth another attempt. A process that ends while it is connected to would end again. */
const RETRIED: ReadonlySet<string> = new Set(['unreachable']);

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
    return new McpError('unauthorized', `${about} wants a sign-in. Sign in, or give credentials in its headers.`, {
      ...cause,
      httpStatus: 401,
    });
  }
  if (error instanceof SdkHttpError) {
    const { status } = error.data;
    const facts = { ...cause, httpStatus: status };
    if (status === 401 || status === 403) {
      const remedy = 'Sign in, or check the credentials in its headers';
      return new McpError('unauthorized', `${about} refused the credentials (HTTP ${status}). ${remedy}.`, facts);
    }
    const code = status >= 500 || status === 429 ? 'unreachable' : 'protocol';
    return new McpError(code, `${about} answered with HTTP ${status}: ${why}`, facts);
  }
  if (error instanceof ProtocolError) {
    return new McpError('refused', `${about} refused: ${why}`, { ...cause, protocolCode: error.code });
  }
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

/** It was cancelled, or is over, while the call was parked. */
function runHasEnded({ signal }: ToolContext): boolean {
  return signal.aborted && !isDetached(signal);
}

function checkOptions(options: McpServerOptions): void {
  const { name, timeoutMs, listTimeoutMs } = options;
  const misuse = (what: string): TreadleError => new TreadleError('invalid-options', `MCP server ${what}`);
  if (typeof name !== 'string' || name === '') throw misuse('has no name. Give "name".');
  if ('command' in options === 'url' in options) throw misuse(`"${name}" needs either "command" or "url".`);
  for (const [key, value] of Object.entries({ timeoutMs, listTimeoutMs })) {
    if (value !== undefined && !(value > 0 && value < 2 ** 31)) {
      throw misuse(`"${name}" has ${key} ${String(value)}. Give a number above 0.`);
    }
  }
  if ('url' in options && !/^https?:$/.test(URL.parse(options.url)?.protocol ?? '')) {
    throw misuse(`"${name}" has a url that is not an http or https address.`);
  }
}
