import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { readFile, realpath, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { DeniedError, guardedFiles, local, readOnlyTools, type OpenFile } from '@treadle/tools';
import { expect, test } from 'vitest';
import { needs } from '../needs.ts';

const PATHS = ['dir/file.txt', 'file.txt', 'dir/../dir/file.txt', 'dir/deep/file.txt'];

interface Place {
  readonly work: string;
  readonly outside: string;
  /** What was written outside. */
  written(): string[];
}

/** A folder `work` in which another process swaps a folder and a file with links to `outside`, as fast as it can. */
async function whileSwapping(body: (place: Place) => Promise<void>): Promise<number> {
  const base = realpathSync(mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'treadle-swaps-')));
  const [work, outside] = [join(base, 'work'), join(base, 'outside')];
  for (const [top, text] of [
    [join(work, 'dir'), 'inside'],
    [outside, 'outside'],
  ] as const) {
    mkdirSync(join(top, 'deep'), { recursive: true });
    for (const file of ['file.txt', 'deep/file.txt']) writeFileSync(join(top, file), text);
  }
  writeFileSync(join(work, 'file.txt'), 'inside');
  symlinkSync(outside, join(work, 'dir.link'));
  symlinkSync(join(outside, 'file.txt'), join(work, 'file.link'));
  const swapper = spawn(process.execPath, [fileURLToPath(import.meta.resolve('./swap-main.ts')), work], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exit = once(swapper, 'exit');
  const lines = createInterface(swapper.stdout)[Symbol.asyncIterator]();
  try {
    expect((await lines.next()).value).toBe('started');
    const before = readdirSync(outside, { recursive: true }).length;
    await body({
      work,
      outside,
      written: () => {
        const names = readdirSync(outside, { recursive: true }) as string[];
        const changed = ['file.txt', 'deep/file.txt'].filter(
          (file) => readFileSync(join(outside, file), 'utf8') !== 'outside',
        );
        return names.length === before ? changed : names;
      },
    });
    swapper.stdin.end();
    return Number((await lines.next()).value);
  } finally {
    swapper.kill();
    await exit;
    rmSync(base, { recursive: true });
  }
}

/** Swaps are no reason for other errors. */
function unlessSwapped(error: unknown): undefined {
  if (error instanceof DeniedError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
  throw error;
}

async function checkedPath(work: string, path: string): Promise<string> {
  const real = await realpath(join(work, path));
  if (!real.startsWith(`${work}/`)) throw new DeniedError('outside');
  return join(work, path);
}

const isLinux = needs('Linux, where swaps cannot succeed', process.platform === 'linux');

/** `attempts`: of each kind. A tool is called a fifth as often. Without the guard, one attempt of a few hundred escapes. */
export function testSwaps(attempts: number): void {
  const calls = attempts / 5;

  test('a check before the use lets reads and writes escape', { timeout: 300_000 }, async () => {
    await whileSwapping(async ({ work, written }) => {
      let escapes = 0;
      for (let i = 0; i < 1_000_000 && escapes === 0; i++) {
        const text = await checkedPath(work, PATHS[i % PATHS.length]!)
          .then((path) => readFile(path, 'utf8'), unlessSwapped)
          .catch(unlessSwapped);
        if (text === 'outside') escapes++;
      }
      expect(escapes).toBe(1);
      for (let i = 0; i < 1_000_000 && written().length === 0; i++) {
        const path = PATHS[i % PATHS.length]!;
        await checkedPath(work, dirname(path))
          .then((folder) => writeFile(join(folder, 'new.txt'), 'x'), unlessSwapped)
          .catch(unlessSwapped);
      }
      expect(written()).not.toEqual([]);
    });
  });

  test.runIf(isLinux)(`no guarded read of ${attempts} returns what is outside`, { timeout: 300_000 }, async () => {
    const texts: Record<string, number> = {};
    const swaps = await whileSwapping(async ({ work }) => {
      const files = guardedFiles({ folder: work });
      for (let i = 0; i < attempts; i++) {
        const file = await files.open(PATHS[i % PATHS.length]!).catch(unlessSwapped);
        const text = file ? await readWhole(file) : 'none';
        await file?.handle.close();
        texts[text] = (texts[text] ?? 0) + 1;
      }
    });
    expect(texts['outside']).toBeUndefined();
    expect(texts['inside']).toBeGreaterThan(attempts / 100);
    expect(texts['none']).toBeGreaterThan(0);
    expect(swaps).toBeGreaterThan(100);
  });

  test.runIf(isLinux)(
    `no call of the read tool of ${calls} returns what is outside`,
    { timeout: 300_000 },
    async () => {
      const texts: Record<string, number> = {};
      await whileSwapping(async ({ work }) => {
        const read = readOnlyTools(local(work)).find(({ name }) => name === 'read')!;
        const context = {
          signal: new AbortController().signal,
          key: '',
          report() {},
          context: undefined,
          principal: undefined,
          ask: () => Promise.reject<never>(new Error('nobody is there')),
          hold: () => Promise.reject<never>(new Error('there is no run')),
          offer: () => Promise.reject<never>(new Error('there is no run')),
        };
        for (let i = 0; i < calls; i++) {
          const result = Promise.resolve(read.execute!({ path: PATHS[i % PATHS.length]! }, context));
          const text = String(await result.catch(() => 'none'));
          texts[text] = (texts[text] ?? 0) + 1;
        }
      });
      expect(Object.keys(texts).toSorted()).toEqual(['1\tinside', 'none']);
      expect(texts['1\tinside']).toBeGreaterThan(calls / 100);
    },
  );

  test.runIf(isLinux)('no guarded list shows what is outside', { timeout: 300_000 }, async () => {
    await whileSwapping(async ({ work, outside }) => {
      writeFileSync(join(outside, 'secret'), '');
      const files = guardedFiles({ folder: work });
      let listed = 0;
      for (let i = 0; i < calls; i++) {
        const names = (await files.list('dir').catch(unlessSwapped))?.map(({ name }) => name);
        expect(names ?? []).not.toContain('secret');
        if (names) listed++;
      }
      expect(listed).toBeGreaterThan(0);
    });
  });

  test.runIf(isLinux)(`no guarded change of ${attempts} happens outside`, { timeout: 300_000 }, async () => {
    let done = 0;
    const swaps = await whileSwapping(async ({ work, outside, written }) => {
      const files = guardedFiles({ folder: work });
      for (let i = 0; i < attempts; i++) {
        const attempt = [
          () => files.write(PATHS[i % PATHS.length]!, 'changed'),
          () => files.write(`dir/new-${i % 7}.txt`, 'new'),
          () => files.write(`dir/made-${i}/new.txt`, 'new'),
          () => files.remove('dir/new-1.txt'),
          () => files.rename('dir/deep/file.txt', 'dir/deep/file.txt'),
        ][i % 5]!;
        done += await attempt().then(
          () => 1,
          (error: unknown) => unlessSwapped(error) ?? 0,
        );
      }
      expect(written()).toEqual([]);
      expect(readdirSync(outside, { recursive: true }).toSorted()).toEqual(['deep', 'deep/file.txt', 'file.txt']);
    });
    expect(done).toBeGreaterThan(attempts / 100);
    expect(swaps).toBeGreaterThan(100);
  });
}

async function readWhole({ handle, size }: OpenFile): Promise<string> {
  const buffer = Buffer.alloc(size);
  const { bytesRead } = await handle.read(buffer, 0, size, null);
  return buffer.toString('utf8', 0, bytesRead);
}
