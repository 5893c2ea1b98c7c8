import { randomUUID } from 'node:crypto';
import { TreadleError, type Lease } from '@treadle/core';
import { isDeadHere, type Holder, type ProcessState } from '../holder.ts';
import { watchHolders } from '../records/watch-holders.ts';
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
 * 3. All leases of a store have one holder, a row of `holders`, and are renewed by it. Whether they have expired is decided by the
 *    clock of the database: `ttlMs` after its last renewal. Those of a process that is known here to be dead (`isDeadHere`) are
 *    free at once. A process that is frozen loses its leases.
 * 4. A driver starts an effect only if less than two thirds of `ttlMs` have passed since the store sent its last renewal, or after
 *    another one. A store that could not renew for `ttlMs` aborts its leases. Expired leases that nobody has taken over can be
 *    renewed.
 * 5. Who ends a lease of another holder locks that row, unless it was renewed meanwhile. So a renewal waits, and then finds that it
 *    was late: `losses` has changed, and the store looks which of its leases are left. Force changes `losses` too.
 * 6. A lease that was not released by its driver, and is replaced, is counted in the row of its run, if the run was running.
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
  /** Whether a lease can be taken now. */
  readonly isFree: (row: LeaseRow) => boolean;
  /** In a transaction that has locked the heads: throws `run-driven` if one of them has a driver. Frees those of dead ones. */
  readonly requireFree: (query: Query, names: readonly Buffer[]) => Promise<void>;
  /** Ends the leases of drivers that are known to be dead here, so that functions of the database see that. */
  readonly freeDead: (query: Query, names: readonly Buffer[]) => Promise<void>;
  /** Lets all leases of processes that are known to be dead here expire. */
  readonly expireDead: () => Promise<void>;
  readonly isDriven: (runId: string) => Promise<boolean>;
  /** See `StoredRuns`. */
  readonly watchDrivers: (listener: () => void) => () => void;
  readonly releaseRun: (runId: string, options?: { readonly force?: boolean }) => Promise<boolean>;
  readonly isHeld: (lease: Lease) => boolean;
  /** Stops the driver that has this lease. It still has to release it. */
  readonly fail: (lease: Lease, error: TreadleError) => void;
  /** Releases all leases of this store. */
  readonly close: () => Promise<void>;
}

export interface LeaseKey {
  readonly token: number;
  readonly nonce: string;
}

interface Times {
  readonly monotonic: number;
  readonly wall: number;
}

export interface LeaseOptions {
  readonly ttlMs: number;
  readonly holder: Holder;
  readonly processState: (holder: Holder) => ProcessState;
  readonly retryMs: number;
}

interface HolderColumns extends Pick<Driver, 'thread'> {
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
interface HeadRow extends LeaseRow {
  readonly id: number;
  readonly run: Buffer;
  readonly entries: number;
}

/** The columns of a `LeaseRow`, of `heads AS h` with `LEASE_HOLDER`. */
export const LEASE_COLUMNS = `h.token, h.nonce, h.holder, h.since, o.renewed_at, o.renewed_at + o.ttl_ms - treadle.now_ms() AS left_ms,
  o.host, o.pid, o.process_start, o.place, o.thread`;
export const LEASE_HOLDER = 'LEFT JOIN treadle.holders o ON o.id = h.holder AND h.token IS NOT NULL';

const HEAD = `SELECT h.id, h.run, h.entries, ${LEASE_COLUMNS} FROM treadle.heads h ${LEASE_HOLDER}`;

interface HolderRow extends HolderColumns {
  readonly id: string;
  readonly left_ms: number;
}

interface HeldLease {
  readonly runId: string;
  readonly nonce: string;
  /** Null: it was asked for, and may have been given. */
  readonly token: number | null;
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
  const holderId = randomUUID();
  /** When the last renewal that succeeded was sent. */
  let renewedAt: Times | undefined;
  /** See `losses` of `holders`. */
  let losses: number | undefined;
  let timer: NodeJS.Timeout | undefined;
  let renewing: Promise<void> | undefined;

  const times = (): Times => ({ monotonic: performance.now(), wall: Date.now() });

  /** A suspended machine may stop its monotonic clock, so the driver trusts whichever clock has moved further. */
  function sinceRenewal(): number {
    if (!renewedAt) return Infinity;
    const now = times();
    return Math.max(now.monotonic - renewedAt.monotonic, now.wall - renewedAt.wall);
  }

  const isDead = (row: HolderColumns): boolean => isDeadHere(holderOfRow(row), holder, processState);

  async function headOf(query: Query, name: Buffer | null): Promise<HeadRow | undefined> {
    return (await query<HeadRow>(`${HEAD} WHERE h.run = $1`, [name])).rows[0];
  }

  /** The time until the lease can be taken over if nothing changes; 0 if it can be now. */
  function msUntilFree(row: LeaseRow): number {
    if (row.token === null) return 0;
    if (held.has(row.nonce!)) return Infinity;
    if (row.left_ms === null) return 0;
    if (unreleased.has(row.nonce!)) return 0;
    if (isDead(row)) return 0;
    return Math.max(0, row.left_ms);
  }

  /** Ends a lease that its driver did not release, or could not. False if it was renewed or replaced meanwhile. */
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

  async function acquire(runId: string): Promise<Lease> {
    const nonce = randomUUID();
    const job: AcquireJob = { kind: 'acquire', runId, isAccepted: false, chars: 0, nonce, ...Promise.withResolvers() };
    const lost = new AbortController();
    if (sinceRenewal() >= ttlMs / 3) await renewUntil(() => false);
    queue().add(job);
    const { token, takenOver } = await job.promise.catch((error: unknown) => {
      // If it was given nevertheless, the holder would renew it.
      if (!isRefusal(error)) unreleased.set(nonce, { runId, nonce, token: null, lost });
      throw error;
    });
    const one: HeldLease = { runId, token, nonce, lost };
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
        holderId,
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

  function takeLease({ runId, nonce }: AcquireJob): Promise<{ readonly token: number; readonly takenOver: boolean }> {
    const name = bytes(runId);
    return db.write(async (query) => {
      for (;;) {
        const { rows } = await query<{ readonly token: number }>(ACQUIRE, [[name], [nonce], holderId]);
        if (rows[0]) return { token: rows[0].token, takenOver: false };
        const row = await headOf(query, name);
        // It was released meanwhile, or it was given before the connection was lost.
        if (!row) continue;
        if (row.nonce === nonce) return { token: row.token!, takenOver: false };
        const ms = msUntilFree(row);
        if (ms > 0) throw runDriven(runId, row as Driver, ms);
        const takenOver = !unreleased.has(row.nonce!);
        if (row.token !== null && !(await endDead(query, row))) continue;
        const { rows: taken } = await query<{ readonly token: number }>(ACQUIRE, [[name], [nonce], holderId]);
        if (taken[0]) return { token: taken[0].token, takenOver };
      }
    });
  }

  function confirmLease(lease: HeldLease): void | Promise<void> {
    if (held.has(lease.nonce) && sinceRenewal() < (ttlMs * 2) / 3) return undefined;
    return renewFor(lease);
  }

  async function renewFor(lease: HeldLease): Promise<void> {
    await renewUntil(() => !held.has(lease.nonce));
    if (held.has(lease.nonce) && sinceRenewal() < ttlMs) return;
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
    if (held.size > 0) renewNow().catch(loseExpired);
  }

  /** Those who ask at the same time share a renewal. */
  function renewNow(): Promise<void> {
    if (renewing) return renewing;
    const watchdog = setTimeout(loseExpired, Math.max(LEAST_ATTEMPT_MS, ttlMs - sinceRenewal())).unref();
    renewing = renew().finally(() => {
      renewing = undefined;
      clearTimeout(watchdog);
    });
    return renewing;
  }

  /** Tries again while the database cannot be reached. */
  async function renewUntil(isOver: () => boolean): Promise<void> {
    const until = performance.now() + retryMs;
    for (let pause = 10; !isOver(); pause = Math.min(2 * pause, 500)) {
      try {
        return await renewNow();
      } catch (error) {
        if (!isDisconnected(error) || performance.now() + pause > until) throw storeError(error, db.location);
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  async function renew(): Promise<void> {
    const at = times();
    const before = [...held.values()];
    const { host, pid, startedAt = null, place = null, thread = null } = holder;
    try {
      const { rows } = await db.urgent<{ readonly losses: number }>(RENEW, [
        holderId,
        ttlMs,
        host,
        pid,
        startedAt,
        place,
        thread,
      ]);
      const [{ losses: now }] = rows as [{ readonly losses: number }];
      if (losses === undefined) void db.urgent(FORGET_OLD).catch(() => {});
      if (losses !== undefined && now !== losses) await checkHeld(before);
      losses = now;
      renewedAt = at;
    } catch (error) {
      throw isDisconnected(error) ? error : storeError(error, db.location);
    }
  }

  /** The database cannot be reached: others may take over the leases that were not renewed. */
  function loseExpired(): void {
    if (sinceRenewal() < ttlMs) return;
    for (const lease of held.values()) {
      unreleased.set(lease.nonce, lease);
      lose(lease, notRenewed(lease.runId, db.location));
    }
  }

  /** Looks which of these leases others have ended. */
  async function checkHeld(leases: readonly HeldLease[]): Promise<void> {
    const { rows } = await db.urgent<HeadRow>(`${HEAD} WHERE h.run = ANY ($1::bytea[])`, [
      leases.map(({ runId }) => bytes(runId)),
    ]);
    const byRun = new Map(rows.map((row) => [text(row.run), row]));
    for (const lease of leases) {
      const row = byRun.get(lease.runId);
      if (row?.nonce !== lease.nonce && !lease.isReleased) lose(lease, leaseLost(lease.runId, driverOf(row)));
    }
  }

  const { watch: watchDrivers, close: stopLooking } = watchHolders(async () => {
    const { rows } = await db.urgent<HolderRow>(HOLDERS, [holderId]);
    return rows.map((row) => ({
      name: row.id,
      isDead: row.left_ms <= 0 || isDead(row),
    }));
  });

  function lose(lease: HeldLease, error: TreadleError): void {
    if (!held.delete(lease.nonce)) return;
    lease.lost.abort(error);
  }

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
      `${HEAD} WHERE (h.run = $1 OR (h.run > $1 || '.'::bytea AND h.run < $1 || '/'::bytea)) AND h.token IS NOT NULL`,
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
    keyOf: (lease) => lease && { token: lease.token, nonce: heldAs(lease)?.nonce ?? NO_NONCE },
    async problem(runId, row, lease) {
      if (lease) {
        const key = heldAs(lease);
        return key && row?.token === key.token && row.nonce === key.nonce ? undefined : leaseLost(runId, driverOf(row));
      }
      if (!row || row.token === null) return undefined;
      const ms = msUntilFree(row);
      if (ms > 0) return runDriven(runId, row as Driver, ms);
      await db.write((query) => endDead(query, row));
      return undefined;
    },
    isFree: (row) => msUntilFree(row) === 0,
    requireFree,
    freeDead,
    expireDead,
    async isDriven(runId) {
      const row = await db.read((query) => headOf(query, bytes(runId)));
      return row !== undefined && msUntilFree(row) > 0;
    },
    watchDrivers,
    releaseRun,
    isHeld(lease) {
      const one = heldAs(lease);
      return one !== undefined && held.has(one.nonce) && !one.isReleased && !one.lost.signal.aborted;
    },
    fail: (lease, error) => heldAs(lease)?.lost.abort(error),
    async close() {
      stopLooking();
      clearTimeout(timer);
      const all = [...held.values(), ...unreleased.values()];
      for (const lease of held.values()) {
        unreleased.set(lease.nonce, lease);
        lose(lease, storeClosed(lease.runId));
      }
      const ended = Promise.all(all.map(end)).then(() => db.urgent(FORGET, [holderId]).catch(() => {}));
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, retryMs).unref())]);
      clearTimeout(timer);
    },
  };
}

/** No lease has it. */
const NO_NONCE = '00000000-0000-0000-0000-000000000000';

const ACQUIRE = 'SELECT run, token FROM treadle.acquire_leases($1::bytea[], $2::uuid[], $3)';

/** A renewal that is late may have lost leases. */
const RENEW = `INSERT INTO treadle.holders AS o (id, ttl_ms, host, pid, process_start, place, thread) VALUES ($1, $2, $3, $4, $5, $6, $7)
  ON CONFLICT (id) DO UPDATE SET renewed_at = greatest(treadle.now_ms(), o.renewed_at + 1),
    losses = o.losses + (treadle.now_ms() >= o.renewed_at + o.ttl_ms)::integer
  RETURNING losses, set_config('synchronous_commit', 'off', true)`;

/** Those of processes that did not close their stores. */
const FORGET_OLD = 'DELETE FROM treadle.holders WHERE renewed_at < treadle.now_ms() - 86400000';

const HOLDERS = `SELECT id, host, pid, process_start, place, thread, renewed_at + ttl_ms - treadle.now_ms() AS left_ms
  FROM treadle.holders WHERE id <> $1`;

const EXPIRE = 'UPDATE treadle.holders SET renewed_at = renewed_at - ttl_ms WHERE id = ANY ($1::uuid[])';

const FORGET = 'DELETE FROM treadle.holders WHERE id = $1';

/** Nothing was given. */
function isRefusal(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'run-driven';
}

function driverOf(row: HeadRow | undefined): Driver | undefined {
  return row && row.token !== null && row.host !== null ? (row as Driver) : undefined;
}

function holderOfRow({ host, pid, process_start: startedAt, place, thread }: HolderColumns): Holder {
  return {
    host: host!,
    pid: pid!,
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
  return (await query<HeadRow>(`${HEAD} WHERE h.run = $1`, [bytes(runId)])).rows[0];
}
