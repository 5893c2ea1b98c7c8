/** A thread that opens the store, acquires a run and appends to it, and then waits until it is ended. */
import { parentPort, workerData } from 'node:worker_threads';
import { entry } from './entries.ts';
import { openWith } from './kinds.ts';

const { url, runId } = workerData as { readonly url: string; readonly runId: string };
const store = await openWith(url, {});
const lease = await store.acquire(runId);
await store.append(runId, [entry(0)], lease);
parentPort!.on('message', () => {});
parentPort!.postMessage(lease.token);
