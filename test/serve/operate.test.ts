import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { hashKey, type WireLogs } from '@treadle/server';
import { thisProcess } from '@treadle/store';
import { expect, test } from 'vitest';
import { command, type Printed } from '../command/in-process.ts';
import { testIo, useServeFixture } from './serve-command.ts';

const fixture = useServeFixture();

const serverFile = (url: string): string =>
  join(fixture.play.folder, `.treadle/treadle.db.server.${new URL(url).port}.json`);

const here = (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Printed> =>
  command(args, fixture.play.folder, { env });

const WITH_TOOLS = '[server]\ndefault_tools = ["read"]\nlog_file = "log/server.log"';
const READS = [
  { calls: [{ name: 'read', arguments: '{"path":"a.txt"}' }] },
  { calls: [{ name: 'read', arguments: '{"path":"nowhere.txt"}' }] },
  { text: ['Done.'] },
];

test('status and metrics ask the server of this machine that uses the store, and read the store without one', async () => {
  await fixture.configure(WITH_TOOLS, ...READS);
  await fixture.play.write('a.txt', 'text');
  expect((await here(['status'])).stdout).toMatch(
    /^server {3}none on this machine uses the store\nstore .*\nruns {5}none is open\n$/,
  );
  const serve = await fixture.serve();
  await serve.respond({ input: 'go' });
  const file = serverFile(serve.url);
  expect([JSON.parse(readFileSync(file, 'utf8')), statSync(file).mode & 0o777]).toEqual([
    { url: serve.url, holder: thisProcess() },
    0o600,
  ]);
  expect((await here(['status'])).stdout).toMatch(
    /^server {3}http:\/\/\S+, for \d+ s\nruns {5}0 in progress, at most 1000\n/,
  );
  const { stdout } = await here(['status', '--tools', '--json']);
  expect(JSON.parse(stdout)).toMatchObject({
    object: 'status',
    ready: true,
    models: ['main'],
    tools_last_24h: [{ tool: 'read', calls: 2, error_rate: 0.5 }],
  });
  const asked = await here(['metrics', '--json', '--since', '1h']);
  expect(JSON.parse(asked.stdout)).toMatchObject({
    waiting: 0,
    loop: { runs: { completed: 1 }, turns: 3, calls: 2 },
    tools: [{ tool: 'read', calls: 2, successes: 1, recovery_rate: 0, last_error: { type: 'not_found' } }],
  });
  const table = await here(['metrics', '--tools'], { TREADLE_URL: `${serve.url}/v1` });
  expect(table.stdout).toMatch(
    /^TOOL {2}CALLS {2}ERRORS {4}TIMEOUTS {2}RECOVERED {2}AVERAGE .*LAST ERROR\nread {2}2 {6}1 \(50 %\) {2}0 {9}0 % .* not_found: .*\n$/,
  );
  await serve.stop();
  expect(existsSync(file)).toBe(false);
  const { tools, loop } = JSON.parse((await here(['metrics', '--json'])).stdout) as Record<string, unknown>;
  expect({ tools, loop }).toEqual({
    tools: (JSON.parse(asked.stdout) as Record<string, unknown>)['tools'],
    loop: (JSON.parse(asked.stdout) as Record<string, unknown>)['loop'],
  });
  expect((await here(['metrics', '--rebuild'])).stdout).toMatch(
    /^runs {6}1 completed\nturns {5}3, 3 a run\ncalls {5}2, 0\.67 a turn\n/,
  );
  expect(await here(['metrics', '--rebuild', '--url', serve.url])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--rebuild counts the runs of the store of this machine'),
  });
});

test('of two servers with one store, each is found when the other one has ended', async () => {
  await fixture.configure('[server]\nport = 0', { text: ['Hello.'] });
  const [first, second] = [await fixture.serve(), await fixture.serve()];
  const found = async (): Promise<string> => (await here(['status'])).stdout.split('\n', 1)[0]!;
  expect(await found()).toContain(second.url);
  await second.stop();
  expect(await found()).toContain(first.url);
  await first.stop();
  expect(await found()).toBe('server   none on this machine uses the store');
});

test('what a server that was killed has left is not asked, although its pid and its port are those of others', async () => {
  await fixture.configure('', { text: ['Hello.'] });
  await command(['run', 'Hi'], fixture.play.folder);
  const asked: string[] = [];
  const other = createServer(({ url }, response) => void (asked.push(url!), response.end('{}')));
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  try {
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    const left = serverFile(url);
    writeFileSync(left, JSON.stringify({ url, holder: { ...thisProcess(), startedAt: 'earlier' } }));
    expect((await here(['status'], { TREADLE_KEY: 'secret' })).stdout).toMatch(/^server {3}none on this machine/);
    const serve = await fixture.serve();
    expect(existsSync(left)).toBe(false);
    await serve.stop();
    expect(asked).toEqual([]);
  } finally {
    other.close();
  }
});

test('a server with keys is asked with the key in the environment', async () => {
  const hash = hashKey('tk_operator');
  const key = `[[server.keys]]\nname = "ops"\nhash = "${hash}"\nscopes = ["metrics:read", "runs:read", "logs:read"]`;
  await fixture.configure(`${key}\n`);
  const serve = await fixture.serve();
  const refused = await here(['status', '--url', serve.url]);
  expect([refused.code, refused.stderr]).toEqual([
    2,
    expect.stringContaining('Set the environment variable TREADLE_KEY'),
  ]);
  expect((await here(['status'], { TREADLE_KEY: 'tk_operator' })).code).toBe(0);
  const logs = await here(['logs'], { TREADLE_KEY: 'tk_operator' });
  expect([logs.code, logs.stderr]).toEqual([
    2,
    expect.stringContaining('This server keeps no log. Set log_file in [server]'),
  ]);
  const gone = await here(['status', '--url', 'http://127.0.0.1:1']);
  expect([gone.code, gone.stderr]).toEqual([2, expect.stringContaining('cannot be reached')]);
  expect((await here(['metrics', '--url', 'ftp://x'])).code).toBe(2);
  expect((await here(['metrics', '--since', 'yesterday'])).stderr).toContain('--since must be an age such as 24h');
});

test('the log is kept in a file, and shown from there or by the server', async () => {
  await fixture.configure(WITH_TOOLS, ...READS);
  await fixture.play.write('a.txt', 'text');
  const serve = await fixture.serve();
  await serve.respond({ input: 'go' });
  const file = join(fixture.play.folder, 'log/server.log');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const local = await here(['logs', '--filter=tool', '--json']);
  const records = local.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(records).toMatchObject([
    { msg: 'a tool was called', tool: 'read', success: true },
    { msg: 'a tool was called', tool: 'read', success: false },
  ]);
  const remote = await here(['logs', '--filter=tool', '--json', '--url', serve.url]);
  expect(remote.stdout).toBe(local.stdout);
  expect((await here(['logs', '--filter=run', '--lines', '1'])).stdout).toMatch(
    /^20\S+ \S+ info run requestId=.*outcome=completed/,
  );
  expect((await here(['logs', '--filter=problem'])).stdout).toBe('');

  for (const args of [[], ['--url', serve.url]]) {
    const following = testIo({ cwd: fixture.play.folder, isTTY: false });
    const { main } = await import('treadle');
    const ended = main(['logs', '--follow', '--filter=request', ...args], following.io);
    await following.waitFor('/v1/responses', 'stdout');
    const marked = `/v1/runs/marked${args.length}`;
    await serve.get(marked);
    await following.waitFor(marked, 'stdout');
    following.terminate();
    expect(await ended).toBe(0);
  }
  expect((await serve.get('/v1/logs?filter=all')).status).toBe(400);
});

test('lines that are more than one answer may have are in the next ones, and none is left out', async () => {
  await fixture.configure('[server]\nlog_file = "server.log"');
  const serve = await fixture.serve();
  const paths: unknown[] = [];
  const page = async (after: number): Promise<WireLogs> =>
    JSON.parse((await serve.get(`/v1/logs?filter=request&limit=3&after=${after}`)).text) as WireLogs;
  let { last } = await page(0);
  for (let request = 0; request < 8; request++) await serve.get(`/v1/runs/${request}`);
  for (let answer = 0; answer < 3; answer++) {
    const { data, last: newest } = await page(last);
    paths.push(...data.map(({ path }) => path));
    last = newest;
  }
  expect(paths.filter((path) => path !== '/v1/logs')).toEqual(
    Array.from({ length: 8 }, (_, request) => `/v1/runs/${request}`),
  );
  expect((await page(0)).data).toHaveLength(3);
});

test('the log of a server is followed through its restart, and no line is printed twice', async () => {
  // The server that is started again has only the newest lines.
  await fixture.configure('[server]\nlog_file = "server.log"\nlog_file_max_bytes = 2048\nlog_files = 3');
  let serve: Awaited<ReturnType<typeof fixture.serve>> | undefined = await fixture.serve();
  const front = createServer(async (request, response) => {
    if (!serve) return void request.socket.destroy();
    const answer = await fetch(serve.url + request.url!);
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text());
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  try {
    for (let request = 0; request < 40; request++) await serve.get(`/v1/runs/first${request}`);
    const url = `http://127.0.0.1:${(front.address() as AddressInfo).port}`;
    const following = testIo({ cwd: fixture.play.folder, isTTY: false });
    const { main } = await import('treadle');
    const ended = main(['logs', '--follow', '--filter=request', '--url', url], following.io);
    await following.waitFor('/v1/runs/first39', 'stdout');
    const stopping = serve;
    serve = undefined;
    await following.waitFor('does not answer. Its lines follow when it does.', 'stderr');
    await stopping.stop();
    serve = await fixture.serve();
    await serve.get('/v1/runs/second');
    await following.waitFor('/v1/runs/second', 'stdout');
    following.terminate();
    expect(await ended).toBe(0);
    const paths = following.written.stdout.match(/\/v1\/runs\/\w+/g)!;
    expect(paths).toEqual([...Array.from({ length: 40 }, (_, index) => `/v1/runs/first${index}`), '/v1/runs/second']);
  } finally {
    front.closeAllConnections();
    front.close();
  }
});

test('log files are renamed when they are full, and the oldest is deleted', async () => {
  await fixture.configure('[server]\nlog_file = "server.log"\nlog_file_max_bytes = 1024\nlog_files = 3');
  const serve = await fixture.serve();
  for (let request = 0; request < 40; request++) await serve.get(`/v1/runs/${request}`);
  await serve.stop();
  const files = readdirSync(fixture.play.folder).filter((name) => name.startsWith('server.log'));
  expect(files.toSorted()).toEqual(['server.log', 'server.log.1', 'server.log.2']);
  for (const name of files) expect(statSync(join(fixture.play.folder, name)).size).toBeLessThanOrEqual(1_024);
  const { stdout } = await here(['logs', '--filter=request', '--json']);
  expect(stdout.trim().split('\n').length).toBeGreaterThan(3);
  expect(stdout).toContain('/v1/runs/39');
});
