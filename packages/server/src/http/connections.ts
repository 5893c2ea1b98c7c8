import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** The connections of a server and what is going on on them. */
export interface Connections {
  /** A request came; it is over when its answer is closed. */
  begin(socket: Socket, outgoing: ServerResponse): void;
  /** Whether a request is being answered on it. */
  isBusy(socket: Duplex): boolean;
  /** From now on a connection without a request is closed, at once or when its last answer is out, which says so. */
  closeIdle(): void;
  /** Resolves when no request is being answered. */
  quiet(): Promise<void>;
  /** Cuts off what is left. */
  destroy(): void;
}

/**
 * Node's own `closeIdleConnections` leaves those alone that have not sent anything yet, and those that stay open after
 * the stream that they carried.
 */
export function connectionsOf(server: Server): Connections {
  const requests = new Map<Socket, number>();
  const answers = new Set<ServerResponse>();
  let closing = false;
  let waiting: (() => void)[] = [];
  server.on('connection', (socket: Socket) => {
    requests.set(socket, 0);
    socket.once('close', () => requests.delete(socket));
  });
  return {
    begin(socket, outgoing) {
      answers.add(outgoing);
      if (closing) outgoing.shouldKeepAlive = false;
      requests.set(socket, (requests.get(socket) ?? 0) + 1);
      outgoing.once('close', () => {
        answers.delete(outgoing);
        const left = (requests.get(socket) ?? 1) - 1;
        if (requests.has(socket)) requests.set(socket, left);
        if (closing && left === 0) socket.destroySoon();
        if (answers.size > 0) return;
        for (const resolve of waiting) resolve();
        waiting = [];
      });
    },
    isBusy: (socket) => (requests.get(socket as Socket) ?? 0) > 0,
    closeIdle() {
      closing = true;
      for (const outgoing of answers) outgoing.shouldKeepAlive = false;
      for (const [socket, count] of requests) if (count === 0) socket.destroySoon();
    },
    quiet: () => (answers.size === 0 ? Promise.resolve() : new Promise((resolve) => void waiting.push(resolve))),
    destroy() {
      for (const socket of requests.keys()) socket.destroy();
    },
  };
}
