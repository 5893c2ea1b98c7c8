import type { DatabaseSync } from 'node:sqlite';
import { TreadleError, type Clock, type Lease } from '@treadle/core';
import { fateOf, type Holder } from '../holder.ts';
import type { GroupCommit } from './group-commit.ts';

/**
 * Who drives which run.
 *
 * 1. A run has at most one row in `leases`, and only the lease with the token of that row can append. It is looked up
 *    in the transaction that appends, so whoever was taken over can write nothing more, however late he notices.
 * 2. A row is replaced only when its holder is dead, or cannot be asked (another host) and has let it expire. A process
 *    of this host that merely sleeps keeps what it has.
 * 3. Whoever comes back late and finds that nobody has taken his run still has it. A tool that blocks the process for a
 *    minute, or a lid that was closed, ends no run.
 * 4. Tokens only grow, and none is given twice.
 */
export interface Leases {
  readonly acquire: (runId: string) => Promise<Lease>;
  /** Inside a transaction: throws unless this lease, or without one anybody, may write to the run. */
  readonly admit: (runId: string, lease?: Lease) => void;
  /** Inside a transaction: whether somebody drives the run. Removes what a dead driver has left. */
  readonly isDriven: (runId: string) => boolean;
  /** The same, and only looks. */
  readonly hasDriver: (runId: string) => boolean;
  /** Gives everything back, with the next transaction. */
  readonly close: () => void;
}

export interface LeaseOptions {
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly holder: Holder;
}

interface Row {
  readonly token: number;
  readonly host: string;
  readonly pid: number;
  readonly process_start: string | null;
  readonly since: number;
  readonly expires_at: number;
}

export function leases(
  db: DatabaseSync,
  { write, flush }: GroupCommit,
  { ttlMs, clock, holder }: LeaseOptions,
): Leases {
  const find = db.prepare('SELECT token, host, pid, process_start, since, expires_at FROM leases WHERE run = ?');
  const insert = db.prepare(
    'INSERT INTO leases (run, host, pid, process_start, since, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
  );
  const remove = db.prepare('DELETE FROM leases WHERE token = ?');
  const renew = db.prepare('UPDATE leases SET expires_at = ? WHERE token = ?');
  /** Tokens of what this store has given out and nobody has taken over, as far as it knows. */
  const held = new Set<number>();
  /** Given back, but that could not be written yet. */
  const abandoned = new Set<number>();
  let callOff: (() => void) | undefined;

  function rowOf(runId: string): Row | undefined {
    return find.get(runId) as unknown as Row | undefined;
  }

  function isHeld({ token, host, pid, process_start, expires_at }: Row): boolean {
    if (held.has(token)) return true;
    if (abandoned.has(token)) return false;
    const known = { host, pid, ...(process_start !== null && { startedAt: process_start }) };
    if (host === holder.host && fateOf(known) === 'dead') return false;
    // Whoever lives renews it, so one that has expired is stuck; if it wakes up again, it can append nothing more.
    return expires_at > clock.now();
  }

  function driverOf(runId: string): Row | undefined {
    const row = rowOf(runId);
    if (!row || isHeld(row)) return row;
    remove.run(row.token);
    return undefined;
  }

  function admit(runId: string, lease?: Lease): void {
    if (lease) {
      const row = rowOf(runId);
      if (row?.token !== lease.token) throw lost(runId, row);
    } else {
      const driver = driverOf(runId);
      if (driver) throw driven(runId, driver);
    }
  }

  async function acquire(runId: string): Promise<Lease> {
    const token = await write(() => {
      admit(runId);
      const { host, pid, startedAt = null } = holder;
      const now = clock.now();
      return Number(insert.run(runId, host, pid, startedAt, now, now + ttlMs).lastInsertRowid);
    });
    held.add(token);
    watch();
    return { runId, token, release: () => release(token) };
  }

  async function release(token: number): Promise<void> {
    if (held.has(token)) await giveBack([token]);
  }

  async function giveBack(tokens: readonly number[]): Promise<void> {
    try {
      await write(() => removeAll(tokens));
      for (const token of tokens) abandoned.delete(token);
    } catch {
      for (const token of tokens) {
        held.delete(token);
        abandoned.add(token);
      }
      watch();
    }
  }

  function removeAll(tokens: readonly number[]): void {
    for (const token of tokens) {
      remove.run(token);
      held.delete(token);
    }
  }

  function watch(): void {
    callOff ??= clock.timer(ttlMs / 3, tend);
  }

  /** Renews what is held. What somebody has taken over is held no more; its driver learns that when he writes. */
  function tend(): void {
    callOff = undefined;
    if (held.size + abandoned.size === 0) return;
    watch();
    // If it cannot be written now, nobody can take it over now either.
    write(renewHeld).catch(() => {});
    if (abandoned.size > 0) void giveBack([...abandoned]);
    flush();
  }

  function renewHeld(): void {
    for (const token of held) if (renew.run(clock.now() + ttlMs, token).changes === 0) held.delete(token);
  }

  function close(): void {
    callOff?.();
    const tokens = [...held, ...abandoned];
    write(() => removeAll(tokens)).catch(() => {});
  }

  function hasDriver(runId: string): boolean {
    const row = rowOf(runId);
    return row !== undefined && isHeld(row);
  }

  return { acquire, admit, isDriven: (runId) => driverOf(runId) !== undefined, hasDriver, close };
}

function driven(runId: string, { host, pid, since }: Row): TreadleError {
  return new TreadleError(
    'run-driven',
    `Run "${runId}" is driven by process ${pid} on host ${host} since ${new Date(since).toISOString()}. ` +
      'Wait until it is done, or end that process, and try again.',
  );
}

function lost(runId: string, row: Row | undefined): TreadleError {
  const now = row
    ? `It is driven by process ${row.pid} on host ${row.host} now.`
    : 'It was given back, or the run was deleted.';
  return new TreadleError('lease-lost', `The lease of run "${runId}" is lost, so nothing was written. ${now}`);
}
