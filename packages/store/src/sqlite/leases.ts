import type { DatabaseSync } from 'node:sqlite';
import { systemClock, type Clock, type Lease, type TreadleError } from '@treadle/core';
import { churnMap, type ChurnMap } from '@treadle/core/churn';
import { leaseLost, runDriven, storeClosed } from '../records/errors.ts';
import type { FoundHolder } from '../records/watch-holders.ts';
import { openDrivenRuns, type DrivenRuns, type LeaseOptions, type LeaseRow, type Times } from './driven-runs.ts';
import type { GroupCommit } from './group-commit.ts';

/**
 * Leases record which process, or which thread of it, drives which run.
 *
 * 1. A run has at most one row in `leases`, and only the lease with the token of that row can append. The transaction that
 *    appends checks the token, so a driver that lost its lease can write nothing, even if it has not noticed yet.
 * 2. The lease of a process that can be seen from here (`holderState`) is replaced only if the process, or its thread, is
 *    known to be dead. A process that is suspended or busy keeps its leases.
 * 3. The lease of any other process is replaced only if this store has seen the same row for a full lease time, by its own
 *    monotonic clock. Times of other processes are never compared with the time here. `expires_at` is only a value that
 *    each renewal changes.
 * 4. A driver starts an effect only if its last renewal is so recent that rule 3 cannot apply yet, or after another
 *    renewal. An expired lease that nobody has taken over can be renewed: a tool that blocks the process for a minute, or a
 *    suspended laptop, does not end a run.
 * 5. A lease that is found to be lost aborts its signal, and with it everything that its driver does.
 * 6. Tokens only increase and are never reused, also after a backup was restored (see `backup.ts`).
 * 7. Leases are written, and need no sync of their own: nothing that is committed later is durable before them. A tool that
 *    is not `pure` starts only when the entry that issued its call is durable, and so is the lease that was acquired before.
 *    A lease or a token that a power failure loses has therefore been seen by nothing that acts.
 * 8. A lease that was not released by its driver, and is replaced by rule 2 or 3, is counted in the row of its run, in the
 *    same transaction, if the run was running. `releaseRun` counts it, too, unless a driver that may live is forced out.
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
  /** Those of other stores that have leases, or had some before: see `watchDrivers`. */
  readonly findHolders: () => readonly FoundHolder[];
  /** See `SqliteStore`. */
  readonly releaseRun: (runId: string, options?: { readonly force?: boolean }) => Promise<boolean>;
  /** Whether the lease is neither released nor lost, as far as this store has noticed. */
  readonly isHeld: (lease: Lease) => boolean;
  /** Stops the driver that has this lease. It still has to release it. */
  readonly fail: (lease: Lease, error: TreadleError) => void;
  /** Releases all leases of this store with the next transaction. */
  readonly close: () => void;
}

interface HeldLease {
  readonly runId: string;
  /** Just before the last renewal was committed. */
  renewed: Times;
  /** Its driver has released it, but the row may still exist. */
  isReleased?: true;
  readonly lost: AbortController;
}

interface Renewal {
  readonly renewed: Times;
  readonly kept: readonly number[];
  /** Tokens whose rows do not exist any more. */
  readonly gone: readonly number[];
}

export function openLeases(
  db: DatabaseSync,
  { write, flush, noteRead }: GroupCommit,
  { ttlMs, clock = backgroundClock, holder, processState }: LeaseOptions,
): Leases {
  /** For each append: a row with one column takes half of the time. */
  const findToken = db.prepare('SELECT token FROM leases WHERE run = ?');
  const insertLease = db.prepare(
    'INSERT INTO leases (run, host, pid, process_start, place, thread, since, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const deleteLease = db.prepare('DELETE FROM leases WHERE token = ?');
  /** Leases that this store holds, as far as it has noticed, by token. */
  const held = churnMap<number, HeldLease>();
  /** Tokens that were released, but whose rows could not be deleted yet. */
  const unreleased = new Set<number>();
  let cancelTimer: (() => void) | undefined;

  function times(): Times {
    return { monotonic: clock.monotonic?.() ?? performance.now(), wall: clock.now() };
  }

  const driven = openDrivenRuns(db, {
    ttlMs,
    holder,
    processState,
    isHeld: (token) => held.has(token),
    unreleased,
    times,
    noteRead,
  });
  const { leaseOf, msUntilFree, currentDriver, forgetSighting } = driven;
  const { confirmLease, renewLeases, checkHeld, lose } = renewals(db, {
    held,
    unreleased,
    times,
    ttlMs,
    write,
    leaseOf,
  });

  function checkWriter(runId: string, lease?: Lease): void {
    if (lease) {
      if (findToken.get(runId)?.['token'] !== lease.token) throw leaseLost(runId, leaseOf(runId));
    } else {
      const driver = currentDriver(runId);
      if (driver) throw runDriven(runId, driver, msUntilFree(runId, driver));
    }
  }

  async function acquire(runId: string): Promise<Lease> {
    const { token, renewed, takenOver } = await write(() => {
      const left = leaseOf(runId);
      checkWriter(runId);
      forgetSighting(runId);
      const { host, pid, startedAt = null, place = null, thread = null } = holder;
      const now = times();
      const inserted = insertLease.run(runId, host, pid, startedAt, place, thread, now.wall, now.wall + ttlMs);
      return { token: Number(inserted.lastInsertRowid), renewed: now, takenOver: left && !unreleased.has(left.token) };
    }, 'written');
    const lost = new AbortController();
    held.set(token, { runId, renewed, lost });
    scheduleRenewal();
    return {
      runId,
      token,
      ...(takenOver && { takenOver }),
      lost: lost.signal,
      confirm: () => confirmLease(runId, token),
      release: () => release(token),
    };
  }

  async function release(token: number): Promise<void> {
    const lease = held.get(token);
    if (!lease) return;
    lease.isReleased = true;
    await releaseAll([token]);
  }

  async function releaseAll(tokens: readonly number[]): Promise<void> {
    try {
      await write(() => deleteAll(tokens), 'hidden');
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
    renewLeases([...held.keys()]).catch(checkHeld);
    if (unreleased.size > 0) void releaseAll([...unreleased]);
    flush();
  }

  function close(): void {
    cancelTimer?.();
    const tokens = [...held.keys(), ...unreleased];
    for (const [token, { runId }] of held) lose(token, storeClosed(runId));
    if (tokens.length > 0) write(() => deleteAll(tokens), 'hidden').catch(() => {});
  }

  return {
    acquire,
    checkWriter,
    isDriven: (runId) => currentDriver(runId) !== undefined,
    hasDriver: driven.hasDriver,
    findHolders: driven.findHolders,
    releaseRun: runRelease(db, { driven, write, lose, clock }),
    isHeld: ({ token }) => isDriving(held.get(token)),
    fail: ({ token }, error) => held.get(token)?.lost.abort(error),
    close,
  };
}

interface Renewals {
  /** Returns nothing while no other host can have seen the same row for a full lease time, with a third of it to spare. */
  readonly confirmLease: (runId: string, token: number) => void | Promise<void>;
  readonly renewLeases: (tokens: readonly number[]) => Promise<void>;
  /** After a renewal that failed: another process may be able to write. If nothing can be read either, a lease expires. */
  readonly checkHeld: () => void;
  /** Stops the driver. */
  readonly lose: (token: number, error?: TreadleError) => void;
}

interface RenewalsParts {
  readonly held: ChurnMap<number, HeldLease>;
  readonly unreleased: Set<number>;
  readonly times: () => Times;
  readonly ttlMs: number;
  readonly write: GroupCommit['write'];
  readonly leaseOf: DrivenRuns['leaseOf'];
}

function renewals(db: DatabaseSync, { held, unreleased, times, ttlMs, write, leaseOf }: RenewalsParts): Renewals {
  const renewLease = db.prepare('UPDATE leases SET expires_at = max(?, expires_at + 1) WHERE token = ?');

  function confirmLease(runId: string, token: number): void | Promise<void> {
    const lease = held.get(token);
    if (lease && elapsedSince(lease.renewed) < (ttlMs * 2) / 3) return undefined;
    return renewNow(runId, token);
  }

  async function renewNow(runId: string, token: number): Promise<void> {
    if (held.has(token)) await renewLeases([token]);
    if (!held.has(token)) throw leaseLost(runId, rowIfReadable(runId));
  }

  /** A suspended machine may stop its monotonic clock, so the driver trusts whichever clock has moved further. */
  function elapsedSince(renewed: Times): number {
    const now = times();
    return Math.max(now.monotonic - renewed.monotonic, now.wall - renewed.wall);
  }

  async function renewLeases(tokens: readonly number[]): Promise<void> {
    const { renewed, kept, gone } = await write(() => renewRows(tokens), 'hidden');
    for (const token of kept) {
      const lease = held.get(token);
      if (lease) lease.renewed = renewed;
    }
    for (const token of gone) lose(token);
  }

  /** Reads the time inside the transaction: another store can see the new rows only later. */
  function renewRows(tokens: readonly number[]): Renewal {
    const renewed = times();
    const kept: number[] = [];
    const gone: number[] = [];
    for (const token of tokens) {
      (renewLease.run(renewed.wall + ttlMs, token).changes > 0 ? kept : gone).push(token);
    }
    return { renewed, kept, gone };
  }

  function checkHeld(): void {
    for (const [token, { runId, renewed }] of held) {
      try {
        if (leaseOf(runId)?.token !== token) lose(token);
      } catch {
        if (elapsedSince(renewed) < ttlMs) continue;
        lose(token);
        unreleased.add(token);
      }
    }
  }

  function lose(token: number, error?: TreadleError): void {
    const lease = held.get(token);
    if (!lease) return;
    held.delete(token);
    lease.lost.abort(error ?? leaseLost(lease.runId, rowIfReadable(lease.runId)));
  }

  function rowIfReadable(runId: string): LeaseRow | undefined {
    try {
      return leaseOf(runId);
    } catch {
      return undefined;
    }
  }

  return { confirmLease, renewLeases, checkHeld, lose };
}

interface ReleaseParts {
  readonly driven: DrivenRuns;
  readonly write: GroupCommit['write'];
  readonly lose: Renewals['lose'];
  readonly clock: Clock;
}

function runRelease(db: DatabaseSync, { driven, write, lose, clock }: ReleaseParts): Leases['releaseRun'] {
  const { familyOf, msUntilFree, removeDead } = driven;
  const deleteLease = db.prepare('DELETE FROM leases WHERE token = ?');

  async function releaseRun(runId: string, { force = false }: { readonly force?: boolean } = {}): Promise<boolean> {
    if (!force) await waitUntilFree(runId);
    const released = await write(() => {
      const family = familyOf(runId);
      for (const row of family) {
        const ms = msUntilFree(row.run, row);
        if (ms > 0 && !force) throw runDriven(row.run, row, ms);
        if (ms > 0) deleteLease.run(row.token);
        else removeDead(row.run, row.token);
      }
      return family;
    });
    for (const { token } of released) lose(token);
    return released.length > 0;
  }

  /** Waits once: a lease that is renewed meanwhile has a live driver. */
  async function waitUntilFree(runId: string): Promise<void> {
    const waits = await write(() => familyOf(runId).map((row) => msUntilFree(row.run, row)), 'written');
    const ms = Math.max(0, ...waits.filter(Number.isFinite));
    const waitingClock = clock === backgroundClock ? systemClock : clock;
    if (ms === 0 || waits.includes(Infinity)) return;
    await new Promise<void>((resolve) => void waitingClock.timer(ms + TIMER_ERROR_MS, resolve));
  }

  return releaseRun;
}

function isDriving(lease: HeldLease | undefined): boolean {
  return lease !== undefined && !lease.isReleased && !lease.lost.signal.aborted;
}

/** A timer of the platform may fire a little early. */
const TIMER_ERROR_MS = 10;

const backgroundClock: Clock = {
  now: () => Date.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, ms).unref();
    return () => clearTimeout(timer);
  },
};
