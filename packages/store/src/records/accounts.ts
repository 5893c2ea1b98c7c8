import type { Reservation, Totals } from '@treadle/core/budgets';

/** Older calls count for no rate. */
export const RATES_KEPT_MS = 3_600_000;

/** The columns of each amount, in the order of `amountsIn`. */
export const BUDGET_COLUMNS = ['tokens', 'cost', 'calls', 'files', 'lines', 'requests', 'duration_ms'] as const;

export type AmountsRow = Readonly<Record<(typeof BUDGET_COLUMNS)[number], number>>;

/** One of several rows of a reservation: one for each budget. */
export interface ReservationRow extends AmountsRow {
  readonly id: number;
  readonly key: string;
  readonly budget: string;
  readonly repeated: number | boolean;
  readonly at: number;
}

export function amountsIn({ tokens, cost, calls, files, lines, requests, durationMs }: Totals): readonly number[] {
  return [tokens, cost, calls, files, lines, requests, durationMs];
}

export function totalsIn(row: AmountsRow | undefined): Totals {
  const {
    tokens = 0,
    cost = 0,
    calls = 0,
    files = 0,
    lines = 0,
    requests = 0,
    duration_ms: durationMs = 0,
  } = row ?? {};
  return { tokens, cost, calls, files, lines, requests, durationMs };
}

/** One reservation for all rows of a key, oldest first. */
export function toReservations(rows: readonly ReservationRow[]): readonly Reservation[] {
  const inOrder = rows.toSorted((a, b) => a.id - b.id);
  const byKey = Map.groupBy(inOrder, ({ key }) => key);
  return Array.from(byKey, ([key, same]) => {
    const { repeated, at } = same[0]!;
    const budgets = same.map(({ budget }) => budget);
    return { key, budgets, amounts: totalsIn(same[0]), repeated: Boolean(repeated), at };
  });
}
