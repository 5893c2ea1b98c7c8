import { once } from 'node:events';
import { WebSocket, type ClientOptions } from 'ws';

/** An event of the server, as a test reads it. */
export interface SocketEvent {
  readonly type: string;
  readonly status?: number;
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly response?: {
    readonly id: string;
    readonly status: string;
    readonly output: readonly { readonly type: string }[];
  };
  readonly [field: string]: unknown;
}

/** A socket for responses, as a client without a library uses it. */
export interface ResponsesSocket extends Disposable {
  readonly ws: WebSocket;
  send(message: object | string): void;
  /** The events up to the one that ends the answer to the next message. */
  answer(): Promise<readonly SocketEvent[]>;
  /** Sends `response.create` with these fields. Resolves to the last event of its answer. */
  create(fields: object): Promise<SocketEvent>;
  /** Resolves to the code when the socket is closed. */
  readonly closed: Promise<number>;
}

const LAST = new Set(['response.completed', 'response.incomplete', 'response.failed', 'error']);

/** Rejects with the status if the server refuses the socket. */
export async function openSocket(url: string, options: ClientOptions = {}): Promise<ResponsesSocket> {
  const ws = new WebSocket(`${url.replace(/^http/, 'ws')}/v1/responses`, options);
  const received: SocketEvent[] = [];
  let changed = Promise.withResolvers<void>();
  ws.on('message', (data: Buffer) => {
    received.push(JSON.parse(data.toString()) as SocketEvent);
    changed.resolve();
    changed = Promise.withResolvers();
  });
  const closed = new Promise<number>((resolve) => void ws.once('close', resolve));
  await new Promise<void>((resolve, reject) => {
    ws.once('open', resolve);
    ws.once('unexpected-response', (request, { statusCode = 0 }) => {
      request.destroy();
      reject(new RefusedSocket(statusCode));
    });
    ws.once('error', reject);
  });
  ws.on('error', () => {});
  void closed.then(() => changed.resolve());

  async function answer(): Promise<readonly SocketEvent[]> {
    for (;;) {
      const last = received.findIndex(({ type }) => LAST.has(type));
      if (last !== -1) return received.splice(0, last + 1);
      if (ws.readyState !== ws.OPEN) throw new Error(`The socket was closed after ${received.length} events.`);
      await changed.promise;
    }
  }

  function send(message: object | string): void {
    ws.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  return {
    ws,
    send,
    answer,
    async create(fields) {
      send({ type: 'response.create', ...fields });
      return (await answer()).at(-1)!;
    },
    closed,
    [Symbol.dispose]: () => ws.terminate(),
  };
}

/** The server answered the handshake with an HTTP response. */
export class RefusedSocket extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`The socket was refused with the status ${status}.`);
    this.status = status;
  }
}

/** Closes the socket and waits for the end. */
export async function closeSocket({ ws }: ResponsesSocket): Promise<void> {
  ws.close();
  await once(ws, 'close');
}
