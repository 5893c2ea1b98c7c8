/** A process that appends to runs of a store, when its parent says so, and reports the appends a second. */
import { once } from 'node:events';
import { openStore } from '@treadle/store';
import { appends } from './appends.ts';

const [url, runs] = process.argv.slice(2) as [string, string];
const store = await openStore(url);
const rate = await appends(store, Number(runs), 'durable', async () => {
  process.send!('ready');
  await once(process, 'message');
});
process.send!(rate);
await store.close();
process.disconnect();
