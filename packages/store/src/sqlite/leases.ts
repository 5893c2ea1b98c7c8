import type { DatabaseSync } from 'node:sqlite';
import { TreadleError, type Clock, type Lease } from '@treadle/core';
import { processState, type Holder } from '../holder.ts';
import type { GroupCommit } from './group-commit.ts';

/**
 * Leases record which process drives which run.
 *
 * 1. A run has at most one row in `leases`, and only the lease with the token of that row can append. The transaction that
 *    appends checks the token, so a driver that lost its lease can write nothing, even if it has not noticed yet.
 * 2. A row is replaced only if its holder is known to be dead, or if the lease has expired.
 * 3. An expired lease that nobody has taken over stays valid. A tool that blocks the process for a minute, or a suspended
 *    laptop, does not end a run.
 * 4. Tokens only increase and are never reused.
 */
export interface Leases {
  readonly acquire: (runId: string) => Promise<Lease>;
  /**
   * Inside a transaction: throws `lease-lost` if this lease is no longer valid, or, without a lease, `run-driven` if
   * another driver has one.
   */
  readonly checkWriter: (runId: string, lease?: Lease) => void;
  /** Inside a write transaction: whether the run has a driver. Deletes the lease of a dead driver. */
  readonly isDriven: (runId: string) => boolean;
  /** Like `isDriven`, but only reads. */
  readonly hasDriver: (runId: string) => boolean;
  /** Releases all leases of this store with the next transaction. */
  readonly close: () => void;
}

export interface LeaseOptions {
  readonly ttlMs: number;
  /** By default a clock whose timers do not keep the process alive. */
  readonly clock?: Clock | undefined;
  readonly holder: Holder;
}

interface LeaseRow {
  readonly token: number;
  readonly host: string;
  readonly pid: number;
  readonly process_start: string | null;
  readonly since: number;
  readonly expires_at: number;
}

export function openLeases(
  db: DatabaseSync,
  { write, flush }: GroupCommit,
  { ttlMs, clock = backgroundClock, holder }: LeaseOptions,
): Leases {
  const findLease = db.prepare('SELECT token, host, pid, process_start, since, expires_at FROM leases WHERE run = ?');
  const insertLease = db.prepare(
    'INSERT INTO leases (run, host, pid, process_start, since, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
  );
  const deleteLease = db.prepare('DELETE FROM leases WHERE token = ?');
  const renewLease = db.prepare('UPDATE leases SET expires_at = ? WHERE token = ?');
  /** Tokens that this store holds, as far as it has noticed. */
  const held = new Set<number>();
  /** Tokens that were released, but whose rows could not be deleted yet. */
  const unreleased = new Set<number>();
  let cancelTimer: (() => void) | undefined;

  function leaseOf(runId: string): LeaseRow | undefined {
    return findLease.get(runId) as unknown as LeaseRow | undefined;
  }

  function isHeld({ token, host, pid, process_start, expires_at }: LeaseRow): boolean {
    if (held.has(token)) return true;
    if (unreleased.has(token)) return false;
    const other = { host, pid, ...(process_start !== null && { startedAt: process_start }) };
    if (host === holder.host && processState(other) === 'dead') return false;
    // A working process renews its lease. One that has let it expire is stuck, and can append nothing after a takeover.
    return expires_at > clock.now();
  }

  function currentDriver(runId: string): LeaseRow | undefined {
    const row = leaseOf(runId);
    if (!row || isHeld(row)) return row;
    deleteLease.run(row.token);
    return undefined;
  }

  function checkWriter(runId: string, lease?: Lease): void {
    if (lease) {
      const row = leaseOf(runId);
      if (row?.token !== lease.token) throw leaseLost(runId, row);
    } else {
      const driver = currentDriver(runId);
      if (driver) throw runDriven(runId, driver);
    }
  }

  async function acquire(runId: string): Promise<Lease> {
    const { token, takenOver } = await write(() => {
      const left = leaseOf(runId);
      checkWriter(runId);
      const { host, pid, startedAt = null } = holder;
      const now = clock.now();
      const inserted = insertLease.run(runId, host, pid, startedAt, now, now + ttlMs);
      return { token: Number(inserted.lastInsertRowid), takenOver: left && !unreleased.has(left.token) };
    });
    held.add(token);
    scheduleRenewal();
    return { runId, token, ...(takenOver && { takenOver }), release: () => release(token) };
  }

  async function release(token: number): Promise<void> {
    if (held.has(token)) await releaseAll([token]);
  }

  async function releaseAll(tokens: readonly number[]): Promise<void> {
    try {
      await write(() => deleteAll(tokens));
      for (const token of tokens) unreleased.delete(token);
    } catch {
      for (const token of tokens) {
        held.delete(token);
        unreleased.add(token);
      }
      scheduleRenewal();
    }
  }

  function deleteAll(tokens: readonly number[]): void {
    for (const token of tokens) {
      deleteLease.run(token);
      held.delete(token);
    }
  }

  function scheduleRenewal(): void {
    cancelTimer ??= clock.timer(ttlMs / 3, renewAndRelease);
  }

  function renewAndRelease(): void {
    cancelTimer = undefined;
    if (held.size + unreleased.size === 0) return;
    scheduleRenewal();
    // While this store cannot write, no other process can take over a lease either.
    write(renewHeld).catch(() => {});
    if (unreleased.size > 0) void releaseAll([...unreleased]);
    flush();
  }

  /** Forgets leases that were taken over; their drivers get `lease-lost` when they write. */
  function renewHeld(): void {
    for (const token of held) if (renewLease.run(clock.now() + ttlMs, token).changes === 0) held.delete(token);
  }

  function close(): void {
    cancelTimer?.();
    const tokens = [...held, ...unreleased];
    write(() => deleteAll(tokens)).catch(() => {});
  }

  function hasDriver(runId: string): boolean {
    const row = leaseOf(runId);
    return row !== undefined && isHeld(row);
  }

  return { acquire, checkWriter, isDriven: (runId) => currentDriver(runId) !== undefined, hasDriver, close };
}

const backgroundClock: Clock = {
  now: () => Date.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, ms).unref();
    return () => clearTimeout(timer);
  },
};

function runDriven(runId: string, { host, pid, since }: LeaseRow): TreadleError {
  return new TreadleError(
    'run-driven',
    `Run "${runId}" is driven by process ${pid} on host ${host} since ${new Date(since).toISOString()}. ` +
      'Wait until it is done, or end that process, and retry.',
  );
}

function leaseLost(runId: string, row: LeaseRow | undefined): TreadleError {
  const reason = row
    ? `The run is now driven by process ${row.pid} on host ${row.host}.`
    : 'It was released, or the run was deleted.';
  return new TreadleError('lease-lost', `The lease of run "${runId}" is lost, so nothing was written. ${reason}`);
}
