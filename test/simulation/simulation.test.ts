import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { describeFailure, simulateMany } from './farm.ts';
import { expectFound, REVERTED_FIXES, SCHEDULES } from './reverted-fixes.ts';
import type { Patch } from './worker.ts';

/** TREADLE_SEED chooses other seeds. */
const FIRST_SEED = Number(process.env['TREADLE_SEED'] ?? 1);

/** In how many percent of the schedules each of these occurs at least. */
const LEAST_PERCENT: Readonly<Record<string, number>> = {
  crash: 15,
  'power failure': 4,
  'lost entries': 0.5,
  stall: 20,
  'suspended host': 6,
  'clock jump': 2,
  'full disk': 4,
  'locked store': 3,
  'failed sync': 3,
  'takeover of a dead process': 20,
  'takeover of a live process': 4,
  'rejects with lease-lost': 1,
  'damage: changed entry': 2,
  'damage: missing entry': 2,
  'damage: changed run': 2,
  'rejects with journal-damaged': 5,
  'rejects with store-full': 2,
  'rejects with store-failed': 2,
  'lost effect': 30,
  'accepted call': 3,
  verification: 5,
  'crash loop': 1,
  'child run': 5,
  parked: 6,
  approval: 3,
  answer: 5,
  cancel: 8,
  detach: 2,
  'reordered results': 10,
  'shown entries': 20,
  'asked before the pause': 3,
  'asked after a takeover': 15,
  'request of a program': 0.5,
  'accepted note': 8,
  question: 2,
  resource: 2,
  reservation: 3,
  'escalated call': 0.5,
  'escalated model call': 0.5,
  'raised budget': 0.5,
  'judged again': 0.5,
  'filtered result': 4,
  'seen outside content': 8,
  handoff: 1,
  woken: 1,
  fork: 2,
  'deleted run': 0.5,
  'event of a stream': 4,
  'response completed': 4,
};

const TIMEOUT = { timeout: 300_000 };

test(
  `nothing happens twice and nothing is lost in ${SCHEDULES} schedules with faults`,
  TIMEOUT,
  async ({ annotate }) => {
    const { failures, covered, schedules, steps } = await simulateMany({ firstSeed: FIRST_SEED, schedules: SCHEDULES });
    await annotate(`${schedules} schedules, ${steps} steps`);
    expect(failures.slice(0, 3).map(describeFailure)).toEqual([]);
    const percent = (what: string): number => ((covered.get(what) ?? 0) / schedules) * 100;
    const rare = Object.entries(LEAST_PERCENT).filter(([what, least]) => percent(what) < least);
    expect(rare.map(([what, least]) => `${what}: ${percent(what)}%, and not ${least}%`)).toEqual([]);
  },
);

test('the same seed gives the same trace, in any number of workers', async () => {
  const one = await simulateMany({ schedules: 15 });
  expect((await simulateMany({ schedules: 15, workers: 2 })).digest).toBe(one.digest);
  const other = await simulateMany({ firstSeed: 2, schedules: 15, about: 'runs' });
  expect(other.digest).not.toBe((await simulateMany({ schedules: 15, about: 'runs' })).digest);
});

test.each(REVERTED_FIXES.filter(({ rare }) => !rare))('finds a defect: $name', expectFound);

test('each defect can be put back, also those that only the long tests find', () => {
  const isStale = ({ file, from }: Patch): boolean =>
    readFileSync(new URL(`../../packages/${file}`, import.meta.url), 'utf8').split(from).length !== 2;
  expect(REVERTED_FIXES.filter(({ patches }) => patches.some(isStale)).map(({ name }) => name)).toEqual([]);
});
