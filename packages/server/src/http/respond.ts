import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { systemClock, type Clock } from '@treadle/core';
import { EVENT_STREAM_HEADERS, eventFrame, KEEP_ALIVE_FRAME } from '@treadle/core/web';
import type { Context } from 'hono';
import type { Env, Exchange } from './admission.ts';
import { LARGE, nextTurn } from './large-work.ts';

/*
 * Where responses leave the process. What they tell must survive a power failure, but reads return what is not synced yet. So
 * bytes are sent when everything that could be read before them is durable. All that wait at the same time share one sync, and
 * if nothing has changed, nobody waits.
 */

type WithOutgoing = Pick<Context<Env>, 'env'>;

/** Sends things in their order, each when everything that could be read before is durable. */
export interface DurableOrder {
  /** `isLive`: it tells nothing that is stored, such as a delta of the model. It waits only for what is before it. */
  send(act: () => void, isLive?: 'live'): void;
}

/** `failed` is called if something cannot become durable. What waits then is dropped. */
export function durableOrder(durable: Exchange['durable'], failed: (error: unknown) => void): DurableOrder {
  let isSyncing = false;
  let waiting: (() => void)[] = [];
  let hasStored = false;

  /** What is added meanwhile waits for the next sync. So it waits for two at most. */
  async function sendAfter(first: Promise<void>): Promise<void> {
    isSyncing = true;
    try {
      for (let syncing: void | Promise<void> = first; waiting.length > 0; syncing = hasStored ? durable() : undefined) {
        const ready = waiting;
        waiting = [];
        hasStored = false;
        await syncing;
        for (const act of ready) act();
      }
    } catch (error) {
      waiting = [];
      failed(error);
    }
    isSyncing = false;
  }

  return {
    send(act, isLive) {
      const syncing = isSyncing || isLive ? undefined : durable();
      if (!isSyncing && !syncing) return act();
      waiting.push(act);
      hasStored ||= !isLive;
      if (syncing) void sendAfter(syncing);
    },
  };
}

/**
 * Sends JSON directly with Node's response. A web `Response` and its stream would cost more than the rest of the request.
 */
export function sendJson(c: WithOutgoing, body: object, status = 200): Response | Promise<Response> {
  const json = JSON.stringify(body);
  return json.length > LARGE ? sendLargeJson(c, json, status) : sendBytes(c, Buffer.from(json), JSON_HEADERS, status);
}

/** A long text is encoded in another turn of the event loop than it was made in. */
async function sendLargeJson(c: WithOutgoing, json: string, status: number): Promise<Response> {
  await nextTurn();
  return sendBytes(c, Buffer.from(json), JSON_HEADERS, status);
}

const JSON_HEADERS = { 'Content-Type': 'application/json' };

/** Sends bytes in the same way. */
export function sendBytes(
  { env: { outgoing, exchange } }: WithOutgoing,
  bytes: Buffer,
  headers: Readonly<Record<string, string>>,
  status = 200,
): Response | Promise<Response> {
  exchange.hold(bytes.length);
  const send = (): Response => {
    outgoing.writeHead(status, { ...headers, 'Content-Length': bytes.length }).end(bytes);
    return RESPONSE_ALREADY_SENT;
  };
  return exchange.durable()?.then(send) ?? send();
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

/**
 * Server-sent events. Nothing is written after the client disconnected, and the connection is cut if what the events tell
 * cannot become durable. No method throws.
 */
export interface EventStream {
  /**
   * Sends an event as one chunk of HTTP; without a name if `type` is undefined. A client that reconnects sends the last `id`
   * as `Last-Event-ID`. Returns a promise if the client reads too slowly: it resolves when there is room again or the client
   * has disconnected. A large event, and those after it, are sent in other turns of the event loop, so `data` must not change.
   */
  send(type: string | undefined, data: object, id?: number): void | Promise<void>;
  /** The same for an event that tells nothing that is stored, such as a delta of the model: it does not wait for the disk. */
  sendLive(type: string | undefined, data: object): void | Promise<void>;
  /** Sends `[DONE]`, unless `hasEndMark` is false or the stream `isCut`, and closes the response. */
  end(isCut?: boolean): void;
}

/** Events are written at once when there are this many characters. */
const MOST_WAITING = 4_096;
/** If so many characters wait until they are durable, there is no room for more. */
export const MOST_UNSYNCED = 65_536;
const END_MARK = 'data: [DONE]\n\n';
const LAST_CHUNK = '0\r\n\r\n';

function chunkOf(frame: string): string {
  return `${Buffer.byteLength(frame).toString(16)}\r\n${frame}\r\n`;
}

interface SentEvent {
  readonly type: string | undefined;
  readonly data: object;
  readonly id?: number | undefined;
  readonly isLive?: 'live';
}

interface LaterEvents {
  readonly events: SentEvent[];
  /** Resolves when they are sent and there is room for more, or the client has disconnected. */
  readonly sent: PromiseWithResolvers<void>;
  /** Called when they are sent. */
  end: () => void;
}

/** What a stream needs of the context of its request. */
export interface StreamContext {
  readonly env: {
    readonly outgoing: ServerResponse;
    readonly exchange: Pick<Exchange, 'durable' | 'requestId' | 'log'>;
  };
}

export function eventStream({ env }: StreamContext, options: EventStreamOptions): EventStream {
  const { outgoing, exchange } = env;
  const { heartbeatMs, onDisconnect, hasEndMark = true, clock = systemClock } = options;
  let isClosed = false;
  let isEnded = false;
  let wasSilent = true;
  let room: PromiseWithResolvers<void> | undefined;
  /** Chunks that are written together at the end of this tick: Node takes longer to write one than to make it. */
  let waiting = '';
  /** Whether they, and the headers, tell nothing that is stored. */
  let isLive: 'live' | undefined;
  /** The characters that wait until they are durable. */
  let unsynced = 0;
  const order = durableOrder(exchange.durable, (error) => {
    exchange.log.error(
      { err: error, requestId: exchange.requestId },
      'a stream was cut: the store could not be synced',
    );
    outgoing.destroy();
  });
  /** False for HTTP/1.0, which has no chunks. */
  let isChunked = false;
  let isScheduled = false;
  let hasWritten = false;
  /** What follows a large event, until both are sent. */
  let later: LaterEvents | undefined;
  let cancelHeartbeat = clock.timer(heartbeatMs, sendHeartbeat);

  function addFrame(frame: string, isFrameLive?: 'live'): void | Promise<void> {
    if (isClosed) return;
    waiting += isChunked ? chunkOf(frame) : frame;
    isLive &&= isFrameLive;
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
    else if (!hasWritten) order.send(() => outgoing.flushHeaders(), isLive);
    isLive = 'live';
  }

  function writeChunks(): void {
    // Node allocates three bytes for each character of a string that it cannot send at once. It adds the headers to the first
    // string, and then keeps all the pieces that they were made of.
    const chunks = waiting.length > LARGE || !hasWritten ? Buffer.from(waiting) : waiting;
    unsynced += chunks.length;
    waiting = '';
    hasWritten = true;
    order.send(() => {
      unsynced -= chunks.length;
      if (!outgoing.write(chunks)) room ??= Promise.withResolvers();
      else if (unsynced === 0) onDrain();
    }, isLive);
    isLive = 'live';
    if (unsynced > MOST_UNSYNCED) room ??= Promise.withResolvers();
  }

  /** Sends a large event and those that follow it. A large one is made in one turn, and encoded in another. */
  async function sendLarge(first: SentEvent, frame: string): Promise<void> {
    const following: LaterEvents = { events: [], sent: Promise.withResolvers(), end: () => {} };
    later = following;
    for (let [event, text]: [SentEvent | undefined, string] = [first, frame]; event;) {
      const isLarge = text.length > LARGE;
      if (isLarge) await nextTurn();
      void addFrame(text, event.isLive);
      if (isLarge) await nextTurn();
      event = following.events.shift();
      text = event ? eventFrame(event.type, event.data, event.id) : '';
    }
    later = undefined;
    following.end();
    // A client that disconnects makes room.
    await room?.promise;
    following.sent.resolve();
  }

  function endStream(isCut: boolean): void {
    if (isClosed) return;
    const mark = hasEndMark && !isCut ? END_MARK : '';
    const last = waiting + (isChunked ? `${mark && chunkOf(mark)}${LAST_CHUNK}` : mark);
    closeStream();
    order.send(() => outgoing.end(last));
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
    if (wasSilent && !room) void addFrame(KEEP_ALIVE_FRAME, 'live');
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

  function sendEvent(event: SentEvent): void | Promise<void> {
    wasSilent = false;
    if (isClosed || isEnded) return;
    if (later) {
      later.events.push(event);
      return later.sent.promise;
    }
    const frame = eventFrame(event.type, event.data, event.id);
    if (frame.length <= LARGE) return addFrame(frame, event.isLive);
    void sendLarge(event, frame);
    return later!.sent.promise;
  }

  return {
    send: (type, data, id) => sendEvent({ type, data, id }),
    sendLive: (type, data) => sendEvent({ type, data, isLive: 'live' }),
    end(isCut = false) {
      if (isEnded) return;
      isEnded = true;
      if (later) later.end = () => endStream(isCut);
      else endStream(isCut);
    },
  };
}
