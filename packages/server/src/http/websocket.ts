import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '@treadle/core';
import { WebSocketServer, type WebSocket } from 'ws';
import { ApiError } from '../api-error.ts';
import type { Answering, Caller, Exchange } from './admission.ts';
import type { Held, Memory } from './limits.ts';
import { durableOrder, MOST_UNSYNCED } from './respond.ts';

/**
 * WebSockets of clients. Each message is a request of its own, with the limits that requests over HTTP have:
 *
 * 1. The messages of a socket are answered one after the other.
 * 2. Each message is admitted, counted and logged, and its bytes are counted from the first one that arrives.
 * 3. A client that does not read, that sends a message too slowly, or that does not answer pings is disconnected.
 */

/** A client that asks for a WebSocket. */
export interface Upgrade {
  /**
   * Accepts the socket, and calls `open` for what answers its messages. Rejects with an `ApiError` if the page of the client
   * may not open it, or if too many are open.
   */
  accept(caller: Caller, limits: SocketLimits, open: OpenSocket): Promise<void>;
}

export interface SocketLimits {
  /** A larger message closes the socket with the code 1009. */
  readonly maxBytes: number;
  /** How often a ping is sent. */
  readonly heartbeatMs: number;
}

export type OpenSocket = (socket: ClientSocket) => AnswerMessage;

/** Answers one message of a client. Must not reject. */
export type AnswerMessage = (message: SocketMessage) => Promise<void>;

export interface SocketMessage {
  readonly bytes: Buffer;
  readonly isBinary: boolean;
  readonly requestId: string;
  /** Throws an `ApiError`, or rejects with it, if the message is not admitted. */
  admit(): Caller | Promise<Caller>;
  /** Sets the status for the log and the metrics; default 200. */
  setStatus(status: number): void;
}

export interface ClientSocket {
  /** Returns a promise if the client reads too slowly: it resolves when there is room again or the socket is closed. */
  send(message: object): void | Promise<void>;
  /** The same for a message that tells nothing that is stored, such as a delta of the model: it does not wait for the disk. */
  sendLive(message: object): void | Promise<void>;
  /** Closes the socket: at once, or after the message that is being answered. */
  close(code: number, reason: string): void;
  /** For bytes that the socket holds between messages. They are released when it closes. */
  holder(): Held;
  /** Aborts when the socket is closed. */
  readonly closed: AbortSignal;
}

/** Answers a message in the place of an HTTP response. */
export class MessageAnswer extends EventEmitter implements Answering {
  statusCode = 200;
  shouldKeepAlive = true;
  readonly headersSent = true;
  readonly writableFinished = true;

  setHeader(): this {
    return this;
  }

  close(): void {
    this.emit('close');
  }
}

export interface AcceptOptions extends SocketLimits {
  readonly incoming: IncomingMessage;
  readonly socket: Socket;
  readonly head: Buffer;
  readonly caller: Caller;
  readonly memory: Memory;
  /** How long a client may read nothing while data is waiting for it. */
  readonly sendMs: number;
  readonly clock: Clock;
  readonly isClosing: () => boolean;
  readonly durable: Exchange['durable'];
  /** Begins the exchange of a message, and logs it when its answer is closed. */
  readonly begin: (answer: MessageAnswer) => Exchange;
  /** Calls `start` when the answers to all earlier messages are closed. */
  readonly enqueue: (answer: MessageAnswer, start: () => void) => void;
  readonly admit: (answer: MessageAnswer, exchange: Exchange) => Caller | Promise<Caller>;
  readonly open: OpenSocket;
}

/** A socket that is open. */
export interface AcceptedSocket {
  /** The server shuts down: a socket without a message in progress is closed. */
  closeIfIdle(): void;
}

/** Further messages that wait for an answer are refused. */
const MOST_WAITING = 8;
/** How long a whole message may take to arrive. */
const MESSAGE_MS = 60_000;
/** The bytes of a control frame of a client without its payload. */
const CONTROL_HEADER = 6;

const GOING_AWAY = 1001;
const INTERNAL_ERROR = 1011;
const STOPPING = 'The server is shutting down.';

/**
 * Compression is not offered: a short message could become a large one. Each message and ping is processed in a turn of the
 * event loop of its own: the bytes that are read at once can contain ten thousand of them.
 */
const handshakes = new Map<number, WebSocketServer>();
function handshakesOf(maxPayload: number): WebSocketServer {
  const known = handshakes.get(maxPayload);
  if (known) return known;
  const made = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    allowSynchronousEvents: false,
    maxPayload,
  });
  handshakes.set(maxPayload, made);
  return made;
}

/** Undefined if the handshake is not valid: the client got a 400. */
export function acceptSocket(options: AcceptOptions): AcceptedSocket | undefined {
  let accepted: AcceptedSocket | undefined;
  const { incoming, socket, head, maxBytes } = options;
  handshakesOf(maxBytes).handleUpgrade(incoming, socket, head, (ws) => (accepted = serveSocket(ws, options)));
  return accepted;
}

function serveSocket(ws: WebSocket, options: AcceptOptions): AcceptedSocket {
  const { socket, caller, memory, clock, heartbeatMs, sendMs, isClosing } = options;
  const closed = new AbortController();
  const held = new Set<Held>();
  /** The answers to messages that wait. */
  const waiting = new Set<MessageAnswer>();
  /** Those that are complete, but not sent yet: they wait for the disk. */
  const unsent = new Set<MessageAnswer>();
  let inProgress = 0;
  let closing: { readonly code: number; readonly reason: string } | undefined;
  /** A ping waits for its answer. */
  let isPinged = false;
  let cancelPong = (): void => {};
  let room: PromiseWithResolvers<void> | undefined;
  /** The characters that wait until they are durable. */
  let unsynced = 0;
  let arriving: Held | undefined;
  let arrived = 0;
  let cancelArrival = (): void => {};
  let cancelHeartbeat = clock.timer(heartbeatMs, sendHeartbeat);

  function holder(): Held {
    const one = memory.holder(caller.tenant);
    held.add(one);
    return {
      hold: one.hold,
      release() {
        held.delete(one);
        one.release();
      },
    };
  }

  const order = durableOrder(options.durable, (error) => {
    caller.log.error({ err: error }, 'a socket was closed: the store could not be synced');
    ws.close(INTERNAL_ERROR, 'The store could not be synced.');
    unsynced = 0;
    updateRoom();
  });

  function send(message: object, isLive?: 'live'): void | Promise<void> {
    if (ws.readyState !== ws.OPEN) return;
    const text = JSON.stringify(message);
    unsynced += text.length;
    order.send(() => {
      unsynced -= text.length;
      if (ws.readyState === ws.OPEN) ws.send(text);
      updateRoom();
    }, isLive);
    updateRoom();
    return room?.promise;
  }

  /** After the messages that wait. */
  function closeSocket(code: number, reason: string): void {
    order.send(() => ws.close(code, reason), 'live');
  }

  /**
   * A client that does not read is not read either, and neither is one whose answers wait for the disk. Otherwise the answers to
   * what it sends would pile up.
   */
  function updateRoom(): void {
    if (!socket.writableNeedDrain && unsynced <= MOST_UNSYNCED) {
      if (room) hasRoom();
      return;
    }
    ws.pause();
    // The timeout of the socket applies while data is waiting.
    cancelPong();
    room ??= Promise.withResolvers();
  }

  function hasRoom(): void {
    ws.resume();
    if (room && isPinged) awaitPong();
    room?.resolve();
    room = undefined;
  }

  /** What was sent may all be in the buffers of the system: only the answer to a ping shows that the client reads. */
  function awaitPong(): void {
    cancelPong = clock.timer(sendMs, () => ws.terminate());
  }

  /** Not sent to a client that has not read what was sent before. */
  function sendHeartbeat(): void {
    if (!room) {
      ws.ping();
      if (!isPinged) awaitPong();
      isPinged = true;
    }
    cancelHeartbeat = clock.timer(heartbeatMs, sendHeartbeat);
  }

  function close(code: number, reason: string): void {
    if (inProgress > 0) closing = { code, reason };
    else closeSocket(code, reason);
  }

  // The bytes of a message that arrives

  function onData(chunk: Buffer): void {
    if (arrived === 0) cancelArrival = clock.timer(MESSAGE_MS, () => ws.terminate());
    arrived += chunk.length;
    arriving ??= holder();
    try {
      arriving.hold(chunk.length);
    } catch (error) {
      // There is no room for the rest of the message, so nothing after it can be read.
      const { code, message } = error as ApiError;
      ws.close(1013, `${code}: ${message}`.slice(0, 120));
      socket.destroySoon();
    }
  }

  function endArrival(): void {
    cancelArrival();
    arriving?.release();
    arriving = undefined;
    arrived = 0;
  }

  function onControl(payload: Buffer): void {
    arrived -= CONTROL_HEADER + payload.length;
    if (arrived <= 0) endArrival();
  }

  // Messages

  const answer = options.open({
    send: (message) => send(message),
    sendLive: (message) => send(message, 'live'),
    close,
    holder,
    closed: closed.signal,
  });

  function onMessage(bytes: Buffer, isBinary: boolean): void {
    endArrival();
    // What arrived before the end is read after it.
    if (socket.destroyed) return;
    const turn = new MessageAnswer();
    const exchange = options.begin(turn);
    turn.once('close', exchange.workEnded);
    exchange.caller = caller;
    let refusal: unknown;
    try {
      if (inProgress > MOST_WAITING) throw tooManyMessages();
      exchange.hold(bytes.length);
    } catch (error) {
      refusal = error;
    }
    const message: SocketMessage = {
      bytes: refusal === undefined ? bytes : NOTHING,
      isBinary,
      requestId: exchange.requestId,
      admit() {
        if (refusal !== undefined) throw refusal;
        return options.admit(turn, exchange);
      },
      setStatus(status) {
        turn.statusCode = status;
      },
    };
    inProgress += 1;
    waiting.add(turn);
    const start = (): void => {
      waiting.delete(turn);
      void answer(message).finally(() => {
        unsent.add(turn);
        if (closed.signal.aborted) endTurn(turn);
        else order.send(() => endTurn(turn), 'live');
      });
    };
    if (refusal === undefined) options.enqueue(turn, start);
    else start();
  }

  /** All of the answer was sent. Until its turn is closed, a server that shuts down leaves the connection open. */
  function endTurn(turn: MessageAnswer): void {
    inProgress -= 1;
    if (inProgress === 0 && isClosing()) closing ??= { code: GOING_AWAY, reason: STOPPING };
    if (inProgress > 0 || !closing) return closeTurn(turn);
    closeSocket(closing.code, closing.reason);
    order.send(() => closeTurn(turn), 'live');
  }

  function closeTurn(turn: MessageAnswer): void {
    if (unsent.delete(turn)) turn.close();
  }

  socket.setTimeout(sendMs, () => {
    if (socket.writableLength > 0) socket.destroy();
  });
  socket.prependListener('data', onData);
  socket.on('drain', updateRoom);
  ws.on('message', onMessage);
  ws.on('ping', (payload) => {
    onControl(payload);
    // It was answered.
    updateRoom();
  });
  ws.on('pong', (payload) => {
    cancelPong();
    isPinged = false;
    onControl(payload);
  });
  // `close` follows.
  ws.on('error', () => {});
  ws.on('close', () => {
    cancelHeartbeat();
    isPinged = false;
    cancelPong();
    endArrival();
    hasRoom();
    for (const one of held) one.release();
    closed.abort();
    for (const turn of waiting) turn.close();
    for (const turn of unsent) closeTurn(turn);
  });

  return {
    closeIfIdle() {
      if (inProgress === 0) closeSocket(GOING_AWAY, STOPPING);
    },
  };
}

const NOTHING = Buffer.alloc(0);

function tooManyMessages(): ApiError {
  const message = `${MOST_WAITING} messages of this socket wait for an answer already. Send the next one after an answer.`;
  return new ApiError(429, 'rate_limit_error', message, { code: 'too_many_requests' });
}
