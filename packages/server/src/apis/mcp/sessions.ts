import { randomInt, randomUUID } from 'node:crypto';
import type { JSONRPCRequest } from '@modelcontextprotocol/server';
import {
  isIdle,
  newSession,
  rebuiltSession,
  storedSession,
  type ServedRequest,
  type Session,
  type SessionParts,
} from './session.ts';
import { NUMBERS } from './session-transport.ts';

/** The sessions of this server. */
export interface McpSessions {
  /** Serves a request that names a session. */
  serve(id: string, request: Request, given: ServedRequest): Promise<Response>;
  /** Serves the first request of a client: `message`. */
  open(message: JSONRPCRequest, request: Request, given: ServedRequest): Promise<Response>;
}

export interface McpSessionsOptions extends Omit<SessionParts, 'by' | 'onLeft'> {
  /** Aborts when the server shuts down: streams without an end are closed. */
  readonly stopping: AbortSignal;
}

const MOST_SESSIONS = 2_000;
const MOST_SESSIONS_OF_TENANT = 500;
const SWEEP_MS = 60_000;
const IDS = /^[0-9a-f-]{36}$/;
/** A first request that is stored. Those of real clients have less than a thousand characters. */
const MOST_OPENING_CHARS = 65_536;

export function mcpSessions({ stopping, ...given }: McpSessionsOptions): McpSessions {
  const sessions = new Map<string, Session>();
  /** Sessions that are being rebuilt, by the key that asks for them. */
  const rebuilding = new Map<string, ReturnType<typeof rebuild>>();
  const parts: SessionParts = {
    ...given,
    by: randomInt(1, 2 ** 32) * NUMBERS,
    onLeft: (session) => void (sessions.get(session.id) === session && sessions.delete(session.id)),
  };

  const sweep = setInterval(() => {
    for (const session of sessions.values()) {
      if (session.open > 0) session.noteUse();
      else if (isIdle(session.usedAt)) endUnused(session);
    }
  }, SWEEP_MS).unref();

  stopping.addEventListener('abort', () => {
    clearInterval(sweep);
    for (const session of sessions.values()) {
      // Calls in progress may still end.
      if (session.open === 0) session.leave();
      else session.closeStream();
    }
  });

  function endUnused(session: Session): void {
    session.leave();
    session.end().catch((error: unknown) => given.log.warn({ err: error }, 'a session over MCP could not be deleted'));
  }

  /** Ends the session that was not used for the longest time. False if all are in use. */
  function makeRoom(tenant?: string): boolean {
    const idle = [...sessions.values()].filter(
      (one) => one.open === 0 && (tenant === undefined || one.tenant === tenant),
    );
    const [oldest] = idle.toSorted((a, b) => a.usedAt - b.usedAt);
    if (oldest) endUnused(oldest);
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

  /** Undefined: there is no such session of this key. */
  async function rebuild(id: string, { caller, authInfo }: ServedRequest): Promise<Session | 'no room' | undefined> {
    const stored = await storedSession(given.streams, id, caller);
    if (!stored) return undefined;
    if (!hasRoom(caller.tenant)) return 'no room';
    const session = await rebuiltSession(parts, { id, stored, caller, authInfo });
    sessions.set(id, session);
    return session;
  }

  function rebuildOnce(id: string, served: ServedRequest): ReturnType<typeof rebuild> {
    const name = JSON.stringify([id, served.caller.tenant, served.caller.key]);
    const rebuilt = rebuilding.get(name) ?? rebuild(id, served).finally(() => rebuilding.delete(name));
    rebuilding.set(name, rebuilt);
    return rebuilt;
  }

  function handle(session: Session, request: Request, served: ServedRequest): Promise<Response> {
    return session.handle(request, served, () => {
      if (stopping.aborted && session.open === 0) session.leave();
    });
  }

  return {
    async serve(id, request, served) {
      const { tenant, key } = served.caller;
      if (!IDS.test(id)) return rpcError(404, 'Session not found');
      const session = sessions.get(id) ?? (await rebuildOnce(id, served));
      if (session === 'no room') return tooMany();
      if (session?.tenant !== tenant || session.key !== key) return rpcError(404, 'Session not found');
      return handle(session, request, served);
    },
    async open(message, request, served) {
      const { caller } = served;
      if (JSON.stringify(message).length > MOST_OPENING_CHARS) return rpcError(413, 'The first request is too large.');
      if (!hasRoom(caller.tenant)) return tooMany();
      const onOpened = (session: Session): void => void sessions.set(session.id, session);
      return handle(await newSession(parts, { id: randomUUID(), caller, message, onOpened }), request, served);
    },
  };
}

function tooMany(): Response {
  return rpcError(429, 'Too many sessions are in use. Close one, or retry later.');
}

function rpcError(status: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }, { status });
}
