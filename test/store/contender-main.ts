/**
 * Competes with other processes for one run: acquires it when possible, appends entries under its token, releases it, and
 * starts again. Reports each step to its parent until the parent sends a message or ends.
 */
import { setTimeout } from 'node:timers/promises';
import { TreadleError } from '@treadle/core';
import type { SharedOptions } from './contract/temp-stores.ts';
import { entry } from './entries.ts';
import { openWith } from './kinds.ts';

export type ContenderReport =
  | { readonly type: 'acquired'; readonly token: number }
  | { readonly type: 'appended'; readonly token: number; readonly seq: number }
  | { readonly type: 'lost'; readonly token: number }
  | { readonly type: 'refused' }
  | { readonly type: 'locked' }
  | { readonly type: 'unexpected'; readonly message: string };

const [url, runId, options] = process.argv.slice(2);
const store = await openWith(url!, JSON.parse(options!) as SharedOptions, { busyTimeoutMs: 100 });
let stopped = false;
process.on('message', () => {
  stopped = true;
});

const report = (step: ContenderReport): void => void process.send!(step);

/** Errors that a driver has to expect; any other error is a fault of the store. */
function reportFailure(error: unknown, token = 0): void {
  const code = error instanceof TreadleError ? error.code : undefined;
  if (code === 'run-driven') report({ type: 'refused' });
  else if (code === 'store-locked') report({ type: 'locked' });
  else if (code === 'lease-lost') report({ type: 'lost', token });
  else report({ type: 'unexpected', message: String(error) });
}

async function drive(): Promise<void> {
  const lease = await store.acquire(runId!);
  const { token } = lease;
  report({ type: 'acquired', token });
  try {
    const first = (await store.read(runId!)).length;
    for (let seq = first; seq < first + 10; seq++) {
      await store.append(runId!, [entry(seq, String(token))], lease);
      report({ type: 'appended', token, seq });
    }
  } catch (error) {
    reportFailure(error, token);
  }
  await lease.release();
}

while (!stopped) {
  try {
    await drive();
  } catch (error) {
    reportFailure(error);
  }
  // Gives the other processes a chance.
  await setTimeout(2);
}
await store.close();
process.disconnect();
