import type { PolicyRules } from '@treadle/core/policy';
import { PROMISE_NAMES } from '@treadle/tools/sandbox';
import { describe, expect, test } from 'vitest';
import { DAY, judgeDay, type Day, type DayReport } from './day.ts';

/** The recipe of docs/policies.md for an agent that codes. */
const RULES: PolicyRules = {
  autonomy: 2,
  paths: { write: ['src/**', 'test/**', 'docs/**'] },
  commands: {
    allow: ['git status', 'git diff', 'git log', 'npm test', 'npm run *'],
    ask: ['git push'],
    deny: ['npm publish'],
  },
  domains: { allow: ['docs.example.com'] },
};
const WALLS = PROMISE_NAMES.filter((name) => name !== 'hosts');

const askedBy = ({ asked }: DayReport, rule: string): number => asked.filter((one) => one.rule === rule).length;

describe('a day of coding at level 2', () => {
  // docs/sandboxes.md has these figures.
  test.each<[string, readonly string[], number]>([
    ['without a sandbox', [], 30],
    ['in a sandbox', WALLS, 9],
  ])('%s', async (_, promises, questions) => {
    const report = await judgeDay(DAY, RULES, promises);
    expect([DAY.flat().length, report.asked.length, askedBy(report, 'exposure')]).toEqual([61, questions, 0]);
    expect(report.exposure).toEqual({
      outside: expect.objectContaining({ what: 'url https://docs.example.com/dates' }),
    });
  });

  test.each<[string, readonly string[], number]>([
    ['without a sandbox', [], 27],
    ['in a sandbox', WALLS, 4],
  ])('that begins with a private file asks about what could be sent, %s', async (_, promises, questions) => {
    const day: Day = [[['read', { path: '.npmrc' }]], ...DAY];
    const report = await judgeDay(day, RULES, promises);
    expect(askedBy(report, 'private')).toBe(1);
    expect(askedBy(report, 'exposure')).toBe(questions);
    expect(Object.keys(report.exposure!).toSorted()).toEqual(['outside', 'private']);
  });
});
