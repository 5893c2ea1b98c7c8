import { TreadleError } from '@treadle/core';
import type { DueRule, OverlapRule } from '../apis/schedules/wire.ts';
import { timingProblem, type Timing } from './timing.ts';

/** A schedule as clients and the configuration give it. */
export interface GivenSchedule {
  readonly name: string;
  /** One of both. */
  readonly workflow?: string | null | undefined;
  readonly agent?: string | null | undefined;
  readonly inputs?: Readonly<Record<string, unknown>> | null | undefined;
  /** Five fields, or six with seconds; with `time_zone`, UTC by default. */
  readonly cron?: string | null | undefined;
  readonly time_zone?: string | null | undefined;
  /** Instead of `cron`: seconds, or a text such as `90s`, `15m` or `1d`. */
  readonly every?: number | string | null | undefined;
  readonly missed?: DueRule | null | undefined;
  readonly overlap?: OverlapRule | null | undefined;
}

/** What is stored of it, so its fields must not change. */
export interface ScheduleDefinition {
  readonly agent: string;
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly timing: Timing;
  readonly missed: DueRule;
  readonly overlap: OverlapRule;
}

export const SCHEDULE_NAME: RegExp = /^[A-Za-z0-9](?:[\w-]{0,62}[A-Za-z0-9])?$/;
const NAME_FORM = 'Use up to 64 letters, digits, hyphens and underscores.';
const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };
const LONGEST_SECONDS = 366 * 86_400;

export interface ScheduleProblem {
  readonly key: keyof GivenSchedule;
  readonly message: string;
}

export type CheckedSchedule =
  | { readonly type: 'schedule'; readonly definition: ScheduleDefinition }
  | ({ readonly type: 'problem' } & ScheduleProblem);

/** Checks a schedule, but not whether its workflow or agent exists. Never throws. */
export function checkSchedule(given: GivenSchedule): CheckedSchedule {
  const problem = (key: keyof GivenSchedule, message: string): CheckedSchedule => ({ type: 'problem', key, message });
  const { name, workflow, agent, inputs, cron, time_zone: zone, every } = given;
  if (!SCHEDULE_NAME.test(name)) return problem('name', `${JSON.stringify(name)} cannot be a name. ${NAME_FORM}`);
  if ((workflow == null) === (agent == null)) {
    return problem('workflow', 'Name either a workflow or an agent, with "workflow" or "agent".');
  }
  if ((cron == null) === (every == null)) return problem('cron', 'Give either "cron" or "every".');
  if (zone != null && cron == null) return problem('time_zone', 'A time zone is for "cron". Remove it.');
  const seconds = every == null ? undefined : secondsOf(every);
  if (every != null && seconds === undefined) {
    const form = 'Use seconds, or a text such as "90s", "15m" or "1d", from 1 second to 366 days.';
    return problem('every', `${JSON.stringify(every)} is not an interval. ${form}`);
  }
  const timing: Timing =
    seconds === undefined ? { cron: cron!, ...(zone != null && { time_zone: zone }) } : { every: seconds };
  const wrong = timingProblem(timing);
  if (wrong) return problem(wrong.key, wrong.message);
  const missed = given.missed ?? 'once';
  const overlap = given.overlap ?? (missed === 'all' ? 'wait' : 'skip');
  if (missed === 'all' && overlap === 'skip') {
    const why = 'Of the times that were missed, all but one would overlap.';
    return problem('overlap', `"missed" is "all", and "overlap" is "skip". ${why} Use "wait" or "allow".`);
  }
  return {
    type: 'schedule',
    definition: { agent: (workflow ?? agent)!, inputs: inputs ?? {}, timing, missed, overlap },
  };
}

function secondsOf(given: number | string): number | undefined {
  const [, amount, unit] = (typeof given === 'string' && /^(\d{1,9})\s*([smhd])$/.exec(given.trim())) || [];
  const seconds = typeof given === 'number' ? given : Number(amount) * UNITS[unit ?? '']!;
  return Number.isSafeInteger(seconds) && seconds >= 1 && seconds <= LONGEST_SECONDS ? seconds : undefined;
}

/** Throws if one of them cannot be used. */
export function checkedSchedules(given: readonly GivenSchedule[]): ReadonlyMap<string, ScheduleDefinition> {
  const checked = new Map<string, ScheduleDefinition>();
  for (const [index, one] of given.entries()) {
    const found = checkSchedule(one);
    if (found.type === 'problem') {
      throw new TreadleError('invalid-options', `schedules[${index}].${found.key}: ${found.message}`);
    }
    if (checked.has(one.name)) {
      throw new TreadleError('invalid-options', `Two schedules have the name "${one.name}". Rename one.`);
    }
    checked.set(one.name, found.definition);
  }
  return checked;
}
