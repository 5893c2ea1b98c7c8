import { isDeadHere } from '../holder.ts';
import { watchHolders } from '../records/watch-holders.ts';
import { leaseLost, runDriven, type Driver } from '../records/errors.ts';
import { bytes, text, type Database, type Query } from './connection.ts';
import type { HeldLeases } from './held-leases.ts';
import {
  findHead,
  HEAD,
  holderOfRow,
  type HeadRow,
  type HolderColumns,
  type LeaseOptions,
  type LeaseRow,
} from './lease-rows.ts';

/** The leases of all runs in the database: which are free, and how those of dead drivers end (rules 3, 5 and 6 of `Leases`). */
export interface DrivenRuns {
  /** The time until the lease can be taken over if nothing changes; 0 if it can be now. */
  readonly msUntilFree: (row: LeaseRow) => number;
  /** Ends a lease that its driver did not release, or could not. False if it was renewed or replaced meanwhile. */
  readonly endDead: (query: Query, row: HeadRow) => Promise<boolean>;
  /** Whether a lease can be taken now. */
  readonly isFree: (row: LeaseRow) => boolean;
  readonly isDriven: (runId: string) => Promise<boolean>;
  /** In a transaction that has locked the heads: throws `run-driven` if one of them has a driver. Frees those of dead ones. */
  readonly requireFree: (query: Query, names: readonly Buffer[]) => Promise<void>;
  /** Ends the leases of drivers that are known to be dead here, so that functions of the database see that. */
  readonly freeDead: (query: Query, names: readonly Buffer[]) => Promise<void>;
  /** Lets all leases of processes that are known to be dead here expire. */
  readonly expireDead: () => Promise<void>;
  readonly releaseRun: (runId: string, options?: { readonly force?: boolean }) => Promise<boolean>;
  /** See `StoredRuns`. */
  readonly watchDrivers: (listener: () => void) => () => void;
  readonly stopLooking: () => void;
}

interface HolderRow extends HolderColumns {
  readonly id: string;
  readonly left_ms: number;
}

interface DrivenRunsParts extends LeaseOptions {
  readonly holderId: string;
  readonly own: HeldLeases;
}

export function openDrivenRuns(
  db: Database,
  { holderId, own, ttlMs, holder, processState }: DrivenRunsParts,
): DrivenRuns {
  const { held, unreleased } = own;
  const isDead = (row: HolderColumns): boolean => isDeadHere(holderOfRow(row), holder, processState);

  function msUntilFree(row: LeaseRow): number {
    if (row.token === null) return 0;
    if (held.has(row.nonce!)) return Infinity;
    if (row.left_ms === null) return 0;
    if (unreleased.has(row.nonce!)) return 0;
    if (isDead(row)) return 0;
    return Math.max(0, row.left_ms);
  }

  async function endDead(query: Query, row: HeadRow): Promise<boolean> {
    if (row.renewed_at !== null) {
      const locked = await query('SELECT 1 FROM treadle.holders WHERE id = $1 AND renewed_at = $2 FOR SHARE', [
        row.holder,
        row.renewed_at,
      ]);
      if (locked.count === 0) return false;
    }
    const { count } = await query(
      'UPDATE treadle.heads SET token = NULL, nonce = NULL WHERE id = $1 AND token = $2 AND nonce = $3',
      [row.id, row.token, row.nonce],
    );
    if (count > 0 && !unreleased.has(row.nonce!)) await countRecovery(query, row.run);
    return count > 0;
  }

  async function countRecovery(query: Query, run: Buffer): Promise<void> {
    await query(
      `UPDATE treadle.runs SET recovered = recovered + 1, recovered_at = treadle.now_ms() WHERE run = $1 AND status = 'running'`,
      [run],
    );
  }

  const { watch: watchDrivers, close: stopLooking } = watchHolders(async () => {
    const { rows } = await db.urgent<HolderRow>(HOLDERS, [holderId]);
    return rows.map((row) => ({
      name: row.id,
      isDead: row.left_ms <= 0 || isDead(row),
    }));
  });

  async function freeDead(query: Query, names: readonly Buffer[]): Promise<void> {
    const { rows } = await query<HeadRow>(`${HEAD} WHERE h.run = ANY ($1::bytea[]) AND h.token IS NOT NULL`, [names]);
    for (const row of rows) if (msUntilFree(row) === 0) await endDead(query, row);
  }

  async function expireDead(): Promise<void> {
    const { rows } = await db.read((query) => query<HolderRow>(HOLDERS, [holderId]));
    const dead = rows.filter((row) => row.left_ms > 0 && isDead(row));
    if (dead.length > 0) await db.write((query) => query(EXPIRE, [dead.map(({ id }) => id)]));
  }

  async function requireFree(query: Query, names: readonly Buffer[]): Promise<void> {
    const { rows } = await query<HeadRow>(`${HEAD} WHERE h.run = ANY ($1::bytea[]) AND h.token IS NOT NULL`, [names]);
    for (const row of rows) {
      const ms = msUntilFree(row);
      if (ms > 0 || !(await endDead(query, row))) throw runDriven(text(row.run), row as Driver, ms || ttlMs);
    }
  }

  async function releaseRun(runId: string, { force = false }: { readonly force?: boolean } = {}): Promise<boolean> {
    if (!force) await waitUntilFree(runId);
    const released = await db.write(async (query) => {
      const family = await familyOf(query, runId);
      for (const row of family) {
        const ms = msUntilFree(row);
        if (ms > 0 && !force) throw runDriven(text(row.run), row as Driver, ms);
        if (ms === 0 && (await endDead(query, row))) continue;
        await query('SELECT treadle.end_leases($1::bigint[], $2::uuid[], $3::bytea[])', [
          [row.token],
          [row.nonce],
          [row.run],
        ]);
        await query('UPDATE treadle.holders SET losses = losses + 1 WHERE id = $1', [row.holder]);
      }
      return family;
    });
    for (const { nonce } of released) {
      const lease = held.get(nonce!);
      if (lease) own.lose(lease, leaseLost(lease.runId, undefined));
    }
    return released.length > 0;
  }

  /** Waits once: a lease that is renewed meanwhile has a live driver. */
  async function waitUntilFree(runId: string): Promise<void> {
    const family = await db.read((query) => familyOf(query, runId));
    const waits = family.map(msUntilFree);
    const ms = Math.max(0, ...waits);
    if (ms > 0 && Number.isFinite(ms)) await new Promise((resolve) => setTimeout(resolve, ms + 10));
  }

  /** The leases of a run and its child runs. */
  async function familyOf(query: Query, runId: string): Promise<readonly HeadRow[]> {
    const { rows } = await query<HeadRow>(
      `${HEAD} WHERE (h.run = $1 OR (h.run > $1 || '.'::bytea AND h.run < $1 || '/'::bytea)) AND h.token IS NOT NULL`,
      [bytes(runId)],
    );
    return rows.filter((row) => /^(\.t\d+\.tool\.\d+)*$/.test(text(row.run).slice(runId.length)));
  }

  return {
    msUntilFree,
    isFree: (row) => msUntilFree(row) === 0,
    async isDriven(runId) {
      const row = await db.read((query) => findHead(query, runId));
      return row !== undefined && msUntilFree(row) > 0;
    },
    endDead,
    freeDead,
    requireFree,
    expireDead,
    releaseRun,
    watchDrivers,
    stopLooking,
  };
}

const HOLDERS = `SELECT id, host, pid, process_start, place, thread, renewed_at + ttl_ms - treadle.now_ms() AS left_ms
  FROM treadle.holders WHERE id <> $1`;

const EXPIRE = 'UPDATE treadle.holders SET renewed_at = renewed_at - ttl_ms WHERE id = ANY ($1::uuid[])';
