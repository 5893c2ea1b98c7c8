import { KINDS } from './amounts.ts';
import { checkedBudget, checkedName, countsEffect, misuse, periodStart, type BudgetDefinition } from './definition.ts';
import type { Amounts, BudgetLevel, Ledger, Reserved, Spending } from './port.ts';

export { checkedBudget } from './definition.ts';
export type { BudgetDefinition, BudgetPeriod, CountedEffects } from './definition.ts';

/** Budgets that several runs, and with a store several processes, draw on. */
export interface Budgets {
  /** Creates a budget, or replaces its definition. What was used and reserved stays, and so does a suspension. */
  set(name: string, definition: BudgetDefinition): Promise<void>;
  /** Creates a budget, or changes only its limits. An absent limit is off. */
  setLimits(name: string, limits: Amounts): Promise<void>;
  /** Nothing more is reserved until the budget is active again: runs are refused, with the reason. */
  suspend(name: string, reason: string): Promise<void>;
  activate(name: string): Promise<void>;
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

/** A budget, with its totals of the current period. */
export interface Budget extends StoredBudget, PeriodTotals {
  readonly name: string;
  /** When the period began; absent without one. */
  readonly since?: number;
}

/** A definition, and the state of the budget. */
export interface StoredBudget extends BudgetDefinition {
  /** Why it is suspended. Absent: it is active. */
  readonly suspended?: string;
}

export interface PeriodTotals {
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
  /** When it was reserved first, in milliseconds since 1970. It is charged to the period of this time. */
  readonly at: number;
}

export type Totals = Required<Amounts>;

type MaybePromise<T> = T | Promise<T>;

/**
 * Where budgets and reservations are stored, as one transaction sees them. Tables whose methods return values, and not
 * promises, are used synchronously.
 */
export interface BudgetTables {
  budget(name: string): MaybePromise<StoredBudget | undefined>;
  /** In the order of their names. */
  names(): MaybePromise<readonly string[]>;
  putBudget(name: string, budget: StoredBudget): MaybePromise<void>;
  /** What was settled in the period that began at `since`, and what is reserved since then. */
  totals(name: string, since: number): MaybePromise<PeriodTotals>;
  addSettled(name: string, since: number, amounts: Totals): MaybePromise<void>;
  reservation(key: string): MaybePromise<Reservation | undefined>;
  reservations(budget: string | undefined): MaybePromise<readonly Reservation[]>;
  addReservation(reservation: Reservation): MaybePromise<void>;
  /** The effect is performed again, and may use these amounts. */
  markRepeated(key: string, amounts: Totals): MaybePromise<void>;
  removeReservation(key: string): MaybePromise<void>;
}

/** How the accounting runs. */
export interface Accounting {
  /**
   * Does the work in one transaction, and resolves when its changes are durable. Work that fails changes nothing. Two
   * transactions that read the same budget must not both be committed as if the other had not been: they run one after
   * the other, or are serialisable.
   */
  readonly write: <T>(work: (tables: BudgetTables) => MaybePromise<T>) => MaybePromise<T>;
  readonly read: <T>(work: (tables: BudgetTables) => MaybePromise<T>) => MaybePromise<T>;
  readonly now: () => number;
}

/** Budgets in memory, for the runs of one process: the definition or only the limits of each. */
export function memoryBudgets(
  budgets: Readonly<Record<string, BudgetDefinition | Amounts>> = {},
  { now = Date.now }: { readonly now?: () => number } = {},
): Budgets {
  const tables = memoryTables();
  for (const [name, given] of Object.entries(budgets)) {
    void tables.putBudget(name, checkedBudget(name, 'limits' in given ? given : { limits: given }));
  }
  return budgetsOn({ write: (work) => work(tables), read: (work) => work(tables), now });
}

/** The accounting of budgets, on the tables of a store. */
export function budgetsOn({ write, read, now }: Accounting): Budgets {
  const change = async (name: string, changed: (before: StoredBudget | undefined) => StoredBudget): Promise<void> =>
    write((tables) =>
      performed(function* () {
        yield* got(tables.putBudget(name, changed(yield* got(tables.budget(name)))));
      }),
    );
  const existing = (name: string, before: StoredBudget | undefined): StoredBudget => {
    if (before) return before;
    throw misuse(missingBudget(name));
  };

  return {
    async set(name, definition) {
      const checked = checkedBudget(name, definition);
      await change(name, (before) => ({
        ...checked,
        ...(before?.suspended !== undefined && { suspended: before.suspended }),
      }));
    },
    async setLimits(name, limits) {
      const checked = checkedBudget(name, { limits });
      await change(name, (before) => ({ ...before, ...checked }));
    },
    async suspend(name, reason) {
      if (typeof reason !== 'string' || reason === '') {
        throw misuse(`The budget "${checkedName(name)}" is suspended without a reason. Give one: runs are told.`);
      }
      await change(checkedName(name), (before) => ({ ...existing(name, before), suspended: reason }));
    },
    async activate(name) {
      await change(checkedName(name), (before) => {
        const { suspended: _, ...active } = existing(name, before);
        return active;
      });
    },
    get: async (name) => read((tables) => performed(() => findBudget(tables, name, now()))),
    list: async () =>
      read((tables) =>
        performed(function* () {
          const found: Budget[] = [];
          for (const name of yield* got(tables.names())) {
            const budget = yield* findBudget(tables, name, now());
            if (budget) found.push(budget);
          }
          return found;
        }),
      ),
    reservations: async (name) => read((tables) => tables.reservations(name)),
    ledger(names) {
      if (!Array.isArray(names) || names.length === 0) {
        throw misuse('A ledger needs the names of the budgets to draw on. Pass at least one.');
      }
      const drawn = [...new Set(names.map(checkedName))];
      const settle = (tables: BudgetTables, key: string, used: Amounts): MaybePromise<void> =>
        performed(() => charge(tables, { key, names: drawn, used, at: now() }));
      return {
        reserve: (key, amounts, about) =>
          write((tables) => performed(() => reserve(tables, { key, names: drawn, amounts, about, at: now() }))),
        settle: (key, amounts) => write((tables) => settle(tables, key, amounts)),
        release: (key) =>
          write((tables) =>
            performed(function* () {
              const held = yield* got(tables.reservation(key));
              // An earlier attempt may have used all of it.
              if (held?.repeated) yield* got(settle(tables, key, {}));
              else yield* got(tables.removeReservation(key));
            }),
          ),
      };
    },
  };
}

/* The accounting is synchronous on tables that are: their transaction contains nothing else then. */

/** Work that yields what it waits for. */
type Work<T> = Generator<unknown, T, unknown>;

function* got<T>(value: MaybePromise<T>): Generator<unknown, T, unknown> {
  return (yield value) as T;
}

function performed<T>(work: () => Work<T>): MaybePromise<T> {
  const working = work();
  let next = working.next();
  while (!next.done) {
    if (next.value instanceof Promise) return performedLater(working, next.value);
    next = working.next(next.value);
  }
  return next.value;
}

async function performedLater<T>(working: Work<T>, awaited: Promise<unknown>): Promise<T> {
  let next = working.next(await awaited);
  while (!next.done) next = working.next(await next.value);
  return next.value;
}

function* findBudget(tables: BudgetTables, name: string, at: number): Work<Budget | undefined> {
  const stored = yield* got(tables.budget(name));
  if (!stored) return undefined;
  const since = periodStart(stored.period, at);
  const totals = yield* got(tables.totals(name, since));
  return { name, ...stored, ...(stored.period !== undefined && { since }), ...totals };
}

interface Charge {
  readonly key: string;
  readonly names: readonly string[];
  readonly used: Amounts;
  readonly at: number;
}

/**
 * Charges an effect to the period in which it was reserved. Without a reservation, what it used is charged to those of the
 * budgets that count everything.
 */
function* charge(tables: BudgetTables, { key, names, used, at }: Charge): Work<void> {
  const held = yield* got(tables.reservation(key));
  const amounts = held ? chargeOf(held, used) : totalsOf(used);
  for (const name of held?.budgets ?? names) {
    const stored = yield* got(tables.budget(name));
    if (!stored || (!held && stored.only)) continue;
    yield* got(tables.addSettled(name, periodStart(stored.period, held?.at ?? at), amounts));
  }
  if (held) yield* got(tables.removeReservation(key));
}

interface Request {
  readonly key: string;
  readonly names: readonly string[];
  readonly amounts: Amounts;
  readonly about: Spending;
  readonly at: number;
}

function* reserve(tables: BudgetTables, { key, names, amounts, about, at }: Request): Work<Reserved> {
  const held = yield* got(tables.reservation(key));
  const needed = held ? missingIn(held.amounts, amounts) : amounts;
  const drawn: string[] = [];
  const lacks: string[] = [];
  const warnings: BudgetLevel[] = [];
  for (const name of held?.budgets ?? names) {
    const budget = yield* findBudget(tables, name, held?.at ?? at);
    if (!held && budget && !countsEffect(budget.only, about)) continue;
    drawn.push(name);
    if (budget?.suspended !== undefined) {
      return { type: 'refused', reason: `The budget "${name}" is suspended: ${budget.suspended}` };
    }
    // What is reserved stays reserved, whatever the limits are now.
    if (held && isNothing(needed)) continue;
    const reason = refusalOf(name, budget, needed);
    if (!budget) return { type: 'refused', reason: missingBudget(name) };
    // Nobody can say how far a cost that is not known exceeds its limit.
    const isUnknown = needed.cost === Infinity && budget.limits.cost !== undefined;
    if (reason !== undefined && (budget.atLimit !== 'ask' || isUnknown)) return { type: 'refused', reason };
    if (reason !== undefined) lacks.push(reason);
    else warnings.push(...levelsReached(budget, needed));
  }
  if (lacks.length > 0 && !about?.approved) return { type: 'escalated', reason: lacks.join(' ') };
  if (held) yield* got(tables.markRepeated(key, addTotals(held.amounts, totalsOf(needed))));
  else if (drawn.length > 0) {
    yield* got(tables.addReservation({ key, budgets: drawn, amounts: totalsOf(amounts), repeated: false, at }));
  }
  return warnings.length > 0 ? { type: 'warned', warnings } : RESERVED;
}

/** What a repeated effect may use beyond its reservation: the conversation, the tools or the model may have changed. */
function missingIn(held: Totals, amounts: Amounts): Totals {
  return eachKind((kind) => Math.max(0, (amounts[kind] ?? 0) - held[kind]));
}

function isNothing(amounts: Amounts): boolean {
  return KINDS.every((kind) => (amounts[kind] ?? 0) === 0);
}

const RESERVED: Reserved = { type: 'reserved' };

function missingBudget(name: string): string {
  return `There is no budget "${name}". Set its limits first.`;
}

/** Why a budget has not enough left for these amounts. */
function refusalOf(name: string, budget: Budget | undefined, amounts: Amounts): string | undefined {
  if (!budget) return missingBudget(name);
  const { limits, settled, reserved } = budget;
  for (const kind of KINDS) {
    const { [kind]: limit } = limits;
    const { [kind]: needed = 0 } = amounts;
    if (limit === undefined) continue;
    if (needed === Infinity) {
      return `The budget "${name}" limits the cost, and the price of the model is not known. Set a price for it.`;
    }
    const left = limit - settled[kind] - reserved[kind];
    // How long an effect takes is known afterwards, so it needs some time to be left.
    if (kind === 'durationMs' && needed === 0 ? left > 0 : needed <= Math.max(0, left)) continue;
    const rest = `The budget "${name}" has ${Math.max(0, left)} ${kind} left of ${limit}`;
    return needed === 0 ? `${rest}.` : `${rest}, and up to ${needed} are needed.`;
  }
  return undefined;
}

/** The limits of which so much is used, with these amounts, that runs are warned. */
function levelsReached({ name, limits, warnAt, settled, reserved }: Budget, amounts: Amounts): readonly BudgetLevel[] {
  if (warnAt === undefined) return [];
  return KINDS.flatMap((kind) => {
    const { [kind]: limit } = limits;
    const used = settled[kind] + reserved[kind] + (amounts[kind] ?? 0);
    return limit === undefined || used < limit * warnAt ? [] : { budget: name, kind, used, limit };
  });
}

/** What an effect is charged. An earlier attempt that never settled may have used all that was reserved. */
function chargeOf({ amounts, repeated }: Reservation, used: Amounts): Totals {
  return eachKind((kind) => {
    const { [kind]: reserved } = amounts;
    const { [kind]: counted = reserved } = used;
    return repeated ? Math.max(reserved, counted) : counted;
  });
}

/** A cost that is not known is stored as 0: no budget that limits the cost accepts it. */
function totalsOf(amounts: Amounts): Totals {
  return eachKind((kind) => (Number.isFinite(amounts[kind]) ? amounts[kind]! : 0));
}

function eachKind(amountOf: (kind: keyof Amounts) => number): Totals {
  return Object.fromEntries(KINDS.map((kind) => [kind, amountOf(kind)])) as unknown as Totals;
}

function memoryTables(): BudgetTables {
  const budgets = new Map<string, StoredBudget>();
  const settled = new Map<string, Map<number, Totals>>();
  const reservations = new Map<string, Reservation>();
  const reservationsOf = (budget: string | undefined): readonly Reservation[] =>
    [...reservations.values()].filter(({ budgets: names }) => budget === undefined || names.includes(budget));

  return {
    budget: (name) => budgets.get(name),
    names: () => [...budgets.keys()].toSorted(),
    putBudget: (name, budget) => void budgets.set(name, budget),
    totals: (name, since) => ({
      settled: settled.get(name)?.get(since) ?? NOTHING,
      reserved: reservationsOf(name).reduce(
        (sum, { amounts, at }) => (at < since ? sum : addTotals(sum, amounts)),
        NOTHING,
      ),
    }),
    addSettled(name, since, amounts) {
      const periods = settled.get(name) ?? new Map<number, Totals>();
      settled.set(name, periods.set(since, addTotals(periods.get(since) ?? NOTHING, amounts)));
    },
    reservation: (key) => reservations.get(key),
    reservations: reservationsOf,
    addReservation: (reservation) => void reservations.set(reservation.key, reservation),
    markRepeated: (key, amounts) => void reservations.set(key, { ...reservations.get(key)!, amounts, repeated: true }),
    removeReservation: (key) => void reservations.delete(key),
  };
}

const NOTHING: Totals = eachKind(() => 0);

function addTotals(a: Totals, b: Totals): Totals {
  return eachKind((kind) => a[kind] + b[kind]);
}
