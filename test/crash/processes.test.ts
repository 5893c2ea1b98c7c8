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
import { PID_FILES, shellTools } from './kill/shell-program.ts';
import { commandTools } from './kill/started-program.ts';

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

/** Starts a process that drives the run, and kills it when its tool has started another process. Returns what it printed. */
async function killDriverOf(program: string, ...args: readonly string[]): Promise<string> {
  const file = fileURLToPath(new URL(program, import.meta.url));
  const driver = spawn(process.execPath, ['--conditions=treadle-source', file, folder, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: PROCESS_ENV,
  });
  pids.push(driver.pid!);
  const exited = once(driver, 'exit');
  const [printed] = await once(driver.stdout!, 'data');
  driver.kill('SIGKILL');
  await exited;
  return String(printed);
}

/** Returns the pid of the process that survives. */
async function killDriver(): Promise<number> {
  const pid = Number.parseInt(await killDriverOf('kill/holding-program.ts'), 10);
  pids.push(pid);
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

test.runIf(ON_LINUX)('a command, a session and work in the background do not survive a resume', async () => {
  await killDriverOf('kill/shell-program.ts');
  const left = PID_FILES.map((file) => Number(readFileSync(path.join(folder, file), 'utf8')));
  pids.push(...left);
  expect(left.map(isAlive)).toEqual(left.map(() => true));
  const store = sqliteStore(path.join(folder, 'runs.db'));
  const read = { calls: [{ name: 'background_read', arguments: { handle: 'bash-t1.0' } }] };
  const result = await runLoop({
    model: scriptedModel([read, 'Done.']),
    tools: shellTools(folder),
    journal: store,
    runId: 'run',
    killProcess,
  });
  await store.close();
  expect(left.map(isAlive)).toEqual(left.map(() => false));
  const messages = JSON.stringify(result.messages);
  expect(messages).toContain('was interrupted');
  expect(messages).toContain('There is no job \\"bash-t1.0\\" in the background.');
});

/** The shell of a session ends by itself when nobody is there to write to it. */
test.runIf(ON_LINUX).each([
  ['command', '{"command":"sleep 1000"}', true],
  ['session', '{"command":"sleep 1000","session":"dev"}', false],
])('a %s that started just before its driver was killed does not survive a resume', async (_, call, isLeft) => {
  const pid = Number.parseInt(await killDriverOf('kill/started-program.ts', call), 10);
  pids.push(pid);
  if (isLeft) expect(isAlive(pid)).toBe(true);
  const { store, appended } = watchedStore(pid);
  const opened = (await store.read('run')).flatMap(({ event }) =>
    event.type === 'resource-opened' ? event.process : [],
  );
  expect(opened).toEqual([{ host: expect.any(String), mark: expect.any(String) }]);
  const tools = commandTools(folder);
  await runLoop({ model: scriptedModel(['Done.']), tools, journal: store, runId: 'run', killProcess });
  await store.close();
  expect(isAlive(pid)).toBe(false);
  expect(appended[0]).toEqual(['resource-closed', false]);
});
