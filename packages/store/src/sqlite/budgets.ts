import type { DatabaseSync } from 'node:sqlite';
import {
  budgetsOn,
  type BudgetTables,
  type Budgets,
  type PeriodTotals,
  type StoredBudget,
} from '@treadle/core/budgets';
import {
  amountsIn,
  BUDGET_COLUMNS,
  toReservations,
  totalsIn,
  type AmountsRow,
  type ReservationRow,
} from '../records/accounts.ts';

/** Creates the tables of budgets. `splitBudgets` replaces the first. */
export function createBudgetTables(db: DatabaseSync): void {
  db.exec(`
    -- A limit that is null is off. What is reserved is the sum of the reservations.
    CREATE TABLE budgets (
      name TEXT PRIMARY KEY,
      max_tokens REAL,
      max_cost REAL,
      max_calls REAL,
      tokens REAL NOT NULL DEFAULT 0,
      cost REAL NOT NULL DEFAULT 0,
      calls REAL NOT NULL DEFAULT 0
    ) STRICT;

    -- What is not settled: one row for each budget that an effect draws on.
    CREATE TABLE reservations (
      id INTEGER PRIMARY KEY,
      key TEXT NOT NULL,
      budget TEXT NOT NULL,
      tokens REAL NOT NULL,
      cost REAL NOT NULL,
      calls REAL NOT NULL,
      repeated INTEGER NOT NULL,
      at REAL NOT NULL,
      UNIQUE (key, budget)
    ) STRICT;
    CREATE INDEX reservations_by_budget ON reservations (budget);
  `);
}

/**
 * Definitions are plain JSON, and what was used has a row for each period: `since` is when it began, 0 without one. The table
 * of budgets is gone, so that a process of an older version that has the store open reserves nothing.
 */
export const splitBudgets = `
  CREATE TABLE budget_definitions (
    name TEXT PRIMARY KEY,
    definition TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO budget_definitions (name, definition)
    SELECT name, json_object('limits', json_patch(
      '{}', json_object('tokens', max_tokens, 'cost', max_cost, 'calls', max_calls)
    )) FROM budgets;

  CREATE TABLE budget_usage (
    budget TEXT NOT NULL,
    since REAL NOT NULL,
    tokens REAL NOT NULL,
    cost REAL NOT NULL,
    calls REAL NOT NULL,
    files REAL NOT NULL DEFAULT 0,
    lines REAL NOT NULL DEFAULT 0,
    requests REAL NOT NULL DEFAULT 0,
    duration_ms REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, since)
  ) STRICT, WITHOUT ROWID;
  INSERT INTO budget_usage (budget, since, tokens, cost, calls) SELECT name, 0, tokens, cost, calls FROM budgets;
  DROP TABLE budgets;

  ALTER TABLE reservations ADD COLUMN files REAL NOT NULL DEFAULT 0;
  ALTER TABLE reservations ADD COLUMN lines REAL NOT NULL DEFAULT 0;
  ALTER TABLE reservations ADD COLUMN requests REAL NOT NULL DEFAULT 0;
  ALTER TABLE reservations ADD COLUMN duration_ms REAL NOT NULL DEFAULT 0;
`;

/** How a store performs its writes and reads. The work of a write is synchronous, and a transaction of its own. */
interface Performing {
  readonly write: <T>(work: () => T) => Promise<T>;
  readonly read: <T>(work: () => T) => Promise<T>;
  readonly now: () => number;
}

/** The budgets of a store. Every process that opens the store draws on the same ones. */
export function openBudgets(db: DatabaseSync, { write, read, now }: Performing): Budgets {
  const names = BUDGET_COLUMNS.join(', ');
  const places = BUDGET_COLUMNS.map(() => '?').join(', ');
  const findBudget = db.prepare('SELECT definition FROM budget_definitions WHERE name = ?');
  const findNames = db.prepare('SELECT name FROM budget_definitions ORDER BY name');
  const upsertBudget = db.prepare(
    `INSERT INTO budget_definitions (name, definition) VALUES (?1, ?2)
     ON CONFLICT DO UPDATE SET definition = ?2`,
  );
  const findUsage = db.prepare(`SELECT ${names} FROM budget_usage WHERE budget = ? AND since = ?`);
  const addUsage = db.prepare(
    `INSERT INTO budget_usage (budget, since, ${names}) VALUES (?, ?, ${places})
     ON CONFLICT DO UPDATE SET ${BUDGET_COLUMNS.map((column) => `${column} = ${column} + excluded.${column}`).join(', ')}`,
  );
  const sumReserved = db.prepare(
    `SELECT ${BUDGET_COLUMNS.map((column) => `coalesce(sum(${column}), 0) AS ${column}`).join(', ')}
     FROM reservations WHERE budget = ? AND at >= ?`,
  );
  const findReservation = db.prepare('SELECT * FROM reservations WHERE key = ?');
  const findReservations = db.prepare('SELECT * FROM reservations ORDER BY id');
  const findReservationsOf = db.prepare(
    'SELECT * FROM reservations WHERE key IN (SELECT key FROM reservations WHERE budget = ?)',
  );
  const insertReservation = db.prepare(
    `INSERT INTO reservations (key, budget, repeated, at, ${names}) VALUES (?, ?, ?, ?, ${places})`,
  );
  const raiseReservation = db.prepare(
    `UPDATE reservations SET repeated = 1, ${BUDGET_COLUMNS.map((column) => `${column} = ?`).join(', ')} WHERE key = ?`,
  );
  const deleteReservation = db.prepare('DELETE FROM reservations WHERE key = ?');

  const tables: BudgetTables = {
    budget(name) {
      const row = findBudget.get(name);
      return row && (JSON.parse(row['definition'] as string) as StoredBudget);
    },
    names: () => findNames.all().map(({ name }) => name as string),
    putBudget: (name, budget) => void upsertBudget.run(name, JSON.stringify(budget)),
    totals: (name, since): PeriodTotals => ({
      settled: totalsIn(findUsage.get(name, since) as AmountsRow | undefined),
      reserved: totalsIn(sumReserved.get(name, since) as unknown as AmountsRow),
    }),
    addSettled: (name, since, amounts) => void addUsage.run(name, since, ...amountsIn(amounts)),
    reservation: (key) => toReservations(findReservation.all(key) as unknown as readonly ReservationRow[])[0],
    reservations(budget) {
      const rows = budget === undefined ? findReservations.all() : findReservationsOf.all(budget);
      return toReservations(rows as unknown as readonly ReservationRow[]);
    },
    addReservation({ key, budgets, amounts, repeated, at }) {
      for (const budget of budgets) {
        insertReservation.run(key, budget, repeated ? 1 : 0, at, ...amountsIn(amounts));
      }
    },
    markRepeated: (key, amounts) => void raiseReservation.run(...amountsIn(amounts), key),
    removeReservation: (key) => void deleteReservation.run(key),
  };
  // The tables return no promises, so neither does the work.
  return budgetsOn({
    write: <T>(work: (given: BudgetTables) => T | Promise<T>) => write(() => work(tables) as T),
    read: <T>(work: (given: BudgetTables) => T | Promise<T>) => read(() => work(tables) as T),
    now,
  });
}
