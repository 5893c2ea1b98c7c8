import { readFileSync } from 'node:fs';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test, vi } from 'vitest';
import { place, type Place } from '../../test/place.ts';
import { remote } from '../../test/remote.ts';
import { response } from '../../test/responses.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

function makeVersion1({ raw }: Place): void {
  const db = raw();
  db.exec(readFileSync(new URL('../../test/version-1.sql', import.meta.url), 'utf8'));
  db.close();
}

test('a store of version 1 is brought up to date, with all that is in it', async () => {
  await using at = place();
  makeVersion1(at);
  const store = at.open();
  expect(await store.list()).toEqual([
    {
      runId: 'a',
      status: 'completed',
      startedAt: 1_000,
      updatedAt: 1_001,
      entries: 2,
      model: 'scripted',
      title: 'How many?',
    },
  ]);
  expect((await store.read('a')).map(({ event }) => event.type)).toEqual(['run-started', 'model-replied']);
  expect(await store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1 } });
  const [blob] = await store.blobs.list('a');
  expect(await store.blobs.read('a', blob!, 0, 99)).toEqual({ text: 'a long text', length: 11 });
  const gone = await runLoop({ model: scriptedModel([]), journal: store, runId: 'a' });
  expect(gone.text).toBe('Four.');

  await store.responses.create(response('resp'));
  await store.close();
  const again = at.open();
  expect(await again.responses.get('acme', 'resp')).toEqual(response('resp'));
  expect(await again.prune(Infinity)).toBe(1);
});

test('it has the same tables as a new one', async () => {
  await using old = place();
  await using fresh = place();
  makeVersion1(old);
  const [was, is] = [old, fresh].map((at) => {
    at.open();
    const db = at.raw();
    const tables = db.prepare(`SELECT type, name, sql FROM sqlite_schema ORDER BY name`).all();
    return { tables, version: db.prepare('PRAGMA user_version').get() };
  });
  expect(was).toEqual(is);
});

test('processes that bring a store up to date at the same time all get it', async () => {
  await using at = place();
  makeVersion1(at);
  await using processes = new AsyncDisposableStack();
  const remotes = await Promise.all(Array.from({ length: 4 }, async () => processes.use(await remote(at.file))));
  await Promise.all(remotes.map((one, index) => one.responses.create(response(`resp ${index}`))));
  expect(await at.open().responses.unfinished()).toHaveLength(4);
});

test('what cannot be brought up to date is left as it is', async () => {
  await using at = place();
  makeVersion1(at);
  const db = at.raw();
  db.exec('CREATE TABLE responses_ended (x)');
  expect(() => at.open()).toThrow(expect.objectContaining({ name: 'TreadleError', code: 'store-failed' }));
  expect(db.prepare('PRAGMA user_version').get()).toEqual({ user_version: 1 });
  expect(db.prepare(`SELECT name FROM sqlite_schema WHERE name = 'responses'`).all()).toEqual([]);
  db.exec('DROP TABLE responses_ended');
  expect(await at.open().list()).toHaveLength(1);
});
