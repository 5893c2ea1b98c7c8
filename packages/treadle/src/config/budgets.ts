import { messageOf, type Amounts, type Ledger } from '@treadle/core';
import { memoryBudgets, type Budgets } from '@treadle/core/budgets';
import type { Config } from './config.ts';
import type { Shape } from '@treadle/tools/toml';

/** [budgets.NAME]: the limits of a budget. `memoryBudgets` checks them, so that they are those of the library. */
export type BudgetEntry = Readonly<Record<string, unknown>>;

export const BUDGETS_SHAPE: Shape = {
  type: 'table',
  fields: {},
  others: {
    type: 'checked',
    check(entry, path) {
      try {
        memoryBudgets({ [path.slice(path.indexOf('.') + 1)]: limitsOf(entry) });
        return [];
      } catch (error) {
        return [`${path}: ${messageOf(error).replace(/\.$/, '')}`];
      }
    },
  },
};

/** The library has no underscores in its names: `duration_ms` is `durationMs`. */
function limitsOf(entry: object): Amounts {
  const named = Object.entries(entry).map(([name, value]) => [
    name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    value as unknown,
  ]);
  return Object.fromEntries(named) as Amounts;
}

/** Where the configuration names budgets, with the names. */
export function budgetProblems({ budgets = {}, server = {}, orchestrator = {} }: Config): string[] {
  const { keys = [], tenants = {} } = server;
  const named: readonly (readonly [path: string, names: readonly string[] | undefined])[] = [
    ['orchestrator.budgets', orchestrator.budgets],
    ['server.budgets', server.budgets],
    ...Object.entries(tenants).map(([name, tenant]) => [`server.tenants.${name}.budgets`, tenant.budgets] as const),
    ...keys.map((key, index) => [`server.keys[${index}].budgets`, key.budgets] as const),
  ];
  const known = Object.keys(budgets).join(', ') || 'none';
  return named.flatMap(([path, names = []]) =>
    names.some((name) => !Object.hasOwn(budgets, name))
      ? [`${path} names a budget that is not in [budgets]. Budgets: ${known}`]
      : [],
  );
}

/** The ledgers of budgets that the configuration names. Undefined for no names. */
export type LedgerOf = (names: readonly string[]) => Ledger | undefined;

/**
 * Sets the limits of the budgets in the configuration. Without `stored`, they are those of this process. What is not in the
 * configuration any more stays in the store, and nothing draws on it.
 */
export async function openLedgers({ budgets = {} }: Config, stored: Budgets | undefined): Promise<LedgerOf> {
  const limits = Object.entries(budgets).map(([name, entry]) => [name, limitsOf(entry)] as const);
  const opened = stored ?? memoryBudgets(Object.fromEntries(limits));
  if (stored) for (const [name, limit] of limits) await stored.setLimits(name, limit);
  const made = new Map<string, Ledger>();
  return (names) => {
    const unique = [...new Set(names)];
    if (unique.length === 0) return undefined;
    const id = JSON.stringify(unique);
    const ledger = made.get(id) ?? opened.ledger(unique);
    made.set(id, ledger);
    return ledger;
  };
}

/** The budgets that a run of the server draws on: those of the server, of its tenant and of its key. */
export function serverBudgets(
  { server = {} }: Config,
  { subject, tenant }: { readonly subject: string; readonly tenant: string },
): readonly string[] {
  const { budgets = [], tenants = {}, keys = [] } = server;
  const ofTenant = Object.hasOwn(tenants, tenant) ? (tenants[tenant]!.budgets ?? []) : [];
  return [...budgets, ...ofTenant, ...(keys.find(({ name }) => name === subject)?.budgets ?? [])];
}
