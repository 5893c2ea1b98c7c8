import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { replay } from '@treadle/core';
import { openStore } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';
import { newStore, TEST_STORE, type NewStore } from '../store/kinds.ts';

const PROGRAM = fileURLToPath(new URL('kill/crash-loop-program.ts', import.meta.url));
let folder: string;
let created: NewStore;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-crash-loop-'));
  created = await newStore(TEST_STORE);
});
afterEach(async () => {
  rmSync(folder, { recursive: true, force: true });
  await created[Symbol.asyncDispose]();
});

/** Starts a process that drives the run, and waits for its end. Undefined if it was killed. */
function drive(how: 'die' | 'die-at-once' | 'detach'): { readonly type: string } | undefined {
  const flags = ['--conditions=treadle-source', PROGRAM, created.url, path.join(folder, 'attempts'), how];
  const { signal, status, stdout, stderr } = spawnSync(process.execPath, flags, { env: PROCESS_ENV, encoding: 'utf8' });
  if (signal === 'SIGKILL') return undefined;
  if (status !== 0) throw new Error(`The process ended with ${status ?? signal}:\n${stderr}`);
  return JSON.parse(stdout);
}

function attempts(): readonly string[] {
  return readFileSync(path.join(folder, 'attempts'), 'utf8').trimEnd().split('\n');
}

test('a tool that kills its process five times in a row is not called again', async () => {
  for (let attempt = 1; attempt <= 5; attempt++) expect(drive('die')).toBeUndefined();
  const crashLoop = { type: 'failed', error: { code: 'crash-loop', message: expect.stringContaining('5 times') } };
  expect(drive('die')).toEqual(crashLoop);
  expect(attempts()).toHaveLength(5);
  expect(drive('die')).toEqual(crashLoop);
  expect(attempts()).toHaveLength(5);

  const store = await openStore(created.url);
  const entries = await store.read('run');
  await store.close();
  expect(entries.map(({ event }) => event.type)).toEqual([
    'run-started',
    'model-replied',
    ...Array.from({ length: 5 }, () => 'effect-lost'),
  ]);
  expect(replay(entries)).toMatchObject({ type: 'replayed', state: { phase: { outcome: crashLoop } } });
});

test('only the first death is not counted, if the call was not written yet', () => {
  for (let attempt = 1; attempt <= 2; attempt++) expect(drive('die-at-once')).toBeUndefined();
  // Whether the first process has written the call depends on its speed.
  const end = drive('die-at-once') ?? drive('die-at-once');
  expect(end).toMatchObject({ type: 'failed', error: { code: 'crash-loop' } });
  expect([2, 3]).toContain(attempts().length);
});

test('a process that detaches cleanly does not count, and ends the row', () => {
  for (let attempt = 1; attempt <= 4; attempt++) expect(drive('die')).toBeUndefined();
  for (let restart = 1; restart <= 2; restart++) expect(drive('detach')).toEqual({ type: 'detached' });
  for (let restart = 1; restart <= 2; restart++) expect(drive('die')).toBeUndefined();
  expect(attempts()).toHaveLength(8);
});
