import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { openStore } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { newStore, TEST_STORE, type NewStore } from '../store/kinds.ts';

/* The driver of a run is killed while its child run is in progress. The tool of the child writes a ledger of its own. */

const PROGRAM = fileURLToPath(new URL('./kill/family-program.ts', import.meta.url));
const CHILD = 'bill.t1.tool.0';
let folder: string;
let runs: NewStore;
const running = new Set<ChildProcess>();

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'treadle-family-'));
  runs = await newStore(TEST_STORE);
  // Killed when the child run has paid.
  expect(await drive(runs, 'wait')).toEqual(['paid']);
});

afterEach(async () => {
  for (const child of running) child.kill('SIGKILL');
  await rm(folder, { recursive: true });
  await runs[Symbol.asyncDispose]();
});

/** Starts or resumes the run in a process, until it exits or has printed "paid". Returns what it printed. */
async function drive({ url }: NewStore, mode: 'wait' | 'finish'): Promise<readonly string[]> {
  const args = ['--conditions=treadle-source', PROGRAM, url, join(folder, 'ledger'), mode];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  running.add(child);
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines.push(line);
    if (line === 'paid') child.kill('SIGKILL');
  });
  await once(child, 'close');
  running.delete(child);
  return lines;
}

const treadle = ({ url }: NewStore, ...args: readonly string[]): ReturnType<typeof command> =>
  command(['runs', ...args, '--store', url], folder);
const payments = async (): Promise<readonly string[]> =>
  (await readFile(join(folder, 'ledger'), 'utf8')).trimEnd().split('\n');

test('a run that is exported and imported resumes its child run, which does not pay again', async () => {
  await using other = await newStore(TEST_STORE);
  expect(await treadle(runs, 'export', 'bill', 'bill.jsonl')).toMatchObject({ code: 0 });
  expect(await treadle(other, 'import', 'bill.jsonl')).toMatchObject({ code: 0, stdout: 'bill\n' });
  expect(await drive(other, 'finish')).toEqual(['All is paid.']);
  expect(await payments()).toEqual([`${CHILD}/t1.tool.0`]);
});

test('a run whose child run was deleted is not resumed, and does not pay again', async () => {
  expect(await treadle(runs, 'delete', CHILD, '--yes')).toMatchObject({ stderr: 'Deleted 1 run.\n' });
  for (let attempt = 0; attempt < 2; attempt++) {
    expect(await drive(runs, 'finish')).toEqual(['unknown-run']);
  }
  expect(await payments()).toHaveLength(1);
  expect(await treadle(runs, 'cancel', 'bill')).toMatchObject({ code: 0, stderr: 'Cancelled bill.\n' });
});

test('a later run with the id of a deleted run has a child run of its own', async () => {
  expect(await treadle(runs, 'delete', 'bill', '--yes')).toMatchObject({ stderr: 'Deleted 2 runs.\n' });
  expect(await drive(runs, 'finish')).toEqual(['All is paid.']);
  expect(await payments()).toHaveLength(2);
  const store = await openStore(runs.url);
  expect(await store.list()).toMatchObject([{ runId: CHILD }, { runId: 'bill' }]);
  await store.close();
});
