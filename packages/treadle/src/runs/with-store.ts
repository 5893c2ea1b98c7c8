import type { SqliteStore } from '@treadle/store';
import type { Io } from '../io.ts';
import { findPlace, type Place } from '../place.ts';
import type { PlaceValues } from '../session-flags.ts';
import { openExistingStore } from '../store/open-store.ts';

/** Does something with the runs that are there, and leaves the store in order. */
export async function withStore<T>(
  values: PlaceValues,
  io: Io,
  doIt: (store: SqliteStore, place: Place) => Promise<T>,
): Promise<T> {
  const place = await findPlace(values, io);
  const store = await openExistingStore(place.store);
  try {
    return await doIt(store, place);
  } finally {
    await store.close();
  }
}
