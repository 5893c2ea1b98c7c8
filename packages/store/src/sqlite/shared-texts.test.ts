import type { DatabaseSync } from 'node:sqlite';
import { memoryJournal, runLoop, userText } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { entry, startedWith } from '../../test/entries.ts';
import { response } from '../../test/responses.ts';
import { tempStore } from '../../test/temp-store.ts';
import { checkStore } from './check.ts';
import { MIN_CHARS } from '../records/long-strings.ts';

/** No two are equal, and none is part of another one. */
const long = (name: string): string => `${name}, `.repeat(MIN_CHARS);

function countOf(db: DatabaseSync, table: string): number {
  return Number(db.prepare(`SELECT count(*) AS n FROM ${table}`).get()!['n']);
}

test('a text in an event, a request, a response and the input of the next run is stored once', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const [asked, said] = [long('asked'), long('said')];
  const record = response('r', { request: { input: [{ role: 'user', text: asked }] } });
  await store.requests.create(record);
  await store.append('r', [startedWith([userText(asked)]), entry(1, said)]);
  await store.requests.finish('r', { status: 'completed', response: { output: said }, at: 2_000 });
  const next = startedWith([userText(asked), userText(said), userText(long('more'))]);
  await store.append('next', [next]);
  const db = temp.raw();
  expect(countOf(db, 'texts')).toBe(3);
  expect(await store.read('r')).toEqual([startedWith([userText(asked)]), entry(1, said)]);
  expect(await store.read('next')).toEqual([next]);
  expect(await store.requests.get('acme', 'r')).toEqual({
    ...record,
    status: 'completed',
    updatedAt: 2_000,
    response: { output: said },
  });
  await store.requests.delete('acme', 'r');
  expect(await store.read('next')).toEqual([next]);
  await store.delete('next');
  for (const table of ['texts', 'text_uses', 'messages']) expect(countOf(db, table)).toBe(0);
});

test('sizes count a text as often as it is in the JSON, and the events of a stream', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const said = long('said');
  const bytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
  const request = { input: [{ text: [said, said] }, { text: 'short' }] };
  const record = response('r', { request });
  await store.requests.create(record, undefined, request.input);
  await store.requests.finish('r', { status: 'completed', response: [said, said, 'é'], at: 2_000 });
  const isSize = (size: number, expected: number): boolean => Math.abs(size - expected) < 300;
  expect(isSize(await store.requests.sizeOf('acme', 'r'), bytes(request) + bytes([said, said, 'é']))).toBe(true);
  expect(await store.requests.sizeOf('bolt', 'r')).toBe(0);
  const many = Array.from({ length: 1_200 }, (_, index) => entry(index + 1, index % 100 === 0 ? said : 'é'));
  const entries = [startedWith([userText(said), userText(said)]), ...many];
  await store.append('r', entries);
  const size = entries.reduce((sum, one) => sum + bytes(one), 0);
  expect(isSize(await store.sizeOf('r'), size)).toBe(true);
  const page = await store.readPage('r', 0);
  expect(
    isSize(
      await store.pageSize('r', 0),
      page.reduce((sum, one) => sum + bytes(one), 0),
    ),
  ).toBe(true);
  expect([await store.pageSize('r', entries.length), await store.sizeOf('none')]).toEqual([0, 0]);
  expect(await store.requests.headOfRun('r')).toEqual({
    id: 'r',
    kind: 'response',
    tenant: 'acme',
    runId: 'r',
    status: 'completed',
    updatedAt: 2_000,
  });
  await store.streams.append('s', 1, [{ said }, { said }]);
  expect(await store.streams.pageSize('s', 0)).toBe(bytes([{ said }, { said }]));
  expect(await store.streams.pageSize('s', 2)).toBe(0);
});

test('the items that requests have in common are stored once, also if they are short', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const items = Array.from({ length: 100 }, (_, n) => ({ role: 'user', text: `short ${n} `.repeat(10) }));
  const records = [50, 100].map((count) => response(`r${count}`, { request: { input: items.slice(0, count), x: [] } }));
  for (const record of records) {
    await store.requests.create(record, undefined, (record.request as { input: object[] }).input);
  }
  const db = temp.raw();
  expect(countOf(db, 'messages')).toBe(100);
  for (const record of records) expect(await store.requests.get('acme', record.id)).toEqual(record);
  await store.requests.delete('acme', 'r100');
  expect(countOf(db, 'messages')).toBe(50);
  expect(await store.requests.get('acme', 'r50')).toEqual(records[0]);
  await store.requests.finish('r50', { status: 'completed', response: null, at: 2_000 });
  expect(await store.requests.prune(Infinity)).toBe(1);
  expect(countOf(db, 'messages')).toBe(0);
});

test('a response that is rejected stores no texts', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.requests.create(response('r'));
  const again = response('r', { request: { input: long('again') } });
  await expect(store.requests.create(again)).rejects.toMatchObject({ code: 'run-exists' });
  expect(await store.requests.finish('other', { status: 'failed', response: long('said'), at: 0 })).toBe(false);
  expect(countOf(temp.raw(), 'texts')).toBe(0);
});

test('a short string stays where it is', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0, 'x'.repeat(MIN_CHARS - 1)), entry(1, 'x'.repeat(MIN_CHARS))]);
  expect(countOf(temp.raw(), 'texts')).toBe(1);
});

test('a store returns the same entries as a journal in memory, with any characters in their strings', async () => {
  const pad = fc.constantFrom('', 'x'.repeat(MIN_CHARS), '\\'.repeat(MIN_CHARS), '"'.repeat(MIN_CHARS));
  const special = fc.constantFrom(
    '"',
    '\\',
    '\\"',
    '\u0001',
    '\u00011\u0001',
    '\ud800',
    '\u2028',
    '😀',
    '\0',
    '{"a":"',
  );
  const text = fc
    .tuple(fc.array(fc.oneof(special, fc.string())), pad, fc.array(special))
    .map((parts) => parts.flat().join(''));
  await fc.assert(
    fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 5 }), async (texts) => {
      await using temp = tempStore();
      const stores = [temp.open(), memoryJournal()];
      const added = texts.map((one, seq) => entry(seq, one));
      for (const store of stores) await store.append('a', added);
      const [onDisk, inMemory] = await Promise.all(stores.map((store) => store.read('a')));
      expect(JSON.stringify(onDisk)).toBe(JSON.stringify(inMemory));
      await stores[0]!.delete('a');
      expect(countOf(temp.raw(), 'texts')).toBe(0);
    }),
    { numRuns: 30 },
  );
});

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

test('checkStore reports a use that is not recorded', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await runLoop({ model: scriptedModel([long('event')]), input: long('input'), journal: store, runId: 'a' });
  await store.requests.create(response('r', { request: long('request'), response: long('answer') }));
  expect((await checkStore(temp.file)).problems).toEqual([]);
  temp.raw().exec('DELETE FROM text_uses');
  const { problems } = await checkStore(temp.file);
  expect(problems).toHaveLength(4);
  expect(problems[0]).toEqual({ part: 'file', message: expect.stringContaining('A use of text') });
});
