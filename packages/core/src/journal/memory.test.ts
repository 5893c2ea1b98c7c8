import { describe, expect, test } from 'vitest';
import { memoryJournal } from './memory.ts';
import type { JournalEntry } from './port.ts';

function entry(seq: number, at = seq): JournalEntry {
  return { v: 1, seq, event: { type: 'cancel-requested', at }, issued: [] };
}

describe('append', () => {
  test('is durable at once', () => {
    expect(memoryJournal().append('r', [entry(0)])).toBeUndefined();
  });

  test('adds to the end, in order', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1)]);
    await journal.append('r', [entry(2)]);
    expect(await journal.read('r')).toEqual([entry(0), entry(1), entry(2)]);
  });

  test('nothing is added by nothing', async () => {
    const journal = memoryJournal();
    await journal.append('r', []);
    expect(await journal.read('r')).toEqual([]);
    await journal.append('r', [entry(0)]);
    await journal.append('r', []);
    expect(await journal.read('r')).toEqual([entry(0)]);
  });

  test.each([
    ['a run that is there is not begun again', [entry(0)], 'Run "r" has 2 entries, so entry 0 cannot be appended.'],
    [
      'an entry that is there is not added again',
      [entry(1), entry(2)],
      'Run "r" has 2 entries, so entry 1 cannot be appended.',
    ],
    ['nothing may be left out', [entry(3)], 'Run "r" has 2 entries, so entry 3 cannot be appended.'],
    [
      'nor between those that come together',
      [entry(2), entry(4)],
      'Run "r" has 2 entries, so entry 4 cannot be appended.',
    ],
  ])('%s', async (_, entries, message) => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1)]);
    expect(() => journal.append('r', entries)).toThrow(
      expect.objectContaining({ code: 'run-exists', message: expect.stringContaining(message) }),
    );
    expect(await journal.read('r')).toEqual([entry(0), entry(1)]);
  });

  test('takes as many at once as there are', async () => {
    const journal = memoryJournal();
    const many = Array.from({ length: 300_000 }, (_, seq) => entry(seq));
    await journal.append('r', many);
    expect(await journal.read('r')).toHaveLength(300_000);
  });
});

describe('read', () => {
  test('of a run that is not there is empty', async () => {
    expect(await memoryJournal().read('nobody')).toEqual([]);
    for (const name of ['constructor', '__proto__', 'toString', ''])
      expect(await memoryJournal().read(name)).toEqual([]);
  });

  test('from an entry on', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1), entry(2)]);
    expect(await journal.read('r', 1)).toEqual([entry(1), entry(2)]);
    expect(await journal.read('r', 3)).toEqual([]);
    expect(await journal.read('r', 9)).toEqual([]);
  });

  test('gives what was there then', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0)]);
    const before = await journal.read('r');
    await journal.append('r', [entry(1)]);
    (before as JournalEntry[]).push(entry(7));
    expect(before).toHaveLength(2);
    expect(await journal.read('r')).toEqual([entry(0), entry(1)]);
  });

  test('the list that was given is not held on to', async () => {
    const journal = memoryJournal();
    const given = [entry(0)];
    await journal.append('r', given);
    given.push(entry(1));
    expect(await journal.read('r')).toEqual([entry(0)]);
  });
});

test('runs do not mix, and neither do journals', async () => {
  const [one, two] = [memoryJournal(), memoryJournal()];
  await one.append('a', [entry(0, 1)]);
  await one.append('b', [entry(0, 2)]);
  await two.append('a', [entry(0, 3)]);
  await one.append('a', [entry(1, 4)]);
  expect(await one.read('a')).toEqual([entry(0, 1), entry(1, 4)]);
  expect(await one.read('b')).toEqual([entry(0, 2)]);
  expect(await two.read('a')).toEqual([entry(0, 3)]);
});
