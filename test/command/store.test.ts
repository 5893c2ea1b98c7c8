import { spawnSync } from 'node:child_process';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { runsFixture } from './runs-fixture.ts';
import { needs } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';

const fixture = runsFixture();
const run = async (...args: readonly string[]): ReturnType<typeof fixture.treadle> => {
  await fixture.script({ text: ['ok'] });
  return fixture.treadle('run', ...fixture.model(), ...args, 'go');
};
const exists = (path: string): Promise<boolean> =>
  stat(join(fixture.play.folder, path)).then(
    () => true,
    () => false,
  );

describe('stores runs', () => {
  test('in .treadle of the working folder, which git ignores', async () => {
    expect(await run()).toMatchObject({ code: 0, stdout: 'ok\n', stderr: '' });
    expect((await readdir(join(fixture.play.folder, '.treadle'))).toSorted()).toEqual(['.gitignore', 'treadle.db']);
    expect(await readFile(join(fixture.play.folder, '.treadle/.gitignore'), 'utf8')).toBe('*\n');
    expect(await fixture.runs()).toMatchObject([{ status: 'completed', title: 'go' }]);
  });

  test('for every message of a chat', async () => {
    await fixture.script({ text: ['One.'] }, { text: ['Two.'] });
    const chat = fixture.start('chat', ...fixture.model());
    chat.child.stdin.end('first\nsecond\n');
    expect(await chat.ended).toMatchObject({ code: 0 });
    expect(await fixture.runs()).toMatchObject([{ title: 'second' }, { title: 'first' }]);
    const { stdout } = await fixture.treadle('runs', 'show', (await fixture.runs())[0]!.runId);
    expect(stdout).toContain('2 earlier messages');
  });

  test('in the folder of --cwd, or relative to the current folder with --store', async () => {
    await fixture.play.write('sub/x.txt', '');
    expect((await run('--cwd', 'sub')).code).toBe(0);
    expect(await exists('sub/.treadle/treadle.db')).toBe(true);
    expect((await run('--cwd', 'sub', '--store', 'sqlite:mine.db')).code).toBe(0);
    expect(await exists('mine.db')).toBe(true);
    expect(await exists('.treadle')).toBe(false);
  });

  test('in [store] url, relative to the configuration file', async () => {
    await fixture.play.write('conf/my.toml', '[store]\nurl = "sqlite:data/runs.db"\n');
    expect((await run('--config', 'conf/my.toml')).code).toBe(0);
    expect(await exists('conf/data/runs.db')).toBe(true);
    await fixture.play.write('treadle.toml', '[store]\nurl = "sqlite:here.db"\n');
    expect((await run()).code).toBe(0);
    expect(await exists('here.db')).toBe(true);
    expect((await fixture.treadle('runs', 'list')).stdout).toContain('completed');
  });

  test('nowhere with memory:', async () => {
    expect((await run('--store', 'memory:')).code).toBe(0);
    expect(await exists('.treadle')).toBe(false);
  });
});

describe('rejects a store that cannot be used before it calls the model', () => {
  const refused = async (message: string | RegExp, ...args: readonly string[]): Promise<void> => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('This should not have happened');
    expect(fixture.server.requests).toEqual([]);
  };

  test.each([
    [
      'postgres://user:secret@127.0.0.1:1/db',
      /The store postgres:\/\/user@127\.0\.0\.1:1\/db cannot be reached: .*memory:/s,
    ],
    [
      'runs.db',
      /--store must be sqlite:PATH, postgres:\/\/HOST\/DATABASE or memory:\. If runs\.db is a file, write sqlite:runs\.db\./,
    ],
    ['mysql:x', /not mysql:/],
    ['sqlite:', /--store needs a path/],
  ])('--store %s', async (url, message) => {
    await refused(message, '--store', url);
    expect((await run('--store', url)).stderr).not.toContain('secret');
  });

  test('that the configuration names', async () => {
    await fixture.play.write('treadle.toml', '[store]\nurl = "postgresql://u:secret@127.0.0.1:1/d"\n');
    await refused(/^treadle: The store postgresql:\/\/u@127\.0\.0\.1:1\/d cannot be reached/);
    await fixture.play.write('treadle.toml', '[store]\nadress = "x"\n');
    await refused(/store\.adress is not known/);
  });

  test('in a folder that cannot be written', async () => {
    await fixture.play.write('.treadle', 'a file in its place');
    await refused(
      /The store .*treadle\.db (failed|cannot be written).*\nOr run without storing anything: --store memory:/s,
    );
  });

  /** A mount namespace for any user, which is removed when its process ends. */
  const [unshare, ...flags] = ['unshare', '--user', '--map-root-user', '--mount'] as const;
  const canMount = spawnSync(unshare, [...flags, 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;

  test.runIf(needs('unshare with mounts', canMount))('on a read-only disk', () => {
    const main = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));
    const script = 'mount -t tmpfs -o ro tmpfs "$1" && cd "$1" && exec "$2" --conditions=treadle-source "$3" run hi';
    const args = [...flags, 'sh', '-c', script, 'sh', fixture.play.folder, process.execPath, main];
    const { status, stdout, stderr } = spawnSync(unshare, args, { encoding: 'utf8', input: '', env: PROCESS_ENV });
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(
      /^treadle: The store .*treadle\.db cannot be written\. Give this user write permission.*--store memory:/s,
    );
  });

  test('of a newer version', async () => {
    await run();
    const file = join(fixture.play.folder, '.treadle/treadle.db');
    const db = new DatabaseSync(file);
    db.exec('PRAGMA user_version = 99');
    db.close();
    await refused(
      /has version 99, but this Treadle supports versions up to \d+\. Update Treadle.*\n.*--store memory:/s,
    );
    const listed = await fixture.treadle('runs', 'list');
    expect([listed.code, listed.stderr]).toEqual([2, expect.stringContaining('has version 99')]);
  });

  test('that is not a database', async () => {
    await writeFile(join(fixture.play.folder, 'x.db'), 'no database at all, but long enough to look at '.repeat(20));
    await refused(/is not an SQLite database.*\n.*--store memory:/s, '--store', 'sqlite:x.db');
  });
});
