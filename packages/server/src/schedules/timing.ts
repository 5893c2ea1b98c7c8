import { Cron } from 'croner';
import type { DueRule } from '../apis/schedules/wire.ts';

/*
 * When a schedule is due. In the hour that a clock skips, a time is due at the end of it; in the hour that it repeats, a time of day
 * is due once, and what is due several times an hour in both.
 */

/** A cron expression in a time zone, or an interval. */
export type Timing =
  | { readonly cron: string; readonly time_zone?: string }
  /** Seconds. */
  | { readonly every: number };

/** What is due later than this after its time was missed: no server was there. */
const MISSED_AFTER_MS = 60_000;
/** The most due times that are made up for. */
const MOST_MISSED = 100;

/** Why a timing cannot be used. Undefined: it can. */
export function timingProblem(
  timing: Timing,
): { readonly key: 'cron' | 'time_zone' | 'every'; readonly message: string } | undefined {
  if ('every' in timing) return undefined;
  const { cron, time_zone: zone } = timing;
  try {
    Intl.DateTimeFormat('en', { timeZone: zone ?? 'UTC' });
  } catch {
    return {
      key: 'time_zone',
      message: `There is no time zone ${JSON.stringify(zone)}. Use a name such as Europe/Oslo.`,
    };
  }
  const form =
    'Use minute, hour, day of month, month and day of week, such as "30 6 * * MON-FRI", with seconds before them if needed.';
  if (!/^\s*(@(yearly|annually|monthly|weekly|daily|hourly)|\S+(\s+\S+){4,5})\s*$/.test(cron)) {
    return { key: 'cron', message: `${JSON.stringify(cron)} is not a cron expression. ${form}` };
  }
  try {
    if (cronOf(timing).nextRun()) return undefined;
  } catch (error) {
    const why = (error as Error).message.replace(/^\w+: /, '').replace(/\.?$/, '.');
    return { key: 'cron', message: `${JSON.stringify(cron)} is not a cron expression: ${why} ${form}` };
  }
  return { key: 'cron', message: `${JSON.stringify(cron)} never comes.` };
}

function cronOf({ cron, time_zone: zone = 'UTC' }: Extract<Timing, { cron: string }>): Cron {
  return new Cron(cron.trim(), { timezone: zone, paused: true });
}

/** The first time after this one. `due`: an earlier one, from which an interval goes on. Undefined: there is none. */
export function nextDue(timing: Timing, after: number, due: number = after): number | undefined {
  if ('every' in timing) {
    const ms = timing.every * 1_000;
    return due + Math.max(1, Math.floor((after - due) / ms) + 1) * ms;
  }
  return cronOf(timing).nextRun(new Date(after))?.getTime();
}

/** The times from `next` to `now`, at most the last `MOST_MISSED`, the earliest first. */
export function dueTimes(timing: Timing, next: number, now: number): readonly number[] {
  if (next > now) return [];
  if ('every' in timing) {
    const ms = timing.every * 1_000;
    const count = Math.min(MOST_MISSED, Math.floor((now - next) / ms) + 1);
    const last = next + Math.floor((now - next) / ms) * ms;
    return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * ms);
  }
  // They are whole seconds, and the times before a moment do not contain it.
  const times = cronOf(timing)
    .previousRuns(MOST_MISSED, new Date(now + 1_000))
    .map((time) => time.getTime())
    .filter((time) => time >= next && time <= now);
  return times.reverse();
}

/** Which of the times that have come are started. */
export function startedTimes(times: readonly number[], rule: DueRule, now: number): readonly number[] {
  if (rule === 'all') return times;
  const onTime = times.filter((time) => now - time <= MISSED_AFTER_MS);
  return rule === 'once' && onTime.length === 0 ? times.slice(-1) : onTime;
}
