import type { ServerResponse } from 'node:http';
import { systemClock, type Clock } from '@treadle/core';

export interface EventStreamOptions {
  /** A comment is sent when nothing else was for so long, or at most twice as long: proxies cut what is silent. */
  readonly heartbeatMs: number;
  /** The client went away before the end. Once. */
  readonly onGone: () => void;
  readonly clock?: Clock;
}

/** Server-sent events on a response of Node's. Nothing is written once the client is gone, and nothing ever throws. */
export interface EventStream {
  /**
   * Writes one event; `type` undefined: one without a name. A promise while the client reads more slowly than that: it
   * resolves when there is room again or the client is gone.
   */
  send(type: string | undefined, data: object): void | Promise<void>;
  /** Says that nothing follows, and closes. */
  end(): void;
}

const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  // For proxies that would collect events before they pass them on.
  'x-accel-buffering': 'no',
};

export function eventStream(outgoing: ServerResponse, options: EventStreamOptions): EventStream {
  const { heartbeatMs, onGone, clock = systemClock } = options;
  let isOver = false;
  let wasSilent = true;
  let room: PromiseWithResolvers<void> | undefined;
  let callOff = clock.timer(heartbeatMs, beat);

  function write(frame: string): void | Promise<void> {
    if (isOver) return;
    if (outgoing.write(frame)) return;
    room ??= Promise.withResolvers();
    return room.promise;
  }

  function makeRoom(): void {
    room?.resolve();
    room = undefined;
  }

  function stop(): void {
    isOver = true;
    callOff();
    makeRoom();
  }

  function gone(): void {
    if (isOver) return;
    stop();
    onGone();
  }

  /** Not to a client that does not even read the events. */
  function beat(): void {
    if (wasSilent && !room) void write(': keep-alive\n\n');
    wasSilent = true;
    callOff = clock.timer(heartbeatMs, beat);
  }

  outgoing.on('drain', makeRoom);
  outgoing.on('close', gone);
  // `close` follows.
  outgoing.on('error', () => {});
  if (outgoing.destroyed) {
    stop();
    // Not before the caller has the stream.
    queueMicrotask(onGone);
  } else {
    outgoing.writeHead(200, HEADERS);
    outgoing.flushHeaders();
  }

  return {
    send(type, data) {
      wasSilent = false;
      const json = JSON.stringify(data);
      return write(type === undefined ? `data: ${json}\n\n` : `event: ${type}\ndata: ${json}\n\n`);
    },
    end() {
      if (isOver) return;
      void write('data: [DONE]\n\n');
      stop();
      outgoing.end();
    },
  };
}
