import { afterAll } from 'vitest';
import { storeContract } from '../../test/contract/store.ts';
import { testDatabase } from '../../test/shared-postgres.ts';

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());

storeContract('PostgreSQL', async () => ({
  open: () => database.open(),
  [Symbol.asyncDispose]: () => database.clear(),
}));
