import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { stopLeftovers, treadle, type Ended } from '../command/treadle-process.ts';
import { serving } from './serve-command.ts';

const KEY = `[[server.keys]]\nname = "a"\nhash = "sha256:${'0'.repeat(64)}"\n`;

let play: Playground;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await play.remove();
});

const serve = (...args: readonly string[]): Promise<Ended> =>
  treadle(['serve', ...args], { cwd: play.folder, stdin: '' }).ended;

function expectRefused({ code, stdout, stderr }: Ended, expected: number, message: RegExp): void {
  expect(stderr).toMatch(message);
  expect(stderr).not.toContain('This should not have happened');
  expect([code, stdout]).toEqual([expected, '']);
}

describe('what this machine does not allow: exit code 1', () => {
  test('a port that is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    expectRefused(
      await serve('--port', String(port)),
      1,
      new RegExp(`^treadle: Port ${port} of 127\\.0\\.0\\.1 is in use: .*\\n--host and --port say where`),
    );
    other.close();
  });

  test('two servers on one port: the first goes on', async () => {
    const first = await serving({ cwd: play.folder });
    expectRefused(await serve('--port', new URL(first.url).port), 1, /is in use/);
    expect((await first.get('/readyz')).status).toBe(200);
    expect((await first.stop()).code).toBe(0);
  });

  test('an address of another machine', async () => {
    await play.write('treadle.toml', KEY);
    expectRefused(
      await serve('--port', '0', '--host', '192.0.2.1'),
      1,
      /^treadle: 192\.0\.2\.1 is not an address of this machine/,
    );
  });
});

describe('what has to be written otherwise: exit code 2, and nothing is made', () => {
  test.each([
    ['[server]\nprot = 1', /server\.prot is not known, did you mean port\?/],
    ['[server]\nkey = "tk_secret"', /server\.key must not be here: .*treadle key new/],
    ['[[server.keys]]\nname = "a"\nhash = "tk_secret"', /server\.keys\[0\]\.hash must be "sha256:" and 64 hex digits/],
    ['[server]\ndefault_tools = ["raed"]', /names "raed", which is no tool of the server\. Did you mean "read"\?/],
    ['[models.a]\nmodel = "m"', /There is no key for m: set the environment variable OPENAI_API_KEY/],
    ['[store]\nurl = "postgres://u:tk_secret@h/d"', /names PostgreSQL, which comes in a later version/],
  ])('%s', async (toml, message) => {
    await play.write('treadle.toml', toml);
    const ended = await serve();
    expectRefused(ended, 2, message);
    expect(ended.stderr).not.toContain('tk_secret');
    expect(existsSync(join(play.folder, '.treadle'))).toBe(false);
  });

  test('a model that cannot be asked', async () => {
    const ended = await serve('--model', 'm', '--base-url', 'http://u:tk_secret@localhost/v1');
    expectRefused(ended, 2, /^treadle: openaiChat: "baseURL" holds a password/);
    expect(ended.stderr).not.toContain('tk_secret');
  });

  test('beyond loopback without keys', async () => {
    expectRefused(
      await serve('--port', '0', '--host', '0.0.0.0'),
      2,
      /^treadle: Without keys the server listens on loopback only, and 0\.0\.0\.0 is reachable from the network/m,
    );
  });
});

test('a store that another program has locked', async () => {
  const first = await serving({ cwd: play.folder });
  await first.stop();
  const other = new DatabaseSync(join(play.folder, '.treadle/treadle.db'));
  other.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  expectRefused(
    await serve('--port', '0'),
    2,
    /^treadle: The store .*treadle\.db .*\nOr serve without keeping anything: --store memory:/s,
  );
  other.close();
});
