import type { Store } from '@treadle/store';

/** The stores of one test, which share what is stored. Disposing them closes those that are open, and removes everything. */
export interface TempStores extends AsyncDisposable {
  readonly open: () => Promise<Store>;
}
