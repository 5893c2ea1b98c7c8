import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, test } from 'vitest';
import { command, type Printed } from '../command/in-process.ts';
import { treadle } from '../command/treadle-process.ts';
import { useServeFixture } from './serve-command.ts';

const KEY = `[[server.keys]]\nname = "a"\nhash = "sha256:${'0'.repeat(64)}"\n`;

const fixture = useServeFixture();

const serve = (...args: readonly string[]): Promise<Printed> => command(['serve', ...args], fixture.play.folder);
/** The same in its own process, for the real exit code. */
const serveProcess = (...args: readonly string[]) =>
  treadle(['serve', ...args], { cwd: fixture.play.folder, stdin: '' }).ended;

function expectStartupError(
  { code, stdout, stderr }: Pick<Printed, 'stdout' | 'stderr'> & { readonly code: number | null },
  expected: number,
  message: RegExp,
): void {
  expect(stderr).toMatch(message);
  expect(stderr).not.toContain('This should not have happened');
  expect([code, stdout]).toEqual([expected, '']);
}

describe('an address that is not available: exit code 1', () => {
  test('a port in use by another program', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    expectStartupError(
      await serve('--port', String(port)),
      1,
      new RegExp(`^treadle: Port ${port} of 127\\.0\\.0\\.1 is in use: .*\\nChange the address with --host and --port`),
    );
    other.close();
  });

  test('a port in use by another server, which keeps running', async () => {
    const first = await fixture.serve();
    expectStartupError(await serveProcess('--port', new URL(first.url).port), 1, /is in use/);
    expect((await first.get('/readyz')).status).toBe(200);
    expect((await first.stop()).code).toBe(0);
  });

  test('an address of another machine', async () => {
    await fixture.play.write('treadle.toml', KEY);
    expectStartupError(
      await serve('--port', '0', '--host', '192.0.2.1'),
      1,
      /^treadle: 192\.0\.2\.1 is not an address of this machine/,
    );
  });
});

describe('an invalid configuration: exit code 2, and no files are created', () => {
  test.each([
    ['[server]\nprot = 1', /server\.prot is not known, did you mean port\?/],
    ['[server]\nkey = "tk_secret"', /server\.key must not be here: .*treadle key new/],
    ['[[server.keys]]\nname = "a"\nhash = "tk_secret"', /server\.keys\[0\]\.hash must be "sha256:" and 64 hex digits/],
    ['[server]\ndefault_tools = ["raed"]', /names "raed", which is not a tool of the server\. Did you mean "read"\?/],
    ['[server]\ntools = ["reed"]', /server\.tools names "reed", which is not a tool\. Did you mean "read"\?/],
    ['[server]\ntools = ["glob"]\ndefault_tools = ["read"]', /"read", which is not a tool of the server\./],
    ['[server]\ntools = ["none"]\ndefault_tools = ["read"]', /names "read", but the server has no tools/],
    ['[models.a]\nmodel = "m"', /There is no key for m: set the environment variable OPENAI_API_KEY/],
    [
      '[store]\nurl = "postgres://u:tk_secret@127.0.0.1:1/d"',
      /The store postgres:\/\/u@127\.0\.0\.1:1\/d cannot be reached/,
    ],
  ])('%j', async (toml, message) => {
    await fixture.play.write('treadle.toml', toml);
    const ended = await serve('--port', '0');
    expectStartupError(ended, 2, message);
    expect(ended.stderr).not.toContain('tk_secret');
    expect(existsSync(join(fixture.play.folder, '.treadle'))).toBe(false);
  });

  test('a base URL with a password, which is not printed', async () => {
    const ended = await serve('--port', '0', '--model', 'm', '--base-url', 'http://u:tk_secret@localhost/v1');
    expectStartupError(ended, 2, /^treadle: openaiChat: "baseURL" holds a password/);
    expect(ended.stderr).not.toContain('tk_secret');
  });

  test('beyond loopback without keys', async () => {
    expectStartupError(
      await serve('--port', '0', '--host', '0.0.0.0'),
      2,
      /^treadle: Without keys the server listens on loopback only, and 0\.0\.0\.0 is reachable from the network/m,
    );
  });
});

test('a store that is locked by another program: exit code 2', async () => {
  await (await fixture.serve()).stop();
  const other = new DatabaseSync(join(fixture.play.folder, '.treadle/treadle.db'));
  other.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  expectStartupError(
    await serveProcess('--port', '0'),
    2,
    /^treadle: The store .*treadle\.db .*\nOr serve without storing anything: --store memory:/s,
  );
  other.close();
});
