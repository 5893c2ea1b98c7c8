import type { Holder, ProcessState } from '../holder.ts';
import type { Driver } from '../records/errors.ts';
import { bytes, type Query } from './connection.ts';

export interface LeaseOptions {
  readonly ttlMs: number;
  readonly holder: Holder;
  readonly processState: (holder: Holder) => ProcessState;
  readonly retryMs: number;
}

export interface HolderColumns extends Pick<Driver, 'thread'> {
  /** Null, like what follows: the holder is not known any more. */
  readonly host: string | null;
  readonly pid: number | null;
  readonly process_start: string | null;
  readonly place: string | null;
}

/** A lease and its holder. */
export interface LeaseRow extends HolderColumns, Pick<Driver, 'since'> {
  readonly token: number | null;
  readonly nonce: string | null;
  readonly holder: string | null;
  /** Null: the holder is not known any more. */
  readonly renewed_at: number | null;
  /** The milliseconds until the lease expires, by the clock of the database. Null: the same. */
  readonly left_ms: number | null;
}

/** A row of `heads`, with the holder of its lease. */
export interface HeadRow extends LeaseRow {
  readonly id: number;
  readonly run: Buffer;
  readonly entries: number;
}

/** The columns of a `LeaseRow`, of `heads AS h` with `LEASE_HOLDER`. */
export const LEASE_COLUMNS = `h.token, h.nonce, h.holder, h.since, o.renewed_at, o.renewed_at + o.ttl_ms - treadle.now_ms() AS left_ms,
  o.host, o.pid, o.process_start, o.place, o.thread`;
export const LEASE_HOLDER = 'LEFT JOIN treadle.holders o ON o.id = h.holder AND h.token IS NOT NULL';

export const HEAD: string = `SELECT h.id, h.run, h.entries, ${LEASE_COLUMNS} FROM treadle.heads h ${LEASE_HOLDER}`;

/** Reads the head of a run. */
export async function findHead(query: Query, runId: string): Promise<HeadRow | undefined> {
  return (await query<HeadRow>(`${HEAD} WHERE h.run = $1`, [bytes(runId)])).rows[0];
}

export function driverOf(row: HeadRow | undefined): Driver | undefined {
  return row && row.token !== null && row.host !== null ? (row as Driver) : undefined;
}

export function holderOfRow({ host, pid, process_start: startedAt, place, thread }: HolderColumns): Holder {
  return {
    host: host!,
    pid: pid!,
    ...(startedAt !== null && { startedAt }),
    ...(place !== null && { place }),
    ...(thread !== null && { thread }),
  };
}
