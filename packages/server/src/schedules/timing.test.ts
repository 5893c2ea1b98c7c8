import { describe, expect, test } from 'vitest';
import { dueTimes, nextDue, startedTimes, timingProblem, type Timing } from './timing.ts';

const at = (text: string): number => Date.parse(text);
const text = (time: number | undefined): string => new Date(time!).toISOString().replace('.000', '');

/** The next times after a moment. */
function nexts(timing: Timing, after: string, count: number): readonly string[] {
  const found: string[] = [];
  for (let time = at(after); found.length < count;) {
    time = nextDue(timing, time)!;
    found.push(text(time));
  }
  return found;
}

const OSLO = 'Europe/Oslo';

describe('a cron expression in a time zone', () => {
  test('is due at the same time of day before and after daylight saving begins', () => {
    expect(nexts({ cron: '30 6 * * *', time_zone: OSLO }, '2026-03-28T00:00:00Z', 3)).toEqual([
      '2026-03-28T05:30:00Z',
      '2026-03-29T04:30:00Z',
      '2026-03-30T04:30:00Z',
    ]);
  });

  test('in the hour that is skipped it is due once, at its end', () => {
    expect(nexts({ cron: '30 2 * * *', time_zone: OSLO }, '2026-03-28T00:00:00Z', 3)).toEqual([
      '2026-03-28T01:30:00Z',
      '2026-03-29T01:00:00Z',
      '2026-03-30T00:30:00Z',
    ]);
  });

  test('in the hour that is repeated a time of day is due once', () => {
    expect(nexts({ cron: '30 2 * * *', time_zone: OSLO }, '2026-10-24T12:00:00Z', 2)).toEqual([
      '2026-10-25T00:30:00Z',
      '2026-10-26T01:30:00Z',
    ]);
    expect(nexts({ cron: '30 1 * * *', time_zone: 'America/New_York' }, '2026-11-01T00:00:00Z', 2)).toEqual([
      '2026-11-01T05:30:00Z',
      '2026-11-02T06:30:00Z',
    ]);
  });

  test('what is due twice an hour is due twice in each hour, also in one that is repeated', () => {
    expect(nexts({ cron: '*/30 * * * *', time_zone: OSLO }, '2026-10-25T00:00:00Z', 5)).toEqual([
      '2026-10-25T00:30:00Z',
      '2026-10-25T01:00:00Z',
      '2026-10-25T01:30:00Z',
      '2026-10-25T02:00:00Z',
      '2026-10-25T02:30:00Z',
    ]);
  });

  test.each([OSLO, 'America/New_York', 'Australia/Lord_Howe', 'UTC'])(
    'the times that have come are those that were to come, over each change of the clock in %s',
    (zone) => {
      for (const cron of ['30 2 * * *', '15 1,2 * * *', '0 */6 * * *']) {
        const timing = { cron, time_zone: zone };
        for (const day of ['2026-03-06', '2026-03-27', '2026-04-02', '2026-10-02', '2026-10-23', '2026-10-30']) {
          const from = at(`${day}T00:00:00Z`);
          const to = from + 5 * 86_400_000;
          const coming: number[] = [];
          for (let next = nextDue(timing, from)!; next <= to; next = nextDue(timing, next)!) coming.push(next);
          expect(dueTimes(timing, from + 1, to).map(text)).toEqual(coming.map(text));
        }
      }
    },
  );

  test.each([
    [{ cron: 'nope' }, 'cron', 'is not a cron expression. Use minute'],
    [{ cron: '61 * * * *' }, 'cron', 'Invalid value for minute: 61.'],
    [{ cron: '0 0 31 2 *' }, 'cron', 'never comes'],
    [{ cron: '2030-01-01T00:00:00' }, 'cron', 'is not a cron expression. Use minute'],
    [{ cron: '0 3 * * *', time_zone: 'Mars/Base' }, 'time_zone', 'no time zone "Mars/Base"'],
  ])('%j is refused', (timing, key, message) => {
    expect(timingProblem(timing)).toMatchObject({ key, message: expect.stringContaining(message) });
  });

  test.each(['0 3 * * *', '@daily', '*/5 * * * * *', '0 9 * * MON#1', '0 0 L * *'])('%s is accepted', (cron) => {
    expect(timingProblem({ cron })).toBeUndefined();
  });
});

describe('an interval', () => {
  test('keeps its rhythm, however late it is looked at', () => {
    expect(nextDue({ every: 60 }, 1_000)).toBe(61_000);
    expect(nextDue({ every: 60 }, 61_000, 61_000)).toBe(121_000);
    expect(nextDue({ every: 60 }, 200_000, 61_000)).toBe(241_000);
    expect(dueTimes({ every: 60 }, 61_000, 200_000)).toEqual([61_000, 121_000, 181_000]);
    expect(dueTimes({ every: 60 }, 61_000, 60_999)).toEqual([]);
    expect(dueTimes({ every: 1 }, 0, 1_000_000_000)).toHaveLength(100);
    expect(dueTimes({ every: 1 }, 0, 1_000_000_000).at(-1)).toBe(1_000_000_000);
  });
});

test('what was missed is skipped, started once, or started as often', () => {
  const minute = 60_000;
  const now = 100 * minute;
  const missed = [90 * minute, 95 * minute];
  expect(startedTimes(missed, 'skip', now)).toEqual([]);
  expect(startedTimes(missed, 'once', now)).toEqual([95 * minute]);
  expect(startedTimes(missed, 'all', now)).toEqual(missed);
  const late = [...missed, now - 5_000];
  expect(startedTimes(late, 'skip', now)).toEqual([now - 5_000]);
  expect(startedTimes(late, 'once', now)).toEqual([now - 5_000]);
  expect(startedTimes(late, 'all', now)).toEqual(late);
});
