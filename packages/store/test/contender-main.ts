/**
 * Fights with others for one run: takes it when it can, appends under its token for a while, gives it back, and begins
 * again. Tells its parent everything, until that asks it to stop or is gone.
 */
import { setTimeout } from 'node:timers/promises';
import { TreadleError } from '@treadle/core';
import { sqliteStore } from '../src/index.ts';
import { entry } from './entries.ts';

export type Told =
  | { readonly type: 'acquired'; readonly token: number }
  | { readonly type: 'appended'; readonly token: number; readonly seq: number }
  | { readonly type: 'lost'; readonly token: number }
  | { readonly type: 'refused' }
  | { readonly type: 'locked' }
  | { readonly type: 'unexpected'; readonly message: string };

const [file, runId, options] = process.argv.slice(2);
const store = sqliteStore(file!, JSON.parse(options!));
let stopped = false;
process.on('message', () => {
  stopped = true;
});

const tell = (told: Told): void => void process.send!(told);

/** What a driver may run into; anything else is a fault of the store. */
function tellFailure(error: unknown, token = 0): void {
  const code = error instanceof TreadleError ? error.code : undefined;
  if (code === 'run-driven') tell({ type: 'refused' });
  else if (code === 'store-locked') tell({ type: 'locked' });
  else if (code === 'lease-lost') tell({ type: 'lost', token });
  else tell({ type: 'unexpected', message: String(error) });
}

async function drive(): Promise<void> {
  const lease = await store.acquire(runId!);
  const { token } = lease;
  tell({ type: 'acquired', token });
  try {
    const first = (await store.read(runId!)).length;
    for (let seq = first; seq < first + 10; seq++) {
      await store.append(runId!, [entry(seq, String(token))], lease);
      tell({ type: 'appended', token, seq });
    }
  } catch (error) {
    tellFailure(error, token);
  }
  await lease.release();
}

while (!stopped) {
  try {
    await drive();
  } catch (error) {
    tellFailure(error);
  }
  // The others want a chance too.
  await setTimeout(2);
}
await store.close();
process.disconnect();
