/** The process behind `remote`: opens a store and performs the requests of its parent until one of them ends. */
import { DatabaseSync } from 'node:sqlite';
import { TreadleError, type JournalEntry, type Lease, type TreadleErrorCode } from '@treadle/core';
import { sqliteStore, type RequestStore } from '../src/index.ts';

export type RemoteRequest =
  | { readonly type: 'acquire'; readonly runId: string }
  | { readonly type: 'release'; readonly token: number }
  | {
      readonly type: 'append';
      readonly runId: string;
      readonly entries: readonly JournalEntry[];
      readonly token: number | undefined;
    }
  | { readonly type: 'list' }
  | { readonly type: 'respond'; readonly method: keyof RequestStore; readonly args: readonly unknown[] }
  | { readonly type: 'lock'; readonly what: 'all' | 'writing' }
  | { readonly type: 'unlock' };

export interface RemoteAnswer {
  /** The id of the request; 0 reports that the store is open. */
  readonly id: number;
  readonly value?: unknown;
  readonly error?: { readonly code: TreadleErrorCode; readonly message: string };
}

const [file, options] = process.argv.slice(2);

async function answer(id: number, work: () => unknown): Promise<void> {
  try {
    process.send!({ id, value: await work() } satisfies RemoteAnswer);
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
    process.send!({ id, error: { code: error.code, message: error.message } } satisfies RemoteAnswer);
  }
}

await answer(0, () => {
  const store = sqliteStore(file!, JSON.parse(options!));
  const leases = new Map<number, Lease>();
  let locking: DatabaseSync | undefined;

  async function perform(request: RemoteRequest): Promise<unknown> {
    switch (request.type) {
      case 'acquire': {
        const lease = await store.acquire(request.runId);
        leases.set(lease.token, lease);
        return lease.token;
      }
      case 'release':
        return leases.get(request.token)!.release();
      case 'append':
        return store.append(
          request.runId,
          request.entries,
          request.token === undefined ? undefined : leases.get(request.token)!,
        );
      case 'list':
        return (await store.list()).length;
      case 'respond':
        return (store.requests[request.method] as (...args: readonly unknown[]) => unknown)(...request.args);
      case 'lock':
        if (request.what === 'all') await store.close();
        locking = new DatabaseSync(file!);
        if (request.what === 'all') locking.exec('PRAGMA locking_mode = EXCLUSIVE');
        return locking.exec('BEGIN EXCLUSIVE');
      case 'unlock':
        locking!.exec('ROLLBACK');
        return locking!.close();
      default:
        return request satisfies never;
    }
  }

  process.on(
    'message',
    ({ id, request }: { readonly id: number; readonly request: RemoteRequest }) =>
      void answer(id, () => perform(request)),
  );
});
