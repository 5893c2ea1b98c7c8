import type { DatabaseSync } from 'node:sqlite';
import type { Amounts } from '@treadle/core';
import { budgetsOn, type Accounting, type Budget, type Budgets, type Reservation } from '@treadle/core/budgets';

/** Creates the tables of budgets. */
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

interface BudgetRow {
  readonly name: string;
  readonly max_tokens: number | null;
  readonly max_cost: number | null;
  readonly max_calls: number | null;
  readonly tokens: number;
  readonly cost: number;
  readonly calls: number;
}

interface ReservationRow {
  readonly id: number;
  readonly key: string;
  readonly budget: string;
  readonly tokens: number;
  readonly cost: number;
  readonly calls: number;
  readonly repeated: number;
  readonly at: number;
}

/** The budgets of a store. Every process that opens the store draws on the same ones. */
export function openBudgets(db: DatabaseSync, accounting: Omit<Accounting, 'tables'>): Budgets {
  const findBudget = db.prepare('SELECT * FROM budgets WHERE name = ?');
  const findBudgets = db.prepare('SELECT * FROM budgets ORDER BY name');
  const sumReserved = db.prepare(
    `SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost), 0) AS cost, coalesce(sum(calls), 0) AS calls
     FROM reservations WHERE budget = ?`,
  );
  const upsertBudget = db.prepare(
    `INSERT INTO budgets (name, max_tokens, max_cost, max_calls) VALUES (?1, ?2, ?3, ?4)
     ON CONFLICT DO UPDATE SET max_tokens = ?2, max_cost = ?3, max_calls = ?4`,
  );
  const chargeBudget = db.prepare(
    'UPDATE budgets SET tokens = tokens + ?2, cost = cost + ?3, calls = calls + ?4 WHERE name = ?1',
  );
  const findReservation = db.prepare('SELECT * FROM reservations WHERE key = ?');
  const findReservations = db.prepare('SELECT * FROM reservations ORDER BY id');
  const findReservationsOf = db.prepare(
    'SELECT * FROM reservations WHERE key IN (SELECT key FROM reservations WHERE budget = ?)',
  );
  const insertReservation = db.prepare(
    'INSERT INTO reservations (key, budget, tokens, cost, calls, repeated, at) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const markRepeated = db.prepare(
    'UPDATE reservations SET repeated = 1, tokens = ?2, cost = ?3, calls = ?4 WHERE key = ?1',
  );
  const deleteReservation = db.prepare('DELETE FROM reservations WHERE key = ?');

  function toBudget(row: BudgetRow): Budget {
    const { name, tokens, cost, calls } = row;
    const reserved = sumReserved.get(name) as unknown as Budget['reserved'];
    return { name, limits: limitsOf(row), settled: { tokens, cost, calls }, reserved: { ...reserved } };
  }

  return budgetsOn({
    ...accounting,
    tables: {
      budget(name) {
        const row = findBudget.get(name) as unknown as BudgetRow | undefined;
        return row && toBudget(row);
      },
      budgets: () => (findBudgets.all() as unknown as readonly BudgetRow[]).map(toBudget),
      putLimits: (name, { tokens = null, cost = null, calls = null }) =>
        void upsertBudget.run(name, tokens, cost, calls),
      addSettled: (name, { tokens, cost, calls }) => void chargeBudget.run(name, tokens, cost, calls),
      reservation: (key) => toReservations(findReservation.all(key) as unknown as readonly ReservationRow[])[0],
      reservations(budget) {
        const rows = budget === undefined ? findReservations.all() : findReservationsOf.all(budget);
        return toReservations(rows as unknown as readonly ReservationRow[]);
      },
      addReservation({ key, budgets, amounts: { tokens, cost, calls }, repeated, at }) {
        for (const budget of budgets) {
          insertReservation.run(key, budget, tokens, cost, calls, repeated ? 1 : 0, at);
        }
      },
      markRepeated: (key, { tokens, cost, calls }) => void markRepeated.run(key, tokens, cost, calls),
      removeReservation: (key) => void deleteReservation.run(key),
    },
  });
}

function limitsOf({ max_tokens: tokens, max_cost: cost, max_calls: calls }: BudgetRow): Amounts {
  return { ...(tokens !== null && { tokens }), ...(cost !== null && { cost }), ...(calls !== null && { calls }) };
}

/** One reservation for all rows of a key, oldest first. */
function toReservations(rows: readonly ReservationRow[]): readonly Reservation[] {
  const inOrder = rows.toSorted((a, b) => a.id - b.id);
  const byKey = Map.groupBy(inOrder, ({ key }) => key);
  return Array.from(byKey, ([key, same]) => {
    const { tokens, cost, calls, repeated, at } = same[0]!;
    const budgets = same.map(({ budget }) => budget);
    return { key, budgets, amounts: { tokens, cost, calls }, repeated: repeated === 1, at };
  });
}
