import { TreadleError } from '../errors.ts';
import { checkAmounts, KINDS } from './amounts.ts';
import type { Amounts, Ledger, Reserved } from './port.ts';

/** Budgets that several runs, and with a store several processes, draw on. */
export interface Budgets {
  /** Creates a budget, or changes its limits. What was used and reserved stays. An absent limit is off. */
  setLimits(name: string, limits: Amounts): Promise<void>;
  get(name: string): Promise<Budget | undefined>;
  /** By name. */
  list(): Promise<readonly Budget[]>;
  /**
   * The reservations that are not settled, oldest first: of effects in progress, and of effects that began and never
   * settled. Without a name: of all budgets. `settle(key, {})` of a ledger charges one in full, `release(key)` drops it.
   */
  reservations(name?: string): Promise<readonly Reservation[]>;
  /** The ledger for runs that draw on all of these budgets. Every one of them must have what a run reserves. */
  ledger(names: readonly string[]): Ledger;
}

export interface Budget {
  readonly name: string;
  readonly limits: Amounts;
  /** What was used. */
  readonly settled: Totals;
  /** What is reserved and not settled. */
  readonly reserved: Totals;
}

export interface Reservation {
  readonly key: string;
  readonly budgets: readonly string[];
  readonly amounts: Totals;
  /** The effect was reserved again, so an earlier attempt may have used all of it. */
  readonly repeated: boolean;
  /** When it was reserved first, in milliseconds since 1970. */
  readonly at: number;
}

export type Totals = Required<Amounts>;

/** Where budgets and reservations are stored. All methods are synchronous; `budgetsOn` calls them in a transaction. */
export interface BudgetTables {
  budget(name: string): Budget | undefined;
  budgets(): readonly Budget[];
  /** Creates the budget, or changes its limits. */
  putLimits(name: string, limits: Amounts): void;
  addSettled(name: string, amounts: Totals): void;
  reservation(key: string): Reservation | undefined;
  reservations(budget: string | undefined): readonly Reservation[];
  addReservation(reservation: Reservation): void;
  /** The effect is performed again, and may use these amounts. */
  markRepeated(key: string, amounts: Totals): void;
  removeReservation(key: string): void;
}

/** How the accounting runs. `write` returns when the changes are durable. */
export interface Accounting {
  readonly tables: BudgetTables;
  readonly write: <T>(work: () => T) => T | Promise<T>;
  readonly read: <T>(work: () => T) => T | Promise<T>;
  readonly now: () => number;
}

/** Budgets in memory, for the runs of one process. */
export function memoryBudgets(limits: Readonly<Record<string, Amounts>> = {}): Budgets {
  const tables = memoryTables();
  for (const [name, set] of Object.entries(limits)) tables.putLimits(checkedName(name), checkedLimits(name, set));
  return budgetsOn({ tables, write: (work) => work(), read: (work) => work(), now: Date.now });
}

/** The accounting of budgets, on the tables of a store. */
export function budgetsOn({ tables, write, read, now }: Accounting): Budgets {
  /** Charges an effect. Without a reservation, what it used is charged to these budgets. */
  function charge(key: string, names: readonly string[], used: Amounts): void {
    const reservation = tables.reservation(key);
    const amounts = reservation ? chargeOf(reservation, used) : totalsOf(used);
    for (const name of reservation?.budgets ?? names) tables.addSettled(name, amounts);
    if (reservation) tables.removeReservation(key);
  }

  function reserve(key: string, names: readonly string[], amounts: Amounts): Reserved {
    const held = tables.reservation(key);
    const needed = held ? missingIn(held.amounts, amounts) : amounts;
    for (const name of held?.budgets ?? names) {
      // What is reserved stays reserved, whatever the limits are now.
      const reason = held && isNothing(needed) ? undefined : refusalOf(name, tables.budget(name), needed);
      if (reason !== undefined) return { type: 'refused', reason };
    }
    if (held) {
      tables.markRepeated(key, addTotals(held.amounts, totalsOf(needed)));
      return RESERVED;
    }
    tables.addReservation({ key, budgets: names, amounts: totalsOf(amounts), repeated: false, at: now() });
    return RESERVED;
  }

  return {
    async setLimits(name, limits) {
      const [checked, set] = [checkedName(name), checkedLimits(name, limits)];
      await write(() => tables.putLimits(checked, set));
    },
    get: async (name) => read(() => tables.budget(name)),
    list: async () => read(() => tables.budgets()),
    reservations: async (name) => read(() => tables.reservations(name)),
    ledger(names) {
      if (!Array.isArray(names) || names.length === 0) {
        throw new TreadleError(
          'invalid-options',
          'A ledger needs the names of the budgets to draw on. Pass at least one.',
        );
      }
      const drawn = [...new Set(names.map(checkedName))];
      return {
        reserve: (key, amounts) => write(() => reserve(key, drawn, amounts)),
        settle: (key, amounts) => write(() => charge(key, drawn, amounts)),
        release: (key) =>
          write(() => {
            // An earlier attempt may have used all of it.
            if (tables.reservation(key)?.repeated) charge(key, drawn, {});
            else tables.removeReservation(key);
          }),
      };
    },
  };
}

/** What a repeated effect may use beyond its reservation: the conversation, the tools or the model may have changed. */
function missingIn(held: Totals, { tokens = 0, cost = 0, calls = 0 }: Amounts): Totals {
  const more = (needed: number, has: number): number => Math.max(0, needed - has);
  return { tokens: more(tokens, held.tokens), cost: more(cost, held.cost), calls: more(calls, held.calls) };
}

function isNothing({ tokens = 0, cost = 0, calls = 0 }: Amounts): boolean {
  return tokens + cost + calls === 0;
}

const RESERVED: Reserved = { type: 'reserved' };

/** Why a budget has not enough left for these amounts. */
function refusalOf(name: string, budget: Budget | undefined, amounts: Amounts): string | undefined {
  if (!budget) return `There is no budget "${name}". Set its limits first.`;
  const { limits, settled, reserved } = budget;
  for (const kind of KINDS) {
    const { [kind]: limit } = limits;
    const { [kind]: needed = 0 } = amounts;
    if (limit === undefined) continue;
    if (needed === Infinity) {
      return `The budget "${name}" limits the cost, and the price of the model is not known. Set a price for it.`;
    }
    const left = limit - settled[kind] - reserved[kind];
    if (needed <= left) continue;
    return `The budget "${name}" has ${Math.max(0, left)} ${kind} left of ${limit}, and up to ${needed} are needed.`;
  }
  return undefined;
}

/** What an effect is charged. An earlier attempt that never settled may have used all that was reserved. */
function chargeOf({ amounts, repeated }: Reservation, used: Amounts): Totals {
  const amountOf = (kind: keyof Amounts): number => {
    const { [kind]: reserved } = amounts;
    const { [kind]: counted = reserved } = used;
    return repeated ? Math.max(reserved, counted) : counted;
  };
  return { tokens: amountOf('tokens'), cost: amountOf('cost'), calls: amountOf('calls') };
}

/** A cost that is not known is stored as 0: no budget that limits the cost accepts it. */
function totalsOf({ tokens = 0, cost = 0, calls = 0 }: Amounts): Totals {
  return { tokens, cost: Number.isFinite(cost) ? cost : 0, calls };
}

function checkedName(name: unknown): string {
  if (typeof name === 'string' && name !== '' && name.isWellFormed()) return name;
  throw new TreadleError(
    'invalid-options',
    'The name of a budget must be a text that is not empty and has no unpaired surrogates.',
  );
}

function checkedLimits(name: string, limits: Amounts): Amounts {
  checkAmounts(`The budget "${name}"`, limits);
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

function memoryTables(): BudgetTables {
  const budgets = new Map<string, { readonly limits: Amounts; readonly settled: Totals }>();
  const reservations = new Map<string, Reservation>();
  const reservationsOf = (budget: string | undefined): readonly Reservation[] =>
    [...reservations.values()].filter(({ budgets: names }) => budget === undefined || names.includes(budget));

  function budget(name: string): Budget | undefined {
    const found = budgets.get(name);
    const reserved = reservationsOf(name).reduce((sum, { amounts }) => addTotals(sum, amounts), NOTHING);
    return found && { name, ...found, reserved };
  }

  return {
    budget,
    budgets: () => [...budgets.keys()].toSorted().flatMap((name) => budget(name) ?? []),
    putLimits: (name, limits) => void budgets.set(name, { limits, settled: budgets.get(name)?.settled ?? NOTHING }),
    addSettled(name, amounts) {
      const found = budgets.get(name);
      if (found) budgets.set(name, { ...found, settled: addTotals(found.settled, amounts) });
    },
    reservation: (key) => reservations.get(key),
    reservations: reservationsOf,
    addReservation: (reservation) => void reservations.set(reservation.key, reservation),
    markRepeated: (key, amounts) => void reservations.set(key, { ...reservations.get(key)!, amounts, repeated: true }),
    removeReservation: (key) => void reservations.delete(key),
  };
}

const NOTHING: Totals = { tokens: 0, cost: 0, calls: 0 };

function addTotals(a: Totals, b: Totals): Totals {
  return { tokens: a.tokens + b.tokens, cost: a.cost + b.cost, calls: a.calls + b.calls };
}
