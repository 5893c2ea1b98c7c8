import type { Holder, PostgresOptions, SqliteOptions, Store } from '@treadle/store';

/** What the tests need of the inside of the package. */
const { thisProcess, holderOf } = (await import(
  new URL('../../../packages/store/src/holder.ts', import.meta.url).href
)) as { readonly thisProcess: () => Holder; readonly holderOf: (pid: number) => Holder | undefined };

/** The stores of one test, which share what is stored. Disposing them closes those that are open, and removes everything. */
export interface TempStores extends AsyncDisposable {
  readonly open: (options?: SharedOptions) => Promise<Store>;
}

/** The options of every store. */
export type SharedOptions = Pick<SqliteOptions & PostgresOptions, 'leaseTtlMs' | 'holder'>;

/** A process of this machine that has ended. */
export const DEAD = { ...thisProcess(), pid: 2 ** 22 + 1 };

export { holderOf };
