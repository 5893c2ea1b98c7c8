import type { DatabaseSync } from 'node:sqlite';
import type { Clock } from '@treadle/core';
import { holderState, type Holder, type ProcessState } from '../holder.ts';
import type { Driver } from '../records/errors.ts';
import type { FoundHolder } from '../records/watch-holders.ts';

export interface LeaseOptions {
  readonly ttlMs: number;
  /** By default a clock whose timers do not keep the process alive. */
  readonly clock?: Clock | undefined;
  readonly holder: Holder;
  /** Whether a process that `holder` can see runs. */
  readonly processState: (holder: Holder) => ProcessState;
}

export interface LeaseRow extends Driver {
  readonly token: number;
  readonly process_start: string | null;
  readonly place: string | null;
  /** Each renewal changes it. */
  readonly expires_at: number;
}

export interface FamilyRow extends LeaseRow {
  readonly run: string;
}

export interface Times {
  readonly monotonic: number;
  readonly wall: number;
}

/** When this store first saw a row of a process that cannot be seen from here. */
interface Sighting {
  readonly token: number;
  readonly renewal: number;
  /** By the monotonic clock. */
  readonly at: number;
}

/** The leases of all runs: which are free, and how those of dead drivers end (rules 2, 3 and 8 of `Leases`). */
export interface DrivenRuns {
  readonly leaseOf: (runId: string) => LeaseRow | undefined;
  /** The time until the lease can be taken over if nothing changes: 0 if it can be now, Infinity if its process lives. */
  readonly msUntilFree: (runId: string, row: LeaseRow) => number;
  /** Inside a write transaction. Removes the lease of a dead driver. */
  readonly currentDriver: (runId: string) => LeaseRow | undefined;
  /** Removes a lease that its driver did not release, or could not release yet. */
  readonly removeDead: (runId: string, token: number) => void;
  /** The leases of a run and its child runs. */
  readonly familyOf: (runId: string) => readonly FamilyRow[];
  /** The next driver of this run is another one. */
  readonly forgetSighting: (runId: string) => void;
  readonly findHolders: () => readonly FoundHolder[];
  readonly hasDriver: (runId: string) => boolean;
}

interface DrivenRunsParts extends Pick<LeaseOptions, 'ttlMs' | 'holder' | 'processState'> {
  /** Tokens of leases that this store holds. */
  readonly isHeld: (token: number) => boolean;
  /** Tokens that were released, but whose rows could not be deleted yet. */
  readonly unreleased: ReadonlySet<number>;
  readonly times: () => Times;
  readonly noteRead: () => void;
}

export function openDrivenRuns(
  db: DatabaseSync,
  { ttlMs, holder, processState, isHeld, unreleased, times, noteRead }: DrivenRunsParts,
): DrivenRuns {
  const findLease = db.prepare(`SELECT ${COLUMNS} FROM leases WHERE run = ?`);
  const deleteLease = db.prepare('DELETE FROM leases WHERE token = ?');
  const countRecovery = db.prepare(
    `UPDATE runs SET recovered = recovered + 1, recovered_at = ? WHERE run = ? AND status = 'running'`,
  );
  const findAll = db.prepare(`SELECT run, ${COLUMNS} FROM leases`);
  const findFamily = db.prepare(
    `SELECT run, ${COLUMNS} FROM leases
     WHERE run = ?1 OR (run > ?1 || '.' AND run < ?1 || '/')`,
  );
  /** Rows of processes that cannot be seen from here, by run. */
  const sightings = new Map<string, Sighting>();

  function leaseOf(runId: string): LeaseRow | undefined {
    // Not every caller is in a transaction.
    noteRead();
    return findLease.get(runId) as unknown as LeaseRow | undefined;
  }

  function msUntilFree(runId: string, row: LeaseRow): number {
    const { token, expires_at } = row;
    if (isHeld(token)) return Infinity;
    if (unreleased.has(token)) return 0;
    const state = holderState(holderOfRow(row), holder, processState);
    if (state !== 'elsewhere') return state === 'dead' ? 0 : Infinity;
    const { monotonic } = times();
    const seen = sightings.get(runId);
    if (seen?.token === token && seen.renewal === expires_at) return Math.max(0, seen.at + ttlMs - monotonic);
    sightings.set(runId, { token, renewal: expires_at, at: monotonic });
    forgetOldestSighting(monotonic);
    return ttlMs;
  }

  /** Called for each new sighting, so their number stays bounded. A run that is looked at again has to be watched again. */
  function forgetOldestSighting(now: number): void {
    const [oldest] = sightings;
    if (oldest && now - oldest[1].at > 10 * ttlMs) sightings.delete(oldest[0]);
  }

  function currentDriver(runId: string): LeaseRow | undefined {
    const row = leaseOf(runId);
    if (!row || msUntilFree(runId, row) > 0) return row;
    removeDead(runId, row.token);
    return undefined;
  }

  function removeDead(runId: string, token: number): void {
    deleteLease.run(token);
    if (!unreleased.has(token)) countRecovery.run(times().wall, runId);
  }

  function familyOf(runId: string): readonly FamilyRow[] {
    return (findFamily.all(runId) as unknown as FamilyRow[]).filter(({ run }) => isOfFamily(run, runId));
  }

  /** Holders of this place that had leases: those of a server that is stopped are released. */
  const seen = new Map<string, Holder>();

  function findHolders(): readonly FoundHolder[] {
    const found = new Map<string, FoundHolder>();
    for (const row of findAll.all() as unknown as readonly FamilyRow[]) {
      if (isHeld(row.token)) continue;
      const other = holderOfRow(row);
      const name = JSON.stringify(other);
      if (found.has(name)) continue;
      found.set(name, { name, isDead: msUntilFree(row.run, row) === 0 });
      if (holderState(other, holder, () => 'alive') === 'alive') seen.set(name, other);
    }
    for (const [name, other] of seen) {
      if (found.has(name)) continue;
      if (processState(other) === 'dead') seen.delete(name);
      else found.set(name, { name, isDead: false });
    }
    return [...found.values()];
  }

  function hasDriver(runId: string): boolean {
    const row = leaseOf(runId);
    return row !== undefined && msUntilFree(runId, row) > 0;
  }

  return {
    leaseOf,
    msUntilFree,
    currentDriver,
    removeDead,
    familyOf,
    forgetSighting: (runId) => void sightings.delete(runId),
    findHolders,
    hasDriver,
  };
}

const COLUMNS = 'token, host, pid, process_start, place, thread, since, expires_at';

function holderOfRow({ host, pid, process_start: startedAt, place, thread }: LeaseRow): Holder {
  return {
    host,
    pid,
    ...(startedAt !== null && { startedAt }),
    ...(place !== null && { place }),
    ...(thread !== null && { thread }),
  };
}

/** The ids of child runs are the id of the run, followed by the call that started them. */
function isOfFamily(runId: string, ancestor: string): boolean {
  return /^(\.t\d+\.tool\.\d+)*$/.test(runId.slice(ancestor.length));
}
