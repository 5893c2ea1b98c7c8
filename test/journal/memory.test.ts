import { memoryJournal } from '@treadle/core';
import { expect, test } from 'vitest';
import { journalContract } from './contract/journal.ts';
import { startEntry } from './entries.ts';

journalContract('memory', memoryJournal);

test('memory: append is synchronous', () => {
  expect(memoryJournal().append('a', [startEntry('a')])).toBeUndefined();
});
