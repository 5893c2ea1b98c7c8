import { afterAll } from 'vitest';
import { testDatabase } from '../store/shared-postgres.ts';
import { journalContract } from './contract/journal.ts';

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());

journalContract('PostgreSQL', async () => {
  await database.clear();
  return database.open();
});
