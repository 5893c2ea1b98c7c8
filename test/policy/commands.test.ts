import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { memoryJournal, runLoop } from '@treadle/core';
import type { Policy } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { commandFacts } from '@treadle/tools/commands';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { CANARY, missingPrograms, shellFixture, shellTool, USUAL, usualPolicy, type Place } from './shell-fixture.ts';

const linesOf = (file: string): string[] =>
  readFileSync(new URL(file, import.meta.url), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));

interface Attack {
  readonly verdict: string;
  readonly how: string;
  readonly effect: string;
  readonly text: string;
  readonly trick: string;
}

const ATTACKS: readonly Attack[] = linesOf('commands.tsv').map((line) => {
  const [verdict = '', how = '', effect = '', text = '', trick = ''] = line.split('\t');
  return { verdict, how, effect, text, trick };
});
const ORDINARY = linesOf('ordinary-commands.txt');

const withControls = (text: string): string => text.replaceAll('␤', '\n').replaceAll('␍', '\r').replaceAll('␀', '\0');

function commandIn(place: Place, { text, how }: Attack): string {
  return withControls(text)
    .replaceAll('@OUT@', path.join(place.root, 'out'))
    .replaceAll('@BIN@', how === 'stubs' ? place.stubs : place.tools);
}

const missing = missingPrograms();
const canRun = needs(`the programs ${missing.join(', ')}`, missing.length === 0);

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());

/** Attacks that start nothing but stubs share a place. */
const untouched = fixture.place();

function fresh(place: Place): Place {
  for (const file of [place.log, path.join(place.root, 'output')]) rmSync(file, { force: true });
  return place;
}

/** A model that sends the command and then gives up. Returns what the journal has recorded about the call. */
async function attempt(
  place: Place,
  attack: Attack,
  policy?: Policy,
): Promise<{ verdicts: string[]; paused: boolean }> {
  const journal = memoryJournal();
  const { waiting } = await runLoop({
    model: scriptedModel([
      { calls: [{ name: 'shell', arguments: { command: commandIn(place, attack) } }] },
      'I give up.',
    ]),
    tools: [shellTool(place, attack.how === 'stubs' ? 'stubs' : 'tools')],
    input: 'go',
    journal,
    runId: 'r',
    ...(policy && { policy }),
  });
  const verdicts = (await journal.read('r')).flatMap(({ event }) =>
    event.type === 'calls-judged' ? event.verdicts.map(({ type }) => type) : [],
  );
  return { verdicts, paused: waiting.length > 0 };
}

/** What shows that an attack got through. */
function effects({ ran, root }: Place, { effect }: Attack): boolean {
  const [kind, what = ''] = effect.split(' ');
  const output = path.join(root, 'output');
  if (kind === 'ran') return ran().includes(what);
  if (kind === 'wrote') return existsSync(path.join(root, what));
  return existsSync(output) && readFileSync(output, 'utf8').includes(CANARY);
}

describe('the corpus of attacks', () => {
  test('has at least 120 tricks that are carried out, each once', () => {
    const carriedOut = ATTACKS.filter(({ how }) => how !== 'judge');
    expect(carriedOut.length).toBeGreaterThanOrEqual(120);
    expect(new Set(ATTACKS.map(({ text }) => text)).size).toBe(ATTACKS.length);
    expect(new Set(ATTACKS.map(({ trick }) => trick)).size).toBe(ATTACKS.length);
  });

  test('carries out nothing that could do harm', () => {
    const place = fixture.place();
    for (const attack of ATTACKS) {
      const { destructive } = commandFacts(commandIn(place, attack), { folder: place.work });
      if (attack.how === 'run')
        expect(destructive === undefined || attack.effect.startsWith('wrote home/'), attack.text).toBe(true);
      // Programs are stubs, but redirections are done by the shell.
      if (attack.how === 'stubs') expect(attack.text.includes('>'), attack.text).toBe(false);
    }
  });
});

describe.skipIf(!canRun)('without a policy, an attack succeeds; with one, it is recorded and nothing happens', () => {
  for (const attack of ATTACKS) {
    test(`${attack.trick}: ${attack.text}`, async () => {
      const place =
        attack.how === 'run' ? fixture.place({ repository: attack.text.includes('git') }) : fresh(untouched);
      const policy = usualPolicy(place.work);
      const { verdicts, paused } = await attempt(place, attack, policy);
      const verdict = attack.verdict === 'ask' ? 'ask' : 'deny';
      expect(verdicts).toEqual([verdict]);
      expect(paused).toBe(verdict === 'ask');
      expect(place.ran()).toEqual([]);
      expect(existsSync(path.join(place.root, 'output'))).toBe(false);

      const command = commandIn(place, attack);
      const explained = await policy.explain({ name: 'shell', touches: [{ type: 'command', command }] });
      expect(explained.verdict.type).toBe(verdict);
      if (attack.verdict === 'destroy') {
        const full = policy.withRules({ ...USUAL, autonomy: 3 });
        expect(explained.rules.find(({ rule }) => rule === 'commands')?.reason).toContain('destructive');
        expect((await full.explain({ name: 'shell', touches: [{ type: 'command', command }] })).verdict.type).toBe(
          'deny',
        );
      }

      if (attack.how === 'judge') return;
      await attempt(place, attack);
      expect(effects(place, attack), 'the attack works').toBe(true);
    });
  }
});

describe('ordinary commands', () => {
  test('are at least 150', () => {
    expect(new Set(ORDINARY).size).toBeGreaterThanOrEqual(150);
  });

  test('run at level 2 with a usual list', async () => {
    const { work } = fixture.place();
    const policy = usualPolicy(work);
    const alarms = [];
    for (const line of ORDINARY) {
      const call = { name: 'shell', touches: [{ type: 'command', command: withControls(line) }] } as const;
      const { verdict } = await policy.explain(call);
      const judged = await policy.judge(
        [{ ...call, id: '1', input: {}, effect: 'once', client: false, permissions: [], operation: undefined }],
        { runId: 'r', turn: 1, context: undefined, signal: new AbortController().signal },
      );
      expect(judged).toEqual([verdict]);
      if (verdict.type !== 'allow') alarms.push({ line, verdict });
    }
    expect(alarms).toEqual([]);
  });
});
