import { existsSync } from 'node:fs';
import path from 'node:path';
import { commandFacts } from '@treadle/tools/commands';
import { afterAll, describe, expect, test } from 'vitest';
import { attempt, ATTACKS, commandIn, ORDINARY } from './commands-corpus.ts';
import { shellFixture, USUAL, usualPolicy } from './shell-fixture.ts';

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());
const place = fixture.place({ repository: true });
const policy = usualPolicy(place.work);

describe('the corpus of attacks', () => {
  test('has at least 120 tricks that are carried out, each once', () => {
    const carriedOut = ATTACKS.filter(({ how }) => how !== 'judge');
    expect(carriedOut.length).toBeGreaterThanOrEqual(120);
    expect(new Set(ATTACKS.map(({ text }) => text)).size).toBe(ATTACKS.length);
    expect(new Set(ATTACKS.map(({ trick }) => trick)).size).toBe(ATTACKS.length);
  });

  test('carries out nothing that could do harm', () => {
    for (const attack of ATTACKS) {
      const { destructive } = commandFacts(commandIn(place, attack), { folder: place.work });
      if (attack.how === 'run')
        expect(destructive === undefined || attack.effect.startsWith('wrote home/'), attack.text).toBe(true);
      // Programs are stubs, but redirections are done by the shell.
      if (attack.how === 'stubs') expect(attack.text.includes('>'), attack.text).toBe(false);
    }
  });
});

/* test/long/commands.test.ts carries them out. */
describe('no attack is allowed', () => {
  test.each(ATTACKS)('$trick: $text', async (attack) => {
    const command = commandIn(place, attack);
    const call = { name: 'shell', touches: [{ type: 'command', command }] } as const;
    const { verdict, rules } = await policy.explain(call);
    expect(verdict.type).toBe(attack.verdict === 'ask' ? 'ask' : 'deny');
    if (attack.verdict !== 'destroy') return;
    expect(rules.find(({ rule }) => rule === 'commands')?.reason).toContain('destructive');
    const full = policy.withRules({ ...USUAL, autonomy: 3 });
    expect((await full.explain(call)).verdict.type).toBe('deny');
  });
});

test('an attack is recorded, and nothing happens', async () => {
  const attacks = ATTACKS.filter(({ text }) => ['ls; evil', 'cat .en*', 'rm -rf /'].includes(text));
  const seen = [];
  for (const attack of attacks) seen.push(await attempt(place, attack, policy));
  expect(seen).toEqual([
    { verdicts: ['ask'], paused: true },
    { verdicts: ['deny'], paused: false },
    { verdicts: ['deny'], paused: false },
  ]);
  expect(place.ran()).toEqual([]);
  expect(existsSync(path.join(place.root, 'output'))).toBe(false);
});

describe('ordinary commands', () => {
  test('are at least 150', () => {
    expect(new Set(ORDINARY).size).toBeGreaterThanOrEqual(150);
  });

  test('run at level 2 with a usual list, unless they are not in the grammar', async () => {
    const wrong = [];
    for (const { command, isAsked } of ORDINARY) {
      const { verdict } = await usualPolicy(path.join(place.root, 'empty')).explain({
        name: 'shell',
        touches: [{ type: 'command', command }],
      });
      if (verdict.type !== (isAsked ? 'ask' : 'allow')) wrong.push({ command, verdict });
    }
    expect(wrong).toEqual([]);
  });
});
