import type { Readable, Writable } from 'node:stream';
import type { JSONRPCMessage } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import type { Model, Tool } from '@treadle/core';
import { churnMap } from '@treadle/core/churn';
import type { Logger } from 'pino';
import { activeRuns, type Engine, type ServerStore } from '../../engine/engine.ts';
import { registeredTools } from '../../engine/executors.ts';
import { everyRunOptions, type EveryRunOptions } from '../../engine/loop-options.ts';
import { requests } from '../../requests/requests.ts';
import type { Caller } from '../../http/admission.ts';
import { DEFAULT_TENANT, SCOPES } from '../../http/keys.ts';
import { newLog } from '../../http/log.ts';
import { durableOrder } from '../../http/respond.ts';
import { newRequestId } from '../../ids.ts';
import { runs } from '../runs/runs.ts';
import { mcpCalls } from './calls.ts';
import { checkMcpNames, type McpOptions } from './options.ts';
import { mcpServerFor } from './protocol.ts';
import { refusedSubscription } from './task-methods.ts';
import { callTasks } from './tasks.ts';

export interface McpStdioOptions extends McpOptions, EveryRunOptions {
  readonly store: ServerStore;
  readonly tools?: readonly Tool[];
  /** For one call; default 10 minutes. */
  readonly maxDurationMs?: number;
  /** For tools that have no timeout of their own; default one minute. */
  readonly toolTimeoutMs?: number;
  readonly log?: Logger;
  /** Default: those of the process. Nothing but the protocol may be written to `stdout`. */
  readonly stdin?: Readable;
  readonly stdout?: Writable;
  /** Who is recorded as the one who answers; default: nobody. */
  readonly user?: string;
}

export interface McpStdioServer {
  /** Resolves when the client has closed the connection. */
  readonly closed: Promise<void>;
  /** Closes the connection. Calls in progress are cancelled; those that wait for an answer can be continued later. */
  close(): Promise<void>;
}

/** Serves tools and agents to one MCP client over standard input and output. The caller has to close the store. */
export function mcpStdioServer(options: McpStdioOptions): McpStdioServer {
  const {
    stdin = process.stdin,
    stdout = process.stdout,
    log = newLog(),
    user = '',
    tools = [],
    agents = [],
  } = options;
  checkMcpNames(tools, agents);
  const engine: Engine = {
    models: { default: 'none', models: new Map([['none', NO_MODEL]]) },
    store: options.store,
    serverTools: { executors: [registeredTools(tools)], defaultTools: [] },
    limits: {
      maxTurns: 10,
      maxDurationMs: options.maxDurationMs ?? 600_000,
      toolTimeoutMs: options.toolTimeoutMs ?? 60_000,
      errorLimit: 3,
    },
    ...(options.policy && { policy: options.policy }),
    everyRun: everyRunOptions(options),
    runs: activeRuns({ max: 1_000 }),
    driven: churnMap(),
    log,
  };
  const stored = requests(engine);
  const calls = mcpCalls(() => engine, stored, { tools: () => tools, agents });
  stored.register('mcp-call', calls.api);
  const ownRuns = runs(engine, stored);
  const service = {
    calls,
    tasks: callTasks({ engine, stored, runs: ownRuns }),
    runs: ownRuns,
    watch: engine.store.watch,
    options,
  };
  const caller = (): Caller => {
    const requestId = newRequestId();
    return { tenant: DEFAULT_TENANT, key: user, scopes: SCOPES, requestId, log: log.child({ requestId }) };
  };
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  for (const event of ['end', 'close', 'error'] as const) stdin.once(event, end);
  const transport = new StdioServerTransport(stdin, stdout);
  const closeTransport = transport.close.bind(transport);
  const sendNow = transport.send.bind(transport);
  const order = durableOrder(engine.store.durable, (error) => {
    log.error({ err: error }, 'the connection was closed: the store could not be synced');
    end();
  });
  transport.send = (message) =>
    new Promise((resolve, reject) => order.send(() => sendNow(message).then(resolve, reject)));
  // It closes itself if a message is too large, or if nobody reads what it writes. The streams do not end by that.
  transport.close = () => {
    end();
    return closeTransport();
  };
  const connection = serveStdio(({ era }) => mcpServerFor(service, caller(), era), {
    transport,
    onerror: (error) => log.warn({ err: error }, 'an MCP message could not be processed'),
  });
  const receive = transport.onmessage;
  Object.assign(transport, {
    onmessage(message: JSONRPCMessage) {
      const refusal = refusedSubscription(message);
      if (refusal) void transport.send(refusal).catch(() => {});
      else receive?.(message);
    },
  });
  const closed = ended.then(async () => {
    await connection.close().catch(() => {});
    await engine.runs.detachAll();
  });
  return {
    closed,
    close() {
      end();
      return closed;
    },
  };
}

/** Calls of single tools need no model, and agents have their own. */
const NO_MODEL: Model = { id: 'none', reply: () => Promise.reject(new Error('No model was opened.')) };
