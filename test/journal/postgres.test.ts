import { afterAll } from 'vitest';
import { testDatabase } from '../../packages/store/test/shared-postgres.ts';
import { journalContract } from './contract/journal.ts';

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());

journalContract('PostgreSQL', async () => {
  await database.clear();
  return database.open();
});
