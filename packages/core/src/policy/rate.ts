import type { Principal } from './port.ts';
import { ALLOWED, type RateCounts, type Rule } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Rates: how many calls a subject may make within a sliding minute and a sliding second. Denied calls count, also those that
 * this rule denies. Counts are live: a replay does not count, and neither do the recorded rules of a resumed run.
 */

const MINUTE = 60_000;
const SECOND = 1000;

export function rateRule({ rate: { minute = 60, second = 10 } = {} }: PolicyRules): Rule {
  return {
    name: 'rate',
    judge({ clients }, { rate }) {
      if (!rate || clients) return undefined;
      if (rate.second >= second) return denial(second, 'second');
      return rate.minute >= minute ? denial(minute, 'minute') : ALLOWED;
    },
    saw: (_, { rate }) =>
      rate
        ? `${rate.second} of ${second} calls in the last second, ${rate.minute} of ${minute} in the last minute`
        : 'calls are not counted',
  };
}

function denial(limit: number, window: 'second' | 'minute'): { readonly type: 'deny'; readonly reason: string } {
  return { type: 'deny', reason: `there may be ${limit} calls in a ${window}, and there were. Call it again later.` };
}

/** Remembers when subjects made calls. Runs that share it share the rates. */
export interface RateStore {
  /**
   * Adds `count` calls of a subject at the time `at`. Returns when its latest calls before them were, at most `keep`, in
   * any order. Calls at the same time by others must not get lost.
   */
  add(subject: string, at: number, count: number, keep: number): readonly number[] | Promise<readonly number[]>;
}

/** How many subjects are remembered before those without recent calls are removed. */
const CROWD = 1000;

/** Rates for the runs of one process. */
export function memoryRates(): RateStore {
  const bySubject = new Map<string, readonly number[]>();
  return {
    add(subject, at, count, keep) {
      const before = bySubject.get(subject) ?? [];
      bySubject.set(subject, latestTimes(before, at, count, keep));
      if (bySubject.size > CROWD) {
        for (const [one, times] of bySubject) if (times.every((time) => at - time >= MINUTE)) bySubject.delete(one);
      }
      return before;
    },
  };
}

/**
 * What a store has to remember after `count` more calls: the latest `keep` times within a minute. More are not needed,
 * because a limit of `keep` calls is reached with them.
 */
export function latestTimes(before: readonly number[], at: number, count: number, keep: number): readonly number[] {
  const recent = before.filter((time) => isRecent(time, at, MINUTE));
  const all = [...recent, ...Array<number>(Math.min(count, keep)).fill(at)];
  return all.sort((a, b) => a - b).slice(-keep);
}

/**
 * Also a little later than now: processes read their clocks before they write, so times do not arrive in order. A clock that
 * was set back by more does not lock a subject out.
 */
function isRecent(time: number, at: number, window: number): boolean {
  return Math.abs(at - time) < window;
}

/** Adds the calls of a turn. Returns for each how many calls of the subject were before it. */
export async function countCalls(
  store: RateStore,
  { rules: { rate: { minute = 60, second = 10 } = {} }, principal, at, count }: Counting,
): Promise<readonly RateCounts[]> {
  const before = await store.add(subjectKey(principal), at, count, Math.max(minute, second));
  const within = (window: number): number => before.filter((time) => isRecent(time, at, window)).length;
  const [recent, earlier] = [within(SECOND), within(MINUTE)];
  return Array.from({ length: count }, (_, index) => ({ second: recent + index, minute: earlier + index }));
}

interface Counting {
  readonly rules: PolicyRules;
  readonly principal: Principal | undefined;
  readonly at: number;
  readonly count: number;
}

/** All runs without a principal are one subject. */
function subjectKey(principal: Principal | undefined): string {
  return principal ? JSON.stringify([principal.tenant, principal.subject]) : '';
}
