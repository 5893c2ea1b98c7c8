/** A thread that opens the store, acquires a run and appends to it, and then waits until it is ended. */
import { parentPort, workerData } from 'node:worker_threads';
import { sqliteStore } from '../src/index.ts';
import { entry } from './entries.ts';

const { file, runId } = workerData as { readonly file: string; readonly runId: string };
const store = sqliteStore(file);
const lease = await store.acquire(runId);
await store.append(runId, [entry(0)], lease);
parentPort!.on('message', () => {});
parentPort!.postMessage(lease.token);
