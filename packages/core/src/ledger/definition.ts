import { TreadleError } from '../errors.ts';
import { domainEntry } from '../policy/domains.ts';
import { plainUrl } from '../policy/gather.ts';
import { checkAmounts } from './amounts.ts';
import type { Amounts, Spending } from './port.ts';

/** What a budget is. */
export interface BudgetDefinition {
  /** An absent limit is off. */
  readonly limits: Amounts;
  /** Usage begins at 0 with each period, in UTC; a week begins on Monday. Absent: it never does. */
  readonly period?: BudgetPeriod;
  /** Runs are warned when this share of a limit is used and reserved, such as 0.8. */
  readonly warnAt?: number;
  /** What happens to an effect that needs more than is left. `ask`: people decide. Default: `refuse`. */
  readonly atLimit?: 'refuse' | 'ask';
  /** The budget counts only these effects, in full, and leaves all others alone. Absent: it counts all. */
  readonly only?: CountedEffects;
}

export type BudgetPeriod = 'day' | 'week' | 'month';

/** An effect counts if it matches one entry of each list that is there. */
export interface CountedEffects {
  /** Names of tools, or ids of models. */
  readonly names?: readonly string[];
  /** The first words of commands, such as `git push`. */
  readonly commands?: readonly string[];
  /** Domains as in a policy: `example.com`, `*.example.com`. */
  readonly domains?: readonly string[];
}

const DEFINITION = ['limits', 'period', 'warnAt', 'atLimit', 'only'];
const ONLY = ['names', 'commands', 'domains'];

/** Throws for a value that is not an object, or has another key. The core has this for options, and would be split by it. */
function checkKeys(owner: string, value: unknown, keys: readonly string[]): void {
  if (typeof value !== 'object' || value === null) {
    throw misuse(`${owner} is ${JSON.stringify(value)}. Use an object with ${keys.join(', ')}.`);
  }
  const unknown = Object.keys(value).find((key) => !keys.includes(key));
  if (unknown !== undefined) throw misuse(`${owner} has "${unknown}". Use ${keys.join(', ')}.`);
}

/** A copy of a definition from outside, such as configuration. Throws `invalid-options` if it is not one. */
export function checkedBudget(name: string, given: unknown): BudgetDefinition {
  const owner = `The budget "${checkedName(name)}"`;
  checkKeys(owner, given, DEFINITION);
  const { limits, period, warnAt, atLimit, only } = given as BudgetDefinition;
  if (typeof limits !== 'object' || limits === null)
    throw misuse(`${owner} has no limits. Set some, such as { tokens: 100_000 }.`);
  checkAmounts(owner, limits);
  if (period !== undefined && !Object.hasOwn(PERIODS, period)) {
    throw misuse(`${owner} has the period ${JSON.stringify(period)}. Use day, week or month, or omit it.`);
  }
  if (warnAt !== undefined && !(warnAt > 0 && warnAt <= 1)) {
    throw misuse(`${owner} has warnAt ${JSON.stringify(warnAt)}. Use a share above 0 and up to 1, or omit it.`);
  }
  if (atLimit !== undefined && atLimit !== 'refuse' && atLimit !== 'ask') {
    throw misuse(`${owner} has atLimit ${JSON.stringify(atLimit)}. Use refuse or ask, or omit it.`);
  }
  return {
    limits: Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined)),
    ...(period !== undefined && { period }),
    ...(warnAt !== undefined && { warnAt }),
    ...(atLimit !== undefined && { atLimit }),
    ...(only !== undefined && { only: checkedOnly(owner, only) }),
  };
}

function checkedOnly(owner: string, only: CountedEffects): CountedEffects {
  const what = `"only" of ${owner.toLowerCase().slice(0, 3)}${owner.slice(3)}`;
  checkKeys(what, only, ONLY);
  const lists = Object.entries(only).filter(([, list]) => list !== undefined);
  for (const [key, list] of lists as [string, unknown][]) {
    if (!Array.isArray(list) || list.length === 0 || !list.every((one) => typeof one === 'string' && one !== '')) {
      throw misuse(`"${key}" of ${what} is not a list of texts. Give at least one, or omit it.`);
    }
    const wrong = key === 'domains' && list.find((text: string) => !domainEntry(text));
    if (wrong) throw misuse(`"${key}" of ${what} has ${JSON.stringify(wrong)}, which is not a domain.`);
  }
  if (lists.length === 0) throw misuse(`${what} has no list, so the budget would count nothing. Add one, or omit it.`);
  return Object.fromEntries(lists.map(([key, list]) => [key, [...list]]));
}

export function checkedName(name: unknown): string {
  if (typeof name === 'string' && name !== '' && name.isWellFormed()) return name;
  throw misuse('The name of a budget must be a text that is not empty and has no unpaired surrogates.');
}

export function misuse(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}

/* Periods */

const DAY_MS = 86_400_000;

const PERIODS: Record<BudgetPeriod, (at: number) => number> = {
  day: (at) => at - mod(at, DAY_MS),
  // The first day of 1970 was a Thursday.
  week: (at) => at - mod(at - 4 * DAY_MS, 7 * DAY_MS),
  month(at) {
    const date = new Date(at);
    return Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
  },
};

function mod(value: number, by: number): number {
  return ((value % by) + by) % by;
}

/** When the period began that a time is in. Usage is counted by it. */
export function periodStart(period: BudgetPeriod | undefined, at: number): number {
  return period === undefined ? 0 : PERIODS[period](at);
}

/* What a budget counts */

/** Whether a budget counts an effect. What a tool does not declare matches no command and no domain. */
export function countsEffect(only: CountedEffects | undefined, { name, touches = [] }: Spending): boolean {
  if (!only) return true;
  const { names, commands, domains } = only;
  if (names && !names.includes(name)) return false;
  if (commands && !touches.some((touch) => touch.type === 'command' && runsOneOf(commands, touch.command)))
    return false;
  return !domains || touches.some((touch) => touch.type === 'url' && goesToOneOf(domains, touch.url));
}

/** Whether a line of a shell begins one of its commands with these words. Quotes and variables are not interpreted. */
function runsOneOf(commands: readonly string[], line: string): boolean {
  const parts = line.split(/[;&|()\n`]+/).map((part) => `${part.trim().split(/\s+/).join(' ')} `);
  return commands.some((command) => parts.some((part) => part.startsWith(`${command.trim().split(/\s+/).join(' ')} `)));
}

function goesToOneOf(domains: readonly string[], url: string): boolean {
  const facts = plainUrl(url);
  return domains.some((domain) => domainEntry(domain)?.matches(facts));
}
