import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

/** How one request is answered. It has been read in full unless the step is marked `unread`. */
export type Step = ((response: ServerResponse, request: IncomingMessage) => void) & { readonly unread?: boolean };

export interface Seen {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

export interface ScriptedServer extends AsyncDisposable {
  readonly url: string;
  readonly seen: readonly Seen[];
  /** The number of connections so far. */
  readonly connections: number;
  /** Resolves when all connections are closed. */
  readonly quiet: () => Promise<void>;
}

/**
 * A provider of the Chat Completions API on this machine. It answers request n by step n, and further requests with 500.
 * It does not validate requests; the provider in `test/provider` of the repository does.
 */
export async function scriptedServer(...steps: Step[]): Promise<ScriptedServer> {
  const seen: Seen[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((request, response) => {
    const step = steps.shift() ?? status(500, { error: { message: 'unexpected request' } });
    if (step.unread) return step(response, request);
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
      seen.push({ path: request.url!, headers: request.headers, body });
      step(response, request);
    });
  });
  server.keepAliveTimeout = 0;
  server.on('connection', (socket) => {
    connections++;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    seen,
    get connections() {
      return connections;
    },
    quiet: async () => {
      await Promise.all(
        [...sockets].map((socket) => new Promise<void>((resolve) => socket.on('close', () => resolve()))),
      );
    },
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
      if (server.listening) await once(server, 'close');
    },
  };
}

const EVENTS = { 'content-type': 'text/event-stream; charset=utf-8' };

/** A stream, sent in these pieces. */
export function stream(...pieces: (string | Uint8Array)[]): Step {
  return (response) => {
    response.writeHead(200, EVENTS);
    for (const piece of pieces) response.write(piece);
    response.end();
  };
}

/** A stream that starts with these pieces and then neither continues nor ends. */
export function stall(...pieces: string[]): Step {
  return (response) => {
    response.writeHead(200, EVENTS);
    response.flushHeaders();
    for (const piece of pieces) response.write(piece);
  };
}

/** A stream that starts with these pieces and is then reset. */
export function reset(...pieces: string[]): Step {
  return (response, request) => {
    response.writeHead(200, EVENTS);
    response.flushHeaders();
    const last = pieces.at(-1);
    for (const piece of pieces.slice(0, -1)) response.write(piece);
    if (last === undefined) request.socket.resetAndDestroy();
    else response.write(last, () => request.socket.resetAndDestroy());
  };
}

export function status(code: number, body: unknown, headers: Record<string, string> = {}): Step {
  return (response) => {
    response.writeHead(code, { 'content-type': 'application/json', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  };
}

/** Accepts the request and does not answer. */
export const silence: Step = () => {};

/** Answers before the request has been read. */
export function early(step: Step): Step {
  return Object.assign<Step, { unread: boolean }>((response, request) => step(response, request), { unread: true });
}

export function chunk(delta: object, finish: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', model: 'm-2025', choices })}\n\n`;
}

export const DONE = 'data: [DONE]\n\n';

/** A complete stream with this text. */
export function says(text: string): Step {
  return stream(chunk({ role: 'assistant', content: '' }), chunk({ content: text }), chunk({}, 'stop'), DONE);
}
