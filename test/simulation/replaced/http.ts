import { EventEmitter } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { activeScheduler } from '../platform.ts';

/** `node:http` for servers: they are reached without a network. */
export { ServerResponse, STATUS_CODES } from 'node:http';

/** The server of a simulated process. */
export class SimulatedServer extends EventEmitter {
  listen(_: object, listening: () => void): void {
    queueMicrotask(listening);
  }

  address(): AddressInfo {
    return { address: '127.0.0.1', family: 'IPv4', port: 1 };
  }

  setTimeout(): void {}

  close(closed: () => void): void {
    queueMicrotask(closed);
  }
}

const servers = new WeakMap<object, SimulatedServer>();

/** Belongs to the process that calls it. */
export function createServer(): SimulatedServer {
  const server = new SimulatedServer();
  servers.set(activeScheduler().current(), server);
  return server;
}

export interface SentRequest {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
}

/** What a client receives. */
export interface Receiver {
  readonly onHead: (status: number) => void;
  /** An event of a stream, or the whole body. Called when its bytes leave the server. */
  readonly onData: (json: unknown) => void;
  /** The response is complete, or the connection was closed before. */
  readonly onEnd: (isComplete: boolean) => void;
}

/** A connection with one request. Its bytes leave the server when they are written. */
class Connection extends Duplex {
  readonly remoteAddress = '127.0.0.1';
  readonly encrypted = false;
  readonly #receive: (bytes: Buffer) => void;

  constructor(receive: (bytes: Buffer) => void) {
    super();
    this.#receive = receive;
  }

  override _read(): void {}

  override _write(bytes: Buffer, _: string, done: () => void): void {
    this.#receive(bytes);
    done();
  }

  setTimeout(): this {
    return this;
  }

  destroySoon(): void {
    this.destroy();
  }
}

/** Sends a request to the server of a process. Called inside of that process. The returned function closes the connection. */
export function deliverRequest(owner: object, sent: SentRequest, receiver: Receiver): () => void {
  const { method, path, headers = {}, body } = sent;
  const parse = responseParser(receiver);
  const connection = new Connection(parse.add);
  const socket = connection as unknown as Socket;
  const incoming = new IncomingMessage(socket);
  const text = body && JSON.stringify(body);
  Object.assign(incoming, { method, url: path, httpVersion: '1.1', httpVersionMajor: 1, httpVersionMinor: 1 });
  Object.assign(incoming.headers, {
    host: '127.0.0.1:1',
    ...(text !== undefined && {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(text)),
    }),
    ...headers,
  });
  incoming.rawHeaders = Object.entries(incoming.headers as Record<string, string>).flat();
  if (text !== undefined) incoming.push(text);
  incoming.push(null);
  incoming.complete = true;
  const outgoing = new ServerResponse(incoming);
  outgoing.assignSocket(socket);
  outgoing.once('finish', () => {
    parse.end();
    outgoing.detachSocket(socket);
    outgoing.emit('close');
    connection.destroy();
  });
  connection.once('close', parse.end);
  const server = servers.get(owner)!;
  server.emit('connection', connection);
  server.emit('request', incoming, outgoing);
  return () => void connection.destroy();
}

/** Parses a response as its bytes arrive. */
function responseParser({ onHead, onData, onEnd }: Receiver): { add(bytes: Buffer): void; end(): void } {
  let bytes = Buffer.alloc(0);
  let head: string | undefined;
  let text = '';
  let isComplete = false;
  let isEnded = false;

  /** Events end with an empty line. A body is one piece of data. */
  function addText(added: string): void {
    text += added;
    if (!/content-type: text\/event-stream/i.test(head!)) return;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1];
      text = text.slice(end + 2);
      if (data !== undefined && data !== '[DONE]') onData(JSON.parse(data));
    }
  }

  function addChunks(): void {
    for (;;) {
      const end = bytes.indexOf('\r\n');
      if (end < 0) return;
      const length = Number.parseInt(bytes.subarray(0, end).toString(), 16);
      if (bytes.length < end + 4 + length) return;
      const chunk = bytes.subarray(end + 2, end + 2 + length).toString();
      bytes = bytes.subarray(end + 4 + length);
      if (length === 0) isComplete = true;
      else addText(chunk);
    }
  }

  return {
    add(added) {
      if (isEnded) return;
      bytes = Buffer.concat([bytes, added]);
      if (head === undefined) {
        const end = bytes.indexOf('\r\n\r\n');
        if (end < 0) return;
        head = bytes.subarray(0, end).toString();
        bytes = bytes.subarray(end + 4);
        onHead(Number(head.slice(9, 12)));
      }
      if (/transfer-encoding: chunked/i.test(head)) return addChunks();
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      if (isComplete || bytes.length < length) return;
      isComplete = true;
      if (length > 0) onData(JSON.parse(bytes.toString()));
    },
    end() {
      if (isEnded) return;
      isEnded = true;
      onEnd(isComplete);
    },
  };
}
