import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runLoop, type RunStore } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { killProcess, sqliteStore } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';
import { work } from './kill/holding-program.ts';

const PROGRAM = fileURLToPath(new URL('kill/holding-program.ts', import.meta.url));
let folder: string;
const pids: number[] = [];

beforeEach(() => void (folder = mkdtempSync(path.join(tmpdir(), 'treadle-processes-'))));
afterEach(() => {
  for (const pid of pids.splice(0)) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** A zombie has ended. */
function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  if (!existsSync(stat)) return false;
  const text = readFileSync(stat, 'utf8');
  return text[text.lastIndexOf(')') + 2] !== 'Z';
}

/** Starts a process that drives the run, and kills it when its tool has started another process. Returns that one's pid. */
async function killDriver(): Promise<number> {
  const driver = spawn(process.execPath, ['--conditions=treadle-source', PROGRAM, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: PROCESS_ENV,
  });
  pids.push(driver.pid!);
  const [printed] = await once(driver.stdout!, 'data');
  const pid = Number.parseInt(String(printed), 10);
  pids.push(pid);
  driver.kill('SIGKILL');
  await once(driver, 'exit');
  return pid;
}

/** The store, and the entries that were appended with whether a process was alive then. */
function watchedStore(pid: number): { readonly store: RunStore; readonly appended: [type: string, alive: boolean][] } {
  const appended: [string, boolean][] = [];
  const store = sqliteStore(path.join(folder, 'runs.db'));
  const append: RunStore['append'] = (runId, entries, ...rest) => {
    for (const { event } of entries) appended.push([event.type, isAlive(pid)]);
    return store.append(runId, entries, ...rest);
  };
  return { store: { ...store, append }, appended };
}

const ON_LINUX = process.platform === 'linux';

test.runIf(ON_LINUX)('a process that survived a killed driver is dead before its call is "interrupted"', async () => {
  const pid = await killDriver();
  expect(isAlive(pid)).toBe(true);
  const { store, appended } = watchedStore(pid);
  const model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [work], journal: store, runId: 'run', killProcess });
  await store.close();
  expect(result).toMatchObject({ outcome: { type: 'completed' } });
  expect(JSON.stringify(result.messages)).toContain('was interrupted');
  expect(isAlive(pid)).toBe(false);
  expect(appended).toEqual([
    ['resource-closed', false],
    ['effect-lost', false],
    ['model-replied', false],
  ]);
});

test.runIf(ON_LINUX)('without killProcess it is left alone, and is not recorded as closed', async () => {
  const pid = await killDriver();
  const { store, appended } = watchedStore(pid);
  await runLoop({ model: scriptedModel(['Done.']), tools: [work], journal: store, runId: 'run' });
  await store.close();
  expect(appended.map(([type]) => type)).toEqual(['effect-lost', 'model-replied']);
  expect(isAlive(pid)).toBe(true);
});
