import type { Socket } from 'node:net';

/**
 * Finds clients that read so slowly that they would keep what waits for them for hours. The timeout of Node does not find them:
 * it begins again with every byte in either direction, also with those that the client sends.
 *
 * 1. Between two calls, a client reads `MIN_BYTES_PER_SECOND`, or all that was waiting for it at the first one.
 * 2. A client for which nothing is waiting may take any time.
 */
export function slowClientFinder(periodMs: number): (sockets: Iterable<Socket>) => readonly Socket[] {
  const least = (periodMs / 1_000) * MIN_BYTES_PER_SECOND;
  let before = new Map<Socket, Progress>();
  return (sockets) => {
    const now = new Map<Socket, Progress>();
    const slow: Socket[] = [];
    for (const socket of sockets) {
      if (socket.writableLength === 0) continue;
      const progress = progressOf(socket);
      if (!progress) continue;
      now.set(socket, progress);
      const last = before.get(socket);
      if (last && progress.sent < last.written && progress.sent - last.sent < least) slow.push(socket);
    }
    before = now;
    return slow;
  };
}

/** A slow modem reads five times as much. */
const MIN_BYTES_PER_SECOND = 1_000;

interface Progress {
  /** The bytes that the operating system has taken. */
  readonly sent: number;
  /** Those, and the bytes that wait. */
  readonly written: number;
}

/** What Node has for a socket that is open. It has no public method for what it was given and has not sent yet. */
interface WithHandle {
  readonly _handle?: { readonly bytesWritten: number; readonly writeQueueSize: number } | null;
}

function progressOf(socket: Socket & WithHandle): Progress | undefined {
  const { _handle: handle, bytesWritten } = socket;
  return handle ? { sent: handle.bytesWritten - handle.writeQueueSize, written: bytesWritten } : undefined;
}
