import type { ServerResponse } from 'node:http';
import { networkInterfaces } from 'node:os';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { systemClock } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { getRoute, postRoute, served, type Served } from '../../test/served.ts';
import { readJson } from './body.ts';
import { memoryLimit } from './limits.ts';
import { hashKey } from './keys.ts';
import { newLog } from './log.ts';
import { sendJson } from './respond.ts';
import { createServer, type ServerOptions } from './server.ts';

const GET = (path: string, host = 'localhost'): string => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;

const misuse = (message: string): Error =>
  expect.objectContaining({
    name: 'TreadleError',
    code: 'invalid-options',
    message: expect.stringContaining(message) as string,
  }) as Error;

/** Routes whose responses the test ends: `/wait` sends JSON, `/stream` sends its headers at once. */
function held(): Pick<ServerOptions, 'routes'> & {
  readonly arrived: Promise<void>;
  readonly release: () => void;
  readonly stream: Promise<ServerResponse>;
} {
  const arrived = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const stream = Promise.withResolvers<ServerResponse>();
  return {
    arrived: arrived.promise,
    release: released.resolve,
    stream: stream.promise,
    routes: [
      getRoute('/wait', async (c) => {
        arrived.resolve();
        await released.promise;
        return c.json({ waited: true });
      }),
      getRoute('/stream', async ({ env: { outgoing } }) => {
        outgoing.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: first\n\n');
        stream.resolve(outgoing);
        await new Promise((resolve) => void outgoing.once('close', resolve));
        return RESPONSE_ALREADY_SENT;
      }),
    ],
  };
}

describe('listening', () => {
  test('is on loopback by default, and returns the URL', async () => {
    await using at = await served();
    expect(at.url).toBe(`http://127.0.0.1:${at.port}`);
    expect(at.logged('listening')).toMatchObject([{ url: at.url }]);
    expect(await at.server.listen()).toEqual({ url: at.url, address: at.url, port: at.port });
  });

  test('works on localhost', async () => {
    await using at = await served({ host: 'localhost' });
    expect((await fetch(`${at.url}/healthz`)).status).toBe(200);
  });

  const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
  test.skipIf(!hasIpv6)('on the loopback of IPv6', async () => {
    const { routes, release } = held();
    await using at = await served({ host: '::1', routes });
    expect(at.url).toBe(`http://[::1]:${at.port}`);
    release();
    expect((await fetch(`${at.url}/wait`)).status).toBe(200);
    await using connection = await at.connect();
    connection.write(GET('/wait', 'evil.example'));
    expect((await connection.answer()).status).toBe(403);
  });

  test('on a port in use is rejected with advice', async () => {
    await using at = await served();
    await expect(served({ port: at.port })).rejects.toThrow(
      misuse(`Port ${at.port} of 127.0.0.1 is in use: stop the program that listens there, or choose another port.`),
    );
  });

  test('beyond loopback is rejected without keys', async () => {
    for (const host of ['0.0.0.0', '::', '192.0.2.1'])
      await expect(served({ host })).rejects.toThrow(misuse('Add at least one key'));
  });

  test('beyond loopback works with keys', async () => {
    await using at = await served({ host: '0.0.0.0', keys: [{ name: 'a', hash: hashKey('k') }] });
    expect(at.url).toBe(`http://127.0.0.1:${at.port}`);
    expect(await at.server.listen()).toMatchObject({ address: `http://0.0.0.0:${at.port}` });
    expect((await fetch(`${at.url}/healthz`)).status).toBe(200);
  });

  test('on an address of another machine is rejected with advice', async () => {
    const keys = [{ name: 'a', hash: hashKey('k') }];
    await expect(served({ host: '192.0.2.1', keys })).rejects.toThrow(misuse('is not an address of this machine'));
  });

  test.each<[Partial<ServerOptions>, string]>([
    [{ host: '' }, 'The host is empty'],
    [{ port: 65_536 }, 'The port must be a whole number from 0 to 65535, not 65536.'],
    [{ port: Number.NaN }, 'The port must be'],
    [{ limits: { requestsPerMinute: 0 } }, 'limits.requestsPerMinute must be a whole number above 0, not 0.'],
    [{ keys: [{ name: 'a', hash: 'plain' }] }, 'Key "a" needs a hash'],
  ])('is rejected with %j', async (options, message) => {
    await expect(served(options)).rejects.toThrow(misuse(message));
  });

  test('is rejected after closing, and closing before listening works', async () => {
    const nothing = async (): Promise<void> => undefined;
    const log = newLog({ level: 'silent' });
    const server = createServer({ port: 0, log, routes: [], ready: nothing, durable: () => {}, drain: nothing });
    await server.close();
    expect(() => server.listen()).toThrow(misuse('The server was closed'));
  });
});

describe('an unreadable request', () => {
  const error = (code: string): object => ({
    error: { message: expect.any(String) as string, type: 'invalid_request_error', param: null, code },
  });

  test.each([
    ['GARBAGE\r\n\r\n', 400, 'invalid_request'],
    ['GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n', 400, 'invalid_request'],
    [`GET / HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'headers_too_large'],
    ['POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', 400, 'invalid_request'],
  ])('%j gets an error body', async (text, status, code) => {
    await using at = await served();
    await using connection = await at.connect();
    connection.write(text);
    const answer = await connection.answer();
    expect(answer.status).toBe(status);
    expect(answer.headers['x-request-id']).toMatch(/^req_/);
    expect(JSON.parse(answer.body)).toEqual(error(code));
    await connection.closed();
    expect(at.logged('unreadable request')).toMatchObject([{ status, requestId: answer.headers['x-request-id'] }]);
  });

  /** Measured by Node's own clock. Long enough for a busy machine. */
  const SOON_MS = 500;

  test('with headers that never end is closed after the timeout, while an older stream continues', async () => {
    const { routes, stream } = held();
    await using at = await served({
      routes,
      timeouts: { headersMs: SOON_MS, requestMs: SOON_MS, keepAliveMs: SOON_MS },
    });
    await using streaming = await at.connect();
    streaming.write(GET('/stream'));
    const outgoing = await stream;
    await using slow = await at.connect();
    slow.write('GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
    await using silent = await at.connect();
    const answer = await slow.answer();
    expect(answer.status).toBe(408);
    expect(JSON.parse(answer.body)).toEqual(error('request_timeout'));
    await slow.closed();
    await silent.closed();
    outgoing.end('data: second\n\n');
    expect(await streaming.until('second')).toContain('data: first');
  });

  test('with a body that never ends is closed after the timeout, also if no route reads it', async () => {
    const { routes, arrived } = held();
    await using at = await served({
      routes: [...routes, postRoute('/unread', () => new Promise<Response>(() => undefined))],
      timeouts: { headersMs: SOON_MS, requestMs: SOON_MS },
    });
    await using slow = await at.connect();
    slow.write('POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1');
    await slow.closed();
    await using next = await at.connect();
    next.write(GET('/wait'));
    await arrived;
  });

  test('in the middle of a stream writes nothing into it', async () => {
    const { routes, stream } = held();
    await using at = await served({ routes });
    await using connection = await at.connect();
    connection.write(GET('/stream'));
    await stream;
    connection.write('GARBAGE\r\n\r\n');
    const all = await connection.closed();
    expect(all.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(all).not.toContain('error');
  });
});

test('many requests that arrive at once are started in several turns, and a health check does not wait for them', async () => {
  let started = 0;
  const routes = [getRoute('/x', (c) => ((started += 1), sendJson(c, {})))];
  await using at = await served({ routes });
  const connections = await Promise.all(Array.from({ length: 101 }, () => at.connect()));
  // Until all are accepted.
  for (const connection of connections) connection.write(GET('/x'));
  await at.requests(101);
  started = 0;
  const [probe, ...others] = connections;
  for (const connection of others) connection.write(GET('/x'));
  probe!.write(GET('/healthz'));
  let most = 0;
  while (started < 100) {
    const before = started;
    await new Promise(setImmediate);
    most = Math.max(most, started - before);
  }
  expect(most).toBeLessThanOrEqual(32);
  const answered = (await at.requests(202)).slice(101);
  expect(answered.findIndex(({ path }) => path === '/healthz')).toBeLessThan(90);
  for (const connection of connections) connection.socket.destroy();
});

describe('pipelined requests', () => {
  test('are answered one at a time, each when the response before it has been read', async () => {
    const body = 'x'.repeat(10_000_000);
    let started = 0;
    const routes = [getRoute('/large', (c) => ((started += 1), sendJson(c, { body })))];
    await using at = await served({ routes });
    await using connection = await at.connect();
    connection.socket.pause();
    connection.write(GET('/large').repeat(40));
    // A second connection is served meanwhile. When it is, the first has been read.
    for (let probe = 0; probe < 5; probe += 1) expect((await fetch(`${at.url}/healthz`)).status).toBe(200);
    expect(started).toBe(1);
  });

  test('are all answered, in order', async () => {
    const routes = [
      getRoute('/number/:n', (c) => sendJson(c, { n: c.req.param('n') })),
      postRoute('/echo', async (c) => sendJson(c, { read: await readJson(c, 100) })),
    ];
    await using at = await served({ routes });
    await using connection = await at.connect();
    const post = `POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n`;
    const numbers = Array.from({ length: 100 }, (_, n) => GET(`/number/${n}`)).join('');
    connection.write(`${numbers}${post}1`);
    connection.write(`2${GET('/number/last')}`);
    const all = await connection.until('last');
    expect([...all.matchAll(/\{"(?:n|read)":"?(\w+)"?\}/g)].map(([, n]) => n)).toEqual([
      ...Array.from({ length: 100 }, (_, n) => String(n)),
      '12',
      'last',
    ]);
  });

  test('that wait are not started when the client has disconnected', async () => {
    const { routes, arrived, release } = held();
    await using at = await served({ routes });
    const connection = await at.connect();
    connection.write(GET('/wait').repeat(3));
    await arrived;
    connection.socket.resetAndDestroy();
    const requests = await at.requests(3);
    // Only a request that was started has a caller.
    expect(requests.filter(({ tenant }) => tenant !== undefined)).toHaveLength(1);
    release();
    await at.server.close(3_600_000);
  });
});

describe('a client that stops reading', () => {
  test('is disconnected after the send timeout, while a response that takes long is waited for', async () => {
    const { routes, arrived, release } = held();
    const large = { text: 'x'.repeat(20_000_000) };
    await using at = await served({
      routes: [...routes, getRoute('/large', (c) => sendJson(c, large))],
      timeouts: { sendMs: 200 },
    });
    await using waiting = await at.connect();
    waiting.write(GET('/wait'));
    await arrived;
    await using stuck = await at.connect();
    stuck.socket.pause();
    stuck.write(GET('/large'));
    expect(await at.requests(1)).toMatchObject([{ path: '/large', status: 200, aborted: true }]);
    release();
    expect((await waiting.answer()).status).toBe(200);
  });

  test('is disconnected also if it sends something now and then, and what it held is free', async () => {
    const memory = memoryLimit({ max: Infinity });
    const large = { text: 'x'.repeat(20_000_000) };
    await using at = await served({
      routes: [getRoute('/large', (c) => sendJson(c, large))],
      timeouts: { sendMs: 100 },
      memory,
    });
    await using stuck = await at.connect();
    stuck.socket.pause();
    stuck.write(GET('/large'));
    while (memory.used === 0) await new Promise(setImmediate);
    stuck.write('GET / HTTP/1.1\r\nx: ');
    let sent = 0;
    const sending = setInterval(() => (stuck.write('x'), (sent += 1)), 20);
    // Without the timeout it would take 20 s.
    while (memory.used > 0 && sent < 100) await new Promise(setImmediate);
    clearInterval(sending);
    expect(memory.used).toBe(0);
    expect(await at.requests(1)).toMatchObject([{ path: '/large', status: 200, aborted: true }]);
  });
});

test('a send timeout that is longer than any timer is the longest one', async () => {
  const intervals = vi.spyOn(globalThis, 'setInterval');
  const sendMs = Number.MAX_SAFE_INTEGER;
  await using _ = await served({ timeouts: { sendMs } });
  const delays = intervals.mock.calls.map(([, ms]) => ms);
  intervals.mockRestore();
  expect(delays).toContain(2 ** 31 - 1);
  expect(delays).not.toContain(sendMs);
});

describe('closing', () => {
  /** Resolves when the server has started to close. */
  const closingStarted = async (at: Served): Promise<void> => {
    while (at.logged('shutting down').length === 0) await new Promise((resolve) => void setImmediate(resolve));
  };

  test('closes idle connections at once, also those without any request', async () => {
    await using at = await served();
    const used = await at.connect();
    used.write(GET('/healthz'));
    await used.answer();
    const unused = await at.connect();
    const partial = await at.connect();
    partial.write('GET / HTTP/1.1\r\nHost: lo');
    await used.until('ok');
    await at.server.close(3_600_000);
    await Promise.all([used.closed(), unused.closed(), partial.closed()]);
    await expect(at.connect()).rejects.toThrow('ECONNREFUSED');
  });

  test('waits for the request in progress, and closes its connection after the response', async () => {
    const { routes, arrived, release } = held();
    const order: string[] = [];
    await using at = await served({ routes, drain: async () => void order.push('drain') });
    await using connection = await at.connect();
    connection.write(GET('/wait'));
    await arrived;
    const closed = at.server.close(3_600_000).then(() => order.push('closed'));
    await closingStarted(at);
    expect(order).toEqual([]);
    release();
    const answer = await connection.answer();
    expect(answer).toMatchObject({ status: 200, body: '{"waited":true}' });
    expect(answer.headers['connection']).toBe('close');
    await connection.closed();
    await closed;
    expect(order).toEqual(['drain', 'closed']);
    expect(at.logged('stopped')).toHaveLength(1);
    await expect(at.connect()).rejects.toThrow('ECONNREFUSED');
  });

  test('answers health checks on new connections until the last request has ended, and everything else with a 503', async () => {
    const { routes, arrived, release } = held();
    const seen: unknown[] = [];
    const probe = async (path: string, request = GET(path)): Promise<void> => {
      await using connection = await at.connect();
      connection.write(request);
      const { status, headers, body } = await connection.answer();
      seen.push([path, status, headers['retry-after'], headers['connection'], JSON.parse(body).error?.code]);
      await connection.closed();
    };
    const drain = async (): Promise<void> => {
      // Runs are being detached.
      await probe('/readyz');
    };
    await using at = await served({ routes, drain });
    await using busy = await at.connect();
    busy.write(GET('/wait'));
    await arrived;
    const closed = at.server.close(3_600_000);
    await closingStarted(at);
    for (const path of ['/readyz', '/healthz', '/wait', '/', '/assets/a.js', '/unknown']) await probe(path);
    await probe('/wait', GET('/wait', 'localhost\r\nConnection: Upgrade\r\nUpgrade: websocket'));
    release();
    expect(await busy.answer()).toMatchObject({ status: 200 });
    await closed;
    const refused = (path: string): unknown => [path, 503, '1', 'close', 'shutting_down'];
    expect(seen).toEqual([
      ['/readyz', 503, undefined, 'close', undefined],
      ['/healthz', 200, undefined, 'close', undefined],
      ...['/wait', '/', '/assets/a.js', '/unknown', '/wait'].map(refused),
      ['/readyz', 503, undefined, 'close', undefined],
    ]);
  });

  test('does not wait for connections that are opened meanwhile', async () => {
    const { routes, arrived, release } = held();
    await using at = await served({ routes });
    await using busy = await at.connect();
    busy.write(GET('/wait'));
    await arrived;
    const closed = at.server.close(3_600_000);
    await closingStarted(at);
    const [unused, partial, unread] = [await at.connect(), await at.connect(), await at.connect()];
    partial.write('GET /readyz HTTP/1.1\r\nHost: lo');
    unread.socket.pause();
    unread.write(GET('/readyz').repeat(1000));
    release();
    expect(await busy.answer()).toMatchObject({ status: 200 });
    await closed;
    unread.socket.resume();
    await Promise.all([unused.closed(), partial.closed(), unread.closed()]);
  });

  test.each(['/readyz', '/wait'])('answers %s with a 503 on a connection that is still busy', async (path) => {
    const { routes, stream } = held();
    let requests = 0;
    // Every request reads the clock when it arrives.
    const clock = { ...systemClock, now: () => (requests += 1) };
    await using at = await served({ routes, clock });
    await using connection = await at.connect();
    connection.write(GET('/stream'));
    const outgoing = await stream;
    const closed = at.server.close(3_600_000);
    await closingStarted(at);
    connection.write(GET(path));
    while (requests < 2) await new Promise((resolve) => void setImmediate(resolve));
    outgoing.end();
    const all = await connection.closed();
    const [, answer = ''] = all.split('0\r\n\r\n');
    expect(answer).toContain('HTTP/1.1 503 Service Unavailable\r\n');
    expect(answer).toContain('\r\nConnection: close\r\n');
    expect(JSON.parse(answer.slice(answer.indexOf('{')))).toEqual(
      path === '/readyz'
        ? { status: 'unavailable', reason: 'The server is shutting down.' }
        : {
            error: {
              message: 'The server is shutting down. Retry in a moment.',
              type: 'server_error',
              param: null,
              code: 'shutting_down',
            },
          },
    );
    await closed;
  });

  test('closes the connection of a stream as soon as the stream ends', async () => {
    const { routes, stream } = held();
    await using at = await served({ routes });
    await using connection = await at.connect();
    connection.write(GET('/stream'));
    const outgoing = await stream;
    const closed = at.server.close(3_600_000);
    await closingStarted(at);
    outgoing.end('data: last\n\n');
    expect(await connection.closed()).toContain('data: last\n\n\r\n0\r\n\r\n');
    await closed;
  });

  test('detaches the runs after the grace period, and lets them send their last events', async () => {
    const clock = manualClock();
    const { routes, stream } = held();
    let drains = 0;
    await using at = await served({
      routes,
      clock,
      drain: async () => {
        drains += 1;
        (await stream).end('data: detached\n\n');
      },
    });
    await using connection = await at.connect();
    connection.write(GET('/stream'));
    await stream;
    const closed = at.server.close(8_000);
    await closingStarted(at);
    await clock.advance(7_999);
    expect(drains).toBe(0);
    await clock.advance(1);
    expect(drains).toBe(1);
    expect(await connection.closed()).toContain('data: detached\n\n\r\n0\r\n\r\n');
    await closed;
    expect(clock.pending).toBe(0);
  });

  test.each<[string, ServerOptions['drain']]>([
    ['never ends', () => new Promise<void>(() => undefined)],
    ['fails', () => Promise.reject(new Error('disk full'))],
    [
      'throws',
      () => {
        throw new Error('disk full');
      },
    ],
    ['leaves the streams open', async () => undefined],
  ])('ends also if draining %s', async (what, drain) => {
    const clock = manualClock();
    const { routes, stream } = held();
    await using at = await served({ routes, clock, drain });
    await using connection = await at.connect();
    connection.write(GET('/stream'));
    await stream;
    const closed = at.server.close(1_000);
    await closingStarted(at);
    await clock.advance(7_000);
    await closed;
    await connection.closed();
    expect(at.logged('runs could not be detached')).toHaveLength(what === 'fails' || what === 'throws' ? 1 : 0);
    expect(await at.requests(1)).toMatchObject([{ path: '/stream', aborted: true }]);
    expect(clock.pending).toBe(0);
  });

  test('called twice shuts down once', async () => {
    let drains = 0;
    await using at = await served({ drain: async () => void (drains += 1) });
    const first = at.server.close();
    expect(at.server.close(0)).toBe(first);
    await first;
    expect(drains).toBe(1);
  });

  test('does not wait for a client that disconnected', async () => {
    const { routes, stream } = held();
    await using at = await served({ routes });
    const connection = await at.connect();
    connection.write(GET('/stream'));
    await stream;
    const closed = at.server.close(3_600_000);
    connection.socket.resetAndDestroy();
    await closed;
  });
});
