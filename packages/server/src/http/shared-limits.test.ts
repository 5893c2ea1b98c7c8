import { systemClock } from '@treadle/core';
import { memoryQuotas, SLOTS_MS, type QuotaStore } from '@treadle/store';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { sharedLimits, type SharedLimits } from './shared-limits.ts';

beforeEach(() => void vi.useFakeTimers({ now: 1_000_000 }));
afterEach(() => void vi.useRealTimers());

/** Without firing timers. */
const pass = (ms: number): void => void vi.setSystemTime(Date.now() + ms);

/** Servers with one store, whose calls are counted. */
function servers(count = 1): { readonly limits: readonly SharedLimits[]; readonly calls: () => number } {
  const quotas = memoryQuotas(Date.now);
  let calls = 0;
  const counted: QuotaStore = {
    takeRequests: (taking) => (calls++, quotas.takeRequests(taking)),
    takeSlots: (taking) => (calls++, quotas.takeSlots(taking)),
  };
  return { limits: Array.from({ length: count }, () => sharedLimits(counted, systemClock)), calls: () => calls };
}

describe('a rate limit', () => {
  test('allows the requests of a minute at once, and further ones as the quota is refilled', async () => {
    const [limits] = servers().limits;
    const take = async () => limits!.countRequest('a', 3);
    expect(await take()).toEqual({ allowed: true, limit: 3, remaining: 2, resetMs: 20_000, retryMs: 0 });
    expect(await take()).toEqual({ allowed: true, limit: 3, remaining: 1, resetMs: 40_000, retryMs: 0 });
    expect(await take()).toEqual({ allowed: true, limit: 3, remaining: 0, resetMs: 60_000, retryMs: 0 });
    expect(await take()).toMatchObject({ allowed: false, remaining: 0, retryMs: expect.closeTo(20_000, 3) });
    pass(19_999);
    expect((await take()).allowed).toBe(false);
    pass(1);
    expect(await take()).toMatchObject({ allowed: true, remaining: 0 });
    expect((await take()).allowed).toBe(false);
    expect(await limits!.countRequest('b', 3)).toMatchObject({ allowed: true, remaining: 2 });
  });

  test('blocks no id for longer than a minute after the clock was set back', async () => {
    const [limits] = servers().limits;
    await limits!.countRequest('a', 1);
    vi.setSystemTime(0);
    expect(await limits!.countRequest('a', 1)).toMatchObject({ allowed: false, retryMs: expect.closeTo(60_000, 3) });
  });

  test('is kept by several servers together, and by each for every request after its retry time', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 700 }),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 9_000 }), fc.nat({ max: 2 })), { minLength: 1, maxLength: 60 }),
        async (perMinute, pauses) => {
          const { limits } = servers(3);
          const passed: number[] = [];
          for (const [pause, server] of pauses) {
            pass(pause);
            for (let more = 0; more < perMinute / 10 + 1; more += 1) {
              const rate = await limits[server]!.countRequest('a', perMinute);
              expect(rate.remaining).toBeGreaterThanOrEqual(0);
              expect(rate.remaining).toBeLessThan(perMinute);
              if (rate.allowed) passed.push(Date.now());
            }
          }
          // At any time, no more than the whole quota and what was refilled since.
          const excess = passed.map((from, first) => {
            const last = passed.findLastIndex((to) => to - from < 60_000);
            return last - first + 1 - (perMinute * (1 + (passed[last]! - from) / 60_000) + 1);
          });
          expect(Math.max(0, ...excess)).toBe(0);
          const { retryMs } = await limits[0]!.countRequest('a', perMinute);
          pass(Math.ceil(retryMs));
          expect((await limits[0]!.countRequest('a', perMinute)).allowed || retryMs === 0).toBe(true);
        },
      ),
      { numRuns: 30 },
    );
  });

  test('asks the store rarely: about once a second, and for a refusal not again', async () => {
    const { limits, calls } = servers();
    let allowed = 0;
    // 100 a second for a minute, of 6,000 a minute.
    for (let sent = 0; sent < 6_000; sent++) {
      if ((await limits[0]!.countRequest('a', 6_000)).allowed) allowed += 1;
      pass(10);
    }
    expect(allowed).toBe(6_000);
    expect(calls()).toBeLessThanOrEqual(61);
    const { limits: others, calls: refusals } = servers();
    for (let sent = 0; sent < 1_000; sent++) await others[0]!.countRequest('a', 2);
    expect(refusals()).toBe(3);
  });

  test('many requests at once share the calls of the store', async () => {
    const { limits, calls } = servers();
    const rates = await Promise.all(Array.from({ length: 1_000 }, async () => limits[0]!.countRequest('a', 6_000)));
    expect(rates.every(({ allowed }) => allowed)).toBe(true);
    expect(calls()).toBeLessThanOrEqual(4);
  });

  test('what a server does not use within a second is there for others', async () => {
    const [one, other] = servers(2).limits;
    await one!.countRequest('a', 6_000);
    const take = async () => other!.countRequest('a', 6_000);
    expect((await take()).remaining).toBeLessThan(5_998);
    await vi.advanceTimersByTimeAsync(3_000);
    expect((await take()).remaining).toBe(5_999);
  });

  test('what a server has not used is given back when it closes', async () => {
    const [one, other] = servers(2).limits;
    await one!.countRequest('a', 6_000);
    await one!.close();
    expect((await other!.countRequest('a', 6_000)).remaining).toBe(5_998);
  });

  test('fails with the store', async () => {
    const failing = { takeRequests: () => Promise.reject(new Error('gone')) } as unknown as QuotaStore;
    await expect(sharedLimits(failing, systemClock).countRequest('a', 3)).rejects.toThrow('gone');
  });
});

describe('a limit of requests at a time', () => {
  test('is kept by several servers together', async () => {
    const [one, other] = servers(2).limits;
    const begun = [await one!.beginRequest('a', 3), await other!.beginRequest('a', 3), await one!.beginRequest('a', 3)];
    expect(begun).toEqual([expect.any(Function), expect.any(Function), expect.any(Function)]);
    expect(await other!.beginRequest('a', 3)).toBeUndefined();
    expect(await one!.beginRequest('a', 3)).toBeUndefined();
    expect(await other!.beginRequest('b', 3)).toBeDefined();
    begun[0]!();
    begun[0]!();
    expect(await one!.beginRequest('a', 3)).toBeDefined();
    expect(await one!.beginRequest('a', 3)).toBeUndefined();
  });

  test('is kept if many begin at the same moment', async () => {
    const { limits, calls } = servers(2);
    const all = Array.from({ length: 100 }, async (_, at) => limits[at % 2]!.beginRequest('a', 10));
    expect((await Promise.all(all)).filter((begun) => begun !== undefined).length).toBeLessThanOrEqual(10);
    expect(calls()).toBeLessThan(20);
  });

  test('a slot that is free here can be used by another server within a second, and those of a dead one later', async () => {
    const [one, other, third] = servers(3).limits;
    const end = await one!.beginRequest('a', 1);
    await vi.advanceTimersByTimeAsync(SLOTS_MS);
    expect(await other!.beginRequest('a', 1)).toBeUndefined();
    end!();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await other!.beginRequest('a', 1)).toBeDefined();
    // As if it were dead: its timers do not fire.
    pass(SLOTS_MS - 100);
    expect(await third!.beginRequest('a', 1)).toBeUndefined();
    pass(100);
    expect(await third!.beginRequest('a', 1)).toBeDefined();
  });
});
