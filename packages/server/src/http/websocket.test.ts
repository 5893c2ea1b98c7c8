import { manualClock } from '@treadle/core/testing';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { getRoute, served, type Served } from '../../test/served.ts';
import { toApiError, type ApiError } from '../api-error.ts';
import { memoryLimit } from './limits.ts';
import { hashKey, serverKeys } from './keys.ts';
import type { ServerOptions } from './server.ts';
import type { ClientSocket, OpenSocket } from './websocket.ts';

/** Answers each message with the name of the key that sent it, or with the code of the error. */
const ECHO: OpenSocket = (socket) => async (message) => {
  try {
    void socket.send({ key: (await message.admit()).key, bytes: message.bytes.length });
  } catch (error) {
    const { status, code } = toApiError(error as ApiError, message.requestId);
    message.setStatus(status);
    void socket.send({ code });
  }
};

const serve = (options: Partial<ServerOptions>, open: OpenSocket = ECHO, heartbeatMs = 1_000): Promise<Served> =>
  served({
    ...options,
    routes: [
      getRoute(
        '/ws',
        async (c) => {
          await c.env.upgrade!.accept(c.get('caller'), { maxBytes: 1_000, heartbeatMs }, open);
          return RESPONSE_ALREADY_SENT;
        },
        { scope: 'agents:invoke' },
      ),
    ],
  });

/** An open socket, with what it has received. */
async function connected({ url }: Served, headers = {}, autoPong = true): Promise<Connected> {
  const ws = new WebSocket(`${url.replace('http', 'ws')}/ws`, { headers, autoPong });
  ws.on('error', () => {});
  const closed = new Promise<number>((resolve) => void ws.once('close', resolve));
  await new Promise<void>((resolve) => void ws.once('open', resolve));
  return {
    ws,
    closed,
    ask: async (text) => {
      const answer = new Promise<string>((resolve) => void ws.once('message', (data) => resolve(String(data))));
      ws.send(text);
      return JSON.parse(await answer) as unknown;
    },
    pinged: () => new Promise((resolve) => void ws.once('ping', () => resolve())),
    [Symbol.dispose]: () => ws.terminate(),
  };
}

interface Connected extends Disposable {
  readonly ws: WebSocket;
  readonly closed: Promise<number>;
  ask(text: string): Promise<unknown>;
  pinged(): Promise<void>;
}

test('each message is admitted and logged as a request of its own', async () => {
  const keys = serverKeys([{ name: 'a', hash: hashKey('one') }]);
  await using server = await serve({ keys });
  using socket = await connected(server, { authorization: 'Bearer one' });
  expect(await socket.ask('hello')).toEqual({ key: 'a', bytes: 5 });
  keys.replace([{ name: 'a', hash: hashKey('one'), scopes: ['runs:read'] }]);
  expect(await socket.ask('hello')).toEqual({ code: 'insufficient_scope' });
  keys.replace([{ name: 'b', hash: hashKey('two') }]);
  expect(await socket.ask('hello')).toEqual({ code: 'invalid_api_key' });
  const lines = await server.requests(4);
  expect(lines.map(({ method, path, status, key }) => [method, path, status, key])).toEqual([
    ['GET', '/ws', 101, 'a'],
    ['WS', '/ws', 200, 'a'],
    ['WS', '/ws', 403, 'a'],
    ['WS', '/ws', 401, 'a'],
  ]);
});

describe('the time of a socket', () => {
  test('a silent socket is pinged, and closed when it does not answer', async () => {
    const clock = manualClock();
    await using server = await serve({ clock, timeouts: { sendMs: 4_000 } });
    using socket = await connected(server, {}, false);
    for (let n = 0; n < 4; n++) {
      const pinged = socket.pinged();
      await clock.advance(1_000);
      await pinged;
    }
    await clock.advance(1_000);
    expect(await socket.closed).toBe(1006);
  });

  test('a socket that sends messages and does not answer pings is closed', async () => {
    const clock = manualClock();
    await using server = await serve({ clock, timeouts: { sendMs: 4_000 } });
    using socket = await connected(server, {}, false);
    for (let n = 0; n < 10; n++) {
      expect(socket.ws.readyState).toBe(WebSocket.OPEN);
      await socket.ask('x');
      await clock.advance(500);
    }
    expect(await socket.closed).toBe(1006);
  });

  test('a socket that answers pings stays open', async () => {
    const clock = manualClock();
    await using server = await serve({ clock, timeouts: { sendMs: 4_000 } });
    using socket = await connected(server);
    for (let n = 0; n < 12; n++) {
      const pinged = socket.pinged();
      await clock.advance(1_000);
      await pinged;
      // The answer to the message follows the one to the ping.
      await socket.ask('x');
      await clock.advance(1_000);
    }
    expect(socket.ws.readyState).toBe(WebSocket.OPEN);
  });

  test('a message that does not end in time closes the socket', async () => {
    const clock = manualClock();
    const memory = memoryLimit({ max: 100_000 });
    await using server = await serve({ clock, memory }, ECHO, 100_000);
    using socket = await connected(server);
    socket.ws.send('x'.repeat(500), { fin: false });
    while (memory.used < 500) await new Promise(setImmediate);
    await clock.advance(60_000);
    expect(await socket.closed).toBe(1006);
    while (memory.used > 0) await new Promise(setImmediate);
  });
});

test('what a socket holds between messages is released when it closes', async () => {
  const memory = memoryLimit({ max: 100_000 });
  const opened = Promise.withResolvers<ClientSocket>();
  await using server = await serve({ memory }, (socket) => {
    opened.resolve(socket);
    return ECHO(socket);
  });
  using client = await connected(server);
  (await opened.promise).holder().hold(7_000);
  expect(memory.used).toBe(7_000);
  client.ws.close();
  await client.closed;
  while (memory.used > 0) await new Promise(setImmediate);
});

test('a client that reads nothing while data is waiting for it is disconnected', async () => {
  const opened = Promise.withResolvers<ClientSocket>();
  await using server = await serve({ timeouts: { sendMs: 100 } }, (socket) => {
    opened.resolve(socket);
    return ECHO(socket);
  });
  using client = await connected(server);
  client.ws.pause();
  const { send, closed } = await opened.promise;
  const disconnected = new Promise<void>((resolve) => closed.addEventListener('abort', () => resolve()));
  const text = 'x'.repeat(1_000_000);
  // More than the buffers of the connection can hold.
  for (let n = 0; n < 40; n++) void send({ text });
  await disconnected;
});

test('a client that sends without reading is not read either, until it reads', async () => {
  const messages = 400;
  let answered = 0;
  await using server = await serve({}, (socket) => async () => {
    answered += 1;
    void socket.send({ text: 'x'.repeat(100_000) });
  });
  using client = await connected(server);
  let received = 0;
  client.ws.on('message', () => (received += 1));
  client.ws.pause();
  for (let n = 0; n < messages; n++) {
    client.ws.send('x');
    await new Promise(setImmediate);
  }
  for (let unchanged = 0, before = -1; unchanged < 20 && answered < messages; before = answered) {
    await fetch(server.url);
    unchanged = answered === before ? unchanged + 1 : 0;
  }
  expect(answered).toBeLessThan(messages);
  client.ws.resume();
  while (received < messages) await new Promise(setImmediate);
});

describe('while the store is synced', () => {
  /** Syncs of a store that take as long as the test lets them. `started` resolves when the first one has begun. */
  function heldSync(): { durable: () => Promise<void>; started: Promise<void>; synced: PromiseWithResolvers<void> } {
    const started = Promise.withResolvers<void>();
    const synced = Promise.withResolvers<void>();
    const durable = (): Promise<void> => {
      started.resolve();
      return synced.promise;
    };
    return { durable, started: started.promise, synced };
  }

  test('a server that shuts down sends what waits for the sync, and closes the socket then', async () => {
    const { durable, started, synced } = heldSync();
    await using server = await serve({ durable });
    using client = await connected(server);
    const answer = client.ask('x');
    await started;
    await new Promise(setImmediate);
    const stopped = server.server.close();
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    synced.resolve();
    expect(await Promise.race([answer, client.closed])).toMatchObject({ bytes: 1 });
    expect(await client.closed).toBe(1001);
    await stopped;
  });

  test('an answer that cannot become durable holds nothing after its socket was closed', async () => {
    const memory = memoryLimit({ max: 100_000 });
    const { durable, started, synced } = heldSync();
    await using server = await serve({ durable, memory });
    using client = await connected(server);
    client.ws.send('x');
    await started;
    synced.reject(new Error('EIO'));
    expect(await client.closed).toBe(1011);
    while (memory.used > 0) await new Promise(setImmediate);
    // The handshake and the message.
    await server.requests(2);
  });

  test('what waits for the sync is limited: the sender waits too, and goes on after it', async () => {
    const { durable, started, synced } = heldSync();
    const sent = Promise.withResolvers<void>();
    let count = 0;
    await using server = await serve({ durable }, (socket) => async () => {
      void socket.send({});
      for (; count < 100; count++) await socket.sendLive({ text: 'x'.repeat(10_000) });
      sent.resolve();
    });
    using client = await connected(server);
    let received = 0;
    client.ws.on('message', () => (received += 1));
    client.ws.send('x');
    await started;
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    expect(count).toBeLessThan(10);
    synced.resolve();
    await sent.promise;
    while (received < 101) await new Promise(setImmediate);
  });
});

test('messages that wait for an answer hold nothing after the socket was closed', async () => {
  const memory = memoryLimit({ max: 100_000 });
  await using server = await serve({ memory }, ({ closed }) => async (message) => {
    message.admit();
    await new Promise<void>((resolve) => closed.addEventListener('abort', () => resolve()));
  });
  using client = await connected(server);
  for (let n = 0; n < 3; n++) client.ws.send('x'.repeat(500));
  // Until a message is complete, its frame is counted too.
  while (memory.used !== 1_500) await new Promise(setImmediate);
  client.ws.terminate();
  while (memory.used > 0) await new Promise(setImmediate);
  // The handshake and the three messages.
  await server.requests(4);
});

test('messages and pings that arrive together are processed in turns of their own', async () => {
  let turn = 0;
  const turns: number[] = [];
  const count = (): void => {
    turn += 1;
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  await using server = await serve({}, (socket) => async () => {
    turns.push(turn);
    void socket.send({});
  });
  using client = await connected(server);
  for (let n = 0; n < 5; n++) {
    client.ws.ping();
    client.ws.send('x');
  }
  while (turns.length < 5) await new Promise(setImmediate);
  clearImmediate(counting);
  expect(new Set(turns).size).toBe(5);
});
