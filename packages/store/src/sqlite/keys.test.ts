import path from 'node:path';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';
import { backupStore } from './backup.ts';
import { sqliteStore } from './store.ts';

// What holds on every store is in `test/store/contract/accounts.ts`. Here: backups of a file.

test('a secret key is random, created once for all processes with the store, and part of a backup', async () => {
  await using temp = tempStore();
  const [one, other] = [temp.open(), temp.open()];
  const [key, same, named] = await Promise.all([one.secretKey('a'), other.secretKey('a'), one.secretKey('b')]);
  expect(key).toHaveLength(32);
  expect(same).toEqual(key);
  expect(named).not.toEqual(key);
  const copy = path.join(temp.folder, 'backup.db');
  await backupStore(temp.file, copy);
  const restored = sqliteStore(copy);
  expect(await restored.secretKey('a')).toEqual(key);
  await restored.close();
});
