import type { Socket } from 'node:net';
import type { buildConnector, Client } from 'undici';

/** One HTTP connection that serves one request at a time. */
export interface Connection {
  readonly client: Client;
  /**
   * The answer came to its end: the next request to this origin may use it. One whose request is not out yet is closed:
   * the host may never read the rest, and the next request would wait behind it.
   */
  release(): void;
  /** It is closed at once, also while it is still being made. */
  drop(): void;
}

export interface Connections {
  take(origin: string): Connection;
}

interface Undici {
  readonly Client: typeof Client;
  /** The types leave out that a connector returns the socket that it begins to connect. */
  readonly buildConnector: (
    options: buildConnector.BuildOptions,
  ) => (options: buildConnector.Options, callback: buildConnector.Callback) => Socket;
}

/** Idle connections that are kept per origin: a thousand runs at once need theirs again in a moment. */
const MAX_IDLE = 2_048;
/** How long an idle connection is kept unless the server says how long it keeps it. Idle, it holds up no exit. */
const KEEP_ALIVE_MS = 30_000;

/**
 * Undici's own pool is not used: it takes a connection whose answer has just ended for busy until the event loop has
 * turned, so a quick loop would open a second one, and it cannot call off a connection that is being made.
 */
export function connections({ Client, buildConnector }: Undici): Connections {
  const connect = buildConnector({});
  const idle = new Map<string, Connection[]>();

  const open = (origin: string): Connection => {
    let socket: Socket | undefined;
    const client = new Client(origin, {
      keepAliveTimeout: KEEP_ALIVE_MS,
      connect: (options, callback) => {
        socket = connect(options, callback);
      },
    });
    const connection: Connection = {
      client,
      release() {
        if (socket!.writableLength > 0) return connection.drop();
        const others = idle.get(origin);
        if (others === undefined) idle.set(origin, [connection]);
        else if (others.length < MAX_IDLE) others.push(connection);
        else connection.drop();
      },
      drop() {
        client.destroy(() => {});
        socket?.destroy();
      },
    };
    client.on('disconnect', () => {
      const others = idle.get(origin);
      const at = others?.indexOf(connection) ?? -1;
      if (at === -1) return;
      others!.splice(at, 1);
      if (others!.length === 0) idle.delete(origin);
    });
    return connection;
  };

  return {
    take: (origin) => idle.get(origin)?.pop() ?? open(origin),
  };
}
