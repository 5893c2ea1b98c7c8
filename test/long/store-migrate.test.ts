import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';
import { fillStore, readFullStore } from '../store/full-store.ts';
import { testDatabase } from '../store/shared-postgres.ts';
import { withClient } from '../store/postgres-server.ts';
import { openStore } from '@treadle/store';

const main = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));

/** Resolves to true if the command has ended before it was killed. */
async function migrate(from: string, to: string, killAfterMs: number): Promise<boolean> {
  const flags = ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning'];
  const child = spawn(process.execPath, [...flags, main, 'store', 'migrate', from, to], {
    env: { ...process.env, ...PROCESS_ENV },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let problem = '';
  child.stderr.on('data', (text: Buffer) => (problem += String(text)));
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const killed = new AbortController();
  void setTimeout(killAfterMs, undefined, { signal: killed.signal }).then(
    () => child.kill('SIGKILL'),
    () => {},
  );
  const [code] = await exited;
  killed.abort();
  // A connection of the process that was killed is closed a moment later.
  if (code === 1 && problem.includes('in use')) return migrate(from, to, killAfterMs);
  // It was killed after the last step.
  if (code === 1 && problem.includes('is not empty')) return true;
  if (code !== null) expect([code, problem]).toEqual([0, expect.stringContaining('Copied and compared')]);
  return code === 0;
}

test('a migration that is killed again and again ends with the same store', { timeout: 600_000 }, async () => {
  await using database = await testDatabase();
  await withClient(database.url, (client) => client.query('DROP SCHEMA treadle CASCADE'));
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-migrate-'));
  const [a, b] = ['a.db', 'b.db'].map((name) => `sqlite:${path.join(folder, name)}`) as [string, string];
  try {
    const store = await openStore(a);
    for (let time = 0; time < 4; time++) await fillStore(store, time === 0 ? '' : ` ${time}`);
    const expected = await readFullStore(store);
    await store.close();
    let kills = 0;
    for (const [from, to] of [
      [a, database.url],
      [database.url, b],
    ] as const) {
      let killAfterMs = 600;
      while (!(await migrate(from, to, killAfterMs))) {
        kills += 1;
        killAfterMs = Math.ceil(1.15 * killAfterMs);
      }
      const copy = await openStore(to);
      expect(await readFullStore(copy)).toEqual(expected);
      await copy.close();
    }
    expect(kills).toBeGreaterThan(5);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
