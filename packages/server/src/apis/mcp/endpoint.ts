import {
  createMcpHandler,
  isInitializeRequest,
  isLegacyRequest,
  WebStandardStreamableHTTPServerTransport,
  type AuthInfo,
} from '@modelcontextprotocol/server';
import { randomUUID } from 'node:crypto';
import type { Tool } from '@treadle/core';
import { agentsAsTools } from '../../engine/agent-plan.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Requests } from '../../requests/requests.ts';
import type { Caller } from '../../http/admission.ts';
import type { Runs } from '../runs/runs.ts';
import { mcpCalls, type McpCalls } from './calls.ts';
import type { McpOptions } from './options.ts';
import { mcpServerFor, type McpService } from './protocol.ts';
import { callTasks } from './tasks.ts';

/**
 * MCP over HTTP.
 *
 * - Revision 2026-07-28: each request stands alone.
 * - Older revisions: the first request of a client opens a session, which later ones name. A session belongs to the key
 *   that opened it. For any other key it does not exist.
 */
export interface McpEndpoint {
  serve(request: Request, given: ServedRequest): Promise<Response>;
}

export interface ServedRequest {
  /** The parsed body of a POST. */
  readonly body: unknown;
  readonly caller: Caller;
  readonly authInfo: AuthInfo;
}

interface McpEndpointOptions {
  readonly service: McpService;
  readonly heartbeatMs: number;
  /** Aborts when the server shuts down: streams without an end are closed. */
  readonly stopping: AbortSignal;
}

/** What the server opens when MCP is used for the first time. */
export interface OpenedMcp {
  readonly calls: McpCalls;
  readonly endpoint: McpEndpoint;
}

export interface OpenMcpOptions extends Omit<McpEndpointOptions, 'service'> {
  readonly engine: Engine;
  readonly stored: Requests;
  readonly runs: Runs;
  /** Those of the server now. */
  readonly tools: () => readonly Tool[];
  /** Its `policy` and what it registers may change. */
  readonly options: () => McpOptions;
  /** How long calls are kept after their end. Absent: for ever. */
  readonly keptMs?: number | undefined;
}

export function openMcp({
  engine,
  stored,
  runs,
  tools,
  options,
  heartbeatMs,
  stopping,
  keptMs,
}: OpenMcpOptions): OpenedMcp {
  const { agents = [] } = options();
  const current = (): Engine => {
    const { policy } = options();
    return { ...engine, ...(policy && { policy }) };
  };
  const calls = mcpCalls(current, stored, { tools, agents, namedAgents: agentsAsTools });
  const service: McpService = {
    calls,
    tasks: callTasks({ engine, stored, runs, keptMs }),
    runs,
    watch: engine.store.watch,
    get options() {
      return options();
    },
  };
  return { calls, endpoint: mcpEndpoint({ service, heartbeatMs, stopping }) };
}

interface Session {
  readonly transport: WebStandardStreamableHTTPServerTransport;
  readonly tenant: string;
  readonly key: string;
  /** Responses that are being sent. */
  open: number;
  usedAt: number;
}

const MOST_SESSIONS = 2_000;
const MOST_SESSIONS_OF_TENANT = 500;
/** A session that was not used for this time is closed. */
const IDLE_MS = 30 * 60_000;
const SWEEP_MS = 60_000;

function mcpEndpoint({ service, heartbeatMs, stopping }: McpEndpointOptions): McpEndpoint {
  const sessions = new Map<string, Session>();
  const handler = createMcpHandler(
    ({ authInfo, era }) => mcpServerFor(service, authInfo!.extra!['caller'] as Caller, era),
    { keepAliveMs: heartbeatMs },
  );

  const sweep = setInterval(() => {
    const before = performance.now() - IDLE_MS;
    for (const [id, { open, usedAt }] of sessions) if (open === 0 && usedAt < before) closeSession(id);
  }, SWEEP_MS).unref();

  function closeSession(id: string): void {
    const session = sessions.get(id);
    sessions.delete(id);
    void session?.transport.close().catch(() => {});
  }

  stopping.addEventListener('abort', () => {
    clearInterval(sweep);
    // Calls in progress may still end.
    for (const { transport } of sessions.values()) transport.closeStandaloneSSEStream();
  });

  /** Closes the session that was not used for the longest time. False if all are in use. */
  function makeRoom(tenant?: string): boolean {
    const idle = [...sessions].filter(([, one]) => one.open === 0 && (tenant === undefined || one.tenant === tenant));
    const [oldest] = idle.toSorted(([, a], [, b]) => a.usedAt - b.usedAt);
    if (oldest) closeSession(oldest[0]);
    return oldest !== undefined;
  }

  /** The tenant with the most sessions. */
  function largestTenant(): string | undefined {
    const tenants = Object.entries(Object.groupBy(sessions.values(), ({ tenant }) => tenant));
    return tenants.toSorted(([, a], [, b]) => b!.length - a!.length)[0]?.[0];
  }

  function hasRoom(tenant: string): boolean {
    const own = [...sessions.values()].filter((one) => one.tenant === tenant).length;
    if (own >= MOST_SESSIONS_OF_TENANT) return makeRoom(tenant);
    // Not the sessions of tenants that have few.
    return sessions.size < MOST_SESSIONS || makeRoom(largestTenant()) || makeRoom();
  }

  async function openSession(caller: Caller): Promise<Session> {
    const { tenant, key } = caller;
    const server = mcpServerFor(service, caller, 'legacy');
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      keepAliveMs: heartbeatMs,
      onsessioninitialized: (id) => void sessions.set(id, session),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    const session: Session = { transport, tenant, key, open: 0, usedAt: performance.now() };
    await server.connect(transport);
    return session;
  }

  async function serveInSession(
    session: Session,
    request: Request,
    { body, authInfo }: ServedRequest,
  ): Promise<Response> {
    session.open += 1;
    const close = (): void => {
      session.open -= 1;
      session.usedAt = performance.now();
    };
    try {
      const parsed = body === undefined ? {} : { parsedBody: body };
      return onceSent(await session.transport.handleRequest(request, { authInfo, ...parsed }), close);
    } catch (error) {
      close();
      throw error;
    }
  }

  return {
    async serve(request, given) {
      const { body, caller, authInfo } = given;
      if (!(await isLegacyRequest(request, body))) {
        const isStream = (body as { readonly method?: unknown } | null)?.method === 'subscriptions/listen';
        const signal = AbortSignal.any([request.signal, ...(isStream ? [stopping] : [])]);
        return handler.fetch(new Request(request, { signal }), { authInfo, parsedBody: body });
      }
      const id = request.headers.get('mcp-session-id');
      if (id !== null) {
        const session = sessions.get(id);
        if (session?.tenant !== caller.tenant || session.key !== caller.key) return rpcError(404, 'Session not found');
        return serveInSession(session, request, given);
      }
      if (!opensSession(body))
        return handler.fetch(request, { authInfo, ...(body !== undefined && { parsedBody: body }) });
      if (!hasRoom(caller.tenant)) return rpcError(429, 'Too many sessions are in use. Close one, or retry later.');
      return serveInSession(await openSession(caller), request, given);
    },
  };
}

function opensSession(body: unknown): boolean {
  return Array.isArray(body) ? body.some((one) => isInitializeRequest(one)) : isInitializeRequest(body);
}

/** Calls `onSent` when the body was read to its end, or nobody reads it any more. */
function onceSent(response: Response, onSent: () => void): Response {
  if (!response.body) {
    onSent();
    return response;
  }
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  response.body.pipeTo(writable).then(onSent, onSent);
  return new Response(readable, response);
}

function rpcError(status: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }, { status });
}
