import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { manualClock } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { postRoute, served, type Served } from '../../test/served.ts';
import { readJson, type BodyOptions } from './body.ts';

const LIMIT = 1000;

/** A server that returns the body it read. */
function echo(options: BodyOptions = {}, onRead: () => void = () => undefined): Promise<Served> {
  return served({
    ...(options.clock && { clock: options.clock }),
    routes: [
      postRoute('/echo', async (c) => {
        onRead();
        return c.json({ read: await readJson(c, LIMIT, options) });
      }),
    ],
  });
}

const post = (
  at: Served,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
): Promise<Response> =>
  fetch(`${at.url}/echo`, { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } });

const error = (message: string, code: string): unknown => ({
  error: { message: expect.stringContaining(message), type: 'invalid_request_error', param: null, code },
});

describe('a body', () => {
  test.each([
    'application/json',
    'application/json; charset=utf-8',
    'Application/JSON;charset="UTF-8"',
    'application/vnd.x+json',
  ])('of type %s is read', async (type) => {
    await using at = await echo();
    const answer = await post(at, '\uFEFF{"a":["ü",1]}', { 'content-type': type });
    expect(await answer.json()).toEqual({ read: { a: ['ü', 1] } });
  });

  test.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/jsonp',
    'application/json; charset=latin1',
    '',
  ])('of type "%s" gets a 415', async (type) => {
    await using at = await echo();
    const answer = await post(at, '{}', { 'content-type': type });
    expect(answer.status).toBe(415);
    expect(await answer.json()).toEqual(
      error(type.includes('latin1') ? 'in UTF-8' : '"Content-Type: application/json"', 'unsupported_media_type'),
    );
  });

  test('that is compressed gets a 415', async () => {
    await using at = await echo();
    const answer = await post(at, '{}', { 'content-encoding': 'gzip' });
    expect(answer.status).toBe(415);
    expect(await answer.json()).toEqual(error('without compression', 'unsupported_media_type'));
  });

  test.each([
    ['', 'The body is empty'],
    [' \n', 'The body is empty'],
    ['{"a": tru}', 'unexpected character at line 1, column 10 (position 9).'],
    ['{\n "a": 1,\n}', 'unexpected character at line 3, column 1 (position 11).'],
    ['{"a": "b', 'it ends too early at line 1, column 9 (position 8).'],
    ['secret', 'unexpected character at line 1, column 1 (position 0).'],
  ])('%j gets a 400 with the position and without a quote of the body', async (body, message) => {
    await using at = await echo();
    const answer = await post(at, body);
    expect(answer.status).toBe(400);
    const text = await answer.text();
    expect(JSON.parse(text)).toEqual(error(message, 'invalid_json'));
    expect(text).not.toContain('secret');
  });

  test('that is not UTF-8 gets a 400', async () => {
    await using at = await echo();
    const answer = await post(at, Uint8Array.from([0x22, 0xc3, 0x28, 0x22]));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toEqual(error('not valid UTF-8', 'invalid_json'));
  });

  test('may be nested up to the limit, not counting brackets in strings', async () => {
    await using at = await echo({ maxDepth: 3 });
    for (const body of ['[[[1]]]', '[["[[[[ \\" [[[[ \\\\",{"a":"]"}]]', '[[],[],[],[[]]]'])
      expect(await (await post(at, body)).json()).toEqual({ read: JSON.parse(body) });
    for (const [body, column] of [
      ['[[[[1]]]]', 4],
      ['{"a":{"b":[{}]}}', 12],
      ['["\\\\",[[[1]]]]', 9],
    ] as const) {
      const answer = await post(at, body);
      expect(answer.status).toBe(400);
      expect(await answer.json()).toEqual(
        error(`more than 3 levels deep, at line 1, column ${column}.`, 'invalid_json'),
      );
    }
  });

  test('may have values up to the limit, not counting those in strings', async () => {
    await using at = await echo({ maxValues: 6 });
    for (const body of ['[1,2,3,"4,5,6,[[["]', '{"a":{"b":[1,2]},"c":"\\"[,,,,"}'])
      expect(await (await post(at, body)).json()).toEqual({ read: JSON.parse(body) });
    for (const body of ['[1,2,3,4,5,6]', '[[],[],[]]', '{"a":1,"b":2,"c":3,"d":4,"e":{}}']) {
      const answer = await post(at, body);
      expect(answer.status).toBe(400);
      expect(await answer.json()).toEqual(error('The body has more than 6 values, at line 1, column', 'invalid_json'));
    }
  });

  test('with too many values is rejected by default', async () => {
    await using at = await served({
      routes: [postRoute('/echo', async (c) => c.json({ read: await readJson(c, 10_000_000) }))],
    });
    const rejected = await post(at, `[${'[],'.repeat(1_000_000)}[]]`);
    expect(await rejected.json()).toEqual(error('The body has more than 100000 values', 'invalid_json'));
    const malformed = await post(at, `["${'x'.repeat(2_000_000)}"`);
    expect(await malformed.json()).toEqual(error('The body is not valid JSON.', 'invalid_json'));
  });

  test('is read if it arrives in chunks, split at any position', async () => {
    await using at = await echo();
    await using connection = await at.connect();
    const body = Buffer.from('{"a":"ü€"}');
    connection.write(
      `POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    for (const byte of body) {
      connection.write('1\r\n');
      connection.write(Uint8Array.of(byte));
      connection.write('\r\n');
    }
    connection.write('0\r\n\r\n');
    const answer = await connection.answer();
    expect(JSON.parse(Buffer.from(answer.body, 'latin1').toString())).toEqual({ read: { a: 'ü€' } });
  });
});

describe('a body that is too large', () => {
  test('is rejected by its Content-Length, before it arrives', async () => {
    await using at = await echo();
    await using connection = await at.connect();
    connection.write(
      `POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${LIMIT + 1}\r\n\r\n`,
    );
    const { status, headers, body } = await connection.answer();
    expect(status).toBe(413);
    expect(headers['x-request-id']).toMatch(/^req_/);
    expect(JSON.parse(body)).toEqual(error('larger than the limit of 1000 bytes', 'request_too_large'));
  });

  test('is rejected as soon as it exceeds the limit, without a Content-Length', async () => {
    await using at = await echo();
    await using connection = await at.connect();
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    connection.write(`258\r\n${' '.repeat(600)}\r\n`);
    connection.write(`258\r\n${' '.repeat(600)}\r\n`);
    const { status, body } = await connection.answer();
    expect(status).toBe(413);
    expect(JSON.parse(body)).toEqual(error('larger than the limit of 1000 bytes', 'request_too_large'));
  });

  test('of megabytes is answered also for clients that write everything before they read', async () => {
    await using at = await echo();
    const large = `"${'x'.repeat(20_000_000)}"`;
    expect((await post(at, large)).status).toBe(413);
    const stream = new Blob([large]).stream();
    const unannounced = await fetch(`${at.url}/echo`, {
      method: 'POST',
      body: stream,
      duplex: 'half',
      headers: { 'content-type': 'application/json' },
    } as RequestInit);
    expect(unannounced.status).toBe(413);
  });

  test('is rejected from one byte over the limit', async () => {
    await using at = await echo();
    expect((await post(at, `"${'x'.repeat(LIMIT - 2)}"`)).status).toBe(200);
    expect((await post(at, `"${'x'.repeat(LIMIT - 1)}"`)).status).toBe(413);
  });
});

describe('a body that arrives slowly', () => {
  test('gets a 408 after the timeout, and the connection is closed', async () => {
    const clock = manualClock();
    const reading = Promise.withResolvers<void>();
    await using at = await echo({ clock, timeoutMs: 5_000 }, reading.resolve);
    await using connection = await at.connect();
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"a"',
    );
    await reading.promise;
    await clock.advance(4_999);
    expect(at.logged('request')).toEqual([]);
    await clock.advance(1);
    const { status, body } = await connection.answer();
    expect(status).toBe(408);
    expect(JSON.parse(body)).toEqual(error('did not arrive within 5000 ms', 'request_timeout'));
    await connection.closed();
    expect(clock.pending).toBe(0);
  });

  test('is not an error of the server if the client disconnects', async () => {
    const reading = Promise.withResolvers<void>();
    await using at = await echo({}, reading.resolve);
    const connection = await at.connect();
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"a"',
    );
    await reading.promise;
    connection.socket.resetAndDestroy();
    expect(await at.requests(1)).toEqual([
      expect.objectContaining({ level: 'info', path: '/echo', status: 499, aborted: true }),
    ]);
    expect(at.lines.join('')).not.toContain('unexpectedly');
  });

  test('of chunks with one byte each needs little more memory than its bytes', async () => {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    const read = Promise.withResolvers<void>();
    await using at = await served({
      routes: [
        postRoute('/echo', async (c) => {
          let count = 0;
          c.env.incoming.on('data', () => ++count === 100_000 && read.resolve());
          return c.json({ length: ((await readJson(c, 1_000_000)) as string).length });
        }),
      ],
    });
    const connection = await at.connect();
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    collectGarbage();
    const before = process.memoryUsage().heapUsed;
    connection.write(`1\r\n"\r\n${'1\r\nx\r\n'.repeat(99_999)}`);
    await read.promise;
    collectGarbage();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(5_000_000);
    connection.write('1\r\n"\r\n0\r\n\r\n');
    expect(JSON.parse((await connection.answer()).body)).toEqual({ length: 99_999 });
  });
});
