import { TreadleError, type Lease } from '@treadle/core';
import { churnMap, type ChurnMap } from '@treadle/core/churn';
import { leaseLost } from '../records/errors.ts';
import { bytes, text, type Database } from './connection.ts';
import { isDisconnected, storeError } from './failure.ts';
import { driverOf, HEAD, type HeadRow, type LeaseOptions } from './lease-rows.ts';

/** A lease that this store holds. */
export interface HeldLease {
  readonly runId: string;
  readonly nonce: string;
  /** Null: it was asked for, and may have been given. */
  readonly token: number | null;
  isReleased?: true;
  readonly lost: AbortController;
}

/** The leases that this store holds, and their renewal: rules 3 to 5 of `Leases`. */
export interface HeldLeases {
  /** As far as the store has noticed, by nonce. */
  readonly held: Pick<ChurnMap<string, HeldLease>, 'get' | 'has' | 'size' | 'keys' | 'values'>;
  /** Those that were released, but could not be ended yet. */
  readonly unreleased: Map<string, HeldLease>;
  readonly heldAs: (lease: Lease) => HeldLease | undefined;
  readonly add: (lease: HeldLease) => void;
  readonly remove: (lease: HeldLease) => void;
  /** Stops its driver. */
  readonly lose: (lease: HeldLease, error: TreadleError) => void;
  /** Renews all of them, unless that was done a short time ago. */
  readonly renewIfOld: () => void | Promise<void>;
  /** See `Lease`. */
  readonly confirm: (lease: HeldLease) => void | Promise<void>;
  /** Also tries to end those of `unreleased`. */
  readonly scheduleRenewal: () => void;
  readonly stopRenewal: () => void;
}

interface Times {
  readonly monotonic: number;
  readonly wall: number;
}

/** A store that cannot renew gets so long after it has tried, even if its event loop was blocked. */
const LEAST_ATTEMPT_MS = 500;

interface HeldLeasesParts extends LeaseOptions {
  readonly holderId: string;
  readonly end: (lease: HeldLease) => Promise<void>;
}

export function openHeldLeases(db: Database, { holderId, end, ttlMs, holder, retryMs }: HeldLeasesParts): HeldLeases {
  const held = churnMap<string, HeldLease>();
  const unreleased = new Map<string, HeldLease>();
  /** By their signals, which copies of a lease have too. */
  const bySignal = new WeakMap<AbortSignal, HeldLease>();
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

  function confirm(lease: HeldLease): void | Promise<void> {
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

  function lose(lease: HeldLease, error: TreadleError): void {
    if (!held.delete(lease.nonce)) return;
    lease.lost.abort(error);
  }

  return {
    held,
    unreleased,
    heldAs: ({ lost }) => lost && bySignal.get(lost),
    add(lease) {
      held.set(lease.nonce, lease);
      bySignal.set(lease.lost.signal, lease);
      scheduleRenewal();
    },
    remove: ({ nonce }) => void held.delete(nonce),
    lose,
    renewIfOld: () => (sinceRenewal() < ttlMs / 3 ? undefined : renewUntil(() => false)),
    confirm,
    scheduleRenewal,
    stopRenewal: () => clearTimeout(timer),
  };
}

/** A renewal that is late may have lost leases. */
const RENEW = `INSERT INTO treadle.holders AS o (id, ttl_ms, host, pid, process_start, place, thread) VALUES ($1, $2, $3, $4, $5, $6, $7)
  ON CONFLICT (id) DO UPDATE SET renewed_at = greatest(treadle.now_ms(), o.renewed_at + 1),
    losses = o.losses + (treadle.now_ms() >= o.renewed_at + o.ttl_ms)::integer
  RETURNING losses, set_config('synchronous_commit', 'off', true)`;

/** Those of processes that did not close their stores. */
const FORGET_OLD = 'DELETE FROM treadle.holders WHERE renewed_at < treadle.now_ms() - 86400000';

function notRenewed(runId: string, location: string): TreadleError {
  return new TreadleError(
    'lease-lost',
    `The lease of run "${runId}" could not be renewed in time, because the store ${location} cannot be reached. Another process may drive the run now; resume it later.`,
  );
}
