import { StatementSync } from 'node:sqlite';
import { expect, test, vi } from 'vitest';
import { entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';

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

test('stores a text once for all runs and deletes it with the last of them', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const raw = temp.raw();
  const sizes = (): unknown =>
    raw
      .prepare(
        'SELECT (SELECT count(*) FROM blobs) AS blobs, (SELECT count(*) FROM blob_parts) AS parts, (SELECT count(*) FROM blob_runs) AS links',
      )
      .get();
  for (const runId of ['a', 'b']) {
    await store.append(runId, [entry(0), entry(1, '', 'completed')]);
    await store.blobs.put(runId, 'x'.repeat(100_000));
    await store.blobs.put(runId, 'x'.repeat(100_000));
    await store.blobs.put(runId, runId);
  }
  expect(sizes()).toEqual({ blobs: 3, parts: 6, links: 4 });
  await store.delete('a');
  expect(sizes()).toEqual({ blobs: 2, parts: 5, links: 2 });
  await store.prune(Infinity);
  expect(sizes()).toEqual({ blobs: 0, parts: 0, links: 0 });
});
