import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runLoop } from '@treadle/core';
import { checkStore, restoreStore, sqliteStore, type SqliteStore } from '@treadle/store';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { stopLeftovers, treadle } from '../../command/treadle-process.ts';
import { MODEL, TOOLS_WITHOUT_WAITING } from './runs.ts';

const WRITER = fileURLToPath(new URL('./writer-program.ts', import.meta.url));

/** Opens a store, and closes it after use. */
export async function inStore<T>(file: string, use: (store: SqliteStore) => Promise<T>): Promise<T> {
  const store = sqliteStore(file);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

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

/** Makes backups while at most four processes write. */
export function testBackupsUnderLoad(numbers: { readonly writers: number; readonly backups: number }): void {
  describe('a backup under load', () => {
    let folder: string;
    const inFolder = (name: string): string => path.join(folder, name);

    beforeEach(() => {
      folder = mkdtempSync(path.join(tmpdir(), 'treadle-backup-'));
    });
    afterEach(() => {
      stopLeftovers();
      rmSync(folder, { recursive: true });
    });

    test('is a state that the store had, in which every run resumes', { timeout: 180_000 }, async ({ annotate }) => {
      const live = inFolder('runs.db');
      const names = ['a', 'b', 'c', 'd'].slice(0, numbers.writers);
      await using writing = await writers(live, names);
      const backups = Array.from({ length: numbers.backups }, (_, index) => `${index + 1}.db`);
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

      const restore = treadle(['store', 'restore', backups.at(-1)!, '--store', 'sqlite:runs.db'], { cwd: folder });
      expect(await restore.ended).toMatchObject({ code: 0 });
      const replaced = readdirSync(folder).find((name) => name.startsWith('runs.db.replaced-'))!;
      await inStore(inFolder(replaced), (old) => inStore(live, (store) => expectResumable(store, old)));
    });
  });
}
