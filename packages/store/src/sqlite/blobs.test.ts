import { StatementSync } from 'node:sqlite';
import { forkRun, runLoop, tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';

// What holds on every store is in `test/store/contract/texts.ts` and `test/journal/contract`. Here: damage in the tables of SQLite, and
// which rows are loaded.

test('reading a page of a long text loads only the parts that it touches', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const text = '0123456789'.repeat(1_000_000);
  const id = await store.blobs.put('a', text);
  const all = vi.spyOn(StatementSync.prototype, 'all');
  expect(await store.blobs.read('a', id, 5_000_000, 5_004_000)).toEqual({
    text: text.slice(5_000_000, 5_004_000),
    length: 10_000_000,
  });
  const loaded = all.mock.results.flatMap(({ value }) => value as { content: string }[]);
  all.mockRestore();
  expect(loaded.length).toBeLessThanOrEqual(2);
});

/** 100,000 units: three parts of 32,768 and a short one. */
const LONG = Array.from({ length: 10_000 }, (_, i) => String(i).padStart(10, '.')).join('');

test.each([
  ['the first part is missing', 'DELETE FROM blob_parts WHERE part = 0', 'part 0 is missing'],
  ['a part in the middle is missing', 'DELETE FROM blob_parts WHERE part = 1', 'part 1 is missing'],
  ['the last part is missing', 'DELETE FROM blob_parts WHERE part = 3', 'part 3 is missing'],
  ['all parts are missing', 'DELETE FROM blob_parts', 'part 0 is missing'],
  ['a part is shorter', 'UPDATE blob_parts SET content = substr(content, 1, 9) WHERE part = 1', 'part 1 is damaged'],
  ['a part is longer', `UPDATE blob_parts SET content = content || '.' WHERE part = 3`, 'part 3 is damaged'],
  [
    'a part is changed',
    `UPDATE blob_parts SET content = replace(content, '5', '6') WHERE part = 1`,
    'part 1 is damaged',
  ],
  [
    'a part is changed, and its sum is missing',
    `UPDATE blob_parts SET content = replace(content, '5', '6'), sum = NULL WHERE part = 1`,
    'its parts do not match its id',
  ],
  [
    'two parts are swapped',
    'UPDATE blob_parts SET part = 9 WHERE part = 1; UPDATE blob_parts SET part = 1 WHERE part = 2; UPDATE blob_parts SET part = 2 WHERE part = 9',
    'part 1 is damaged',
  ],
  ['its length is too high', 'UPDATE blobs SET length = length + 40000', 'part 3 is damaged'],
  ['its length is too low', 'UPDATE blobs SET length = length - 1', 'part 3 is damaged'],
])('reading a text fails if %s, and storing the text again repairs it', async (_, damage, message) => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const id = await store.blobs.put('a', LONG);
  temp.raw().exec(damage);
  const read = store.blobs.read('a', id, 0, Infinity);
  await expect(read).rejects.toMatchObject({ name: 'TreadleError', code: 'journal-damaged' });
  await expect(read).rejects.toThrow(`The long result ${id} of run "a" is damaged: ${message}.`);
  expect(await store.blobs.put('a', LONG)).toBe(id);
  expect(await store.blobs.read('a', id, 0, Infinity)).toEqual({ text: LONG, length: 100_000 });
});

describe('a text with a missing part', () => {
  test('has no pages that touch the part, and all other pages', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)]);
    const id = await store.blobs.put('a', LONG);
    temp.raw().exec('DELETE FROM blob_parts WHERE part = 1');
    for (const [from, to] of [
      [0, 32_768],
      [65_536, 100_000],
      [40_000, 40_000],
    ] as const) {
      expect(await store.blobs.read('a', id, from, to)).toEqual({ text: LONG.slice(from, to), length: 100_000 });
    }
    for (const [from, to] of [
      [32_767, 32_769],
      [32_768, 32_769],
      [40_000, 41_000],
      [65_535, 70_000],
    ] as const) {
      await expect(store.blobs.read('a', id, from, to)).rejects.toThrow('part 1 is missing');
    }
  });

  test('cannot be paged through by the model, which gets an error', async () => {
    await using temp = tempStore();
    const store = temp.open();
    const dump = tool({ name: 'dump', description: 'A long text', effect: 'pure', execute: () => LONG });
    const read: ScriptStep = ({ messages }) => {
      const id = /"id":"([0-9a-f]{64})"/.exec(JSON.stringify(messages).replaceAll('\\', ''))![1]!;
      temp.raw().exec('DELETE FROM blob_parts WHERE part = 0');
      return { calls: [{ name: 'read_result', arguments: { id } }] };
    };
    const model = scriptedModel([{ calls: [{ name: 'dump' }] }, read, 'Sorry.']);
    const { messages } = await runLoop({ model, tools: [dump], journal: store, runId: 'a', input: 'Dump' });
    expect(messages.at(-2)).toMatchObject({
      role: 'tool',
      content: [{ isError: true, content: [{ text: expect.stringContaining('is damaged: part 0 is missing') }] }],
    });
  });
});

test('listing fails if a text of the run is missing', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  await store.append('b', [entry(0)]);
  await store.blobs.put('a', 'lost');
  const kept = await store.blobs.put('b', 'kept');
  temp.raw().exec('DELETE FROM blobs WHERE length = 4 AND id = 1');
  await expect(store.blobs.list('a')).rejects.toThrow('A long result of run "a" is missing');
  expect(await store.blobs.list('b')).toEqual([kept]);
});

test('parts that were stored before version 3 have no sum and can be read', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const id = await store.blobs.put('a', LONG);
  temp.raw().exec('UPDATE blob_parts SET sum = NULL');
  expect(await store.blobs.read('a', id, 0, Infinity)).toEqual({ text: LONG, length: 100_000 });
  expect(await store.blobs.read('a', id, 50_000, 50_010)).toEqual({ text: '......5000', length: 100_000 });
});

test('damaged bytes are found, and a fork has a copy', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await runLoop({ model: scriptedModel(['Hi.']), journal: store, runId: 'a', input: 'Hello' });
  const content = { bytes: new Uint8Array(100_000).fill(7), mediaType: 'application/octet-stream' };
  const id = await store.blobs.put('a', content);
  const fork = await forkRun({ journal: store, runId: 'a', at: 0 });
  expect(await store.blobs.read(fork, id, 99_998, Infinity)).toEqual({
    ...content,
    bytes: Uint8Array.from([7, 7]),
    length: 100_000,
  });
  const raw = temp.raw();
  for (const change of ["content = x'00'", "content = 'text'", 'sum = sum + 1']) {
    raw.exec(`UPDATE blob_parts SET ${change} WHERE part = 1`);
    expect(await store.blobs.read('a', id, 0, 2)).toMatchObject({ bytes: Uint8Array.from([7, 7]) });
    await expect(store.blobs.read('a', id, 0, Infinity)).rejects.toMatchObject({ code: 'journal-damaged' });
    expect(await store.blobs.put('a', content)).toBe(id);
    expect(await store.blobs.read('a', id, 0, Infinity)).toEqual({ ...content, length: 100_000 });
  }
});
