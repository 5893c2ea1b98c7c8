import { createMcpHandler, isInitializeRequest, isJSONRPCRequest, isLegacyRequest } from '@modelcontextprotocol/server';
import type { Tool } from '@treadle/core';
import { agentsAsTools } from '../../engine/agent-plan.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Requests } from '../../requests/requests.ts';
import type { Caller } from '../../http/admission.ts';
import type { Runs } from '../runs/runs.ts';
import { mcpCalls, type McpCalls } from './calls.ts';
import type { McpOptions } from './options.ts';
import { mcpServerFor, type McpService } from './protocol.ts';
import type { ServedRequest } from './session.ts';
import { mcpSessions, type McpSessionsOptions } from './sessions.ts';
import { refusedSubscription } from './task-methods.ts';
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

/** What the server opens when MCP is used for the first time. */
export interface OpenedMcp {
  readonly calls: McpCalls;
  readonly endpoint: McpEndpoint;
}

export interface OpenMcpOptions extends Pick<McpSessionsOptions, 'heartbeatMs' | 'stopping'> {
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
  const { log, store } = engine;
  const { streams } = store;
  const service: McpService = {
    calls,
    tasks: callTasks({ engine, stored, runs, keptMs }),
    runs,
    watch: store.watch,
    get options() {
      return options();
    },
  };
  return { calls, endpoint: mcpEndpoint({ service, streams, log, heartbeatMs, stopping }) };
}

function mcpEndpoint({ service, streams, log, heartbeatMs, stopping }: McpSessionsOptions): McpEndpoint {
  const sessions = mcpSessions({ service, streams, log, heartbeatMs, stopping });
  const handler = createMcpHandler(
    ({ authInfo, era }) => mcpServerFor(service, authInfo!.extra!['caller'] as Caller, era),
    { keepAliveMs: heartbeatMs },
  );

  return {
    async serve(request, given) {
      const { body, authInfo } = given;
      if (!(await isLegacyRequest(request, body))) {
        const refusal = refusedSubscription(body);
        if (refusal) return Response.json(refusal, { status: 400 });
        const isStream = (body as { readonly method?: unknown } | null)?.method === 'subscriptions/listen';
        const signal = AbortSignal.any([request.signal, ...(isStream ? [stopping] : [])]);
        return handler.fetch(new Request(request, { signal }), { authInfo, parsedBody: body });
      }
      const id = request.headers.get('mcp-session-id');
      if (id !== null) return sessions.serve(id, request, given);
      const messages = Array.isArray(body) ? body : [body];
      const first = messages.find((one) => isJSONRPCRequest(one) && isInitializeRequest(one));
      if (first) return sessions.open(first, request, given);
      return handler.fetch(request, { authInfo, ...(body !== undefined && { parsedBody: body }) });
    },
  };
}
