import { manualClock } from '@treadle/core/testing';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { addressId, rateHeaders, rateLimiter } from './rate-limit.ts';

describe('a rate limit', () => {
  test('allows the requests of a minute at once, and further ones as the quota is refilled', async () => {
    const clock = manualClock(1_000_000);
    const limiter = rateLimiter(clock);
    const take = () => limiter.countRequest('a', 3);
    expect(take()).toEqual({ allowed: true, limit: 3, remaining: 2, resetMs: 20_000, retryMs: 0 });
    expect(take()).toEqual({ allowed: true, limit: 3, remaining: 1, resetMs: 40_000, retryMs: 0 });
    expect(take()).toEqual({ allowed: true, limit: 3, remaining: 0, resetMs: 60_000, retryMs: 0 });
    expect(take()).toMatchObject({ allowed: false, remaining: 0, resetMs: 60_000, retryMs: expect.closeTo(20_000, 3) });
    await clock.advance(19_999);
    expect(take().allowed).toBe(false);
    await clock.advance(1);
    expect(take()).toMatchObject({ allowed: true, remaining: 0 });
    expect(take().allowed).toBe(false);
    expect(limiter.countRequest('b', 3)).toMatchObject({ allowed: true, remaining: 2 });
  });

  test('blocks no id for longer than a minute after the clock was set back', () => {
    let now = 10_000_000;
    const limiter = rateLimiter({ now: () => now, timer: () => () => undefined });
    limiter.countRequest('a', 1);
    now = 0;
    expect(limiter.countRequest('a', 1)).toMatchObject({ allowed: false, retryMs: expect.closeTo(60_000, 3) });
  });

  test('stores a bounded number of ids, and drops the least recently used', () => {
    const limiter = rateLimiter(manualClock(), 3);
    for (const id of ['a', 'b', 'c', 'a', 'd']) limiter.countRequest(id, 2);
    expect(limiter.size).toBe(3);
    expect(limiter.countRequest('a', 2).allowed).toBe(false);
    expect(limiter.countRequest('b', 2)).toMatchObject({ allowed: true, remaining: 1 });
    for (let id = 0; id < 1000; id += 1) limiter.countRequest(String(id), 2);
    expect(limiter.size).toBe(3);
  });

  test('allows at most twice the limit in any minute, and every request after its retry time', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 700 }),
        fc.array(fc.integer({ min: 0, max: 9_000 }), { minLength: 1, maxLength: 60 }),
        async (perMinute, pauses) => {
          const clock = manualClock(0);
          const limiter = rateLimiter(clock);
          const passed: number[] = [];
          for (const pause of pauses) {
            await clock.advance(pause);
            for (let more = 0; more < perMinute / 10 + 1; more += 1) {
              const rate = limiter.countRequest('a', perMinute);
              expect(rate.remaining).toBeGreaterThanOrEqual(0);
              expect(rate.remaining).toBeLessThan(perMinute);
              if (rate.allowed) passed.push(clock.now());
            }
          }
          for (const from of passed)
            expect(passed.filter((at) => at >= from && at < from + 60_000).length).toBeLessThanOrEqual(2 * perMinute);
          const { retryMs } = limiter.countRequest('a', perMinute);
          await clock.advance(Math.ceil(retryMs));
          expect(limiter.countRequest('a', perMinute).allowed || retryMs === 0).toBe(true);
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe('the rate limit headers', () => {
  test('are those of the draft and those of OpenAI', () => {
    expect(rateHeaders({ allowed: true, limit: 60, remaining: 59, resetMs: 1000, retryMs: 0 })).toEqual({
      'RateLimit-Policy': '"requests";q=60;w=60',
      RateLimit: '"requests";r=59;t=1',
      'x-ratelimit-limit-requests': '60',
      'x-ratelimit-remaining-requests': '59',
      'x-ratelimit-reset-requests': '1s',
    });
  });

  test('contain Retry-After if the limit is exceeded', () => {
    expect(rateHeaders({ allowed: false, limit: 7, remaining: 0, resetMs: 60_000, retryMs: 8571.4 })).toEqual({
      'RateLimit-Policy': '"requests";q=7;w=60',
      RateLimit: '"requests";r=0;t=60',
      'x-ratelimit-limit-requests': '7',
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-reset-requests': '1m0s',
      'Retry-After': '9',
    });
  });

  test.each([
    [0.2, '1ms'],
    [120, '120ms'],
    [8640, '8.64s'],
    [59_999.5, '1m0s'],
  ])('%d ms is written %s', (resetMs, written) => {
    const headers = rateHeaders({ allowed: true, limit: 1, remaining: 0, resetMs, retryMs: 0 });
    expect(headers['x-ratelimit-reset-requests']).toBe(written);
  });
});

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
  ['2001:db8::9', '2001:db8:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  [undefined, 'unknown'],
])('the address %s counts as %s', (address, id) => {
  expect(addressId(address)).toBe(id);
});
