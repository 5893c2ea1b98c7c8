import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runLoop } from '@treadle/core';
import { backupStore, checkStore } from '@treadle/store';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MODEL, TOOLS } from './backup/runs.ts';
import { inStore } from './backup/under-load.ts';

let folder: string;
const inFolder = (name: string): string => path.join(folder, name);
const KILLED = fileURLToPath(new URL('./backup/killed-program.ts', import.meta.url));

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-backup-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
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
