import { randomUUID } from 'node:crypto';
import { TreadleError, type Lease } from '@treadle/core';
import { holderState, type Holder, type ProcessState } from '../holder.ts';
import { leaseLost, runDriven, storeClosed, type Driver } from '../records/errors.ts';
import { bytes, text, type Database, type Query } from './connection.ts';
import { isDisconnected, storeError } from './failure.ts';
import type { Job, Jobs, Kind, RunQueue } from './run-queue.ts';

/**
 * Leases record which process, or which thread of it, drives which run.
 *
 * 1. The head of a run has at most one lease: its token, and a nonce that is random. Only with both can entries be appended. So a
 *    driver that lost its lease can write nothing, even if the database was restored and gives the same tokens again.
 * 2. A lease is durable when it is acquired. What the database loses in a crash was therefore written with a lease that it knows.
 * 3. Whether a lease has expired is decided by the clock of the database: `ttlMs` after its last renewal. An append renews it.
 *    One of a process that is known here to be dead (`holderState`) is free at once. A process that is frozen loses its leases.
 * 4. A driver starts an effect only if less than two thirds of `ttlMs` have passed since it sent its last renewal, or after
 *    another one. A store that could not renew for `ttlMs` aborts its leases. An expired lease that nobody has taken over can be
 *    renewed.
 * 5. A lease that was not released by its driver, and is replaced, is counted in the row of its run, if the run was running.
 */
export interface Leases {
  readonly acquire: (runId: string) => Promise<Lease>;
  /** The kinds of jobs that `queue` performs. */
  readonly kinds: Readonly<Record<'acquire' | 'end', Kind>>;
  /** Null: there is no lease. */
  readonly keyOf: (lease: Lease | undefined) => LeaseKey | undefined;
  /** Why an append with this lease, or without one, did not fit the head. Undefined: not because of the lease. Frees a dead one. */
  readonly problem: (
    runId: string,
    row: HeadRow | undefined,
    lease: Lease | undefined,
  ) => Promise<TreadleError | undefined>;
  /** In a transaction that has locked the heads: throws `run-driven` if one of them has a driver. Frees those of dead ones. */
  readonly requireFree: (query: Query, names: readonly Buffer[]) => Promise<void>;
  /** Ends the leases of drivers that are known to be dead here, so that functions of the database see that. */
  readonly freeDead: (query: Query, names: readonly Buffer[]) => Promise<void>;
  readonly isDriven: (runId: string) => Promise<boolean>;
  readonly releaseRun: (runId: string, options?: { readonly force?: boolean }) => Promise<boolean>;
  readonly isHeld: (lease: Lease) => boolean;
  /** Stops the driver that has this lease. It still has to release it. */
  readonly fail: (lease: Lease, error: TreadleError) => void;
  /** An append with this lease, sent at this time, has succeeded. */
  readonly renewed: (lease: Lease, at: Times) => void;
  readonly times: () => Times;
  /** Releases all leases of this store. */
  readonly close: () => Promise<void>;
}

export interface LeaseKey {
  readonly token: number;
  readonly nonce: string;
}

export interface Times {
  readonly monotonic: number;
  readonly wall: number;
}

export interface LeaseOptions {
  readonly ttlMs: number;
  readonly holder: Holder;
  readonly processState: (holder: Holder) => ProcessState;
  readonly retryMs: number;
}

/** A row of `heads`. */
export interface HeadRow extends Driver {
  readonly id: number;
  readonly run: Buffer;
  readonly entries: number;
  readonly token: number | null;
  readonly nonce: string | null;
  readonly ttl_ms: number;
  readonly renewed_at: number;
  /** The milliseconds since it was renewed, by the clock of the database. */
  readonly age: number;
  readonly process_start: string | null;
  readonly place: string | null;
}

const HEAD = `SELECT id, run, entries, token, nonce, ttl_ms, since, renewed_at, treadle.now_ms() - renewed_at AS age, host, pid,
  process_start, place, thread FROM treadle.heads`;

interface HeldLease extends LeaseKey {
  readonly runId: string;
  renewedAt: Times;
  isReleased?: true;
  readonly lost: AbortController;
}

interface AcquireJob extends Job, PromiseWithResolvers<{ readonly token: number; readonly takenOver: boolean }> {
  readonly nonce: string;
}

interface EndJob extends Job, PromiseWithResolvers<void> {
  readonly lease: HeldLease;
}

/** A store that cannot renew gets so long after it has tried, even if its event loop was blocked. */
const LEAST_ATTEMPT_MS = 500;

export function openLeases(db: Database, queue: () => RunQueue, options: LeaseOptions): Leases {
  const { ttlMs, holder, processState, retryMs } = options;
  /** Leases that this store holds, as far as it has noticed, by nonce. */
  const held = new Map<string, HeldLease>();
  /** Those that were released, but could not be ended yet. */
  const unreleased = new Map<string, HeldLease>();
  /** By their signals, which copies of a lease have too. */
  const bySignal = new WeakMap<AbortSignal, HeldLease>();
  const heldAs = ({ lost }: Lease): HeldLease | undefined => lost && bySignal.get(lost);
  let timer: NodeJS.Timeout | undefined;
  let isRenewing = false;

  const times = (): Times => ({ monotonic: performance.now(), wall: Date.now() });

  /** A suspended machine may stop its monotonic clock, so the driver trusts whichever clock has moved further. */
  function elapsedSince(at: Times): number {
    const now = times();
    return Math.max(now.monotonic - at.monotonic, now.wall - at.wall);
  }

  async function headOf(query: Query, name: Buffer | null): Promise<HeadRow | undefined> {
    return (await query<HeadRow>(`${HEAD} WHERE run = $1`, [name])).rows[0];
  }

  /** The time until the lease can be taken over if nothing changes; 0 if it can be now. */
  function msUntilFree(row: HeadRow): number {
    if (row.token === null) return 0;
    if (held.has(row.nonce!)) return Infinity;
    if (unreleased.has(row.nonce!)) return 0;
    if (holderState(holderOfRow(row), holder, processState) === 'dead') return 0;
    return Math.max(0, row.ttl_ms - row.age);
  }

  /** Ends a lease that its driver did not release, or could not. False if it was renewed or replaced meanwhile. */
  async function endDead(query: Query, row: HeadRow): Promise<boolean> {
    const { count } = await query(
      'UPDATE treadle.heads SET token = NULL, nonce = NULL WHERE id = $1 AND token = $2 AND nonce = $3 AND renewed_at = $4',
      [row.id, row.token, row.nonce, row.renewed_at],
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

  async function acquire(runId: string): Promise<Lease> {
    const nonce = randomUUID();
    const job: AcquireJob = { kind: 'acquire', runId, isAccepted: false, chars: 0, nonce, ...Promise.withResolvers() };
    const renewedAt = times();
    queue().add(job);
    const { token, takenOver } = await job.promise;
    const lost = new AbortController();
    const one: HeldLease = { runId, token, nonce, renewedAt, lost };
    held.set(nonce, one);
    scheduleRenewal();
    bySignal.set(lost.signal, one);
    return {
      runId,
      token,
      ...(takenOver && { takenOver }),
      lost: lost.signal,
      confirm: () => confirmLease(one),
      release: () => release(one),
    };
  }

  /** Performs each of them alone if not all can be had at once. */
  async function performAcquires(groups: readonly Jobs[]): Promise<void> {
    const jobs = groups.map(([job]) => job as AcquireJob);
    let found: ReadonlyMap<string, number> = new Map();
    try {
      const { rows } = await db.once<{ readonly run: Buffer; readonly token: number }>(ACQUIRE, [
        jobs.map(({ runId }) => bytes(runId)),
        jobs.map(({ nonce }) => nonce),
        ...holderColumns(),
      ]);
      found = new Map(rows.map(({ run, token }) => [text(run), token]));
    } catch (error) {
      // Whatever it was, each of them finds out.
      if (!isDisconnected(error)) return jobs.forEach(({ reject }) => reject(storeError(error, db.location)));
    }
    await Promise.all(
      jobs.map(async (job) => {
        const token = found.get(job.runId);
        try {
          job.resolve(token === undefined ? await takeLease(job) : { token, takenOver: false });
        } catch (error) {
          job.reject(storeError(error, db.location));
        }
      }),
    );
  }

  function holderColumns(): readonly unknown[] {
    const { host, pid, startedAt = null, place = null, thread = null } = holder;
    return [ttlMs, host, pid, startedAt, place, thread];
  }

  function takeLease({ runId, nonce }: AcquireJob): Promise<{ readonly token: number; readonly takenOver: boolean }> {
    const name = bytes(runId);
    return db.write(async (query) => {
      for (;;) {
        const { rows } = await query<{ readonly token: number }>(ACQUIRE, [[name], [nonce], ...holderColumns()]);
        if (rows[0]) return { token: rows[0].token, takenOver: false };
        const row = await headOf(query, name);
        // It was released meanwhile, or it was given before the connection was lost.
        if (!row) continue;
        if (row.nonce === nonce) return { token: row.token!, takenOver: false };
        const ms = msUntilFree(row);
        if (ms > 0) throw runDriven(runId, row, ms);
        const takenOver = !unreleased.has(row.nonce!);
        if (row.token !== null && !(await endDead(query, row))) continue;
        const { rows: taken } = await query<{ readonly token: number }>(ACQUIRE, [[name], [nonce], ...holderColumns()]);
        if (taken[0]) return { token: taken[0].token, takenOver };
      }
    });
  }

  function confirmLease(lease: HeldLease): void | Promise<void> {
    if (held.has(lease.nonce) && elapsedSince(lease.renewedAt) < (ttlMs * 2) / 3) return undefined;
    return renewNow(lease);
  }

  async function renewNow(lease: HeldLease): Promise<void> {
    if (held.has(lease.nonce)) await renewLeases([lease]);
    // A row that an append has locked is renewed by that append, or not at all.
    if (held.has(lease.nonce) && elapsedSince(lease.renewedAt) < ttlMs) return;
    throw lease.lost.signal.reason instanceof TreadleError
      ? lease.lost.signal.reason
      : leaseLost(lease.runId, undefined);
  }

  async function release(lease: HeldLease): Promise<void> {
    if (!held.has(lease.nonce) || lease.isReleased) return;
    lease.isReleased = true;
    await end(lease);
  }

  async function end(lease: HeldLease): Promise<void> {
    const { runId } = lease;
    const job: EndJob = { kind: 'end', runId, isAccepted: false, chars: 0, lease, ...Promise.withResolvers<void>() };
    queue().add(job);
    await job.promise;
  }

  async function performEnds(groups: readonly Jobs[]): Promise<void> {
    const jobs = groups.flat() as EndJob[];
    const ended = jobs.map(({ lease }) => lease);
    try {
      await db.once(
        `SELECT treadle.end_leases($1::bigint[], $2::uuid[], $3::bytea[]), set_config('synchronous_commit', 'off', true)`,
        [ended.map(({ token }) => token), ended.map(({ nonce }) => nonce), ended.map(({ runId }) => bytes(runId))],
      );
      for (const { nonce } of ended) unreleased.delete(nonce);
    } catch {
      for (const lease of ended) unreleased.set(lease.nonce, lease);
      scheduleRenewal();
    }
    for (const { nonce } of ended) held.delete(nonce);
    for (const { resolve } of jobs) resolve();
  }

  function scheduleRenewal(): void {
    timer ??= setTimeout(renewAndRelease, ttlMs / 3).unref();
  }

  function renewAndRelease(): void {
    timer = undefined;
    if (held.size + unreleased.size === 0) return;
    scheduleRenewal();
    for (const lease of unreleased.values()) void end(lease);
    if (isRenewing || held.size === 0) return;
    isRenewing = true;
    const watchdog = setTimeout(loseExpired, Math.max(LEAST_ATTEMPT_MS, ttlMs - oldestElapsed())).unref();
    renewLeases([...held.values()])
      .catch(() => loseExpired())
      .finally(() => {
        isRenewing = false;
        clearTimeout(watchdog);
      });
  }

  function oldestElapsed(): number {
    return Math.max(0, ...[...held.values()].map(({ renewedAt }) => elapsedSince(renewedAt)));
  }

  /** The database cannot be reached: others may take over the leases that were not renewed. */
  function loseExpired(): void {
    for (const lease of held.values()) {
      if (elapsedSince(lease.renewedAt) < ttlMs) continue;
      unreleased.set(lease.nonce, lease);
      lose(lease, notRenewed(lease.runId, db.location));
    }
  }

  /** Skips rows that an append has locked: it renews them. */
  async function renewLeases(leases: readonly HeldLease[]): Promise<void> {
    const at = times();
    const values = [
      leases.map(({ runId }) => bytes(runId)),
      leases.map(({ token }) => token),
      leases.map(({ nonce }) => nonce),
    ];
    const { rows } = await db.once<{ readonly nonce: string }>(RENEW, values);
    const renewed = new Set(rows.map(({ nonce }) => nonce));
    for (const lease of leases) if (renewed.has(lease.nonce)) lease.renewedAt = at;
    const missing = leases.filter(({ nonce }) => !renewed.has(nonce) && held.has(nonce));
    if (missing.length === 0) return;
    const found = await db.once<HeadRow>(`${HEAD} WHERE run = ANY ($1::bytea[])`, [
      missing.map(({ runId }) => bytes(runId)),
    ]);
    const byRun = new Map(found.rows.map((row) => [text(row.run), row]));
    for (const lease of missing) {
      const row = byRun.get(lease.runId);
      if (row?.nonce !== lease.nonce && !lease.isReleased) lose(lease, leaseLost(lease.runId, driverOf(row)));
    }
  }

  function lose(lease: HeldLease, error: TreadleError): void {
    if (!held.delete(lease.nonce)) return;
    lease.lost.abort(error);
  }

  async function freeDead(query: Query, names: readonly Buffer[]): Promise<void> {
    const { rows } = await query<HeadRow>(`${HEAD} WHERE run = ANY ($1::bytea[]) AND token IS NOT NULL`, [names]);
    for (const row of rows) if (msUntilFree(row) === 0) await endDead(query, row);
  }

  async function requireFree(query: Query, names: readonly Buffer[]): Promise<void> {
    const { rows } = await query<HeadRow>(`${HEAD} WHERE run = ANY ($1::bytea[]) AND token IS NOT NULL`, [names]);
    for (const row of rows) {
      const ms = msUntilFree(row);
      if (ms > 0) throw runDriven(text(row.run), row, ms);
      await endDead(query, row);
    }
  }

  async function releaseRun(runId: string, { force = false }: { readonly force?: boolean } = {}): Promise<boolean> {
    if (!force) await waitUntilFree(runId);
    const released = await db.write(async (query) => {
      const family = await familyOf(query, runId);
      for (const row of family) {
        const ms = msUntilFree(row);
        if (ms > 0 && !force) throw runDriven(text(row.run), row, ms);
        if (ms > 0)
          await query('SELECT treadle.end_leases($1::bigint[], $2::uuid[], $3::bytea[])', [
            [row.token],
            [row.nonce],
            [row.run],
          ]);
        else await endDead(query, row);
      }
      return family;
    });
    for (const { nonce } of released) {
      const lease = held.get(nonce!);
      if (lease) lose(lease, leaseLost(lease.runId, undefined));
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
      `${HEAD} WHERE (run = $1 OR (run > $1 || '.'::bytea AND run < $1 || '/'::bytea)) AND token IS NOT NULL`,
      [bytes(runId)],
    );
    return rows.filter((row) => /^(\.t\d+\.tool\.\d+)*$/.test(text(row.run).slice(runId.length)));
  }

  return {
    acquire,
    kinds: {
      acquire: { isJoined: () => false, perform: performAcquires },
      end: { isJoined: () => true, perform: performEnds },
    },
    keyOf: (lease) => (lease ? (heldAs(lease) ?? { token: lease.token, nonce: NO_NONCE }) : undefined),
    async problem(runId, row, lease) {
      if (lease) {
        const key = heldAs(lease);
        return key && row?.token === key.token && row.nonce === key.nonce ? undefined : leaseLost(runId, driverOf(row));
      }
      if (!row || row.token === null) return undefined;
      const ms = msUntilFree(row);
      if (ms > 0) return runDriven(runId, row, ms);
      await db.write((query) => endDead(query, row));
      return undefined;
    },
    requireFree,
    freeDead,
    async isDriven(runId) {
      const row = await db.read((query) => headOf(query, bytes(runId)));
      return row !== undefined && msUntilFree(row) > 0;
    },
    releaseRun,
    isHeld(lease) {
      const one = heldAs(lease);
      return one !== undefined && held.has(one.nonce) && !one.isReleased && !one.lost.signal.aborted;
    },
    fail: (lease, error) => heldAs(lease)?.lost.abort(error),
    renewed(lease, at) {
      const one = heldAs(lease);
      if (one) one.renewedAt = at;
    },
    times,
    async close() {
      clearTimeout(timer);
      const all = [...held.values(), ...unreleased.values()];
      for (const lease of held.values()) {
        unreleased.set(lease.nonce, lease);
        lose(lease, storeClosed(lease.runId));
      }
      await Promise.race([Promise.all(all.map(end)), new Promise((resolve) => setTimeout(resolve, retryMs).unref())]);
      clearTimeout(timer);
    },
  };
}

/** No lease has it. */
const NO_NONCE = '00000000-0000-0000-0000-000000000000';

const ACQUIRE = 'SELECT run, token FROM treadle.acquire_leases($1::bytea[], $2::uuid[], $3, $4, $5, $6, $7, $8)';

const RENEW = `UPDATE treadle.heads h SET renewed_at = greatest(treadle.now_ms(), h.renewed_at + 1)
  FROM (SELECT id FROM treadle.heads JOIN unnest($1::bytea[], $2::bigint[], $3::uuid[]) AS l (run, token, nonce) USING (run, token, nonce)
    ORDER BY id FOR UPDATE SKIP LOCKED) AS mine
  WHERE h.id = mine.id RETURNING h.nonce, set_config('synchronous_commit', 'off', true)`;

function driverOf(row: HeadRow | undefined): HeadRow | undefined {
  return row && row.token !== null ? row : undefined;
}

function holderOfRow({ host, pid, process_start: startedAt, place, thread }: HeadRow): Holder {
  return {
    host,
    pid,
    ...(startedAt !== null && { startedAt }),
    ...(place !== null && { place }),
    ...(thread !== null && { thread }),
  };
}

function notRenewed(runId: string, location: string): TreadleError {
  return new TreadleError(
    'lease-lost',
    `The lease of run "${runId}" could not be renewed in time, because the store ${location} cannot be reached. Another process may drive the run now; resume it later.`,
  );
}

/** Reads the head of a run. */
export async function findHead(query: Query, runId: string): Promise<HeadRow | undefined> {
  return (await query<HeadRow>(`${HEAD} WHERE run = $1`, [bytes(runId)])).rows[0];
}
