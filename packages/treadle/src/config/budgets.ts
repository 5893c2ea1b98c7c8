import { messageOf, type Amounts, type Ledger } from '@treadle/core';
import {
  checkedBudget,
  memoryBudgets,
  type BudgetDefinition,
  type BudgetPeriod,
  type Budgets,
  type CountedEffects,
} from '@treadle/core/budgets';
import type { Config } from './config.ts';
import type { Shape } from '@treadle/tools/toml';

/** [budgets.NAME]: the limits of a budget by their names, and what else its definition has. */
export interface BudgetEntry extends Omit<Amounts, 'durationMs'> {
  readonly duration_ms?: number;
  readonly period?: BudgetPeriod;
  readonly warn_at?: number;
  readonly at_limit?: 'refuse' | 'ask';
  readonly only?: CountedEffects;
}

const amount: Shape = { type: 'number', min: 0 };
const texts: Shape = { type: 'texts' };

export const BUDGETS_SHAPE: Shape = {
  type: 'table',
  fields: {},
  others: {
    type: 'table',
    fields: {
      tokens: amount,
      cost: amount,
      calls: amount,
      files: amount,
      lines: amount,
      requests: amount,
      duration_ms: amount,
      period: { type: 'text', choices: ['day', 'week', 'month'] },
      warn_at: { type: 'number', min: 0, max: 1 },
      at_limit: { type: 'text', choices: ['refuse', 'ask'] },
      only: { type: 'table', fields: { names: texts, commands: texts, domains: texts } },
    },
  },
};

/** Throws if the library does not accept it. */
function definitionOf(name: string, entry: BudgetEntry): BudgetDefinition {
  const { period, warn_at: warnAt, at_limit: atLimit, only, duration_ms: durationMs, ...amounts } = entry;
  const limits = durationMs === undefined ? amounts : { ...amounts, durationMs };
  return checkedBudget(name, { limits, period, warnAt, atLimit, only });
}

function definitionProblems(name: string, entry: BudgetEntry): readonly string[] {
  try {
    definitionOf(name, entry);
    return [];
  } catch (error) {
    return [`budgets.${name}: ${messageOf(error).replace(/\.$/, '')}`];
  }
}

/** Budgets that cannot be used, and names of budgets that do not exist. */
export function budgetProblems({ budgets = {}, server = {}, orchestrator = {} }: Config): string[] {
  const { keys = [], tenants = {} } = server;
  const named: readonly (readonly [path: string, names: readonly string[] | undefined])[] = [
    ['orchestrator.budgets', orchestrator.budgets],
    ['server.budgets', server.budgets],
    ...Object.entries(tenants).map(([name, tenant]) => [`server.tenants.${name}.budgets`, tenant.budgets] as const),
    ...keys.map((key, index) => [`server.keys[${index}].budgets`, key.budgets] as const),
  ];
  const known = Object.keys(budgets).join(', ') || 'none';
  const missing = named.flatMap(([path, names = []]) =>
    names.some((name) => !Object.hasOwn(budgets, name))
      ? [`${path} names a budget that is not in [budgets]. Budgets: ${known}`]
      : [],
  );
  return [...Object.entries(budgets).flatMap(([name, entry]) => definitionProblems(name, entry)), ...missing];
}

/** The ledgers of budgets that the configuration names. Undefined for no names. */
export type LedgerOf = (names: readonly string[]) => Ledger | undefined;

/**
 * Sets the budgets of the configuration. What was used, and a suspension, stay. Without `stored`, they are those of this process. What is not in the
 * configuration any more stays in the store, and nothing draws on it.
 */
export async function openLedgers({ budgets = {} }: Config, stored: Budgets | undefined): Promise<LedgerOf> {
  const opened = stored ?? memoryBudgets();
  for (const [name, entry] of Object.entries(budgets)) await opened.set(name, definitionOf(name, entry));
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
