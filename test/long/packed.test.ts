import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

const root = path.resolve(import.meta.dirname, '../..');
let folder: string;

function run(command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}`);
  return stdout;
}

/** What the container file does, but with the dependencies of the checkout instead of downloaded ones. */
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-packed-'));
  const modules = path.join(folder, 'node_modules');
  mkdirSync(path.join(modules, '@treadle'), { recursive: true });
  run('npm', 'run', 'pack');
  const tarballs = path.join(root, 'dist/packages');
  for (const file of readdirSync(tarballs)) {
    const name = file.replace(/-\d.*$/, '').replace(/^treadle-/, '@treadle/');
    mkdirSync(path.join(modules, name));
    run('tar', '-xzf', path.join(tarballs, file), '--strip-components', '1', '-C', path.join(modules, name));
  }
  for (const name of readdirSync(path.join(root, 'node_modules'))) {
    if (!/^(\.|treadle$|@treadle$)/.test(name))
      symlinkSync(path.join(root, 'node_modules', name), path.join(modules, name));
  }
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true }));

test('the packed command serves, answers and stops', async () => {
  const { bin } = JSON.parse(readFileSync(path.join(folder, 'node_modules/treadle/package.json'), 'utf8')) as {
    readonly bin: { readonly treadle: string };
  };
  const command = path.join(folder, 'node_modules/treadle', bin.treadle);
  const args = ['serve', '--port', '0', '--store', `sqlite:${path.join(folder, 'treadle.db')}`, '--cwd', folder];
  const server = spawn(process.execPath, [command, ...args], { cwd: folder, env: PROCESS_ENV });
  try {
    server.stderr.resume();
    const [line] = (await once(server.stdout.setEncoding('utf8'), 'data')) as [string];
    const url = /listens on (\S+)/.exec(line)![1]!;
    for (const file of ['/', '/readyz', '/metrics', '/openapi.json'])
      expect((await fetch(url + file)).status).toBe(200);
    const answer = await fetch(`${url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'Hello' }),
    });
    expect(await answer.json()).toMatchObject({ status: 'completed' });
    const closed = once(server, 'close');
    server.kill('SIGTERM');
    expect(await closed).toEqual([0, null]);
  } finally {
    server.kill('SIGKILL');
  }
});
