import { ProtocolError, type CallToolResult } from '@modelcontextprotocol/client';
import {
  isDetached,
  Parked,
  TreadleError,
  type Broken,
  type Finished,
  type ToolContext,
  type ToolOutput,
  type Verification,
} from '@treadle/core';
import { startCall, withUsage, type ActiveCall } from './calls.ts';
import { openConnections, type Connection } from './connections.ts';
import { outputOf } from './content.ts';
import { cleanText, describeTools } from './describe.ts';
import {
  abortError,
  FINAL,
  isConnectionLost,
  isHeaderMismatch,
  mcpErrorOf,
  problemOf,
  wasNotAccepted,
} from './errors.ts';
import {
  DEFAULT_LIST_TIMEOUT_MS,
  DEFAULT_TIMEOUT_MS,
  McpError,
  type LeftOutTool,
  type McpServer,
  type McpServerOptions,
  type McpTool,
} from './options.ts';
import { fulfil, requestTool } from './request-tool.ts';
import { safeValidator } from './schemas.ts';
import type { StdioTransport } from './stdio.ts';
import { cancelTask, followTask, lookAtTask, mayBecomeTask, taskIn, taskOfCall, type FollowedTask } from './tasks.ts';
import { abortable, within } from './time-limit.ts';

/*
 * One MCP server: its tools, and calls of them.
 *
 * 1. Nothing that a server does takes longer than `listTimeoutMs` or `timeoutMs`, or needs more memory than a few messages.
 * 2. A call is repeated only if the server has not accepted it, or says that it may be made twice.
 */

/** The part of the time of a call after which one that is a task is parked, at the latest: before its time is over. */
const PARK_AFTER = 0.9;

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
  let listing: Listing | undefined;
  let leftOut: readonly LeftOutTool[] = [];
  const connections = openConnections(options, {
    onListChanged() {
      if (listing) listing.isStale = true;
    },
  });
  const { use, drop } = connections;

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

  async function listTools(signal?: AbortSignal): Promise<readonly McpTool[]> {
    const { tools } = await within(name, listTimeoutMs, signal, (limited) => use(limited, list));
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
      const problem = call.signal.aborted ? abortError(name, call.signal) : problemOf(name, error);
      if (call.signal.aborted && !call.isWaiting()) void connections.checkAlive();
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
      const { connection, definition } = await use(call.signal, async (opened) => ({
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
        use(signal, async (connection) => {
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
    return checkedResult(await use(call.signal, (opened) => definitionOf(opened, tool)), result);
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
      const problem = call.signal.aborted ? abortError(name, call.signal) : problemOf(name, error);
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

  return {
    name,
    options,
    connect: (signal) =>
      within(name, listTimeoutMs, signal, async (limited) => (await connections.connected(limited)).info),
    listTools,
    get leftOut() {
      return leftOut;
    },
    callTool,
    verifyCall,
    mayBecomeTask: (tool) => listing !== undefined && mayBecomeTask(listing.connection.client, tool),
    onToolsChanged: (listener) => connections.onListChanged(listener),
    close: () => connections.close(),
  };
}

function ignore(): void {}

/** The server says that the call may be made twice, and is believed. */
function isRepeatable({ trustAnnotations }: McpServerOptions, { annotations }: McpTool): boolean {
  return (
    trustAnnotations === true && (annotations?.['readOnlyHint'] === true || annotations?.['idempotentHint'] === true)
  );
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
