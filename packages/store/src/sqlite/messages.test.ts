import { statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { userText, type Message } from '@treadle/core';
import { describe, expect, test, vi } from 'vitest';
import { entry, startedWith } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { encodeInput, encodeWithInput, splitInput } from '../records/input.ts';

// What holds on every store is in `test/store/contract/texts.ts`. Here: damage in the tables of SQLite, the size of the file, and how
// inputs are encoded.

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** Message `n` of a conversation, with about `chars` characters. */
function message(n: number, chars = 2_000): Message {
  const text = `${n} `.repeat(chars).slice(0, chars);
  return n % 2 === 0 ? userText(text) : { role: 'assistant', content: [{ type: 'text', text }] };
}

const conversation = (count: number, chars?: number): Message[] =>
  Array.from({ length: count }, (_, n) => message(n, chars));

function stored(db: DatabaseSync): number {
  return Number(db.prepare('SELECT count(*) AS n FROM messages').get()!['n']);
}

test('runs that continue a conversation need space for their new messages only', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const all = conversation(400);
  for (let n = 1; n <= 200; n++) await store.append(`run ${n}`, [startedWith(all.slice(0, 2 * n)), entry(1)]);
  expect(stored(temp.raw())).toBe(400);
  for (const n of [1, 2, 100, 200]) {
    expect(await store.read(`run ${n}`)).toEqual([startedWith(all.slice(0, 2 * n)), entry(1)]);
  }
  await store.close();
  // The messages have 800 kB. Two rows of 2 kB do not fit into one page of 4 kB.
  expect(statSync(temp.file).size).toBeLessThan(2_500_000);
});

test('a short input stays in its entry', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [startedWith(conversation(3, 100))]);
  expect(stored(temp.raw())).toBe(0);
  expect(await store.read('a')).toEqual([startedWith(conversation(3, 100))]);
});

test('a large input is encoded as a small one is, without the whole JSON', () => {
  const input = [message(0, 200_000), message(1, 100_000), userText('"\\\ud800 ü')];
  for (const value of [startedWith(input), { request: { a: [[]], input }, more: input.length }]) {
    const stringify = vi.spyOn(JSON, 'stringify');
    const encoded = encodeWithInput(value, input);
    const longest = Math.max(...stringify.mock.results.map(({ value }) => (value as string).length));
    stringify.mockRestore();
    expect(longest).toBeLessThan(250_000);
    const text = JSON.stringify(value);
    expect(encoded.split).toEqual(splitInput(text, input));
    expect([encoded.whole(), encoded.length >= text.length, encoded.crc(7)]).toEqual([text, true, crc32(text, 7)]);
  }
  const twice = { input, again: input };
  expect(encodeWithInput(twice, input).whole()).toBe(JSON.stringify(twice));
  expect(encodeWithInput({ other: 1 }, input)).toMatchObject({ length: 11, split: undefined });
});

test('a large input that was encoded in turns is stored as it would be without', async () => {
  const input = [message(0, 300_000), ...conversation(60, 9_000), userText('"\\\ud800 ü')];
  const value = startedWith(input);
  const expected = encodeWithInput(value, input);
  const stringify = vi.spyOn(JSON, 'stringify');
  const encodedBetween: number[] = [];
  await encodeInput(input, async () => void encodedBetween.push(stringify.mock.calls.length));
  // At first, and before and after the digest of a message that completes a piece.
  expect(encodedBetween).toEqual([0, 1, 1, 26, 26, 55, 55]);
  stringify.mockClear();
  const encoded = encodeWithInput(value, input);
  expect(stringify).toHaveBeenCalledOnce();
  stringify.mockRestore();
  expect(encoded.split).toEqual(expected.split);
  expect([encoded.whole(), encoded.crc(7)]).toEqual([expected.whole(), expected.crc(7)]);

  const nextTurn = vi.fn<() => Promise<void>>();
  await encodeInput(conversation(9), nextTurn);
  // The store reports what cannot be encoded.
  await encodeInput([message(0, 300_000), { toJSON: () => expect.unreachable() }], async () => {});
  expect(nextTurn).not.toHaveBeenCalled();
});

describe('a message that is', () => {
  const swap = `UPDATE messages SET text = CASE id WHEN 3 THEN (SELECT text FROM messages WHERE id = 4)
    ELSE (SELECT text FROM messages WHERE id = 3) END WHERE id IN (3, 4)`;
  test.each([
    ['changed', "UPDATE messages SET text = replace(text, 'assistant', 'user') WHERE id = 4"],
    ['with a changed text', "UPDATE texts SET text = replace(text, '3 ', '4 ') WHERE id = 4"],
    ['without its text', 'DELETE FROM texts WHERE id = 4'],
    ['torn', 'UPDATE messages SET text = substr(text, 1, 50) WHERE id = 4'],
    ['missing', 'DELETE FROM messages WHERE id = 4'],
    ['exchanged with another', swap],
    ['before itself', 'UPDATE messages SET previous = 4 WHERE id = 4'],
    ['before a message that is before it', 'UPDATE messages SET previous = 6 WHERE id = 4'],
    ['after no message', 'UPDATE messages SET previous = NULL WHERE id = 4'],
  ])('%s damages exactly the runs that contain it', async (_, damage) => {
    await using temp = tempStore();
    const store = temp.open();
    const branch = [...conversation(2), message(99), message(98)];
    await store.append('short', [startedWith(conversation(2)), entry(1)]);
    await store.append('a', [startedWith(conversation(6)), entry(1)]);
    await store.append('b', [startedWith(conversation(4)), entry(1)]);
    await store.append('branch', [startedWith(branch), entry(1)]);
    temp.raw().exec(damage);
    for (const runId of ['a', 'b']) {
      await expect(store.read(runId)).rejects.toEqual(code('journal-damaged'));
      await expect(store.read(runId, 1)).rejects.toThrow(`Entry 0 of run "${runId}" is damaged`);
    }
    expect(await store.read('short')).toEqual([startedWith(conversation(2)), entry(1)]);
    expect(await store.read('branch')).toEqual([startedWith(branch), entry(1)]);
    expect(await store.list()).toHaveLength(4);

    // A new run with the same messages is intact: its client may have sent them.
    await store.append('again', [startedWith(conversation(8))]);
    expect(await store.read('again')).toEqual([startedWith(conversation(8))]);
    for (const runId of ['a', 'b', 'again', 'branch']) expect(await store.delete(runId)).toBe(true);
    expect(await store.read('short')).toEqual([startedWith(conversation(2)), entry(1)]);
  });

  test('on a damaged page damages exactly the runs that contain it', async () => {
    await using temp = tempStore();
    const store = temp.open();
    const long = userText('damage me '.repeat(5_000));
    await store.append('a', [startedWith([message(0), long, message(2)]), entry(1)]);
    await store.append('b', [startedWith([message(0), message(2)]), entry(1)]);
    await store.close();
    temp.damageText('damage me ');
    const damaged = temp.open();
    await expect(damaged.read('a')).rejects.toThrow('Entry 0 of run "a" is damaged');
    expect(await damaged.read('b')).toEqual([startedWith([message(0), message(2)]), entry(1)]);
    await damaged.append('b', [entry(2)]);
  });
});
