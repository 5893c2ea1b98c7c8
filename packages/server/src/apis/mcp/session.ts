import type { AuthInfo, JSONRPCRequest } from '@modelcontextprotocol/server';
import type { StreamStore } from '@treadle/store';
import type { Caller } from '../../http/admission.ts';
import { mcpServerFor, type McpService } from './protocol.ts';
import {
  readSession,
  sessionEvents,
  sessionStream,
  type SessionEvent,
  type SessionEvents,
  type SessionEventsOptions,
  type StoredSessionEvent,
} from './session-events.ts';
import { sessionTransport, type SessionTransport } from './session-transport.ts';

/**
 * A session of a client of an older revision, on one of the servers with its store.
 *
 * 1. It belongs to the key that opened it. For any other key it does not exist.
 * 2. Its stream in the store has the request that opened it and those that change it, so that any server can rebuild it.
 *    Without its stream, a session has ended. Every server that has a session follows its stream.
 * 3. Answers to requests of a server, and cancellations, reach the server that they concern by the stream.
 * 4. Other requests write nothing but the time of use, at most every `USED_MS`.
 */
export interface Session {
  readonly id: string;
  readonly tenant: string;
  readonly key: string;
  /** Responses that are being sent. */
  readonly open: number;
  /** When it was last used, as far as this server knows. */
  readonly usedAt: number;
  /** `onSent` is called when the response was sent. */
  handle(request: Request, given: ServedRequest, onSent: () => void): Promise<Response>;
  /** Stores that it is in use. */
  noteUse(): void;
  /** Closes the stream of the session here. */
  closeStream(): void;
  /** Closes it here. Other servers still have it. */
  leave(): void;
  /** Ends it for all servers. */
  end(): Promise<void>;
}

export interface ServedRequest {
  /** The parsed body of a POST. */
  readonly body: unknown;
  readonly caller: Caller;
  readonly authInfo: AuthInfo;
}

export interface SessionParts extends Pick<SessionEventsOptions, 'streams' | 'log' | 'by'> {
  readonly service: McpService;
  readonly heartbeatMs: number;
  /** It is no longer here. */
  readonly onLeft: (session: Session) => void;
}

interface ConnectedSession {
  readonly session: Session;
  readonly events: SessionEvents;
  readonly wire: SessionTransport;
}

/** How exactly the time of use is stored. */
const USED_MS = 5 * 60_000;
/** A session that was not used for this time ends, up to `USED_MS` later. */
const IDLE_MS = 30 * 60_000;

export function isIdle(usedAt: number): boolean {
  return Date.now() - usedAt >= IDLE_MS + USED_MS;
}

interface Opening {
  readonly id: string;
  readonly caller: Caller;
  readonly message: JSONRPCRequest;
  /** Called when the client has sent a valid first request, and the session is stored. */
  readonly onOpened: (session: Session) => void;
}

/** A session that its client opens with the first request that it handles. */
export async function newSession(parts: SessionParts, { id, caller, message, onOpened }: Opening): Promise<Session> {
  const { tenant, key } = caller;
  const opened = { type: 'opened', tenant, key, message } as const;
  const { session } = await connect(parts, id, caller, async (connected) => {
    connected.events.follow([await connected.events.open(opened)]);
    onOpened(connected.session);
  });
  return session;
}

/** What is stored of a session. Undefined: this key has no such session. */
export async function storedSession(
  streams: StreamStore,
  id: string,
  { tenant, key }: Caller,
): Promise<readonly StoredSessionEvent[] | undefined> {
  const stored = await readSession(streams, id);
  const opened = stored?.[0]?.event;
  if (!stored || opened?.type !== 'opened' || opened.tenant !== tenant || opened.key !== key) return undefined;
  if (!isIdle(stored.at(-1)!.event.at)) return stored;
  await streams.delete(sessionStream(id));
  return undefined;
}

interface Rebuilding extends Omit<ServedRequest, 'body'> {
  readonly id: string;
  readonly stored: readonly StoredSessionEvent[];
}

/** A session that another server has opened, or this one before it left it. */
export async function rebuiltSession(
  parts: SessionParts,
  { id, stored, caller, authInfo }: Rebuilding,
): Promise<Session> {
  const { session, events, wire } = await connect(parts, id, caller);
  const { message } = stored[0]!.event as SessionEvent & { readonly type: 'opened' };
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const first = new Request('http://treadle/mcp', { method: 'POST', headers });
  await (await wire.transport.handleRequest(first, { authInfo, parsedBody: message })).text();
  for (const { event } of stored) wire.repeat(event);
  events.follow(stored);
  return session;
}

async function connect(
  { service, streams, log, by, heartbeatMs, onLeft }: SessionParts,
  id: string,
  caller: Caller,
  onOpened?: (connected: ConnectedSession) => Promise<void>,
): Promise<ConnectedSession> {
  let open = 0;
  let usedAt = Date.now();
  let failure: unknown;
  const events = sessionEvents({ id, streams, log, by, onEvent: (event) => wire.apply(event), onEnded: leave });
  const wire = sessionTransport({
    by,
    tell: events.tell,
    options: {
      sessionIdGenerator: () => id,
      keepAliveMs: heartbeatMs,
      async onsessioninitialized() {
        try {
          await onOpened?.({ session, events, wire });
        } catch (error) {
          // The SDK would say that the request cannot be parsed.
          failure = error;
          throw error;
        }
      },
      onsessionclosed: end,
    },
  });
  const { transport } = wire;

  function leave(): void {
    events.stop();
    onLeft(session);
    void transport.close().catch(() => {});
  }

  async function end(): Promise<void> {
    await events.delete();
    leave();
  }

  function noteUse(): void {
    usedAt = Date.now();
    // Who waits for it is told of a failure.
    if (events.usedAt > 0 && usedAt - events.usedAt >= USED_MS) events.tell({ type: 'used' }).catch(() => {});
  }

  const session: Session = {
    id,
    tenant: caller.tenant,
    key: caller.key,
    get open() {
      return open;
    },
    get usedAt() {
      return Math.max(usedAt, events.usedAt);
    },
    async handle(request, { body, authInfo }, onSent) {
      let isListening = false;
      open += 1;
      const close = (): void => {
        open -= 1;
        usedAt = Date.now();
        if (isListening) wire.setListening(false);
        onSent();
      };
      try {
        const parsed = body === undefined ? {} : { parsedBody: body };
        const response = await transport.handleRequest(request, { authInfo, ...parsed });
        if (failure !== undefined) throw failure;
        await events.written;
        isListening = request.method === 'GET' && response.ok;
        if (isListening) wire.setListening(true);
        return onceSent(response, close);
      } catch (error) {
        close();
        throw error;
      }
    },
    noteUse,
    closeStream: () => transport.closeStandaloneSSEStream(),
    leave,
    end,
  };
  await wire.connect(mcpServerFor(service, caller, 'legacy'));
  return { session, events, wire };
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
