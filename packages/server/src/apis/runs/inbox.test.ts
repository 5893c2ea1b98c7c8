import type { Clock } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { badRequest } from '../../api-error.ts';
import type { DrivenRun } from '../../requests/run.ts';
import { newLog } from '../../http/log.ts';
import { askDriver, serveInbox, type PerformAct, type RunAct } from './inbox.ts';

const sent = { act: { type: 'cancel' }, actor: { tenant: 't', key: 'k' } } as const;
const log = newLog({ level: 'silent' });

async function storeWithDriven(runId: string, clock?: Clock) {
  const store = sqliteStore(':memory:', { ...(clock && { clock }) });
  const lease = await store.acquire(runId);
  const serve = (perform: PerformAct) =>
    serveInbox({ store, driven: new Map([[runId, {} as DrivenRun]]), log }, perform);
  return { store, lease, serve, [Symbol.asyncDispose]: () => store.close() };
}

test('an act is performed by the process that drives the run, and its error is that of the caller', async () => {
  await using one = await storeWithDriven('run');
  const acts: unknown[] = [];
  let stop = one.serve(async (...act) => void acts.push(act));
  expect(await askDriver(one.store, 'run', sent)).toBe('done');
  expect(acts).toEqual([['run', sent.act, sent.actor]]);
  stop();
  stop = one.serve(async () => {
    throw badRequest('Not so.', 'input', 'invalid_value');
  });
  const failure = { name: 'ApiError', status: 400, message: 'Not so.', param: 'input', code: 'invalid_value' };
  await expect(askDriver(one.store, 'run', sent)).rejects.toMatchObject(failure);
  stop();
  stop = one.serve(async () => {
    throw new Error('secret');
  });
  await expect(askDriver(one.store, 'run', sent)).rejects.toMatchObject({
    status: 500,
    message: expect.not.stringContaining('secret'),
  });
  stop();
  expect(await one.store.inbox.open()).toEqual([]);
});

test('an act that nobody takes is withdrawn', async () => {
  await using one = await storeWithDriven('run');
  expect(await askDriver(one.store, 'run', sent, { takeMs: 10 })).toBe('refused');
  const moved = askDriver(one.store, 'run', sent, { takeMs: 1_000_000 });
  await one.lease.release();
  expect(await moved).toBe('moved');
  expect(await one.store.inbox.open()).toEqual([]);
});

test('an act of a process that has died is not performed half an hour later', async () => {
  const clock = manualClock(1_000_000);
  await using one = await storeWithDriven('run', clock);
  await one.store.inbox.add('run', sent);
  await clock.advance(1_800_000);
  const acts: RunAct[] = [];
  const stop = one.serve(async (_, act) => void acts.push(act));
  const newer = { act: { type: 'send', text: 'just now' }, actor: sent.actor } as const;
  expect(await askDriver(one.store, 'run', newer)).toBe('done');
  expect(acts).toEqual([newer.act]);
  stop();
});

test('who waits too long for the reply gets a 503', async () => {
  await using one = await storeWithDriven('run');
  const stop = one.serve(() => new Promise(() => {}));
  const asked = askDriver(one.store, 'run', sent, { takeMs: 10, doneMs: 50 });
  await expect(asked).rejects.toMatchObject({ status: 503, code: 'run_driver_silent' });
  stop();
});

test('an act for a run that is about to be resumed here is performed then', async () => {
  await using one = await storeWithDriven('other');
  await one.store.acquire('run');
  const driven = new Map<string, DrivenRun>();
  const stop = serveInbox({ store: one.store, driven, log }, async () => {});
  const asked = askDriver(one.store, 'run', sent);
  while ((await one.store.inbox.open()).length === 0) await new Promise(setImmediate);
  driven.set('run', {} as DrivenRun);
  expect(await asked).toBe('done');
  stop();
});
