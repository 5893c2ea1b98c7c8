import type { Clock } from '@treadle/core';
import type { QuotaStore } from '@treadle/store';
import { randomUUID } from 'node:crypto';
import type { Rate } from './limits.ts';

/*
 * Limits that all servers with one store keep together: requests in a minute, requests at a time.
 *
 * 1. A server takes a share of what an id may use, and counts within it without asking the store. Shares are disjoint, so no
 *    limit is exceeded.
 * 2. A share of requests is about what is used in a second, and what was not used by then is given back. So for so long, other
 *    servers may refuse what this one does not use.
 * 3. Slots that are used are asked for again every second. A server that cannot do so for `SLOTS_MS` loses them: then the
 *    requests that it is still answering do not count for others.
 * 4. A refusal is remembered, so that clients that do not wait cost no transactions.
 */
export interface SharedLimits {
  /** Counts a request of `id`, unless it exceeds the limit. Returns a promise only if it has to ask the store. */
  countRequest(id: string, perMinute: number): Rate | Promise<Rate>;
  /** Counts a request in progress, until the returned function is called. Undefined: there are `max` of them. */
  beginRequest(id: string, max: number): Begun | undefined | Promise<Begun | undefined>;
  /** Gives everything back. */
  close(): Promise<void>;
}

export type Begun = () => void;

/** What an id may still use here. */
interface Share {
  readonly perMinute: number;
  /** How many requests were taken and not used. */
  left: number;
  /** How many were taken the last time, and when. */
  size: number;
  takenAt: number;
  /** How many were left to others then, and until when everything would be available again. */
  remaining: number;
  resetMs: number;
  /** Until then there are none. */
  emptyUntil: number;
  taking?: Promise<void> | undefined;
  waiting: number;
}

interface Slots {
  max: number;
  held: number;
  used: number;
  emptyUntil: number;
  taking?: Promise<void> | undefined;
  waiting: number;
}

/** How long a share is kept, and a refusal of slots remembered. */
const SHARE_MS = 1_000;
const REFUSED_MS = 100;
const WINDOW_MS = 60_000;
const MOST_SHARES = 10_000;

export function sharedLimits(store: QuotaStore, clock: Clock): SharedLimits {
  const shares = new Map<string, Share>();
  const slots = new Map<string, Slots>();
  const holder = randomUUID();
  let timer: NodeJS.Timeout | undefined;

  /** Looks after shares while there are some. */
  function keepTidy(): void {
    timer ??= setInterval(() => void tidy(), SHARE_MS).unref();
  }

  async function tidy(): Promise<void> {
    if (shares.size + slots.size === 0) {
      clearInterval(timer);
      timer = undefined;
      return;
    }
    const now = clock.now();
    const old = [...shares].filter(([, one]) => !one.taking && now - one.takenAt >= SHARE_MS && now >= one.emptyUntil);
    for (const [id] of old) shares.delete(id);
    const given = old.filter(([, { left }]) => left > 0).map(([id, share]) => giveBack(id, share));
    await Promise.allSettled([...given, ...[...slots].map(([id, one]) => setSlots(id, one, one.used))]);
  }

  async function giveBack(id: string, { perMinute, left }: Share): Promise<void> {
    await store.takeRequests({ id, perMinute, count: 0, unused: left });
  }

  function countRequest(id: string, perMinute: number): Rate | Promise<Rate> {
    const share = shareOf(id, perMinute);
    return countIn(share) ?? takeAndCount(id, share);
  }

  function shareOf(id: string, perMinute: number): Share {
    const found = shares.get(id);
    if (found?.perMinute === perMinute) return found;
    const times = { takenAt: -Infinity, resetMs: 0, emptyUntil: -Infinity };
    const share: Share = { perMinute, left: 0, size: 0, remaining: 0, waiting: 0, ...times };
    // What is forgotten is refilled.
    if (shares.size >= MOST_SHARES) shares.delete(shares.keys().next().value ?? '');
    shares.set(id, share);
    keepTidy();
    return share;
  }

  /** Undefined: the store has to be asked. */
  function countIn(share: Share): Rate | undefined {
    const { perMinute, takenAt, emptyUntil } = share;
    const now = clock.now();
    if (share.left > 0 && now - takenAt >= 0 && now - takenAt < SHARE_MS) {
      share.left -= 1;
      return rateOf(share, true, now);
    }
    return now < emptyUntil && emptyUntil - now <= WINDOW_MS ? rateOf(share, false, now) : undefined;

    function rateOf({ left, remaining, resetMs }: Share, allowed: boolean, at: number): Rate {
      const unusedMs = (left * WINDOW_MS) / perMinute;
      return {
        allowed,
        limit: perMinute,
        remaining: allowed ? remaining + left : 0,
        resetMs: Math.max(0, resetMs - unusedMs - (at - takenAt)),
        retryMs: allowed ? 0 : emptyUntil - at,
      };
    }
  }

  async function takeAndCount(id: string, share: Share): Promise<Rate> {
    share.waiting += 1;
    try {
      for (;;) {
        share.taking ??= takeShare(id, share).finally(() => (share.taking = undefined));
        await share.taking;
        const rate = countIn(share);
        if (rate) return rate;
      }
    } finally {
      share.waiting -= 1;
    }
  }

  /** About what is used in a second: what would be allowed evenly, or twice the last share if that was used up at once. */
  async function takeShare(id: string, share: Share): Promise<void> {
    const { perMinute, left, takenAt } = share;
    const isFast = clock.now() - takenAt < SHARE_MS;
    const count = Math.max(share.waiting, Math.ceil(perMinute / 60), isFast ? 2 * share.size : 0);
    share.left = 0;
    const taken = await store.takeRequests({ id, perMinute, count, unused: left });
    const now = clock.now();
    Object.assign(share, { left: taken.count, size: taken.count, takenAt: now });
    Object.assign(share, { remaining: taken.remaining, resetMs: taken.resetMs });
    share.emptyUntil = taken.count > 0 ? -Infinity : now + taken.retryMs;
  }

  function beginRequest(id: string, max: number): Begun | undefined | Promise<Begun | undefined> {
    const one: Slots = slots.get(id) ?? { max, held: 0, used: 0, emptyUntil: -Infinity, waiting: 0 };
    one.max = max;
    slots.set(id, one);
    keepTidy();
    if (one.used < Math.min(one.held, max)) return begun(one);
    if (clock.now() < one.emptyUntil) return undefined;
    return takeAndBegin(id, one);
  }

  function begun(one: Slots): Begun {
    one.used += 1;
    let isEnded = false;
    return () => {
      if (isEnded) return;
      isEnded = true;
      one.used -= 1;
      one.emptyUntil = -Infinity;
    };
  }

  async function takeAndBegin(id: string, one: Slots): Promise<Begun | undefined> {
    one.waiting += 1;
    try {
      one.taking ??= setSlots(id, one, one.used + one.waiting).finally(() => (one.taking = undefined));
      await one.taking;
      if (one.used >= one.held && one.held < one.max) {
        // Others were waiting too.
        one.taking ??= setSlots(id, one, one.used + one.waiting).finally(() => (one.taking = undefined));
        await one.taking;
      }
      if (one.used < one.held) return begun(one);
      one.emptyUntil = clock.now() + REFUSED_MS;
      return undefined;
    } finally {
      one.waiting -= 1;
    }
  }

  async function setSlots(id: string, one: Slots, count: number): Promise<void> {
    one.held = await store.takeSlots({ id, holder, max: one.max, count });
    if (one.held === 0 && one.used === 0 && one.waiting === 0 && slots.get(id) === one) slots.delete(id);
  }

  return {
    countRequest,
    beginRequest,
    async close() {
      clearInterval(timer);
      timer = undefined;
      const given = [...shares].filter(([, { left }]) => left > 0).map(([id, share]) => giveBack(id, share));
      const freed = [...slots].map(([id, { max }]) => store.takeSlots({ id, holder, max, count: 0 }));
      shares.clear();
      slots.clear();
      await Promise.allSettled([...given, ...freed]);
    },
  };
}
