/// <reference path="./undici-parts.d.ts" />
import type { Socket } from 'node:net';
import type { buildConnector, Client, Dispatcher } from 'undici';
import type { AnswerHandler, PendingPost, Post, Send } from './send.ts';

let loaded: ConnectionPool | undefined;
let loading: Promise<ConnectionPool> | undefined;

/** Loads undici with the first request. All models of a process share its connections. */
async function loadUndici(): Promise<ConnectionPool> {
  const [client, connect] = await Promise.all([
    import('undici/lib/dispatcher/client.js'),
    import('undici/lib/core/connect.js'),
  ]);
  loaded = connectionPool({ Client: client.default, buildConnector: connect.default as never });
  return loaded;
}

/** Sends over connections that are reused. */
export const undiciSend: Send = (post, handler) => {
  const request = new UndiciRequest(post, handler);
  if (loaded !== undefined) request.dispatch(loaded);
  else {
    (loading ??= loadUndici()).then(
      (pool) => request.dispatch(pool),
      (thrown: unknown) => request.onError(thrown),
    );
  }
  return request;
};

/**
 * A request in progress, as undici's handler in its older form. The newer form wraps this one and builds an object of
 * all headers, of which hardly any is read.
 */
class UndiciRequest implements Dispatcher.DispatchHandler, PendingPost {
  readonly #post: Post;
  /** Undefined after the end. */
  #handler: AnswerHandler | undefined;
  #connection: Connection | undefined;
  #resume: () => void = () => {};

  constructor(post: Post, handler: AnswerHandler) {
    this.#post = post;
    this.#handler = handler;
  }

  dispatch(pool: ConnectionPool): void {
    if (!this.#handler) return;
    try {
      this.#connection = pool.acquire(this.#post.to.origin);
      this.#connection.client.dispatch(dispatchOptions(this.#post), this);
    } catch (thrown) {
      this.onError(thrown);
    }
  }

  abort(): void {
    if (!this.#handler) return;
    this.#handler = undefined;
    this.#connection?.close();
  }

  onConnect(): void {}

  onHeaders(status: number, headers: readonly Buffer[], resume: () => void): boolean {
    this.#resume = resume;
    if (status >= 200) this.#handler?.onHead(status, (name) => headerIn(headers, name));
    return true;
  }

  onData(chunk: Buffer): boolean {
    const wait = this.#handler?.onData(chunk);
    if (!wait) return true;
    void wait.then(() => this.#handler && this.#resume());
    return false;
  }

  onComplete(): void {
    const handler = this.#handler;
    if (!handler) return;
    this.#handler = undefined;
    this.#connection!.release();
    handler.onEnd();
  }

  onError(thrown: unknown): void {
    const handler = this.#handler;
    this.abort();
    handler?.onFailure(thrown);
  }
}

function dispatchOptions({ to: { path, rawHeaders }, body, traceparent }: Post): Dispatcher.DispatchOptions {
  const headers = (traceparent === undefined ? rawHeaders : [...rawHeaders, 'traceparent', traceparent]) as string[];
  return { method: 'POST', path, headersTimeout: 0, bodyTimeout: 0, headers, body };
}

/** `headers` alternates names and values, names as the server sent them. The first match counts. */
function headerIn(headers: readonly Buffer[], name: string): string | undefined {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    if (headers[at]!.length === name.length && headers[at]!.toString('latin1').toLowerCase() === name) {
      return headers[at + 1]!.toString('latin1');
    }
  }
  return undefined;
}

/** One HTTP connection that serves one request at a time. */
interface Connection {
  readonly client: Client;
  /**
   * The answer has ended: the next request to this origin may use the connection. If its request has not been sent
   * completely, the connection is closed: the host may never read the rest, and the next request would wait behind it.
   */
  release(): void;
  /** Closes it at once, also while it is still connecting. */
  close(): void;
}

interface ConnectionPool {
  acquire(origin: string): Connection;
}

interface Undici {
  readonly Client: typeof Client;
  /** The published types omit that a connector returns the socket that is connecting. */
  readonly buildConnector: (
    options: buildConnector.BuildOptions,
  ) => (options: buildConnector.Options, callback: buildConnector.Callback) => Socket;
}

/** Idle connections per origin that stay open: a thousand concurrent runs need theirs again in a moment. */
const MAX_IDLE = 2_048;
/** How long an idle connection stays open unless the server sends its own limit. It does not keep the process alive. */
const KEEP_ALIVE_MS = 30_000;

/**
 * Undici's own pool is not used. It considers a connection whose answer has just ended busy until the next turn of the
 * event loop, so a fast loop would open a second one. And it cannot cancel a connection that is still connecting.
 */
function connectionPool({ Client, buildConnector }: Undici): ConnectionPool {
  const connect = buildConnector({});
  const idle = new Map<string, Connection[]>();

  const openConnection = (origin: string): Connection => {
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
        if (socket!.writableLength > 0) return connection.close();
        const others = idle.get(origin);
        if (others === undefined) idle.set(origin, [connection]);
        else if (others.length < MAX_IDLE) others.push(connection);
        else connection.close();
      },
      close() {
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
    acquire: (origin) => idle.get(origin)?.pop() ?? openConnection(origin),
  };
}
