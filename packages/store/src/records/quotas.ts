import {
  SLOTS_MS,
  type QuotaStore,
  type TakenRequests,
  type TakingRequests,
  type TakingSlots,
} from '../ports/quotas.ts';

/** What is stored of an id. Nothing is stored if it would tell nothing after `until`. */
export interface StoredQuota<State> {
  readonly state: State;
  readonly until: number;
}

/** The time at which the quota of an id is whole again (GCRA). */
export interface RequestState {
  readonly wholeAt: number;
}

/** The slots of each holder, and when they are free again. */
export type SlotState = Readonly<Record<string, readonly [count: number, until: number]>>;

const WINDOW_MS = 60_000;
/** One process takes this part of what is left. */
const SHARE = 4;

function takeRequestsOf(
  before: RequestState | undefined,
  { perMinute, count, unused = 0 }: TakingRequests,
  now: number,
): readonly [StoredQuota<RequestState>, TakenRequests] {
  const each = WINDOW_MS / perMinute;
  // If the clock was set back, no id is blocked.
  const wholeAt = Math.min(Math.max((before?.wholeAt ?? now) - unused * each, now), now + WINDOW_MS);
  // Tolerates rounding errors.
  const room = WINDOW_MS - (wholeAt - now) + 1e-6;
  const left = Math.floor(room / each);
  const taken = Math.min(count, Math.max(Math.floor(left / SHARE), Math.min(1, left)));
  const after = wholeAt + taken * each;
  return [
    { state: { wholeAt: after }, until: after },
    {
      count: taken,
      remaining: left - taken,
      resetMs: after - now,
      retryMs: taken > 0 || left > 0 ? 0 : each - room,
    },
  ];
}

function takeSlotsOf(
  before: SlotState | undefined,
  { holder, max, count }: Omit<TakingSlots, 'id'>,
  now: number,
): readonly [StoredQuota<SlotState>, number] {
  const others = Object.entries(before ?? {}).filter(([name, [, until]]) => name !== holder && until > now);
  const used = others.reduce((sum, [, [own]]) => sum + own, 0);
  const taken = Math.max(0, Math.min(count, max - used));
  const kept = taken > 0 ? [...others, [holder, [taken, now + SLOTS_MS]] as const] : others;
  return [{ state: Object.fromEntries(kept), until: Math.max(now, ...kept.map(([, [, until]]) => until)) }, taken];
}

/** Reads what is stored of a key, and stores something instead, in one transaction. */
export type ChangeQuota = <State, T>(
  key: string,
  change: (before: State | undefined, now: number) => readonly [StoredQuota<State>, T],
) => Promise<T>;

export function quotasOn(change: ChangeQuota): QuotaStore {
  return {
    takeRequests: (taking) =>
      change<RequestState, TakenRequests>(`requests ${taking.id}`, (before, now) =>
        takeRequestsOf(before, taking, now),
      ),
    takeSlots: (taking) =>
      change<SlotState, number>(`slots ${taking.id}`, (before, now) => takeSlotsOf(before, taking, now)),
  };
}

/** In the memory of one process. */
export function memoryQuotas(now: () => number): QuotaStore {
  const stored = new Map<string, StoredQuota<unknown>>();
  return quotasOn(async (key, change) => {
    const at = now();
    for (const [name, { until }] of stored) if (until <= at) stored.delete(name);
    const [after, result] = change(stored.get(key)?.state as Parameters<typeof change>[0], at);
    stored.set(key, after);
    return result;
  });
}
