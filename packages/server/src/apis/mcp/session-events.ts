import type { JSONRPCMessage, JSONRPCRequest } from '@modelcontextprotocol/server';
import type { TreadleError } from '@treadle/core';
import type { StreamStore } from '@treadle/store';
import type { Logger } from 'pino';

/** An event of the stream of a session. Stored, so its fields must not change. */
export type SessionEvent = ToldEvent & {
  /** The server that wrote it, and when. */
  readonly by: number;
  readonly at: number;
};

export type ToldEvent =
  | Opened
  /** For the other servers: a request that changes the session, an answer, or a cancellation. */
  | { readonly type: 'received'; readonly message: JSONRPCMessage }
  /** For the client, by the server that has the stream of the session. */
  | { readonly type: 'sending'; readonly message: JSONRPCMessage }
  | { readonly type: 'used' };

/** The request that opened the session, and its owner. */
interface Opened {
  readonly type: 'opened';
  readonly tenant: string;
  readonly key: string;
  readonly message: JSONRPCRequest;
}

export interface StoredSessionEvent {
  readonly seq: number;
  readonly event: SessionEvent;
}

/** The stream of a session, which every server that has the session follows. */
export interface SessionEvents {
  /** When the session was used, as far as the stream knows. 0: it was not opened yet. */
  readonly usedAt: number;
  /** Resolves when what this server has told is stored. Rejects if the last of it is not. */
  readonly written: Promise<void>;
  open(opened: Opened): Promise<StoredSessionEvent>;
  /** Follows it after these events, the first ones. */
  follow(events: readonly StoredSessionEvent[]): void;
  /** Tells other servers. */
  tell(event: ToldEvent): Promise<void>;
  stop(): void;
  delete(): Promise<void>;
}

export interface SessionEventsOptions {
  readonly id: string;
  readonly streams: StreamStore;
  readonly log: Logger;
  /** This server. */
  readonly by: number;
  /** Called for those of other servers. */
  readonly onEvent: (event: SessionEvent) => void;
  readonly onEnded: () => void;
}

/** A session with more events ends, so that its stream stays small. */
const MOST_EVENTS = 10_000;
const RETRY_MS = 1_000;

/** The name of the stream of a session. */
export function sessionStream(id: string): string {
  return `mcp-session:${id}`;
}

/** The events of a session, the first of which is `opened`. Undefined: there is no such session. */
export async function readSession(
  streams: StreamStore,
  id: string,
): Promise<readonly StoredSessionEvent[] | undefined> {
  const events: StoredSessionEvent[] = [];
  for (let page; (page = await streams.read(sessionStream(id), events.at(-1)?.seq ?? 0)).length > 0;) {
    events.push(...(page as readonly StoredSessionEvent[]));
  }
  // What was written when the session had ended does not open it again.
  return events[0]?.event.type === 'opened' ? events : undefined;
}

export function sessionEvents({ id, streams, log, by, onEvent, onEnded }: SessionEventsOptions): SessionEvents {
  const stream = sessionStream(id);
  let position = 0;
  let usedAt = 0;
  let [written, reading] = [Promise.resolve(), Promise.resolve()];
  let willRead = false;
  let isStopped = false;
  let stopWatching = (): void => {};

  async function readPage(): Promise<readonly SessionEvent[]> {
    return known((await streams.read(stream, position)) as readonly StoredSessionEvent[]);
  }

  function known(page: readonly StoredSessionEvent[]): readonly SessionEvent[] {
    const events = page.map(({ event }) => event);
    position = page.at(-1)?.seq ?? position;
    usedAt = Math.max(usedAt, events.at(-1)?.at ?? 0);
    return events;
  }

  async function append(told: ToldEvent): Promise<void> {
    for (;;) {
      const last = await streams.last(stream);
      // It has ended.
      if (last === 0) return;
      if (last >= MOST_EVENTS) {
        await streams.delete(stream);
        return onEnded();
      }
      try {
        await write(last + 1, told);
        return;
      } catch (error) {
        // Another server was faster.
        if ((error as TreadleError).code !== 'run-exists') throw error;
      }
    }
  }

  async function write(seq: number, told: ToldEvent): Promise<StoredSessionEvent> {
    const event: SessionEvent = { ...told, by, at: Date.now() };
    await streams.append(stream, seq, [event]);
    usedAt = Math.max(usedAt, event.at);
    return { seq, event };
  }

  function readLater(): void {
    if (willRead || isStopped) return;
    willRead = true;
    reading = reading.then(readNew).catch((error: unknown) => {
      log.warn({ err: error }, 'a session over MCP could not be read');
      setTimeout(readLater, RETRY_MS).unref();
    });
  }

  async function readNew(): Promise<void> {
    willRead = false;
    for (let page = await readPage(); page.length > 0; page = await readPage()) {
      for (const event of page) if (event.by !== by && !isStopped) onEvent(event);
    }
    if ((await streams.last(stream)) < position && !isStopped) onEnded();
  }

  return {
    get usedAt() {
      return usedAt;
    },
    get written() {
      return written;
    },
    open: (opened) => write(1, opened),
    follow(events) {
      known(events);
      stopWatching = streams.watch(stream, readLater);
      // What was written meanwhile.
      readLater();
    },
    tell(told) {
      written = written.catch(() => {}).then(() => append(told));
      written.catch((error: unknown) => log.warn({ err: error }, 'a session over MCP could not be stored'));
      return written;
    },
    stop() {
      isStopped = true;
      stopWatching();
    },
    delete: () => streams.delete(stream),
  };
}
