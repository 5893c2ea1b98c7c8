import { afterAll } from 'vitest';
import { storeContract } from './contract/store.ts';
import { testDatabase } from './shared-postgres.ts';

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());

storeContract('PostgreSQL', async () => ({
  open: database.open,
  [Symbol.asyncDispose]: () => database.clear(),
}));
