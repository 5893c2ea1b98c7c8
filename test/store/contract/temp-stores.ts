import type { Holder, PostgresOptions, SqliteOptions, Store, StoreReport } from '@treadle/store';

/** What the tests need of the inside of the package. */
const { thisProcess, holderOf } = (await import(
  new URL('../../../packages/store/src/holder.ts', import.meta.url).href
)) as { readonly thisProcess: () => Holder; readonly holderOf: (pid: number) => Holder | undefined };

/** The stores of one test, which share what is stored. Disposing them closes those that are open, and removes everything. */
export interface TempStores extends AsyncDisposable {
  readonly open: (options?: SharedOptions) => Promise<Store>;
  readonly hosts: () => Promise<Hosts>;
  /** Performs statements that both databases understand, on a connection of its own. */
  readonly exec: (sql: string) => Promise<void>;
  /** From now on, the database refuses to delete this response. The returned function ends that. */
  readonly keepResponse: (id: string) => Promise<() => Promise<void>>;
  /** How many rows a table has. */
  readonly count: (table: string) => Promise<number>;
  /** What `treadle store check` finds. */
  readonly check: () => Promise<StoreReport>;
}

/** Stores of three hosts. */
export interface Hosts {
  readonly here: Store;
  readonly there: Store;
  /** Its leases are not renewed. */
  readonly frozen: Store;
  /** Leases of `frozen` that another host has seen can be taken over. */
  readonly pass: () => Promise<void>;
}

export const HOLDERS = {
  here: { host: 'here', pid: 4_711, startedAt: '1' },
  there: { host: 'there', pid: 42, startedAt: '1' },
  frozen: { host: 'frozen', pid: 1, startedAt: '1' },
} as const satisfies Record<string, Holder>;

/** The options of every store. */
export type SharedOptions = Pick<SqliteOptions & PostgresOptions, 'leaseTtlMs' | 'holder'>;

/** A process of this machine that has ended. */
export const DEAD = { ...thisProcess(), pid: 2 ** 22 + 1 };

export { holderOf };
