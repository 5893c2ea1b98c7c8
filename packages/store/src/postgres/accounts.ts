import { randomBytes } from 'node:crypto';
import type { HeldProcess } from '@treadle/core';
import {
  budgetsOn,
  type BudgetTables,
  type Budgets,
  type Reservation,
  type StoredBudget,
  type Totals,
} from '@treadle/core/budgets';
import { latestTimes, type RateStore } from '@treadle/core/policy';
import { holderState, type Holder } from '../holder.ts';
import type { KeptProcessStore } from '../ports/kept-processes.ts';
import type { QuotaStore } from '../ports/quotas.ts';
import type { SecretKeys } from '../ports/store.ts';
import {
  amountsIn,
  BUDGET_COLUMNS,
  RATES_KEPT_MS,
  toReservations,
  totalsIn,
  type AmountsRow,
} from '../records/accounts.ts';
import { quotasOn } from '../records/quotas.ts';
import { bytes, bytesOrNull, text, type Database, type Query } from './connection.ts';
import type { LeaseOptions } from './lease-rows.ts';

/** Budgets, rates, quotas, secret keys and kept processes: small tables that all processes with the store share. */

/** Transactions of budgets run one after the other. */
const BUDGET_LOCK = 0x54_72_64_62;

interface ReservationRow extends AmountsRow {
  readonly id: number;
  readonly key: Buffer;
  readonly budget: Buffer;
  readonly repeated: boolean;
  readonly at: number;
}

export function openBudgets(db: Database, now: () => number): Budgets {
  return budgetsOn({
    write: (work) =>
      db.write(async (query) => {
        await query('SELECT pg_advisory_xact_lock($1)', [BUDGET_LOCK]);
        return work(budgetTables(query));
      }),
    read: (work) => db.read(async (query) => work(budgetTables(query)), { isAtOnce: true }),
    now,
  });
}

function budgetTables(query: Query): BudgetTables {
  const names = BUDGET_COLUMNS.join(', ');
  const places = (from: number): string => BUDGET_COLUMNS.map((_, index) => `$${from + index}`).join(', ');
  const toTotals = (rows: readonly AmountsRow[]): Totals => totalsIn(rows[0]);
  const reserved = async (condition: string, values: readonly unknown[]): Promise<readonly Reservation[]> => {
    const { rows } = await query<ReservationRow>(`SELECT * FROM treadle.reservations ${condition} ORDER BY id`, values);
    return toReservations(rows.map((row) => ({ ...row, key: text(row.key), budget: text(row.budget) })));
  };
  return {
    async budget(name) {
      const { rows } = await query<{ readonly definition: string }>(
        'SELECT definition FROM treadle.budget_definitions WHERE name = $1',
        [bytes(name)],
      );
      return rows[0] && (JSON.parse(rows[0].definition) as StoredBudget);
    },
    async names() {
      const { rows } = await query<{ readonly name: Buffer }>(
        'SELECT name FROM treadle.budget_definitions ORDER BY name',
        [],
      );
      return rows.map(({ name }) => text(name));
    },
    async putBudget(name, budget) {
      await query(
        `INSERT INTO treadle.budget_definitions (name, definition) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition`,
        [bytes(name), JSON.stringify(budget)],
      );
    },
    async totals(name, since) {
      const settled = await query<AmountsRow>(
        `SELECT ${names} FROM treadle.budget_usage WHERE budget = $1 AND since = $2`,
        [bytes(name), since],
      );
      const open = await query<AmountsRow>(
        `SELECT ${BUDGET_COLUMNS.map((column) => `coalesce(sum(${column}), 0) AS ${column}`).join(', ')}
         FROM treadle.reservations WHERE budget = $1 AND at >= $2`,
        [bytes(name), since],
      );
      return { settled: toTotals(settled.rows), reserved: toTotals(open.rows) };
    },
    async addSettled(name, since, amounts) {
      await query(
        `INSERT INTO treadle.budget_usage AS u (budget, since, ${names}) VALUES ($1, $2, ${places(3)})
         ON CONFLICT (budget, since) DO UPDATE SET ${BUDGET_COLUMNS.map((column) => `${column} = u.${column} + excluded.${column}`).join(', ')}`,
        [bytes(name), since, ...amountsIn(amounts)],
      );
    },
    reservation: async (key) => (await reserved('WHERE key = $1', [bytes(key)]))[0],
    reservations: (budget) =>
      budget === undefined
        ? reserved('', [])
        : reserved('WHERE key IN (SELECT key FROM treadle.reservations WHERE budget = $1)', [bytes(budget)]),
    async addReservation({ key, budgets, amounts, repeated, at }) {
      for (const budget of budgets) {
        await query(
          `INSERT INTO treadle.reservations (key, budget, repeated, at, ${names}) VALUES ($1, $2, $3, $4, ${places(5)})`,
          [bytes(key), bytes(budget), repeated, at, ...amountsIn(amounts)],
        );
      }
    },
    async markRepeated(key, amounts) {
      const columns = BUDGET_COLUMNS.map((column, index) => `${column} = $${index + 2}`).join(', ');
      await query(`UPDATE treadle.reservations SET repeated = true, ${columns} WHERE key = $1`, [
        bytes(key),
        ...amountsIn(amounts),
      ]);
    },
    async removeReservation(key) {
      await query('DELETE FROM treadle.reservations WHERE key = $1', [bytes(key)]);
    },
  };
}

/** They need not survive a crash of the database, so nothing waits for the disk. A call that counts twice is only a stricter limit. */
export function openRates(db: Database): RateStore {
  return {
    add: (subject, at, count, keep) =>
      db.write(
        async (query) => {
          // Locks the row, also if it is new.
          const { rows } = await query<{ readonly times: string }>(
            `INSERT INTO treadle.rates AS r (subject, times, latest) VALUES ($1, '[]', $2)
           ON CONFLICT (subject) DO UPDATE SET latest = excluded.latest RETURNING r.times`,
            [bytes(subject.toWellFormed()), at],
          );
          const before = JSON.parse(rows[0]!.times) as readonly number[];
          await query('UPDATE treadle.rates SET times = $2 WHERE subject = $1', [
            bytes(subject.toWellFormed()),
            JSON.stringify(latestTimes(before, at, count, keep)),
          ]);
          await query(
            `DELETE FROM treadle.rates WHERE subject IN
             (SELECT subject FROM treadle.rates WHERE latest < $1 LIMIT 100 FOR UPDATE SKIP LOCKED)`,
            [at - RATES_KEPT_MS],
          );
          return before;
        },
        'written',
        'repeated',
      ),
  };
}

export function openQuotas(db: Database): QuotaStore {
  return quotasOn((key, change) =>
    db.write(async (query) => {
      const id = bytes(key.toWellFormed());
      // Locks the row, also if it is new.
      const { rows } = await query<{ readonly state: string; readonly at: number }>(
        `INSERT INTO treadle.quotas AS q (id, state, valid_until) VALUES ($1, 'null', 0)
         ON CONFLICT (id) DO UPDATE SET state = q.state RETURNING q.state, treadle.now_ms() AS at`,
        [id],
      );
      const [{ state: before, at }] = rows as [(typeof rows)[0]];
      const [{ state, until }, result] = change(JSON.parse(before) ?? undefined, at);
      await query('UPDATE treadle.quotas SET state = $2, valid_until = $3 WHERE id = $1', [
        id,
        JSON.stringify(state),
        until,
      ]);
      await query(
        `DELETE FROM treadle.quotas WHERE id IN
           (SELECT id FROM treadle.quotas WHERE valid_until <= $1 LIMIT 100 FOR UPDATE SKIP LOCKED)`,
        [at],
      );
      return result;
    }, 'written'),
  );
}

const KEY_BYTES = 32;

/** A key is never replaced: of two processes that create it, the second gets the key of the first. */
export function openKeys(db: Database): SecretKeys['secretKey'] {
  return (name) =>
    db.write(async (query) => {
      await query('INSERT INTO treadle.secret_keys (name, key) VALUES ($1, $2) ON CONFLICT DO NOTHING', [
        bytes(name),
        randomBytes(KEY_BYTES),
      ]);
      const { rows } = await query<{ readonly key: Buffer }>('SELECT key FROM treadle.secret_keys WHERE name = $1', [
        bytes(name),
      ]);
      return new Uint8Array(rows[0]!.key);
    });
}

export function openKeptProcesses(
  db: Database,
  { holder, processState }: Pick<LeaseOptions, 'holder' | 'processState'>,
): KeptProcessStore {
  return {
    async keep(runId, processes, taken) {
      await db.write(async (query) => {
        if (taken !== undefined) await query('DELETE FROM treadle.kept_processes WHERE run = $1', [bytes(taken)]);
        if (processes.length === 0) return;
        await query(
          `INSERT INTO treadle.kept_processes (run, keeper, processes) VALUES ($1, $2, $3)
           ON CONFLICT (run) DO UPDATE SET keeper = excluded.keeper, processes = excluded.processes`,
          [bytes(runId), JSON.stringify(holder), JSON.stringify(processes)],
        );
      });
    },
    async remove(runId) {
      await db.write((query) => query('DELETE FROM treadle.kept_processes WHERE run = $1', [bytes(runId)]));
    },
    abandoned: (runId) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly run: Buffer; readonly keeper: string; readonly processes: string }>(
          'SELECT run, keeper, processes FROM treadle.kept_processes WHERE $1::bytea IS NULL OR run = $1',
          [bytesOrNull(runId)],
        );
        // A keeper of which nobody can say here whether it lives keeps its processes: they could not be killed here either.
        return rows
          .filter(({ keeper }) => holderState(JSON.parse(keeper) as Holder, holder, processState) === 'dead')
          .map(({ run, processes }) => ({
            runId: text(run),
            processes: JSON.parse(processes) as readonly HeldProcess[],
          }));
      }),
  };
}
