import { memoryJournal } from '@treadle/core';
import { expect, test } from 'vitest';
import { journalContract } from './contract/journal.ts';
import { started } from './entries.ts';

journalContract('memory', memoryJournal);

test('memory: an append is done when it returns', () => {
  expect(memoryJournal().append('a', [started('a')])).toBeUndefined();
});
