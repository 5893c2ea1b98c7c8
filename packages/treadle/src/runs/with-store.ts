import type { SqliteStore } from '@treadle/store';
import type { Io } from '../terminal/io.ts';
import { findPlace, type Place } from '../config/context.ts';
import type { PlaceValues } from '../command-line/flags.ts';
import { openExistingStore } from '../config/store.ts';

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
