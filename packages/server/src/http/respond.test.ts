import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { manualClock } from '@treadle/core/testing';
import { newLog } from './log.ts';
import { eventStream, type EventStream, type EventStreamOptions, type StreamContext } from './respond.ts';

const log = newLog({ level: 'silent' });
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

/** The context of a request that has read nothing. */
function contextOf(outgoing: ServerResponse, durable: () => void | Promise<void> = () => {}): StreamContext {
  return { env: { outgoing, exchange: { durable, requestId: 'r', log } } };
}

interface Connected {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly stream: EventStream;
  /** How often a disconnect was reported. */
  disconnects(): number;
  /** What was written, one text for each write: chunks of HTTP. */
  readonly writes: string[];
  /** How many events were written. */
  events(): number;
}

/** A client and a stream to it, over a real connection. The client reads nothing until the test resumes it. */
async function connected(
  options: Partial<EventStreamOptions> = {},
  durable?: () => void | Promise<void>,
): Promise<Connected> {
  let disconnects = 0;
  const writes: string[] = [];
  const { promise, resolve } = Promise.withResolvers<{ outgoing: ServerResponse; stream: EventStream }>();
  const server = createServer((_, outgoing) => {
    const write = outgoing.write.bind(outgoing) as (chunk: string | Buffer) => boolean;
    const end = outgoing.end.bind(outgoing) as (chunk: string) => ServerResponse;
    outgoing.write = (chunk: string | Buffer) => (writes.push(String(chunk)), write(chunk));
    outgoing.end = ((chunk: string) => (writes.push(chunk), end(chunk))) as ServerResponse['end'];
    const stream = eventStream(contextOf(outgoing, durable), {
      heartbeatMs: 15_000,
      onDisconnect: () => disconnects++,
      clock: manualClock(),
      ...options,
    });
    resolve({ outgoing, stream });
  });
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const asked = request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).end();
  const [incoming] = (await once(asked, 'response')) as [IncomingMessage];
  incoming.on('error', () => {});
  const events = (): number => writes.join('').match(/event: /g)?.length ?? 0;
  return { incoming, ...(await promise), disconnects: () => disconnects, writes, events };
}

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of incoming.setEncoding('utf8')) body += chunk;
  return body;
}

/** Blocks the socket until `free` is called, so that only the server's own buffer takes data. */
function jam({ outgoing, stream }: Connected): { sent: number; room: Promise<void>; free: () => void } {
  const socket = outgoing.socket!;
  socket.cork();
  for (let sent = 1; ; sent++) {
    const room = stream.send('more', { sent, text: 'x'.repeat(1000) });
    if (room) return { sent, room, free: () => socket.uncork() };
  }
}

describe('an event', () => {
  test('has a name and one line of data, ends with an empty line, and is one chunk', async () => {
    const { incoming, stream, writes, disconnects } = await connected();
    expect(incoming.statusCode).toBe(200);
    expect(incoming.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    });
    expect(stream.send('response.created', { type: 'response.created', n: 0 })).toBeUndefined();
    void stream.send(undefined, { lines: 'a\r\nb\nc\u2028 ä' });
    stream.end();
    const body = await bodyOf(incoming);
    expect(body).toBe(
      'event: response.created\ndata: {"type":"response.created","n":0}\n\n' +
        'data: {"lines":"a\\r\\nb\\nc\u2028 ä"}\n\n' +
        'data: [DONE]\n\n',
    );
    expect(body).not.toContain('\r');
    const chunks = body.match(/[^]+?\n\n/g)!.map((frame) => `${Buffer.byteLength(frame).toString(16)}\r\n${frame}\r\n`);
    expect(writes).toEqual([`${chunks.join('')}0\r\n\r\n`]);
    expect(disconnects()).toBe(0);
  });

  test('is written at the end of the tick, or at once if it is long', async () => {
    const { stream, writes, events } = await connected();
    void stream.send('event', {});
    expect(writes).toEqual([]);
    await setImmediate();
    expect(writes).toEqual(['17\r\nevent: event\ndata: {}\n\n\r\n']);
    void stream.send('event', { text: 'x'.repeat(5_000) });
    expect(events()).toBe(2);
    await setImmediate();
    expect(writes).toHaveLength(2);
  });

  test('is not written after the end, and the end is written once', async () => {
    const { incoming, stream, writes, disconnects } = await connected();
    stream.end();
    stream.end();
    expect(stream.send('late', {})).toBeUndefined();
    expect(await bodyOf(incoming)).toBe('data: [DONE]\n\n');
    expect(writes).toEqual(['e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n']);
    expect(disconnects()).toBe(0);
  });
});

test('a client of HTTP/1.0 gets events without chunks, and the connection ends with the last one', async () => {
  const server = createServer((_, outgoing) => {
    const stream = eventStream(contextOf(outgoing), { heartbeatMs: 1_000, onDisconnect() {}, clock: manualClock() });
    void stream.send('event', { text: 'ä' });
    stream.end();
  });
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.0\r\n\r\n');
  const received = await text(socket);
  expect(received.slice(received.indexOf('\r\n\r\n') + 4)).toBe('event: event\ndata: {"text":"ä"}\n\ndata: [DONE]\n\n');
});

describe('an event that is stored', () => {
  /** Syncs that wait until the test lets them proceed. */
  function heldSyncs(): {
    durable: () => void | Promise<void>;
    readonly syncs: PromiseWithResolvers<void>[];
    hold: boolean;
  } {
    const held = {
      hold: false,
      syncs: [] as PromiseWithResolvers<void>[],
      durable(): void | Promise<void> {
        if (!held.hold) return;
        const sync = Promise.withResolvers<void>();
        held.syncs.push(sync);
        return sync.promise;
      },
    };
    return held;
  }

  test('is sent when it is durable, and what follows after it; deltas do not wait otherwise', async () => {
    const held = heldSyncs();
    const { incoming, stream, events } = await connected({}, held.durable);
    held.hold = true;
    void stream.sendLive('delta', {});
    await setImmediate();
    expect([events(), held.syncs.length]).toEqual([1, 0]);
    void stream.send('stored', {});
    void stream.sendLive('delta', {});
    await setImmediate();
    void stream.sendLive('delta', {});
    await setImmediate();
    expect([events(), held.syncs.length]).toEqual([1, 1]);
    held.syncs[0]!.resolve();
    await setImmediate();
    expect([events(), held.syncs.length]).toEqual([4, 1]);
    held.hold = false;
    stream.end();
    const sent = (await bodyOf(incoming)).match(/delta|stored|DONE/g);
    expect(sent).toEqual(['delta', 'stored', 'delta', 'delta', 'DONE']);
  });

  test('waits for the sync after the one in progress, however many follow it, and so does the end', async () => {
    const held = heldSyncs();
    const { incoming, stream, events } = await connected({}, held.durable);
    held.hold = true;
    void stream.send('first', {});
    await setImmediate();
    for (const type of ['second', 'third']) {
      void stream.send(type, {});
      await setImmediate();
    }
    stream.end();
    expect(held.syncs).toHaveLength(1);
    held.syncs[0]!.resolve();
    await setImmediate();
    expect([events(), held.syncs.length]).toEqual([1, 2]);
    held.syncs[1]!.resolve();
    expect((await bodyOf(incoming)).match(/first|second|third|DONE/g)).toEqual(['first', 'second', 'third', 'DONE']);
  });

  test('makes the sender wait if much of it is not durable', async () => {
    const held = heldSyncs();
    const { incoming, stream } = await connected({}, held.durable);
    incoming.resume();
    held.hold = true;
    let sent = 0;
    let room: void | Promise<void> = undefined;
    for (; !room; sent++) room = stream.send('event', { text: 'x'.repeat(1_000) });
    expect(sent).toBeLessThan(100);
    held.hold = false;
    held.syncs[0]!.resolve();
    await room;
    stream.end();
  });

  test('cuts the connection if it cannot become durable', async () => {
    const held = heldSyncs();
    const { incoming, stream, events, disconnects } = await connected({}, held.durable);
    held.hold = true;
    void stream.send('stored', {});
    stream.end();
    const closed = new Promise((resolve) => void incoming.once('close', resolve));
    held.syncs[0]!.reject(new Error('EIO'));
    await closed;
    expect([incoming.complete, events(), disconnects()]).toEqual([false, 0, 0]);
  });

  test('of which nothing is durable is not announced by the headers', async () => {
    const held = heldSyncs();
    held.hold = true;
    let hasHeaders = false;
    const opened = connected({}, held.durable).then((client) => ((hasHeaders = true), client));
    while (held.syncs.length === 0) await setImmediate();
    expect(hasHeaders).toBe(false);
    held.hold = false;
    held.syncs[0]!.resolve();
    (await opened).stream.end();
  });
});

describe('events after a large one', () => {
  const large = { text: 'x'.repeat(300_000) };

  test('are sent in order, each large one in another turn, and the end after them', async () => {
    const { incoming, stream, writes } = await connected();
    const turns: number[] = [];
    const seen: number[] = [];
    const { push } = writes;
    writes.push = (...chunks) => (seen.push(turns.length), push.apply(writes, chunks));
    let isSent = false;
    void (async () => {
      while (!isSent) {
        await setImmediate();
        turns.push(0);
      }
    })();
    const body = bodyOf(incoming);
    void stream.send('1', large);
    const room = [stream.send('2', {}), stream.send('3', large, 7), stream.send('4', large), stream.send('5', {})];
    expect(writes).toHaveLength(0);
    stream.end();
    expect(stream.send('6', {})).toBeUndefined();
    await Promise.all(room);
    isSent = true;
    const text = JSON.stringify(large);
    expect(await body).toBe(
      `event: 1\ndata: ${text}\n\nevent: 2\ndata: {}\n\nid: 7\nevent: 3\ndata: ${text}\n\n` +
        `event: 4\ndata: ${text}\n\nevent: 5\ndata: {}\n\ndata: [DONE]\n\n`,
    );
    // 5 and the end share a turn and a write.
    expect(seen).toHaveLength(5);
    expect(new Set(seen).size).toBe(5);
  });

  test('are not sent to a client that disconnects, and release the sender', async () => {
    const { incoming, outgoing, stream, writes } = await connected();
    void stream.send('1', large);
    const room = stream.send('2', large);
    incoming.destroy();
    outgoing.destroy();
    await once(outgoing, 'close');
    await room;
    const serialise = vi.fn<() => string>();
    expect(stream.send('3', { toJSON: serialise })).toBeUndefined();
    expect(serialise).not.toHaveBeenCalled();
    stream.end();
    expect(writes.length).toBeLessThanOrEqual(2);
  });

  test('do not wait any more when they are sent', async () => {
    const { incoming, stream, events } = await connected();
    incoming.resume();
    void stream.send('1', large);
    await stream.send('2', {});
    expect(stream.send('3', {})).toBeUndefined();
    await setImmediate();
    expect(events()).toBe(3);
    stream.end();
  });
});

describe('a heartbeat', () => {
  test('is sent only while there are no events, and not after the end', async () => {
    const clock = manualClock();
    const { incoming, stream, writes } = await connected({ clock, heartbeatMs: 1_000 });
    await clock.advance(999);
    expect(writes).toEqual([]);
    await clock.advance(1);
    await setImmediate();
    expect(writes).toEqual(['e\r\n: keep-alive\n\n\r\n']);
    void stream.send('event', {});
    await clock.advance(1_000);
    await setImmediate();
    expect(writes).toHaveLength(2);
    await clock.advance(1_000);
    await setImmediate();
    const frames = [': keep-alive\n\n', 'event: event\ndata: {}\n\n', ': keep-alive\n\n'];
    expect(writes.map((chunk) => chunk.split('\r\n')[1])).toEqual(frames);
    stream.end();
    expect(clock.pending).toBe(0);
    await clock.advance(10_000);
    expect(await bodyOf(incoming)).toBe(`${frames.join('')}data: [DONE]\n\n`);
    expect(writes).toHaveLength(4);
  });

  test('is not sent to a client that does not read', async () => {
    const clock = manualClock();
    const client = await connected({ clock, heartbeatMs: 1_000 });
    const { sent } = jam(client);
    await clock.advance(60_000);
    await setImmediate();
    expect(client.events()).toBe(sent);
    expect(client.writes.join('')).not.toContain('keep-alive');
  });
});

describe('a slow reader', () => {
  test('applies backpressure, and the buffer is bounded', async () => {
    const client = await connected();
    const { stream, outgoing, incoming } = client;
    const { sent, room, free } = jam(client);
    let isRoom = false;
    void room.then(() => (isRoom = true));
    await setImmediate();
    expect(isRoom).toBe(false);
    expect(outgoing.writableLength).toBeLessThan(outgoing.writableHighWaterMark + 5_000);
    // All sends in the meantime share the same promise.
    expect(stream.send('more', { sent: sent + 1 })).toBe(room);
    incoming.resume();
    free();
    await room;
    expect(stream.send('more', { sent: sent + 2 })).toBeUndefined();
  });

  test('that does not read at all blocks the sender, and later receives everything in order', async () => {
    const { incoming, outgoing, stream } = await connected();
    const most = 100_000;
    let sent = 0;
    let longest = 0;
    const sending = (async () => {
      while (sent < most) {
        await stream.send('more', { sent: ++sent, text: 'x'.repeat(1000) });
        longest = Math.max(longest, outgoing.writableLength);
      }
    })();
    // Sends until the buffers of the operating system are full.
    for (let before = -1, still = 0; still < 100; still = sent === before ? still + 1 : 0) {
      before = sent;
      await setImmediate();
    }
    expect(sent).toBeLessThan(most);
    const numbers: number[] = [];
    let rest = '';
    for await (const chunk of incoming.setEncoding('utf8')) {
      const lines = (rest + chunk).split('\n\n');
      rest = lines.pop()!;
      for (const line of lines) numbers.push(Number(/"sent":(\d+)/.exec(line)?.[1]));
      if (numbers.length === most) break;
    }
    await sending;
    expect(numbers.every((number, index) => number === index + 1)).toBe(true);
    expect(longest).toBeLessThan(outgoing.writableHighWaterMark + 5_000);
  });

  test('receives everything also if the stream ends before it has read', async () => {
    const client = await connected();
    const { incoming, stream, disconnects } = client;
    const { sent, room, free } = jam(client);
    stream.end();
    await room;
    free();
    expect((await bodyOf(incoming)).match(/event: more/g)).toHaveLength(sent);
    expect(disconnects()).toBe(0);
  });
});

describe('a client that disconnects', () => {
  test('is reported once, releases the sender, and nothing more is written', async () => {
    const clock = manualClock();
    const client = await connected({ clock });
    const { incoming, outgoing, stream, disconnects, events } = client;
    const { sent, room, free } = jam(client);
    free();
    incoming.destroy();
    await room;
    if (!outgoing.closed) await once(outgoing, 'close');
    expect(disconnects()).toBe(1);
    expect(clock.pending).toBe(0);
    expect(stream.send('more', {})).toBeUndefined();
    stream.end();
    await clock.advance(60_000);
    await setImmediate();
    expect(events()).toBe(sent);
    expect(disconnects()).toBe(1);
  });

  test('is reported while nothing is sent', async () => {
    const { incoming, outgoing, disconnects } = await connected();
    incoming.destroy();
    await once(outgoing, 'close');
    expect(disconnects()).toBe(1);
  });

  test('is reported if it disconnected before the stream started', async () => {
    const { promise, resolve } = Promise.withResolvers<string[]>();
    const server = createServer((incoming, outgoing) => {
      incoming.socket.destroy();
      outgoing.once('close', () => {
        const log: string[] = [];
        const stream = eventStream(contextOf(outgoing), {
          heartbeatMs: 1_000,
          onDisconnect: () => log.push('disconnects'),
          clock: manualClock(),
        });
        log.push(String(stream.send('event', {})));
        stream.end();
        queueMicrotask(() => resolve(log));
      });
    });
    servers.push(server);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const asked = request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).end();
    await once(asked, 'error');
    expect(await promise).toEqual(['undefined', 'disconnects']);
  });
});
