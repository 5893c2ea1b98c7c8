import { systemClock, type Clock } from '../platform.ts';
import type { Principal } from './port.ts';
import { ALLOWED, type RateCounts, type Rule } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Rates: how many calls a subject may make within a sliding minute and a sliding second. Denied calls count, also those that
 * this rule denies. Counts are live: a replay does not count, and neither do the recorded rules of a resumed run. Calls of a program
 * wait until they may be made.
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

/** Adds the calls of a turn when they may be made. Those that never may, or not before the signal aborts, are beyond the limits. */
export async function placeCalls(
  store: RateStore,
  { clock, signal, count, ...about }: Omit<Counting, 'at'> & Placing,
): Promise<readonly RateCounts[]> {
  const { minute = 60, second = 10 } = about.rules.rate ?? {};
  const limits = [
    { limit: second, window: SECOND },
    { limit: minute, window: MINUTE },
  ];
  const placed: RateCounts[] = [];
  while (placed.length < count) {
    const at = clock.now();
    const left = count - placed.length;
    const times = await store.add(subjectKey(about.principal), at, 0, Math.max(minute, second));
    const full = limits.map(({ limit, window }) => fullFor(recentOf(times, at, window), limit, window - at));
    const ms = Math.max(...full);
    if (ms === Infinity || signal.aborted)
      return [...placed, ...(await countCalls(store, { ...about, at, count: left }))];
    if (ms > 0) {
      await passed(ms, clock, signal);
      continue;
    }
    const free = Math.min(left, ...limits.map(({ limit, window }) => limit - recentOf(times, at, window).length));
    const counts = await countCalls(store, { ...about, at, count: free });
    // Others may have called meanwhile.
    placed.push(...counts.filter((one) => one.second < second && one.minute < minute));
  }
  return placed;
}

interface Placing {
  readonly clock: Pick<Clock, 'now'> & Partial<Pick<Clock, 'timer'>>;
  readonly signal: AbortSignal;
}

function recentOf(times: readonly number[], at: number, window: number): readonly number[] {
  return times.filter((time) => isRecent(time, at, window));
}

/** For how many milliseconds no further call may be made. `later`: from one of these times to when it does not count any more. */
function fullFor(recent: readonly number[], limit: number, later: number): number {
  if (limit === 0) return Infinity;
  const time = recent.toSorted((a, b) => a - b)[recent.length - limit];
  return time === undefined ? 0 : Math.max(1, time + later);
}

async function passed(ms: number, { timer = systemClock.timer }: Placing['clock'], signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = timer(ms, resolve);
  const stop = (): void => resolve();
  signal.addEventListener('abort', stop);
  await promise;
  signal.removeEventListener('abort', stop);
  cancel();
}

/** All runs without a principal are one subject. */
function subjectKey(principal: Principal | undefined): string {
  return principal ? JSON.stringify([principal.tenant, principal.subject]) : '';
}
