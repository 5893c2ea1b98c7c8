import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { systemClock, type Clock } from '@treadle/core';
import { EVENT_STREAM_HEADERS, eventFrame, KEEP_ALIVE_FRAME } from '@treadle/core/web';
import type { Context } from 'hono';
import type { Env } from './admission.ts';
import { LARGE, nextTurn } from './large-work.ts';

type WithOutgoing = Pick<Context<Env>, 'env'>;

/**
 * Sends JSON directly with Node's response. A web `Response` and its stream would cost more than the rest of the request.
 */
export function sendJson(c: WithOutgoing, body: object): Response | Promise<Response> {
  const json = JSON.stringify(body);
  return json.length > LARGE ? sendLargeJson(c, json) : sendBytes(c, Buffer.from(json), JSON_HEADERS);
}

/** A long text is encoded in another turn of the event loop than it was made in. */
async function sendLargeJson(c: WithOutgoing, json: string): Promise<Response> {
  await nextTurn();
  return sendBytes(c, Buffer.from(json), JSON_HEADERS);
}

const JSON_HEADERS = { 'Content-Type': 'application/json' };

/** Sends bytes in the same way. */
export function sendBytes(
  { env: { outgoing, exchange } }: WithOutgoing,
  bytes: Buffer,
  headers: Readonly<Record<string, string>>,
): Response {
  exchange.hold(bytes.length);
  outgoing.writeHead(200, { ...headers, 'Content-Length': bytes.length }).end(bytes);
  return RESPONSE_ALREADY_SENT;
}

/** Aborts when the client disconnects before it has received the whole response. */
export function disconnectSignal({ env: { outgoing } }: WithOutgoing): AbortSignal {
  const disconnected = new AbortController();
  if (outgoing.destroyed) disconnected.abort();
  outgoing.once('close', () => {
    if (!outgoing.writableEnded) disconnected.abort();
  });
  return disconnected.signal;
}

export interface EventStreamOptions {
  /** After this time without an event a comment is sent, because proxies close silent connections. */
  readonly heartbeatMs: number;
  /** Called once if the client disconnects before the end. */
  readonly onDisconnect: () => void;
  /** False: the stream ends without `[DONE]`. */
  readonly hasEndMark?: boolean;
  readonly clock?: Clock;
}

/** Server-sent events. Nothing is written after the client disconnected. No method throws. */
export interface EventStream {
  /**
   * Sends an event as one chunk of HTTP; without a name if `type` is undefined. A client that reconnects sends the last `id`
   * as `Last-Event-ID`. Returns a promise if the client reads too slowly: it resolves when there is room again or the client
   * has disconnected. A large event, and those after it, are sent in other turns of the event loop, so `data` must not change.
   */
  send(type: string | undefined, data: object, id?: number): void | Promise<void>;
  /** Sends `[DONE]`, unless `hasEndMark` is false or the stream `isCut`, and closes the response. */
  end(isCut?: boolean): void;
}

/** Events are written at once when there are this many characters. */
const MOST_WAITING = 4_096;
const END_MARK = 'data: [DONE]\n\n';
const LAST_CHUNK = '0\r\n\r\n';

function chunkOf(frame: string): string {
  return `${Buffer.byteLength(frame).toString(16)}\r\n${frame}\r\n`;
}

interface LaterEvents {
  readonly events: { readonly type: string | undefined; readonly data: object; readonly id: number | undefined }[];
  /** Resolves when they are sent and there is room for more, or the client has disconnected. */
  readonly sent: PromiseWithResolvers<void>;
  /** Called when they are sent. */
  end: () => void;
}

export function eventStream(outgoing: ServerResponse, options: EventStreamOptions): EventStream {
  const { heartbeatMs, onDisconnect, hasEndMark = true, clock = systemClock } = options;
  let isClosed = false;
  let isEnded = false;
  let wasSilent = true;
  let room: PromiseWithResolvers<void> | undefined;
  /** Chunks that are written together at the end of this tick: Node takes longer to write one than to make it. */
  let waiting = '';
  /** False for HTTP/1.0, which has no chunks. */
  let isChunked = false;
  let isScheduled = false;
  let hasWritten = false;
  /** What follows a large event, until both are sent. */
  let later: LaterEvents | undefined;
  let cancelHeartbeat = clock.timer(heartbeatMs, sendHeartbeat);

  function addFrame(frame: string): void | Promise<void> {
    if (isClosed) return;
    waiting += isChunked ? chunkOf(frame) : frame;
    if (waiting.length >= MOST_WAITING) writeChunks();
    else if (!isScheduled) {
      isScheduled = true;
      process.nextTick(onTickEnd);
    }
    return room?.promise;
  }

  function onTickEnd(): void {
    isScheduled = false;
    if (isClosed) return;
    if (waiting !== '') writeChunks();
    else if (!hasWritten) outgoing.flushHeaders();
  }

  function writeChunks(): void {
    // Node allocates three bytes for each character of a string that it cannot send at once. It adds the headers to the first
    // string, and then keeps all the pieces that they were made of.
    const chunks = waiting.length > LARGE || !hasWritten ? Buffer.from(waiting) : waiting;
    waiting = '';
    hasWritten = true;
    if (!outgoing.write(chunks)) room ??= Promise.withResolvers();
  }

  /** Sends a large event and those that follow it. A large one is made in one turn, and encoded in another. */
  async function sendLarge(first: string): Promise<void> {
    const following: LaterEvents = { events: [], sent: Promise.withResolvers(), end: () => {} };
    later = following;
    for (let frame: string | undefined = first; frame !== undefined; frame = nextFrame(following)) {
      const isLarge = frame.length > LARGE;
      if (isLarge) await nextTurn();
      void addFrame(frame);
      if (isLarge) await nextTurn();
    }
    later = undefined;
    following.end();
    // A client that disconnects makes room.
    await room?.promise;
    following.sent.resolve();
  }

  function nextFrame({ events }: LaterEvents): string | undefined {
    const event = events.shift();
    return event && eventFrame(event.type, event.data, event.id);
  }

  function endStream(isCut: boolean): void {
    if (isClosed) return;
    const mark = hasEndMark && !isCut ? END_MARK : '';
    const last = waiting + (isChunked ? `${mark && chunkOf(mark)}${LAST_CHUNK}` : mark);
    closeStream();
    outgoing.end(last);
  }

  function onDrain(): void {
    room?.resolve();
    room = undefined;
  }

  function closeStream(): void {
    isClosed = true;
    waiting = '';
    if (later) later.events.length = 0;
    cancelHeartbeat();
    onDrain();
  }

  function onClose(): void {
    if (isClosed) return;
    closeStream();
    onDisconnect();
  }

  /** Not sent to a client that has not read the events before it. */
  function sendHeartbeat(): void {
    if (wasSilent && !room) void addFrame(KEEP_ALIVE_FRAME);
    wasSilent = true;
    cancelHeartbeat = clock.timer(heartbeatMs, sendHeartbeat);
  }

  outgoing.on('drain', onDrain);
  outgoing.on('close', onClose);
  // `close` follows.
  outgoing.on('error', () => {});
  if (outgoing.destroyed) {
    closeStream();
    // After the caller has received the stream.
    queueMicrotask(onDisconnect);
  } else {
    outgoing.writeHead(200, EVENT_STREAM_HEADERS);
    isChunked = outgoing.chunkedEncoding;
    // The chunks are made here.
    outgoing.chunkedEncoding = false;
    // The headers are sent with the first events, or at the end of this tick.
    isScheduled = true;
    process.nextTick(onTickEnd);
  }

  return {
    send(type, data, id) {
      wasSilent = false;
      if (isClosed || isEnded) return;
      if (later) {
        later.events.push({ type, data, id });
        return later.sent.promise;
      }
      const frame = eventFrame(type, data, id);
      if (frame.length <= LARGE) return addFrame(frame);
      void sendLarge(frame);
      return later!.sent.promise;
    },
    end(isCut = false) {
      if (isEnded) return;
      isEnded = true;
      if (later) later.end = () => endStream(isCut);
      else endStream(isCut);
    },
  };
}
