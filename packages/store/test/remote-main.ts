/** The process behind `remote`: opens a store and does what it is told, until it is killed or its parent is gone. */
import { DatabaseSync } from 'node:sqlite';
import { TreadleError, type JournalEntry, type Lease, type TreadleErrorCode } from '@treadle/core';
import { sqliteStore, type ResponseStore } from '../src/index.ts';

export type Deed =
  | { readonly type: 'acquire'; readonly runId: string }
  | { readonly type: 'release'; readonly token: number }
  | {
      readonly type: 'append';
      readonly runId: string;
      readonly entries: readonly JournalEntry[];
      readonly token: number | undefined;
    }
  | { readonly type: 'list' }
  | { readonly type: 'respond'; readonly method: keyof ResponseStore; readonly args: readonly unknown[] }
  | { readonly type: 'lock'; readonly what: 'all' | 'writing' }
  | { readonly type: 'unlock' };

export interface Answer {
  /** 0: that the store is open. */
  readonly id: number;
  readonly value?: unknown;
  readonly error?: { readonly code: TreadleErrorCode; readonly message: string };
}

const [file, options] = process.argv.slice(2);

async function answer(id: number, work: () => unknown): Promise<void> {
  try {
    process.send!({ id, value: await work() } satisfies Answer);
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
    process.send!({ id, error: { code: error.code, message: error.message } } satisfies Answer);
  }
}

await answer(0, () => {
  const store = sqliteStore(file!, JSON.parse(options!));
  const leases = new Map<number, Lease>();
  let locking: DatabaseSync | undefined;

  async function perform(deed: Deed): Promise<unknown> {
    switch (deed.type) {
      case 'acquire': {
        const lease = await store.acquire(deed.runId);
        leases.set(lease.token, lease);
        return lease.token;
      }
      case 'release':
        return leases.get(deed.token)!.release();
      case 'append':
        return store.append(deed.runId, deed.entries, deed.token === undefined ? undefined : leases.get(deed.token)!);
      case 'list':
        return (await store.list()).length;
      case 'respond':
        return (store.responses[deed.method] as (...args: readonly unknown[]) => unknown)(...deed.args);
      case 'lock':
        if (deed.what === 'all') await store.close();
        locking = new DatabaseSync(file!);
        if (deed.what === 'all') locking.exec('PRAGMA locking_mode = EXCLUSIVE');
        return locking.exec('BEGIN EXCLUSIVE');
      case 'unlock':
        locking!.exec('ROLLBACK');
        return locking!.close();
      default:
        return deed satisfies never;
    }
  }

  process.on(
    'message',
    ({ id, deed }: { readonly id: number; readonly deed: Deed }) => void answer(id, () => perform(deed)),
  );
});
