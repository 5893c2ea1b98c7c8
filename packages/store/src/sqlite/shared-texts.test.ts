import type { DatabaseSync } from 'node:sqlite';
import { describe, expect, test } from 'vitest';
import { entry } from '../../test/entries.ts';
import { response } from '../../test/responses.ts';
import { tempStore } from '../../test/temp-store.ts';
import { checkStore } from './check.ts';
import { MIN_CHARS } from '../records/long-strings.ts';

// What holds on every store is in `test/store/contract/texts.ts`. Here: damage in the tables of SQLite, and what earlier versions wrote.

/** No two are equal, and none is part of another one. */
const long = (name: string): string => `${name}, `.repeat(MIN_CHARS);

function countOf(db: DatabaseSync, table: string): number {
  return Number(db.prepare(`SELECT count(*) AS n FROM ${table}`).get()!['n']);
}

test('entries and responses that contain their texts, as earlier versions stored them, are read as they are', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const [added, record] = [
    entry(0, long('event')),
    response('r', { request: [long('asked')], response: long('said') }),
  ];
  await store.append('a', [added]);
  await store.requests.create(record);
  const db = temp.raw();
  db.exec('DELETE FROM texts; DELETE FROM text_uses');
  await expect(store.read('a')).rejects.toThrow('Entry 0 of run "a" is damaged');
  db.prepare('UPDATE entries SET entry = ?').run(JSON.stringify(added));
  db.prepare('UPDATE requests SET request = ?, answer = ?').run(
    JSON.stringify(record.request),
    JSON.stringify(record.response),
  );
  expect(await store.read('a')).toEqual([added]);
  expect(await store.requests.get('acme', 'r')).toEqual(record);
  await store.append('a', [entry(1, long('event'))]);
  expect(await store.read('a', 1)).toEqual([entry(1, long('event'))]);
  expect(await store.delete('a')).toBe(true);
  expect(countOf(db, 'texts')).toBe(0);
});

describe('a text that is', () => {
  test.each([
    ['changed', "UPDATE texts SET text = replace(text, 'shared', 'Shared') WHERE id = 1"],
    ['missing', 'DELETE FROM texts WHERE id = 1'],
  ])('%s damages exactly what contains it, and can be stored again', async (_, damage) => {
    await using temp = tempStore();
    const store = temp.open();
    const shared = long('shared');
    await store.append('a', [entry(0), entry(1, shared)]);
    await store.append('b', [entry(0), entry(1, long('own'))]);
    await store.requests.create(response('r', { request: shared }));
    await store.requests.create(response('s', { request: long('own') }));
    temp.raw().exec(damage);
    await expect(store.read('a')).rejects.toThrow('Entry 1 of run "a" is damaged');
    await expect(store.requests.get('acme', 'r')).rejects.toThrow('Response "r" is damaged');
    expect(await store.read('b')).toHaveLength(2);
    expect(await store.requests.get('acme', 's')).toMatchObject({ request: long('own') });
    // These entries are no real run.
    const problems = (await checkStore(temp.file)).problems.filter(({ part }) => part !== 'replay');
    expect(problems).toMatchObject([
      { part: 'entries', runId: 'a' },
      { part: 'response', response: 'r' },
    ]);
    await store.append('c', [entry(0, shared)]);
    expect(await store.read('c')).toEqual([entry(0, shared)]);
    for (const runId of ['a', 'b', 'c']) expect(await store.delete(runId)).toBe(true);
  });
});
