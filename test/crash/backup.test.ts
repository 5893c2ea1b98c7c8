import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runLoop } from '@treadle/core';
import { backupStore, checkStore, restoreStore, sqliteStore, type SqliteStore } from '@treadle/store';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { stopLeftovers, treadle } from '../command/treadle-process.ts';
import { MODEL, TOOLS, TOOLS_WITHOUT_WAITING } from './backup/runs.ts';

let folder: string;
const inFolder = (name: string): string => path.join(folder, name);
const WRITER = fileURLToPath(new URL('./backup/writer-program.ts', import.meta.url));
const KILLED = fileURLToPath(new URL('./backup/killed-program.ts', import.meta.url));

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-backup-'));
});
afterEach(() => {
  stopLeftovers();
  rmSync(folder, { recursive: true });
});

async function inStore<T>(file: string, use: (store: SqliteStore) => Promise<T>): Promise<T> {
  const store = sqliteStore(file);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

describe('a backup under load', () => {
  /** Processes that write until they are killed. `ended` has the runs that they have completed so far. */
  interface Writers extends AsyncDisposable {
    readonly ended: readonly string[];
    readonly kill: () => Promise<void>;
  }

  async function writers(file: string, names: readonly string[]): Promise<Writers> {
    const ended: string[] = [];
    const execArgv = ['--conditions=treadle-source'];
    const children = names.map((name) => fork(WRITER, [file, name], { execArgv }));
    const exits = children.map((child) => once(child, 'exit'));
    const reported = children.map((child: ChildProcess) => {
      child.on('message', (runId: string) => ended.push(runId));
      return once(child, 'message');
    });
    const kill = async (): Promise<void> => {
      for (const child of children) child.kill('SIGKILL');
      await Promise.all(exits);
    };
    await Promise.all(reported);
    return { ended, kill, [Symbol.asyncDispose]: kill };
  }

  /** Checks that each run is a beginning of the run in `live`, and drives the unfinished ones to their end. */
  async function expectResumable(restored: SqliteStore, live: SqliteStore): Promise<{ readonly resumed: number }> {
    let resumed = 0;
    for (const { runId, status } of await restored.list({ limit: Infinity })) {
      const entries = await restored.read(runId);
      expect(entries).toEqual((await live.read(runId)).slice(0, entries.length));
      if (status !== 'running') continue;
      const result = await runLoop({ model: MODEL, tools: TOOLS_WITHOUT_WAITING, journal: restored, runId });
      expect(result.outcome?.type).toBe('completed');
      resumed++;
    }
    return { resumed };
  }

  test('is a state that the store had, in which every run resumes', { timeout: 180_000 }, async ({ annotate }) => {
    const live = inFolder('runs.db');
    const names = ['a', 'b'];
    await using writing = await writers(live, names);
    const backups = ['1.db', '2.db'];
    for (const name of backups) {
      const before = writing.ended.length;
      const { code, stderr } = await treadle(['store', 'backup', name, '--store', 'sqlite:runs.db'], { cwd: folder })
        .ended;
      expect([code, stderr]).toEqual([0, expect.stringMatching(/^Copied \d[\d,]* runs, .* to .*\d\.db\n$/)]);
      await annotate(`${stderr.trim()}; ${writing.ended.length - before} runs ended meanwhile`);
      expect(writing.ended.length).toBeGreaterThan(before);
    }
    await writing.kill();

    await inStore(live, async (store) => {
      for (const name of backups) {
        const restored = inFolder(`restored-${name}`);
        await restoreStore(restored, inFolder(name));
        expect((await checkStore(restored)).problems).toEqual([]);
        const { resumed } = await inStore(restored, (copy) => expectResumable(copy, store));
        expect(resumed).toBeGreaterThanOrEqual(names.length);
      }
    });

    const restore = treadle(['store', 'restore', '2.db', '--store', 'sqlite:runs.db'], { cwd: folder });
    expect(await restore.ended).toMatchObject({ code: 0 });
    const replaced = readdirSync(folder).find((name) => name.startsWith('runs.db.replaced-'))!;
    await inStore(inFolder(replaced), (old) => inStore(live, (store) => expectResumable(store, old)));
  });
});

describe('a process that is killed', () => {
  /** Two closed stores: `old.db` has the run `old`, and `new.db` has the run `new`, both with several megabytes. */
  beforeEach(async () => {
    for (const runId of ['old', 'new']) {
      await inStore(inFolder(`${runId}.db`), async (store) => {
        await runLoop({ model: MODEL, tools: TOOLS, journal: store, runId, input: `go ${runId}` });
        await store.blobs.put(runId, 'z'.repeat(5_000_000));
      });
    }
  });

  const runsOf = async (file: string): Promise<readonly string[]> => {
    expect((await checkStore(file)).problems).toEqual([]);
    return inStore(file, async (store) => (await store.list()).map(({ runId }) => runId));
  };

  /** Undefined if the process was killed, or else the number of its steps. */
  function perform(
    what: 'backup' | 'restore',
    [store, file]: readonly [string, string],
    steps: number,
  ): number | undefined {
    const args = ['--conditions=treadle-source', KILLED, what, inFolder(store), inFolder(file)];
    const { signal, stdout, stderr } = spawnSync(process.execPath, [...args, String(steps)], { encoding: 'utf8' });
    if (signal === 'SIGKILL') return undefined;
    expect(stderr).toBe('');
    return Number(stdout);
  }

  test('during a backup leaves no file under its name, at any step', { timeout: 180_000 }, async () => {
    let kills = 0;
    while (perform('backup', ['new.db', 'backup.db'], kills + 1) === undefined) {
      kills++;
      expect(existsSync(inFolder('backup.db'))).toBe(false);
    }
    expect(kills).toBeGreaterThanOrEqual(3);
    expect(await runsOf(inFolder('backup.db'))).toEqual(['new']);
  });

  test('during a restore leaves the old content or the new one, at any step', { timeout: 180_000 }, async () => {
    await backupStore(inFolder('new.db'), inFolder('backup.db'));
    const left: string[] = [];
    for (let steps = 1; ; steps++) {
      copyFileSync(inFolder('old.db'), inFolder('store.db'));
      const count = perform('restore', ['store.db', 'backup.db'], steps);
      const [run, ...others] = await runsOf(inFolder('store.db'));
      expect(others).toEqual([]);
      for (const name of readdirSync(folder).filter((file) => file.startsWith('store.db.'))) {
        if (!name.includes('.partial-')) expect(await runsOf(inFolder(name))).toEqual(['old']);
        rmSync(inFolder(name));
      }
      left.push(run!);
      if (count !== undefined) break;
    }
    // The last steps: the content is replaced, the process ends.
    expect(left.lastIndexOf('old')).toBe(left.length - 3);
    expect(left.length).toBeGreaterThanOrEqual(6);
  });
});
