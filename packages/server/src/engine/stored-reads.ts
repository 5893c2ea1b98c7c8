import type { Journal, JournalEntry } from '@treadle/core';
import type { RequestRecord, StoredRuns } from '@treadle/store';
import { inTurn, MEDIUM } from '../http/large-work.ts';
import type { ServerStore } from './engine.ts';

/*
 * How the server reads requests and runs from the store. They can be far larger than the request that asks for them.
 *
 * 1. Their bytes are counted before they are read. If they are too many, they are not read.
 * 2. They are read in turn, so that other requests are served in between.
 */

/** Who reads: the caller of a request, or a run. */
export interface Reader {
  readonly tenant: string;
  /** Counts bytes until the request or the run has ended. Throws a 429 or a 503. Absent: they were counted before. */
  readonly hold?: ((bytes: number) => void) | undefined;
}

/** A journal in memory has no sizes: what it contains was counted before. */
export type StoredJournal = Journal & Partial<Pick<StoredRuns, 'sizeOf'>>;

export async function readRecord(
  { requests }: { readonly requests: Pick<ServerStore['requests'], 'get' | 'sizeOf'> },
  id: string,
  { tenant, hold }: Reader,
): Promise<RequestRecord | undefined> {
  if (hold) holdLarge(await requests.sizeOf(tenant, id), hold);
  return inTurn(() => requests.get(tenant, id), tenant);
}

/** All entries of a run; empty if there is no such run. */
export async function readEntries(
  journal: StoredJournal,
  runId: string,
  { tenant, hold }: Reader,
): Promise<readonly JournalEntry[]> {
  if (hold && journal.sizeOf) holdLarge(await journal.sizeOf(runId), hold);
  return inTurn(() => journal.read(runId), tenant);
}

/** Counts a request and its run, which are read after that. */
export async function holdStored(
  store: Pick<ServerStore, 'requests' | 'sizeOf'>,
  { tenant, id, runId }: Pick<RequestRecord, 'tenant' | 'id' | 'runId'>,
  hold: ((bytes: number) => void) | undefined,
): Promise<void> {
  if (hold) holdLarge((await store.requests.sizeOf(tenant, id)) + (await store.sizeOf(runId)), hold);
}

function holdLarge(bytes: number, hold: (bytes: number) => void): void {
  if (bytes >= MEDIUM) hold(bytes);
}
