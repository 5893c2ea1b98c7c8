import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openStore } from './open.ts';

test('opens a file that a URL names, and creates it', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-open-'));
  const file = path.join(folder, 'a b#c?.db');
  const store = await openStore(`sqlite:${file}`);
  expect(await store.list()).toEqual([]);
  await store.close();
  expect((await stat(file)).size).toBeGreaterThan(0);
  await rm(folder, { recursive: true });
});

test('opens a store in memory', async () => {
  const [one, two] = [await openStore('memory:'), await openStore('memory:')];
  await one.streams.append('s', 1, [{}]);
  expect([await one.streams.last('s'), await two.streams.last('s')]).toEqual([1, 0]);
  await Promise.all([one.close(), two.close()]);
});

test.each(['', 'runs.db', 'sqlite:', 'memory:x', undefined as unknown as string])(
  'rejects %j, without showing it',
  async (url) => {
    await expect(openStore(url)).rejects.toMatchObject({
      code: 'invalid-options',
      message: 'openStore: the URL must be sqlite:PATH, postgres://HOST/DATABASE or memory:, such as sqlite:runs.db.',
    });
  },
);
