import { describe, expect, test } from 'vitest';
import { runLoop } from '../driver/run.ts';
import { scriptedModel } from '../testing/index.ts';
import { memoryJournal } from './memory.ts';
import type { JournalEntry } from './port.ts';

function entry(seq: number, at = seq): JournalEntry {
  return { v: 1, seq, event: { type: 'cancel-requested', at }, issued: [] };
}

describe('append', () => {
  test('returns nothing, because the entries are durable at once', () => {
    expect(memoryJournal().append('r', [entry(0)])).toBeUndefined();
  });

  test('adds entries to the end, in order', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1)]);
    await journal.append('r', [entry(2)]);
    expect(await journal.read('r')).toEqual([entry(0), entry(1), entry(2)]);
  });

  test('adds nothing for an empty array', async () => {
    const journal = memoryJournal();
    await journal.append('r', []);
    expect(await journal.read('r')).toEqual([]);
    await journal.append('r', [entry(0)]);
    await journal.append('r', []);
    expect(await journal.read('r')).toEqual([entry(0)]);
  });

  test.each([
    ['the first entry of an existing run', [entry(0)], 'Run "r" already exists. To resume it, pass its runId'],
    ['an entry that exists', [entry(1), entry(2)], 'Run "r" has 2 entries, so entry 1 cannot be appended.'],
    ['an entry after a gap', [entry(3)], 'Run "r" has 2 entries, so entry 3 cannot be appended.'],
    ['entries with a gap between them', [entry(2), entry(4)], 'Run "r" has 2 entries, so entry 4 cannot be appended.'],
  ])('rejects %s', async (_, entries, message) => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1)]);
    expect(() => journal.append('r', entries)).toThrow(
      expect.objectContaining({ code: 'run-exists', message: expect.stringContaining(message) }),
    );
    expect(await journal.read('r')).toEqual([entry(0), entry(1)]);
  });

  test('accepts 300,000 entries at once', async () => {
    const journal = memoryJournal();
    const many = Array.from({ length: 300_000 }, (_, seq) => entry(seq));
    await journal.append('r', many);
    expect(await journal.read('r')).toHaveLength(300_000);
  });
});

describe('the title of a run', () => {
  const titleOf = async (...texts: readonly string[]): Promise<string | undefined> => {
    const journal = memoryJournal();
    const content = texts.map((text) => ({ type: 'text', text }) as const);
    await runLoop({ model: scriptedModel(['Done.']), journal, input: [{ role: 'user', content }] });
    return (await journal.list())[0]?.title;
  };

  test.each<[string, readonly string[], string]>([
    ['is the message of the user', ['Fix the  typo\nin a.txt'], 'Fix the typo in a.txt'],
    [
      'leaves out what programs put around it between tags',
      [
        '<system-reminder>\nToday.\n</system-reminder>\n',
        '<env>x</env> Fix it.\n\n<system-reminder>\nAgents\n</system-reminder>',
      ],
      'Fix it.',
    ],
    [
      'leaves out the files that are sent with it',
      ['Look at @a.txt', '<file name="a.txt">\nThe content\n</file>', '<file name="b.txt">\nMore\n</file>'],
      'Look at @a.txt',
    ],
    ['is between tags if there is nothing else', ['<p>Hello</p>'], '<p>Hello</p>'],
    ['may contain tags', ['<b>Bold</b> and <i>plain</i>'], 'and <i>plain</i>'],
    ['takes time in proportion to the message', [`<p>Hello</p>${' '.repeat(1_000_000)}`], '<p>Hello</p>'],
    ['may begin with a tag that does not end', ['<div> is not closed'], '<div> is not closed'],
  ])('%s', async (_, texts, title) => {
    expect(await titleOf(...texts)).toBe(title);
  });
});

describe('read', () => {
  test('returns an empty array for an unknown run', async () => {
    expect(await memoryJournal().read('unknown')).toEqual([]);
    for (const name of ['constructor', '__proto__', 'toString', ''])
      expect(await memoryJournal().read(name)).toEqual([]);
  });

  test('returns the entries from a number on', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0), entry(1), entry(2)]);
    expect(await journal.read('r', 1)).toEqual([entry(1), entry(2)]);
    expect(await journal.read('r', 3)).toEqual([]);
    expect(await journal.read('r', 9)).toEqual([]);
  });

  test('returns a copy that does not change later', async () => {
    const journal = memoryJournal();
    await journal.append('r', [entry(0)]);
    const before = await journal.read('r');
    await journal.append('r', [entry(1)]);
    (before as JournalEntry[]).push(entry(7));
    expect(before).toHaveLength(2);
    expect(await journal.read('r')).toEqual([entry(0), entry(1)]);
  });

  test('does not keep the array that was appended', async () => {
    const journal = memoryJournal();
    const entries = [entry(0)];
    await journal.append('r', entries);
    entries.push(entry(1));
    expect(await journal.read('r')).toEqual([entry(0)]);
  });
});

test('keeps runs and journals apart', async () => {
  const [one, two] = [memoryJournal(), memoryJournal()];
  await one.append('a', [entry(0, 1)]);
  await one.append('b', [entry(0, 2)]);
  await two.append('a', [entry(0, 3)]);
  await one.append('a', [entry(1, 4)]);
  expect(await one.read('a')).toEqual([entry(0, 1), entry(1, 4)]);
  expect(await one.read('b')).toEqual([entry(0, 2)]);
  expect(await two.read('a')).toEqual([entry(0, 3)]);
});
