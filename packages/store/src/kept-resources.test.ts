import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { KeptResource } from '@treadle/core';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { tempStore } from '../test/temp-store.ts';
import { thisProcess } from './holder.ts';
import { resourceKeeper } from './kept-resources.ts';
import { heldProcess } from './processes.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

const MINUTE = 60_000;

/** Resources that log when they are closed. */
function resources() {
  const log: string[] = [];
  const busy = new Set<string>();
  const make = (name: string, more: Partial<KeptResource> = {}): KeptResource => ({
    name,
    value: name,
    close: (value) => void log.push(`close ${String(value)}`),
    isBusy: (value) => busy.has(String(value)),
    ...more,
  });
  return { log, busy, make };
}

test('gives what a run has left to the first run that continues it', async () => {
  const { make, log } = resources();
  const keeper = resourceKeeper();
  await keeper.after(undefined).keep('a', [make('shell')]);
  expect(keeper.after('other').take()).toEqual([]);
  expect(keeper.after(undefined).take()).toEqual([]);
  const next = keeper.after('a');
  expect(next.take().map(({ name }) => name)).toEqual(['shell']);
  expect(keeper.after('a').take()).toEqual([]);
  await vi.advanceTimersByTimeAsync(120 * MINUTE);
  expect(log).toEqual([]);
});

test('gives what a run has left that paused back to it, and to no other run', async () => {
  const { make, log } = resources();
  const keeper = resourceKeeper();
  await keeper.after(undefined).keep('a', [make('x'), make('y')], true);
  expect(keeper.after('a').take()).toEqual([]);
  const again = keeper.after(undefined);
  expect(again.takeBack!('b', () => true)).toEqual([]);
  expect(again.takeBack!('a', ({ name }) => name === 'x').map(({ name }) => name)).toEqual(['x']);
  expect(again.takeBack!('a', () => true)).toEqual([]);
  await again.keep('a', [make('x')]);
  // It has ended now.
  expect(again.takeBack!('a', () => true)).toEqual([]);
  expect(
    keeper
      .after('a')
      .take()
      .map(({ name }) => name),
  ).toEqual(['x']);
  await keeper.close();
  expect(log).toEqual(['close y']);
});

test('closes what nobody takes: when it is idle, and what is busy when it is not any more, or after an hour', async () => {
  const { make, log, busy } = resources();
  const keeper = resourceKeeper();
  for (const name of ['job', 'endless']) busy.add(name);
  await keeper.after(undefined).keep('a', [make('shell'), make('job'), make('endless')]);
  await vi.advanceTimersByTimeAsync(5 * MINUTE);
  expect(log).toEqual(['close shell']);
  busy.delete('job');
  await vi.advanceTimersByTimeAsync(5 * MINUTE);
  expect(log).toEqual(['close shell', 'close job']);
  await vi.advanceTimersByTimeAsync(49 * MINUTE);
  expect(log).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(6 * MINUTE);
  expect(log.at(-1)).toBe('close endless');
  expect(keeper.after('a').take()).toEqual([]);
});

test('closes the oldest if there is too much, what is dropped, and everything at the end', async () => {
  const { make, log } = resources();
  const problems: string[] = [];
  const keeper = resourceKeeper({ most: 2, onProblem: (run, problem) => problems.push(`${run}: ${problem}`) });
  for (const name of ['a', 'b', 'c']) await keeper.after(undefined).keep(name, [make(name)]);
  expect(log).toEqual(['close a']);
  await keeper.drop('b');
  await keeper.drop('unknown');
  const broken = make('d', { close: () => Promise.reject(new Error('no')) });
  await keeper.after(undefined).keep('d', [broken]);
  await keeper.close();
  await keeper.after(undefined).keep('e', [make('e')]);
  expect(log).toEqual(['close a', 'close b', 'close c', 'close e']);
  expect(problems).toEqual(['d: no']);
});

test('a run that is resumed and ends again leaves only what it has then', async () => {
  const { make, log } = resources();
  const keeper = resourceKeeper();
  await keeper.after(undefined).keep('a', [make('first')]);
  await keeper.after(undefined).keep('a', [make('second')]);
  expect(log).toEqual(['close first']);
  expect(keeper.after('a').take()).toHaveLength(1);
});

test('processes are recorded until they are closed or the next run has ended, and killed if their keeper has died', async () => {
  await using temp = tempStore();
  const { make } = resources();
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
  const exited = once(child, 'exit');
  const process = heldProcess(child.pid);
  const dead = temp.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1, startedAt: 'then' } });
  const store = temp.open();
  const rows = () =>
    temp
      .raw()
      .prepare('SELECT run FROM kept_processes')
      .all()
      .map(({ run }) => run);

  const keeper = resourceKeeper({ store: store.keptProcesses });
  await keeper.after(undefined).keep('a', [make('shell', { process }), make('jobs')]);
  expect(rows()).toEqual(['a']);
  const next = keeper.after('a');
  const taken = next.take();
  expect(rows()).toEqual(['a']);
  await next.keep('b', taken);
  expect(rows()).toEqual(['b']);
  expect(await keeper.killAbandoned()).toBe(0);
  await keeper.drop('b');
  expect(rows()).toEqual([]);

  const died = resourceKeeper({ store: dead.keptProcesses });
  await died.after(undefined).keep('c', [make('shell', { process })]);
  expect(await keeper.killAbandoned('other')).toBe(0);
  expect(await keeper.killAbandoned('c')).toBe(1);
  expect(await exited).toEqual([null, 'SIGKILL']);
  expect(rows()).toEqual([]);
});

test('processes that cannot be killed are reported', async () => {
  await using temp = tempStore();
  const { make } = resources();
  const problems: string[] = [];
  const dead = temp.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1, startedAt: 'then' } });
  const died = resourceKeeper({ store: dead.keptProcesses });
  await died.after(undefined).keep('a', [make('shell', { process: { pid: 1, host: 'another host' } })]);
  const keeper = resourceKeeper({
    store: temp.open().keptProcesses,
    onProblem: (runId, problem) => problems.push(`${runId}: ${problem}`),
  });
  expect(await keeper.killAbandoned()).toBe(1);
  expect(problems).toEqual(['a: it is not known whether all processes that it left have ended']);
});
