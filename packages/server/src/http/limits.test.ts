import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { getRoute, postRoute, served } from '../../test/served.ts';
import { readJson } from './body.ts';
import { hashKey } from './keys.ts';
import { addressId, memoryLimit, rateHeaders } from './limits.ts';
import { sendJson } from './respond.ts';

describe('the rate limit headers', () => {
  test('are those of the draft and those of OpenAI', () => {
    expect(rateHeaders({ allowed: true, limit: 60, remaining: 59, resetMs: 1000, retryMs: 0 })).toEqual({
      'RateLimit-Policy': '"requests";q=60;w=60',
      RateLimit: '"requests";r=59;t=1',
      'x-ratelimit-limit-requests': '60',
      'x-ratelimit-remaining-requests': '59',
      'x-ratelimit-reset-requests': '1s',
    });
  });

  test('contain Retry-After if the limit is exceeded', () => {
    expect(rateHeaders({ allowed: false, limit: 7, remaining: 0, resetMs: 60_000, retryMs: 8571.4 })).toEqual({
      'RateLimit-Policy': '"requests";q=7;w=60',
      RateLimit: '"requests";r=0;t=60',
      'x-ratelimit-limit-requests': '7',
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-reset-requests': '1m0s',
      'Retry-After': '9',
    });
  });

  test.each([
    [0.2, '1ms'],
    [120, '120ms'],
    [8640, '8.64s'],
    [59_999.5, '1m0s'],
  ])('%d ms is written %s', (resetMs, written) => {
    const headers = rateHeaders({ allowed: true, limit: 1, remaining: 0, resetMs, retryMs: 0 });
    expect(headers['x-ratelimit-reset-requests']).toBe(written);
  });
});

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
  ['2001:db8::9', '2001:db8:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  [undefined, 'unknown'],
])('the address %s counts as %s', (address, id) => {
  expect(addressId(address)).toBe(id);
});

const KB = 1024;
const busy = (status: number): unknown =>
  expect.objectContaining({ status, code: 'too_many_bytes', headers: { 'Retry-After': '2' } });

describe('the limit of memory', () => {
  test('refuses what exceeds the share of a tenant, until something is released', () => {
    const memory = memoryLimit({ max: 400 * KB });
    const first = memory.holder('a');
    first.hold(150 * KB);
    const second = memory.holder('a');
    expect(() => second.hold(100 * KB)).toThrow(busy(429));
    first.release();
    first.release();
    second.hold(100 * KB);
    second.hold(100 * KB);
  });

  test('takes back a part of what is held', () => {
    const memory = memoryLimit({ max: 400 * KB });
    const [first, second] = [memory.holder('a'), memory.holder('a')];
    first.hold(150 * KB);
    expect(() => second.hold(100 * KB)).toThrow(busy(429));
    first.hold(-100 * KB);
    second.hold(100 * KB);
    expect(memory.used).toBe(150 * KB);
    first.release();
    first.hold(-50 * KB);
    expect(memory.used).toBe(100 * KB);
  });

  test('refuses what exceeds the whole', () => {
    const memory = memoryLimit({ max: 400 * KB });
    memory.holder('a').hold(200 * KB);
    memory.holder('b').hold(150 * KB);
    expect(() => memory.holder('c').hold(100 * KB)).toThrow(busy(503));
  });

  test('never refuses the only one of its tenant, and small ones only if twice as much is held', () => {
    const memory = memoryLimit({ max: 1_200 * KB });
    const large = memory.holder('a');
    large.hold(600 * KB);
    large.hold(600 * KB);
    for (let count = 0; count < 16; count += 1) memory.holder('b').hold(64 * KB);
    expect(() => memory.holder('b').hold(65 * KB)).toThrow(busy(429));
    for (let count = 16; count < 18; count += 1) memory.holder('b').hold(64 * KB);
    expect(() => memory.holder('b').hold(64 * KB)).toThrow(busy(429));
    expect(() => memory.holder('c').hold(64 * KB)).toThrow(busy(503));
  });
});

describe('requests in progress', () => {
  const keys = ['a', 'b'].map((name) => ({ name, tenant: name, hash: hashKey(name) }));
  const head = (key: string, length: number): string =>
    `POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;

  test('that are too large together are refused, also if their bodies never end', async () => {
    const memory = memoryLimit({ max: 1_000 * KB });
    await using at = await served({
      memory,
      keys,
      routes: [postRoute('/v1/echo', async (c) => sendJson(c, { read: await readJson(c, 1_000 * KB) }))],
    });
    const first = await at.connect();
    first.write(head('a', 401 * KB) + ' '.repeat(400 * KB));
    await using second = await at.connect();
    second.write(head('a', 201 * KB) + ' '.repeat(200 * KB));
    // Which of the two was counted first does not matter.
    const refused = await Promise.race([first.answer(), second.answer()]);
    expect(refused.status).toBe(429);
    expect(refused.headers['retry-after']).toBe('2');
    expect(JSON.parse(refused.body)).toMatchObject({ error: { code: 'too_many_bytes' } });
    const small = await fetch(`${at.url}/v1/echo`, {
      method: 'POST',
      body: '[1]',
      headers: { authorization: 'Bearer a', 'content-type': 'application/json' },
    });
    expect(await small.json()).toEqual({ read: [1] });
    await using other = await at.connect();
    other.write(`${head('b', 200 * KB)}"${'x'.repeat(200 * KB - 2)}"`);
    expect((await other.answer()).status).toBe(200);
    first.socket.destroy();
  });

  test('count the announced length of a body before it arrives', async () => {
    const memory = memoryLimit({ max: 1_000 * KB });
    await using at = await served({
      memory,
      keys,
      routes: [postRoute('/v1/echo', async (c) => sendJson(c, { read: await readJson(c, 1_000 * KB) }))],
    });
    await using first = await at.connect();
    first.write(head('a', 400 * KB));
    while (memory.used < 400 * KB) await new Promise(setImmediate);
    await using second = await at.connect();
    second.write(head('a', 200 * KB));
    expect((await second.answer()).status).toBe(429);
    first.write(`"${'x'.repeat(400 * KB - 2)}"`);
    expect((await first.answer()).status).toBe(200);
  });

  test('release what they hold when their response is closed', async () => {
    const memory = memoryLimit({ max: 1_000 * KB });
    await using at = await served({
      memory,
      routes: [getRoute('/large', (c) => sendJson(c, { text: 'x'.repeat(400 * KB) }))],
    });
    for (let count = 0; count < 5; count += 1) {
      const answer = await fetch(`${at.url}/large`);
      expect(answer.status).toBe(200);
      await answer.text();
      await at.requests(count + 1);
    }
  });

  test('hold their bytes, and count for their key, while work goes on for a client that has disconnected', async () => {
    const memory = memoryLimit({ max: 1_000 * KB });
    const work = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    await using at = await served({
      memory,
      keys: [{ name: 'a', hash: hashKey('a'), maxConcurrentRequests: 1 }],
      routes: [
        getRoute('/work', async (c) => {
          c.env.exchange.hold(300 * KB);
          started.resolve();
          await work.promise;
          // Read after the client has disconnected.
          c.env.exchange.hold(100 * KB);
          return c.json({ used: memory.used });
        }),
      ],
    });
    const headers = { authorization: 'Bearer a' };
    const leaving = new AbortController();
    const left = fetch(`${at.url}/work`, { headers, signal: leaving.signal });
    await started.promise;
    leaving.abort();
    await expect(left).rejects.toThrow('aborted');
    await at.requests(1);
    expect(memory.used).toBe(300 * KB);
    expect((await fetch(`${at.url}/work`, { headers })).status).toBe(429);
    work.resolve();
    while (memory.used > 0) await new Promise(setImmediate);
    expect((await fetch(`${at.url}/work`, { headers })).status).toBe(200);
  });

  test.each(['json', 'bytes'])('hold their response of %s until the client has read it', async (kind) => {
    const started = Promise.withResolvers<void>();
    await using at = await served({
      memory: memoryLimit({ max: 50_000 * KB }),
      routes: [
        getRoute('/large', (c) => {
          // More than the buffers of the sockets.
          const text = 'x'.repeat(16_000 * KB);
          const answer = kind === 'json' ? sendJson(c, { text }) : c.body(text);
          setImmediate(started.resolve);
          return answer;
        }),
      ],
    });
    const { port } = new URL(at.url);
    const socket = connect(Number(port), '127.0.0.1').pause();
    socket.write('GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
    await started.promise;
    const refused = await fetch(`${at.url}/large`);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '2']);
    await refused.text();
    socket.destroy();
  });
});
