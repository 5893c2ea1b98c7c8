import type { Store } from '../../src/index.ts';

/** The stores of one test, which share what is stored. Disposing them closes those that are open, and removes everything. */
export interface TempStores extends AsyncDisposable {
  readonly open: () => Promise<Store>;
}
