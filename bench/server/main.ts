/**
 * A scripted language model: replies as fast as possible in the exact format of the real APIs. Runs in its own process,
 * prints its port, and ends when its standard input is closed.
 */
import { createServer, type Socket } from 'node:net';
import { setImmediate as nextTick, setTimeout as sleep } from 'node:timers/promises';
import { anthropic } from './anthropic.ts';
import { hostileReply } from './hostile.ts';
import { openaiChat } from './openai-chat.ts';
import { openaiResponses } from './openai-responses.ts';
import { requestReader } from './requests.ts';
import { scriptOf, type Scripted } from './script.ts';
import type { Wire } from './wire.ts';

const WIRES: Readonly<Record<string, Wire>> = {
  '/v1/chat/completions': openaiChat,
  '/v1/responses': openaiResponses,
  '/v1/messages': anthropic,
};

const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n' +
  'connection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n';
const LAST_CHUNK = '0\r\n\r\n';

const made = new Map<string, Buffer>();

/** Caches encoded answers. */
function cached(key: string, make: () => Buffer): Buffer {
  let bytes = made.get(key);
  if (!bytes) made.set(key, (bytes = make()));
  return bytes;
}

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  const read = requestReader((path, body) => {
    const wire = WIRES[path];
    if (!wire) return void socket.write('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n');
    if (hostileReply(socket, body)) return;
    const scripted = scriptOf(body, wire.resultMark);
    const send = (): void => reply(socket, path, wire, scripted);
    if (scripted.delayMs > 0) setTimeout(send, scripted.delayMs);
    else send();
  });
  socket.on('data', read);
});

function reply(socket: Socket, path: string, wire: Wire, { script, stream, pace }: Scripted): void {
  const key = `${path} ${JSON.stringify(script)} ${stream} ${pace}`;
  if (!stream) return void socket.write(cached(key, () => whole(wire.whole(script))));
  if (pace === 'burst') {
    const bytes = cached(key, () => {
      const events = Buffer.from(wire.events(script).join(''));
      return Buffer.concat([Buffer.from(STREAM_HEAD), chunk(events), Buffer.from(LAST_CHUNK)]);
    });
    return void socket.write(bytes);
  }
  if (pace === 'split') return void piecemeal(socket, cut(Buffer.from(wire.events(script).join('')), 7), nextTick);
  void piecemeal(
    socket,
    wire.events(script).map((event) => Buffer.from(event)),
    () => sleep(pace),
  );
}

function whole(json: string): Buffer {
  const body = Buffer.from(json);
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: keep-alive\r\ncontent-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

function chunk(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
}

async function piecemeal(socket: Socket, pieces: readonly Buffer[], pause: () => Promise<unknown>): Promise<void> {
  socket.write(STREAM_HEAD);
  for (const piece of pieces) {
    socket.write(chunk(piece));
    await pause();
    if (socket.destroyed) return;
  }
  socket.write(LAST_CHUNK);
}

function cut(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.subarray(n * size, (n + 1) * size));
}

server.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 }, () => {
  process.stdout.write(`${(server.address() as { port: number }).port}\n`);
});
process.stdin.on('end', () => process.exit()).resume();
