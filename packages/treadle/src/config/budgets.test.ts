import { memoryBudgets } from '@treadle/core/budgets';
import { describe, expect, test } from 'vitest';
import { openLedgers } from './budgets.ts';
import { parseConfig } from './load.ts';

test('a budget has everything that the library has, and the file replaces it', async () => {
  const budgets = memoryBudgets();
  const open = (text: string) => openLedgers(parseConfig(text, 'my.toml'), budgets);
  await open(
    '[budgets.team]\ncost = 20.5\nduration_ms = 1000\nperiod = "month"\nwarn_at = 0.8\nat_limit = "ask"\n' +
      '[budgets.team.only]\nnames = ["bash"]\ncommands = ["git push"]\ndomains = ["*.example.com"]\n',
  );
  expect(await budgets.get('team')).toMatchObject({
    limits: { cost: 20.5, durationMs: 1_000 },
    period: 'month',
    warnAt: 0.8,
    atLimit: 'ask',
    only: { names: ['bash'], commands: ['git push'], domains: ['*.example.com'] },
  });
  await budgets.suspend('team', 'Not now.');
  await open('[budgets.team]\ncalls = 1\n');
  const { limits, period, atLimit, only, suspended } = (await budgets.get('team'))!;
  expect({ limits, period, atLimit, only, suspended }).toEqual({ limits: { calls: 1 }, suspended: 'Not now.' });
});

describe('errors name the path and what is allowed', () => {
  test.each([
    ['tokns = 1', 'budgets.b.tokns is not known, did you mean tokens? Allowed here: tokens, cost, calls, files, lines'],
    ['tokens = -1', 'budgets.b.tokens must be a number from 0, but is -1.'],
    ['period = "year"', 'budgets.b.period must be one of day, week, month.'],
    ['at_limit = "warn"', 'budgets.b.at_limit must be one of refuse, ask.'],
    ['warn_at = 0', 'The budget "b" has warnAt 0. Use a share above 0 and up to 1'],
    ['only = {}', 'budgets.b: "only" of the budget "b" has no list'],
    ['only = { domains = ["a b"] }', 'has "a b", which is not a domain.'],
  ])('%s', (line, message) => {
    expect(() => parseConfig(`[budgets.b]\n${line}\n`, 'my.toml')).toThrow(message);
  });
});
