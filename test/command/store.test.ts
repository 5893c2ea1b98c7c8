import { spawnSync } from 'node:child_process';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { runsStage } from './runs-stage.ts';
import { needs } from '../needs.ts';

const stage = runsStage();
const run = async (...args: readonly string[]): ReturnType<typeof stage.treadle> => {
  await stage.script({ text: ['ok'] });
  return stage.treadle('run', ...stage.model(), ...args, 'go');
};
const exists = (path: string): Promise<boolean> =>
  stat(join(stage.play.folder, path)).then(
    () => true,
    () => false,
  );

describe('where runs are kept', () => {
  test('.treadle in the working folder, which git leaves alone', async () => {
    expect(await run()).toMatchObject({ code: 0, stdout: 'ok\n', stderr: '' });
    expect((await readdir(join(stage.play.folder, '.treadle'))).toSorted()).toEqual(['.gitignore', 'treadle.db']);
    expect(await readFile(join(stage.play.folder, '.treadle/.gitignore'), 'utf8')).toBe('*\n');
    expect(await stage.runs()).toMatchObject([{ status: 'completed', title: 'go' }]);
  });

  test('every message of a chat is a run', async () => {
    await stage.script({ text: ['One.'] }, { text: ['Two.'] });
    const chat = stage.start('chat', ...stage.model());
    chat.child.stdin.end('first\nsecond\n');
    expect(await chat.ended).toMatchObject({ code: 0 });
    expect(await stage.runs()).toMatchObject([{ title: 'second' }, { title: 'first' }]);
    const { stdout } = await stage.treadle('runs', 'show', (await stage.runs())[0]!.runId);
    expect(stdout).toContain('2 earlier messages');
  });

  test('--cwd moves it along, --store is relative to where the command is typed', async () => {
    await stage.play.write('sub/x.txt', '');
    expect((await run('--cwd', 'sub')).code).toBe(0);
    expect(await exists('sub/.treadle/treadle.db')).toBe(true);
    expect((await run('--cwd', 'sub', '--store', 'sqlite:mine.db')).code).toBe(0);
    expect(await exists('mine.db')).toBe(true);
    expect(await exists('.treadle')).toBe(false);
  });

  test('[store] url is relative to the file that it stands in', async () => {
    await stage.play.write('conf/my.toml', '[store]\nurl = "sqlite:kept/runs.db"\n');
    expect((await run('--config', 'conf/my.toml')).code).toBe(0);
    expect(await exists('conf/kept/runs.db')).toBe(true);
    await stage.play.write('treadle.toml', '[store]\nurl = "sqlite:here.db"\n');
    expect((await run()).code).toBe(0);
    expect(await exists('here.db')).toBe(true);
    expect((await stage.treadle('runs', 'list')).stdout).toContain('completed');
  });

  test('memory: keeps nothing', async () => {
    expect((await run('--store', 'memory:')).code).toBe(0);
    expect(await exists('.treadle')).toBe(false);
  });
});

describe('a store that cannot be used ends it before anything is asked', () => {
  const refused = async (message: string | RegExp, ...args: readonly string[]): Promise<void> => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('This should not have happened');
    expect(stage.server.requests).toEqual([]);
  };

  test.each([
    ['postgres://user:secret@host/db', /--store names PostgreSQL, which comes in a later version\..*sqlite:PATH/],
    ['runs.db', /--store must be sqlite:PATH or memory:\. If runs\.db is a file, write sqlite:runs\.db\./],
    ['mysql:x', /not mysql:/],
    ['sqlite:', /--store needs a path/],
  ])('--store %s', async (url, message) => {
    await refused(message, '--store', url);
    expect((await run('--store', url)).stderr).not.toContain('secret');
  });

  test('of the configuration', async () => {
    await stage.play.write('treadle.toml', '[store]\nurl = "postgresql://u:secret@h/d"\n');
    await refused(/^treadle: store\.url in treadle\.toml names PostgreSQL/);
    await stage.play.write('treadle.toml', '[store]\nadress = "x"\n');
    await refused(/store\.adress is not known/);
  });

  test('a folder that cannot be written', async () => {
    await stage.play.write('.treadle', 'a file in its place');
    await refused(
      /The store .*treadle\.db (failed|cannot be written).*\nOr go on without keeping the run: --store memory:/s,
    );
  });

  /** A namespace of its own, in which anybody may mount, and which ends with what runs in it. */
  const [unshare, ...flags] = ['unshare', '--user', '--map-root-user', '--mount'] as const;
  const canMount = spawnSync(unshare, [...flags, 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;

  test.runIf(needs('unshare with mounts', canMount))('a disk that is read-only', () => {
    const main = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));
    const script = 'mount -t tmpfs -o ro tmpfs "$1" && cd "$1" && exec "$2" --conditions=treadle-source "$3" run hi';
    const args = [...flags, 'sh', '-c', script, 'sh', stage.play.folder, process.execPath, main];
    const { status, stdout, stderr } = spawnSync(unshare, args, { encoding: 'utf8', input: '', env: {} });
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(
      /^treadle: The store .*treadle\.db cannot be written\. Give this user write permission.*--store memory:/s,
    );
  });

  test('a store of a newer version', async () => {
    await run();
    const file = join(stage.play.folder, '.treadle/treadle.db');
    const db = new DatabaseSync(file);
    db.exec('PRAGMA user_version = 99');
    db.close();
    await refused(
      /has version 99, but this Treadle supports versions up to \d+\. Update Treadle.*\n.*--store memory:/s,
    );
    const listed = await stage.treadle('runs', 'list');
    expect([listed.code, listed.stderr]).toEqual([2, expect.stringContaining('has version 99')]);
  });

  test('a file of something else', async () => {
    await writeFile(join(stage.play.folder, 'x.db'), 'no database at all, but long enough to look at '.repeat(20));
    await refused(/is not an SQLite database.*\n.*--store memory:/s, '--store', 'sqlite:x.db');
  });
});
