import { lstat, mkdir, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { logLines, useServeFixture } from './serve-command.ts';

const fixture = useServeFixture();
const at = (...parts: readonly string[]): string => join(fixture.play.folder, ...parts);
const ask = { model: 'demo', input: 'Read notes.txt' };

test('a server and the commands use the same store behind a link', async () => {
  await mkdir(at('data'));
  await symlink('data/real.db', at('link.db'));
  const server = await fixture.serveProcess('--store', 'sqlite:link.db');
  expect((await server.get('/readyz')).status).toBe(200);
  const { status, body } = await server.respond(ask);
  expect([status, body.status]).toEqual([200, 'completed']);
  const run = (...args: readonly string[]): ReturnType<typeof command> => command(args, fixture.play.folder);
  // While the server has it open, by the link and by its own name.
  for (const store of ['sqlite:link.db', 'sqlite:data/real.db']) {
    expect((await run('runs', 'list', '--store', store)).stdout).toContain('Read notes.txt');
    expect((await run('runs', 'export', body.id, '--store', store)).stdout).toContain('"run-started"');
  }
  expect(await run('store', 'backup', 'backup.db', '--store', 'sqlite:link.db')).toMatchObject({ code: 0 });
  expect((await server.respond(ask)).status).toBe(200);
  expect((await server.stop()).code).toBe(0);
  expect(await run('store', 'restore', 'backup.db', '--store', 'sqlite:link.db')).toMatchObject({ code: 0 });
  expect(await run('store', 'check', '--store', 'sqlite:data/real.db')).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('Checked 1 run'),
  });
  expect((await lstat(at('link.db'))).isSymbolicLink()).toBe(true);
  expect((await readdir(fixture.play.folder)).filter((name) => name.startsWith('link.db'))).toEqual(['link.db']);
});

test('a server whose store is removed tells and accepts nothing any more, and says what to do', async () => {
  const server = await fixture.serveProcess();
  expect((await server.respond(ask)).status).toBe(200);
  for (const name of ['treadle.db', 'treadle.db-wal', 'treadle.db-shm']) await rm(at('.treadle', name));
  await expect.poll(async () => (await server.get('/v1/runs')).status, { interval: 5, timeout: 30_000 }).toBe(503);
  expect((await server.get('/readyz')).status).toBe(503);
  expect(await server.respond(ask)).toMatchObject({ status: 503, body: { error: { code: 'store_unavailable' } } });
  expect((await server.get('/healthz')).status).toBe(200);
  // Another process starts with a new store at the same path, which the server leaves alone.
  const other = await command(['run', '--model', 'demo', 'Read notes.txt'], fixture.play.folder);
  expect(other.code).toBe(0);
  const before = await readFile(at('.treadle/treadle.db'));
  expect((await server.get('/readyz')).status).toBe(503);
  const { code, stderr } = await server.stop();
  expect(code).toBe(0);
  const said = logLines(stderr).map((line) => JSON.stringify(line));
  expect(said.join('\n')).toMatch(
    /treadle\.db was removed, moved or replaced while the store .* Stop all processes that use the store/,
  );
  expect(await readFile(at('.treadle/treadle.db'))).toEqual(before);
});
