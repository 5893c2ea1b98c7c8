import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, test } from 'vitest';
import { DeniedError } from '../denied.ts';
import { httpClient, type HttpOptions } from './client.ts';

const closing: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

async function listen(listener: RequestListener): Promise<number> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
}

/** Names that end in `.test` are this machine; everything is allowed but the address 127.0.0.9 and `denied.test`. */
const client = (options: Partial<HttpOptions> = {}): ReturnType<typeof httpClient> =>
  httpClient({
    check: (url) => (/127\.0\.0\.9|denied\.test/.test(url) ? `${url} is denied` : undefined),
    resolve: async () => ['127.0.0.1'],
    ...options,
  });

async function textOf(incoming: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of incoming) text += String(chunk);
  return text;
}

test('sends a request and returns the reply', async () => {
  const port = await listen(async (request, response) => {
    const { method, url, headers } = request;
    response.setHeader('Set-Cookie', ['a=1', 'b=2']);
    response.end(JSON.stringify({ method, url, headers, body: await textOf(request) }));
  });
  const reply = await client().request(`http://a.test:${port}/x?y=%20#z`, {
    method: 'POST',
    headers: { 'Content-Type': 'text/plain', Authorization: 'secret' },
    body: 'grüß',
  });
  expect(reply).toMatchObject({ status: 200, headers: { 'set-cookie': 'a=1, b=2' } });
  expect(JSON.parse(Buffer.from(reply.body).toString())).toEqual({
    method: 'POST',
    url: '/x?y=%20',
    body: 'grüß',
    headers: {
      host: `a.test:${port}`,
      connection: 'close',
      'accept-encoding': 'gzip, deflate, br',
      'content-type': 'text/plain',
      'content-length': '6',
      authorization: 'secret',
    },
  });
  const { body, status } = await client().request(`http://127.0.0.1:${port}/`, { method: 'HEAD' });
  expect([status, body.length]).toEqual([200, 0]);
});

test('checks the URL, then every address of its name', async () => {
  const port = await listen((_, response) => void response.end('hello'));
  const checked: unknown[] = [];
  const check = (...args: unknown[]): undefined => void checked.push(args);
  const resolve = async (): Promise<string[]> => ['127.0.0.1', '::ffff:127.0.0.1'];
  await client({ check, resolve }).request(`http://A.test.:${port}/p`);
  await client({ check, resolve }).request(`http://0x7f.1:${port}/p`);
  expect(checked).toEqual([
    [`http://A.test.:${port}/p`, undefined],
    [`http://127.0.0.1:${port}/`, 'a.test'],
    [`http://127.0.0.1:${port}/`, 'a.test'],
    [`http://0x7f.1:${port}/p`, undefined],
  ]);
});

test('does not connect if one address of a name is denied', async () => {
  let requests = 0;
  const port = await listen((_, response) => void response.end(String(++requests)));
  const resolve = async (): Promise<string[]> => ['127.0.0.1', '127.0.0.9'];
  await expect(client({ resolve }).request(`http://a.test:${port}/`)).rejects.toThrow(DeniedError);
  expect(requests).toBe(0);
});

test('tries the next address if one does not answer', async () => {
  const port = await listen((_, response) => void response.end('hello'));
  const resolve = async (): Promise<string[]> => ['::1', '127.0.0.1'];
  expect(await client({ resolve }).request(`http://a.test:${port}/`)).toMatchObject({ status: 200 });
});

test.each([
  'file:///etc/passwd',
  'http://u:p@a.test/',
  'ftp://a.test/',
  'http:\\\\a.test',
  'a.test',
  'http://a b/',
  '',
])('does not request %j', async (url) => {
  await expect(client().request(url)).rejects.toThrow(DeniedError);
});

test.each(['Host', 'connection', 'Transfer-Encoding', 'proxy-authorization', 'Content-Length', 'accept-encoding'])(
  'rejects the header %s',
  async (name) => {
    await expect(client().request('http://a.test/', { headers: { [name]: 'x' } })).rejects.toThrow(/set by the client/);
  },
);

test.each(['CONNECT', 'TRACE', 'get', 'G ET'])('rejects the method %s', async (method) => {
  await expect(client().request('http://a.test/', { method })).rejects.toThrow(/is not supported/);
});

describe('redirects', () => {
  test.each([
    [301, 'POST', 'GET', ''],
    [302, 'POST', 'GET', ''],
    [302, 'PUT', 'PUT', 'body'],
    [303, 'PUT', 'GET', ''],
    [307, 'POST', 'POST', 'body'],
    [308, 'POST', 'POST', 'body'],
  ])('%i of %s is followed with %s', async (status, method, expected, body) => {
    const port = await listen(async (request, response) => {
      if (request.url === '/') response.writeHead(status, { location: '/next' }).end('moved');
      else
        response.end(
          `${request.method} ${request.url} ${request.headers['content-type'] ?? ''} ${await textOf(request)}`,
        );
    });
    const reply = await client().request(`http://a.test:${port}/`, {
      method,
      body: 'body',
      headers: { 'content-type': 'text/plain' },
    });
    expect(Buffer.from(reply.body).toString()).toBe(`${expected} /next ${body && 'text/plain'} ${body}`);
    expect(reply.url).toBe(`http://a.test:${port}/next`);
  });

  test('send no credentials to another host, port or scheme', async () => {
    const seen: unknown[] = [];
    const second = await listen(({ headers }, response) => {
      seen.push(Object.keys(headers).toSorted());
      response.end();
    });
    const first = await listen(({ url, headers }, response) => {
      if (url === '/same') seen.push(headers['authorization']);
      const location = { '/': '/same', '/same': `http://b.test:${first}/host`, '/host': `http://b.test:${second}/` }[
        url!
      ]!;
      if (url === '/host') seen.push(Object.keys(headers).toSorted());
      response.writeHead(307, { location }).end();
    });
    await client().request(`http://a.test:${first}/`, {
      headers: { Authorization: 'a', Cookie: 'b', 'X-Api-Key': 'c', Accept: 'd', 'User-Agent': 'e' },
    });
    const harmless = ['accept', 'accept-encoding', 'connection', 'host', 'user-agent'];
    expect(seen).toEqual(['a', harmless, harmless]);
  });

  test.each([
    'http://127.0.0.9/',
    'http://denied.test/',
    '//denied.test/',
    '/\\denied.test/',
    'http://user:secret@a.test/',
    'file:///etc/passwd',
    'ftp://a.test/',
    'http://[::ffff:127.0.0.9]/',
  ])('to %s are denied', async (location) => {
    let requests = 0;
    const check = (url: string): string | undefined =>
      /127\.0\.0\.9|7f00:9|denied\.test/.test(url) ? 'denied' : undefined;
    const port = await listen((_, response) => {
      requests++;
      response.writeHead(302, { location }).end();
    });
    await expect(client({ check }).request(`http://a.test:${port}/`)).rejects.toThrow(DeniedError);
    expect(requests).toBe(1);
  });

  test('are limited', async () => {
    let requests = 0;
    const port = await listen((_, response) => void response.writeHead(302, { location: `/${++requests}` }).end());
    await expect(client({ maxRedirects: 3 }).request(`http://a.test:${port}/`)).rejects.toThrow(/more than 3 times/);
    expect(requests).toBe(4);
  });
});

describe('a name server that changes its answer', () => {
  /** Answers with the harmless address at first, and then with the other. */
  function changing(): () => Promise<string[]> {
    let asked = 0;
    return async () => [asked++ === 0 ? '127.0.0.1' : '127.0.0.9'];
  }

  test('is asked once for each request, and the connection goes to the address that was checked', async () => {
    const port = await listen((_, response) => void response.end('harmless'));
    const resolve = changing();
    const { body } = await client({ resolve }).request(`http://a.test:${port}/`);
    expect(Buffer.from(body).toString()).toBe('harmless');
    await expect(client({ resolve }).request(`http://a.test:${port}/`)).rejects.toThrow(/127\.0\.0\.9:\d+\/ is denied/);
  });

  test('is checked again after a redirect to the same host', async () => {
    const port = await listen((_, response) => void response.writeHead(302, { location: '/again' }).end());
    await expect(client({ resolve: changing() }).request(`http://a.test:${port}/`)).rejects.toThrow(/127\.0\.0\.9/);
  });
});

describe('limits', () => {
  test.each([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
    ['deflate', deflateSync],
  ] as const)('decompress %s up to the limit', async (encoding, compress) => {
    const port = await listen(({ url }, response) => {
      response.setHeader('content-encoding', encoding);
      response.end(compress(Buffer.alloc(url === '/bomb' ? 5_000_000 : 1000, 'a')));
    });
    const { body } = await client().request(`http://a.test:${port}/`);
    expect(Buffer.from(body).toString()).toBe('a'.repeat(1000));
    const bomb = client({ maxBytes: 100_000 }).request(`http://a.test:${port}/bomb`);
    await expect(bomb).rejects.toThrow(/more than 100000 bytes/);
  });

  test('apply to bodies without an end', async () => {
    const port = await listen((_, response) => {
      const more = (): void => void (response.destroyed || response.write('x'.repeat(10_000), more));
      more();
    });
    await expect(client().request(`http://a.test:${port}/`)).rejects.toThrow(/more than \d+ bytes/);
  });

  test('report unknown encodings and bodies that are cut off', async () => {
    const port = await listen(({ url }, response) => {
      if (url === '/unknown') return void response.setHeader('content-encoding', 'gzip, gzip').end('x');
      response.writeHead(200, { 'content-length': '100' });
      response.write('x', () => response.destroy());
    });
    await expect(client().request(`http://a.test:${port}/unknown`)).rejects.toThrow(/encoding gzip, gzip/);
    await expect(client().request(`http://a.test:${port}/cut`)).rejects.toThrow(/aborted/);
  });

  test.each(['constructor', '__proto__', 'zstd'])('report the encoding %s as not supported', async (encoding) => {
    const port = await listen((_, response) => void response.setHeader('content-encoding', encoding).end('x'));
    await expect(client().request(`http://a.test:${port}/`)).rejects.toThrow(`the encoding ${encoding}, which is not`);
  });

  test.each([
    ['gzip', gzipSync('')],
    // A block without content. The decoder waits for the last block.
    ['deflate', Buffer.concat([Buffer.from([0x78, 0x9c]), Buffer.alloc(20, Buffer.from([0, 0, 0, 0xff, 0xff]))])],
  ])('apply to a body in %s that never has content', async (encoding, nothing) => {
    const port = await listen((_, response) => {
      response.setHeader('content-encoding', encoding);
      response.write(nothing);
      const blocks = encoding === 'gzip' ? nothing : nothing.subarray(2);
      const more = (): void => void (response.destroyed || response.write(blocks, more));
      more();
    });
    const empty = client({ maxBytes: 10_000 }).request(`http://a.test:${port}/`);
    await expect(empty).rejects.toThrow(/more than 10000 bytes/);
  });

  test('apply to interim replies without an end', async () => {
    const port = await listen((_, { socket }) => {
      const more = (): void =>
        void (socket!.destroyed || socket!.write('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n', more));
      more();
    });
    await expect(client().request(`http://a.test:${port}/`)).rejects.toThrow(/more than 50 interim replies/);
  });

  test('of time and signals end a check that does not answer', async () => {
    const silent = { check: () => new Promise<undefined>(() => {}) };
    await expect(client({ ...silent, timeoutMs: 50 }).request('http://a.test/')).rejects.toThrow(
      /took more than 50 ms/,
    );
    const stopping = new AbortController();
    const stopped = client(silent).request('http://a.test/', { signal: stopping.signal });
    stopping.abort(new Error('enough'));
    await expect(stopped).rejects.toThrow('enough');
  });

  test.each(['/headers', '/body', '/redirect'])('of time end %s', async (path) => {
    const port = await listen(({ url }, response) => {
      if (url === '/redirect') response.writeHead(302, { location: '/headers' }).end();
      if (url === '/body') response.write('x');
    });
    const slow = client({ timeoutMs: 50 }).request(`http://a.test:${port}${path}`);
    await expect(slow).rejects.toThrow(/took more than 50 ms/);
  });

  test('of time end a look-up and a handshake', async () => {
    const server = createTcpServer().listen(0, '127.0.0.1');
    const sockets = new Set<{ destroy(): void }>();
    server.on('connection', (socket) => sockets.add(socket.on('error', () => {})));
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await expect(client({ timeoutMs: 50 }).request(`https://a.test:${port}/`)).rejects.toThrow(/took more than 50 ms/);
    const never = client({ timeoutMs: 50, resolve: () => new Promise(() => {}) });
    await expect(never.request(`http://a.test:${port}/`)).rejects.toThrow(/took more than 50 ms/);
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });

  test('a signal stops a request', async () => {
    const stopping = new AbortController();
    const port = await listen(() => stopping.abort(new Error('enough')));
    const stopped = client().request(`http://a.test:${port}/`, { signal: stopping.signal });
    await expect(stopped).rejects.toMatchObject({ name: 'AbortError' });
    await expect(client().request('http://a.test/', { signal: AbortSignal.abort(new Error('no')) })).rejects.toThrow(
      'no',
    );
  });
});

test('does not use the proxies of the environment', async () => {
  let proxied = 0;
  const proxy = await listen((_, response) => void response.end(String(++proxied)));
  const port = await listen((_, response) => void response.end('direct'));
  const code = `
    const { httpClient } = await import(${JSON.stringify(import.meta.resolve('./client.ts'))});
    const { body } = await httpClient({ check: () => undefined }).request('http://127.0.0.1:${port}/');
    process.stdout.write(Buffer.from(body).toString());`;
  const at = `http://127.0.0.1:${proxy}`;
  const env = {
    ...process.env,
    NODE_USE_ENV_PROXY: '1',
    HTTP_PROXY: at,
    http_proxy: at,
    ALL_PROXY: at,
    NO_PROXY: '',
    no_proxy: '',
  };
  const child = execFile(process.execPath, ['--conditions=treadle-source', '--input-type=module', '-e', code], { env });
  let output = '';
  child.stdout!.on('data', (text: string) => (output += text));
  await once(child, 'close');
  expect([output, proxied]).toEqual(['direct', 0]);
});

describe('fetch', () => {
  test('returns the reply before its body has ended', async () => {
    const first = Promise.withResolvers<void>();
    const port = await listen(async (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(`data: ${await textOf(request)}\n\n`);
      await first.promise;
      response.end('data: 2\n\n');
    });
    const { fetch } = client();
    const reply = await fetch(`http://a.test:${port}/`, { method: 'POST', body: '1', headers: { accept: '*/*' } });
    expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
    const reader = reply.body!.getReader();
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 1\n\n');
    first.resolve();
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 2\n\n');
    expect((await reader.read()).done).toBe(true);
  });

  test('refuses a redirect to a denied address, and does not tell another origin the credentials', async () => {
    const port = await listen(({ url, headers }, response) => {
      if (url === '/seen') return void response.end(String(headers.authorization));
      const location = url === '/denied' ? 'http://127.0.0.9/' : `http://b.test:${port}/seen`;
      response.writeHead(307, { location }).end();
    });
    const { fetch } = client();
    await expect(fetch(`http://a.test:${port}/denied`)).rejects.toThrow(DeniedError);
    const other = await fetch(`http://a.test:${port}/other`, { headers: { authorization: 'Bearer secret' } });
    expect(await other.text()).toBe('undefined');
  });

  test('limits the body, and the time until the headers', async () => {
    const port = await listen(({ url }, response) => {
      if (url === '/long') response.end(gzipSync('x'.repeat(1_000)).toString('base64').repeat(100));
      if (url === '/zipped') response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('x'.repeat(2_000)));
    });
    const { fetch } = client({ maxBytes: 1_000, timeoutMs: 50 });
    const url = `http://a.test:${port}`;
    await expect((await fetch(`${url}/long`)).text()).rejects.toThrow('more than 1000 bytes');
    await expect((await fetch(`${url}/zipped`)).text()).rejects.toThrow('more than 1000 bytes');
    await expect(fetch(`${url}/silent`)).rejects.toThrow('sent no reply in 50 ms');
  });

  test('ends with its signal, also while the body is read', async () => {
    const closed = Promise.withResolvers<void>();
    const port = await listen((_, response) => {
      response.on('close', closed.resolve).write('x');
    });
    const controller = new AbortController();
    const reply = await client().fetch(`http://a.test:${port}/`, { signal: controller.signal });
    const text = reply.text();
    controller.abort();
    await expect(text).rejects.toThrow(/./);
    await closed.promise;
  });
});
