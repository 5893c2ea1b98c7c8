import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeniedError } from '../denied.ts';
import type { ExecOps, ExecRequest, Execution, FileOps, Ops } from '../ops.ts';

/*
 * What `FileOps` and `ExecOps` promise, as tests for every machine that implements them. The machine has to be this one: the
 * tests look at its files and processes.
 */

/** The functions of a test framework: those of vitest, node:test and others fit. */
export interface TestFramework {
  test(name: string, run: () => Promise<void>): unknown;
  beforeEach(run: () => void | Promise<void>): unknown;
  afterEach(run: () => void | Promise<void>): unknown;
}

/** The files around the working folder `work`. */
export interface FilesPlace {
  /** Absolute, without links. `work` and `out` are in it. */
  readonly base: () => string;
  readonly outsideNow: () => string[];
}

/** Makes a folder with files, some of them outside of the working folder, before each test. */
export function filesPlace({ beforeEach, afterEach }: Pick<TestFramework, 'beforeEach' | 'afterEach'>): FilesPlace {
  let base: string;
  beforeEach(() => {
    base = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-guard-')));
    mkdirSync(join(base, 'work/src'), { recursive: true });
    mkdirSync(join(base, 'out'));
    writeFileSync(join(base, 'work/src/a.txt'), 'a');
    writeFileSync(join(base, 'out/secret.txt'), 'secret');
    symlinkSync('src/a.txt', join(base, 'work/good'));
    symlinkSync('../out', join(base, 'work/out-folder'));
    symlinkSync('../out/secret.txt', join(base, 'work/out-file'));
    symlinkSync('../out/new.txt', join(base, 'work/out-new'));
    symlinkSync('src/new.txt', join(base, 'work/in-new'));
  });
  afterEach(() => rmSync(base, { recursive: true }));
  return {
    base: () => base,
    outsideNow: () =>
      (readdirSync(join(base, 'out')) as string[]).map(
        (name) => `${name}=${readFileSync(join(base, 'out', name), 'utf8')}`,
      ),
  };
}

export async function readWhole(files: FileOps, path: string): Promise<string> {
  const { handle } = await files.open(path);
  try {
    const buffer = Buffer.alloc(1_000);
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** `open`: the files of `work`, of which others outside of it may not be used. Its home folder is `out`. */
export function fileContract(
  { test }: Pick<TestFramework, 'test'>,
  { base, outsideNow }: FilesPlace,
  open: () => FileOps | Promise<FileOps>,
): void {
  test('reads, lists and describes what is inside', async () => {
    const files = await open();
    assert.equal(await readWhole(files, 'src/a.txt'), 'a');
    assert.equal(await readWhole(files, 'good'), 'a');
    assert.equal(await readWhole(files, join(base(), 'work/src/../src/a.txt')), 'a');
    assert.partialDeepStrictEqual(await files.stat('good'), {
      path: join(base(), 'work/src/a.txt'),
      type: 'file',
      size: 1,
    });
    assert.partialDeepStrictEqual(await files.stat('.'), { path: join(base(), 'work'), type: 'folder' });
    assert.deepEqual(
      (await files.list('.')).toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      [
        { name: 'good', type: 'link' },
        { name: 'in-new', type: 'link' },
        { name: 'out-file', type: 'link' },
        { name: 'out-folder', type: 'link' },
        { name: 'out-new', type: 'link' },
        { name: 'src', type: 'folder' },
      ],
    );
  });

  for (const path of [
    'out-file',
    'out-folder/secret.txt',
    '../out/secret.txt',
    '~/secret.txt',
    'out-folder/../work/../out/secret.txt',
  ]) {
    test(`denies every use of ${path}`, async () => {
      const files = await open();
      await assert.rejects(files.open(path), DeniedError);
      await assert.rejects(files.stat(path), /is outside/);
      await assert.rejects(files.list(path), DeniedError);
      await assert.rejects(files.write(path, 'x'), DeniedError);
      await assert.rejects(files.rename('src/a.txt', `${path}/../new.txt`), /is outside|ENOTDIR/);
      if (path !== 'out-file') await assert.rejects(files.remove(path), DeniedError);
      assert.deepEqual(outsideNow(), ['secret.txt=secret']);
    });
  }

  test('replaces files and leaves nothing behind', async () => {
    const files = await open();
    chmodSync(join(base(), 'work/src/a.txt'), 0o640);
    await files.write('good', 'through a link');
    assert.equal(readFileSync(join(base(), 'work/src/a.txt'), 'utf8'), 'through a link');
    assert.equal(statSync(join(base(), 'work/src/a.txt')).mode & 0o777, 0o640);
    assert.equal(lstatSync(join(base(), 'work/good')).isSymbolicLink(), true);
    await files.write('new/folders/b.txt', Buffer.from('b'));
    assert.equal(await readWhole(files, 'new/folders/b.txt'), 'b');
    assert.deepEqual(readdirSync(join(base(), 'work/src')), ['a.txt']);
    assert.deepEqual(readdirSync(join(base(), 'work/new/folders')), ['b.txt']);
  });

  test('creates a file only if there is none', async () => {
    const files = await open();
    await assert.rejects(files.write('src/a.txt', 'x', { create: true }), { code: 'EEXIST' });
    await files.write('src/b.txt', 'b', { create: true });
    assert.equal(await readWhole(files, 'src/b.txt'), 'b');
    assert.deepEqual(readdirSync(join(base(), 'work/src')).toSorted(), ['a.txt', 'b.txt']);
  });

  test('replaces and removes a file only if it has not changed, if it is told so', async () => {
    const files = await open();
    const { stamp } = await files.stat('src/a.txt');
    const [first, second] = await Promise.allSettled([
      files.write('src/a.txt', 'one', { stamp }),
      files.write('src/a.txt', 'two', { stamp }),
    ]);
    assert.deepEqual([first.status, second.status].toSorted(), ['fulfilled', 'rejected']);
    const written = first.status === 'fulfilled' ? 'one' : 'two';
    assert.equal(await readWhole(files, 'src/a.txt'), written);
    await assert.rejects(files.remove('src/a.txt', { stamp }), { code: 'ESTALE' });
    await files.remove('src/a.txt', { stamp: (await files.stat('src/a.txt')).stamp });
    await assert.rejects(files.write('src/a.txt', 'x', { stamp }), { code: 'ESTALE' });
    assert.deepEqual(readdirSync(join(base(), 'work/src')), []);
  });

  test('refuses places that no file can have', async () => {
    const files = await open();
    await assert.rejects(files.write('src', 'x'), { code: 'EISDIR' });
    await assert.rejects(files.write('src/a.txt/x', 'x'), { code: 'ENOTDIR' });
    await assert.rejects(files.write('none/', 'x'), { code: 'EISDIR' });
    await assert.rejects(files.write('none/../x', 'x'), { code: 'ENOENT' });
    await assert.rejects(files.write('in-new', 'x'), /symbolic link to a file that does not exist/);
    await assert.rejects(files.open('src'), { code: 'EISDIR' });
    await assert.rejects(files.list('src/a.txt'), { code: 'ENOTDIR' });
    await assert.rejects(files.remove('src/..'), { code: 'EINVAL' });
    assert.deepEqual(readdirSync(join(base(), 'work')).toSorted(), [
      'good',
      'in-new',
      'out-file',
      'out-folder',
      'out-new',
      'src',
    ]);
  });

  test('removes and renames names, not what they lead to', async () => {
    const files = await open();
    await files.remove('out-file');
    await files.rename('good', 'src/renamed');
    await files.rename('src/a.txt', 'src/b.txt');
    assert.deepEqual(readdirSync(join(base(), 'work/src')).toSorted(), ['b.txt', 'renamed']);
    await assert.rejects(files.rename('src/b.txt', 'out-folder/b.txt'), DeniedError);
    await assert.rejects(files.rename('out-folder/secret.txt', 'mine.txt'), DeniedError);
    await assert.rejects(files.rename(join(base(), 'work'), join(base(), 'work/x')), DeniedError);
    assert.deepEqual(outsideNow(), ['secret.txt=secret']);
  });

  test('reads from any place of a file, and on from the last one', async () => {
    const files = await open();
    const content = Buffer.alloc(700_000, 'abcdefg');
    await files.write('large.bin', content);
    const { handle, size } = await files.open('large.bin');
    try {
      const buffer = Buffer.alloc(size);
      assert.partialDeepStrictEqual(await handle.read(buffer, 0, size, 0), { bytesRead: size });
      assert.equal(buffer.equals(content), true);
      const few = Buffer.alloc(4);
      assert.partialDeepStrictEqual(await handle.read(few, 1, 3, 699_998), { bytesRead: 2 });
      assert.partialDeepStrictEqual(await handle.read(few, 0, 2, null), { bytesRead: 2 });
      assert.partialDeepStrictEqual(await handle.read(few, 2, 2, null), { bytesRead: 2 });
      assert.equal(few.toString(), 'abcd');
      // It stays the file that was opened.
      await files.write('large.bin', 'other');
      assert.partialDeepStrictEqual(await handle.read(few, 0, 4, 7), { bytesRead: 4 });
      assert.equal(few.toString(), 'abcd');
    } finally {
      await handle.close();
    }
  });
}

const ON_LINUX = process.platform === 'linux';

/** A zombie has ended. */
export function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  if (!existsSync(stat)) return false;
  const text = readFileSync(stat, 'utf8');
  return text[text.lastIndexOf(')') + 2] !== 'Z';
}

export async function outputText({ output }: Execution): Promise<string> {
  let text = '';
  for await (const { stream, bytes } of output)
    text += `${stream === 'stderr' ? '!' : ''}${Buffer.from(bytes).toString()}`;
  return text;
}

/** `open`: the programs of a folder. */
export function execContract(
  { test, beforeEach, afterEach }: TestFramework,
  open: (folder: string) => Ops | Promise<Ops>,
): void {
  let folder: string;
  let ops: Ops;
  const started: Execution[] = [];
  beforeEach(async () => {
    folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-exec-')));
    ops = await open(folder);
  });
  afterEach(async () => {
    await Promise.all(started.splice(0).map((execution) => execution.kill()));
    rmSync(folder, { recursive: true });
  });

  const exec = (): ExecOps => ops.exec;
  const onLinux: TestFramework['test'] = (name, run) => (ON_LINUX ? test(name, run) : undefined);

  async function start(argv: ExecRequest['argv'], request: Partial<ExecRequest> = {}): Promise<Execution> {
    const execution = await exec().start({ argv, ...request });
    started.push(execution);
    return execution;
  }

  const sh = (script: string, request: Partial<ExecRequest> = {}): Promise<Execution> =>
    start(['sh', '-c', script], request);

  test('starts a program without a shell, in the folder, and returns its output and exit code', async () => {
    const execution = await start(['printf', '%s', '$HOME; rm *']);
    assert.equal(await outputText(execution), '$HOME; rm *');
    assert.deepEqual(await execution.exit, { exitCode: 0, signal: undefined });
    const other = await sh('pwd; echo oops >&2; exit 3');
    const text = await outputText(other);
    assert.ok(text.includes(`${folder}\n`));
    assert.ok(text.includes('!oops\n'));
    assert.deepEqual(await other.exit, { exitCode: 3, signal: undefined });
    assert.deepEqual(await (await sh('kill -9 $$')).exit, { exitCode: undefined, signal: 'SIGKILL' });
  });

  test('gives a program an empty input and no terminal, or the input that is written', async () => {
    assert.equal(await outputText(await sh('cat; (: </dev/tty) 2>/dev/null || echo none')), 'none\n');
    const writable = await start(['cat'], { writable: true });
    await writable.write('hello');
    writable.endInput();
    assert.equal(await outputText(writable), 'hello');
    await writable.exit;
    await assert.rejects(writable.write('late'), /does not read its input any more/);
  });

  test('a program waits while nobody reads its output', async () => {
    const execution = await sh('head -c 1000000 /dev/zero; echo done > done');
    const reader = execution.output[Symbol.asyncIterator]();
    let bytes = (await reader.next()).value!.bytes.length;
    await sleep(50);
    assert.equal(existsSync(join(folder, 'done')), false);
    for (let next = await reader.next(); !next.done; next = await reader.next()) bytes += next.value.bytes.length;
    assert.equal(bytes, 1_000_000);
    assert.partialDeepStrictEqual(await execution.exit, { exitCode: 0 });
  });

  test('the output ends soon after the exit, even if another process keeps it open or writes without end', async () => {
    const quiet = await sh('sleep 1000 & echo $!');
    const pid = Number(await outputText(quiet));
    assert.partialDeepStrictEqual(await quiet.exit, { exitCode: 0 });
    assert.equal(isAlive(pid), ON_LINUX);
    await quiet.kill();
    assert.equal(isAlive(pid), false);

    const loud = await sh('yes & sleep 0.1');
    let length = 0;
    for await (const { bytes } of loud.output) length += bytes.length;
    assert.ok(length > 0);
  });

  /** Each starts a process that tries to survive, and prints its pid. */
  const ESCAPES = [
    // in the background
    'sleep 1000 & echo $!',
    // ignores signals
    `sh -c 'trap "" TERM HUP INT; while :; do sleep 1000; done' & echo $!`,
    // in another session
    'setsid sleep 1000 & echo $!',
    // left the session and its parent
    `(setsid sh -c 'echo $$; exec sleep 1000' &)`,
    // and has closed its output
    `(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1 </dev/null' &)`,
    // has another environment
    'env -i sleep 1000 >/dev/null 2>&1 & echo $!',
    // is in another session, and has another environment, and the output
    `(setsid env -i sh -c 'echo $$; exec sleep 1000' &)`,
    // and has closed its output too
    `(setsid env -i sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1 </dev/null' &)`,
  ];

  for (const [when, last] of [
    ['runs', '; sleep 1000'],
    ['has exited', ''],
  ] as const) {
    onLinux(`kills all descendants while the program ${when}`, async () => {
      const execution = await sh(ESCAPES.join('; ').replaceAll('&;', '&') + last);
      let text = '';
      for await (const { bytes } of execution.output) {
        text += Buffer.from(bytes).toString();
        if (text.split('\n').length > ESCAPES.length) break;
      }
      const pids = text.trim().split('\n').map(Number);
      if (last === '') await execution.exit;
      assert.deepEqual(
        pids.map(isAlive),
        ESCAPES.map(() => true),
      );
      await execution.kill();
      assert.deepEqual(
        pids.map(isAlive),
        ESCAPES.map(() => false),
      );
      await execution.exit;
    });
  }

  onLinux('kills by a mark what was started with it, and nothing else', async () => {
    const marked = await sh('(setsid env -i sleep 1000 >/dev/null 2>&1 & echo $!); sleep 1000', { mark: 'abc1' });
    const other = await sh('echo started; sleep 1000', { mark: 'abc' });
    let escaped = 0;
    for await (const { bytes } of marked.output) {
      escaped = Number(Buffer.from(bytes).toString());
      break;
    }
    for await (const _ of other.output) break;
    assert.equal(isAlive(escaped), true);
    await exec().killMarked('abc1');
    assert.partialDeepStrictEqual(await marked.exit, { signal: 'SIGKILL' });
    assert.deepEqual([isAlive(escaped), isAlive(other.process.pid)], [false, true]);
  });

  test('reports what cannot be started, with the code of the system', async () => {
    mkdirSync(join(folder, 'sub'));
    writeFileSync(join(folder, 'file'), '');
    assert.equal(await outputText(await sh('pwd', { workdir: 'sub' })), `${folder}/sub\n`);
    await assert.rejects(sh('pwd', { workdir: '..' }), DeniedError);
    await assert.rejects(sh('pwd', { workdir: 'missing' }), { code: 'ENOENT' });
    await assert.rejects(sh('pwd', { workdir: 'file' }), { code: 'ENOTDIR' });
    await assert.rejects(start(['no-such-program']), { code: 'ENOENT', path: 'no-such-program' });
  });
}
