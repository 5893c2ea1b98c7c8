import { randomUUID } from 'node:crypto';
import { TreadleError, type Lease } from '@treadle/core';
import { leaseLost, runDriven, storeClosed, type Driver } from '../records/errors.ts';
import { bytes, text, type Database } from './connection.ts';
import { openDrivenRuns, type DrivenRuns } from './driven-runs.ts';
import { isConflict, isDisconnected, storeError } from './failure.ts';
import { openHeldLeases, type HeldLease } from './held-leases.ts';
import { driverOf, findHead, type HeadRow, type LeaseOptions } from './lease-rows.ts';
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
export interface Leases extends Omit<DrivenRuns, 'msUntilFree' | 'endDead' | 'stopLooking'> {
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

interface AcquireJob extends Job, PromiseWithResolvers<{ readonly token: number; readonly takenOver: boolean }> {
  readonly nonce: string;
}

interface EndJob extends Job, PromiseWithResolvers<void> {
  readonly lease: HeldLease;
}

export function openLeases(db: Database, queue: () => RunQueue, options: LeaseOptions): Leases {
  const { retryMs } = options;
  const holderId = randomUUID();
  const own = openHeldLeases(db, { ...options, holderId, end });
  const { held, unreleased, heldAs } = own;
  const { msUntilFree, endDead, stopLooking, ...driven } = openDrivenRuns(db, { ...options, holderId, own });

  async function acquire(runId: string): Promise<Lease> {
    const nonce = randomUUID();
    const job: AcquireJob = { kind: 'acquire', runId, isAccepted: false, chars: 0, nonce, ...Promise.withResolvers() };
    const lost = new AbortController();
    const renewed = own.renewIfOld();
    // Otherwise the order of the calls is kept.
    if (renewed) await renewed;
    queue().add(job);
    const { token, takenOver } = await job.promise.catch((error: unknown) => {
      // If it was given nevertheless, the holder would renew it.
      if (!isRefusal(error)) unreleased.set(nonce, { runId, nonce, token: null, lost });
      throw error;
    });
    const one: HeldLease = { runId, token, nonce, lost };
    own.add(one);
    return {
      runId,
      token,
      ...(takenOver && { takenOver }),
      lost: lost.signal,
      confirm: () => own.confirm(one),
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
      // Whatever it was, each of them finds out. One that conflicts with those of other processes is performed again.
      if (!isDisconnected(error) && !isConflict(error))
        return jobs.forEach(({ reject }) => reject(storeError(error, db.location)));
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
        const row = await findHead(query, runId);
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
      own.scheduleRenewal();
    }
    for (const lease of ended) own.remove(lease);
    for (const { resolve } of jobs) resolve();
  }

  return {
    ...driven,
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
    isHeld(lease) {
      const one = heldAs(lease);
      return one !== undefined && held.has(one.nonce) && !one.isReleased && !one.lost.signal.aborted;
    },
    fail: (lease, error) => heldAs(lease)?.lost.abort(error),
    async close() {
      stopLooking();
      own.stopRenewal();
      const all = [...held.values(), ...unreleased.values()];
      for (const lease of held.values()) {
        unreleased.set(lease.nonce, lease);
        own.lose(lease, storeClosed(lease.runId));
      }
      const ended = Promise.all(all.map(end)).then(() => db.urgent(FORGET, [holderId]).catch(() => {}));
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, retryMs).unref())]);
      own.stopRenewal();
    },
  };
}

/** No lease has it. */
const NO_NONCE = '00000000-0000-0000-0000-000000000000';

const ACQUIRE = 'SELECT run, token FROM treadle.acquire_leases($1::bytea[], $2::uuid[], $3)';

const FORGET = 'DELETE FROM treadle.holders WHERE id = $1';

/** Nothing was given. */
function isRefusal(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'run-driven';
}
