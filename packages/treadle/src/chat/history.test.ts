import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MAX_ENTRIES, openHistory } from './history.ts';

let folder: string;
const file = (): string => join(folder, 'treadle.db.chat-history');
const store = (): { type: 'sqlite'; file: string } => ({ type: 'sqlite', file: join(folder, 'treadle.db') });

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'treadle-history-'));
});
afterEach(() => rm(folder, { recursive: true }));

test('keeps messages of several lines for the next chat, in a file that only the user can read', async () => {
  const first = await openHistory(store());
  first.add('one');
  first.add('two\nlines');
  first.add('x'.repeat(20_000));
  expect(await first.saved()).toBeUndefined();
  expect((await stat(file())).mode & 0o777).toBe(0o600);
  expect((await openHistory(store())).entries).toEqual(['one', 'two\nlines']);
});

test('ignores damaged lines, and corrects the mode', async () => {
  await writeFile(file(), '"a"\n{}\n"b\n"c"\n');
  await chmod(file(), 0o644);
  expect((await openHistory(store())).entries).toEqual(['a', 'c']);
  expect((await stat(file())).mode & 0o777).toBe(0o600);
});

test('keeps only the newest entries', async () => {
  await writeFile(file(), Array.from({ length: 2 * MAX_ENTRIES + 1 }, (_, index) => `"${index}"\n`).join(''));
  const history = await openHistory(store());
  expect([history.entries.length, history.entries.at(-1)]).toEqual([MAX_ENTRIES, String(2 * MAX_ENTRIES)]);
  history.add('last');
  await history.saved();
  expect((await readFile(file(), 'utf8')).trimEnd().split('\n')).toHaveLength(MAX_ENTRIES + 1);
});

test('says that it cannot be saved', async () => {
  const history = await openHistory({ type: 'sqlite', file: join(folder, 'missing', 'treadle.db') });
  history.add('one');
  expect(await history.saved()).toMatch(/^The history of the chat cannot be saved: /);
});

test('is empty without a store', async () => {
  expect((await openHistory({ type: 'memory' })).entries).toEqual([]);
});
