import type { JournalEntry, Parent } from '@treadle/core';
import { expect, test } from 'vitest';
import { startedWith } from '../test/entries.ts';
import { readRunFamily } from './run-file.ts';
import { sqliteStore, type SqliteStore } from './sqlite/store.ts';

const started = (runId: string, parent?: Parent): JournalEntry => {
  const first = startedWith([], runId);
  return { ...first, event: { ...first.event, ...(parent && { parent }) } as JournalEntry['event'] };
};

test('the size of each run and each long result of a family is counted before it is read', async () => {
  const store = sqliteStore(':memory:');
  const child = 'a.t1.tool.0';
  await store.append('a', [{ ...started('a'), issued: ['t1.tool.0'] }]);
  await store.append(child, [started(child, { runId: 'a', effect: 't1.tool.0' })]);
  await store.append('fork', [started('fork', { runId: 'a' })]);
  const result = await store.blobs.put(child, 'x'.repeat(100));
  const seen: (number | string)[] = [];
  const watched: SqliteStore = {
    ...store,
    read: (runId, from) => (seen.push(runId), store.read(runId, from)),
    blobs: {
      ...store.blobs,
      read(runId, id, from, to) {
        if (to > 0) seen.push(id);
        return store.blobs.read(runId, id, from, to);
      },
    },
  };
  const family = await readRunFamily(watched, 'a', (bytes) => void seen.push(bytes));
  const [own, ofChild, ofFork] = await Promise.all(['a', child, 'fork'].map((runId) => store.sizeOf(runId)));
  await store.close();
  expect(family.map(({ runId }) => runId)).toEqual(['a', child]);
  expect(seen).toEqual([own, 'a', ofFork, 'fork', -ofFork!, ofChild, child, 100, result]);
});
