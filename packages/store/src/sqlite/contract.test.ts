import { storeContract } from '../../test/contract/store.ts';
import { tempStore } from '../../test/temp-store.ts';

storeContract('SQLite', async () => {
  const temp = tempStore();
  return { open: async () => temp.open(), [Symbol.asyncDispose]: () => temp[Symbol.asyncDispose]() };
});
