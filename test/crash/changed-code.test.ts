import { memoryJournal, type Call, type JournalEntry } from '@treadle/core';
import { expect, test } from 'vitest';
import { fault, loadMutableCore, type Fault } from '../invariants/mutable-core.ts';
import { underRules, withAgentRules, withCalls, without } from '../invariants/mutants/mutant.ts';
import { entriesOf, logged, type Logged } from './logged-store.ts';
import { play, type Scenario } from './scenario.ts';
import { reflecting } from './scenarios/agents.ts';
import { calls } from './scenarios/calls.ts';
import { cancelled, outage, overdue } from './scenarios/endings.ts';
import { length } from './scenarios/length.ts';
import { shaping } from './scenarios/shaping.ts';
import { verify } from './scenarios/verify.ts';
import { RUN, world } from './world.ts';

/** A change of the code, and how the replay of a journal that the unchanged code wrote reports it. */
interface Change {
  readonly what: string;
  readonly scenario: Scenario;
  readonly fault: Fault;
  readonly seq: number;
  readonly event: string;
  readonly effect?: string;
  readonly difference: RegExp;
}

/** Changes one of the sentences that the loop writes into a history. */
const sentence = (scenario: Scenario, name: string, found: Pick<Change, 'seq' | 'event' | 'effect'>): Change => ({
  what: `the sentence ${name}`,
  scenario,
  fault: fault('wordingOf', (original) => (rules) => {
    const wording = original(rules);
    const text = wording[name]!;
    return { ...wording, [name]: typeof text === 'string' ? `!${text}` : (...values) => `!${text(...values)}` };
  }),
  ...found,
  difference: /^the history (for t\d\.model\.\d has|and outcome have) digest \d+; it was \d+$/,
});

const CHANGES: readonly Change[] = [
  sentence(calls, 'denied', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  sentence(calls, 'notApproved', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  sentence(calls, 'approvalExpired', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  sentence(calls, 'unknownTool', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  sentence(verify, 'interrupted', { seq: 10, event: 'tool-settled', effect: 't2.model.0' }),
  sentence(cancelled, 'cancelled', { seq: 5, event: 'cancel-requested' }),
  sentence(overdue, 'stopped', { seq: 7, event: 'deadline-passed' }),
  sentence(outage, 'confirm', { seq: 7, event: 'model-replied', effect: 't4.model.0' }),
  sentence(shaping, 'summary', { seq: 8, event: 'turn-prepared', effect: 't3.model.0' }),
  sentence(shaping, 'outputInvalid', { seq: 14, event: 'turn-prepared', effect: 't5.model.0' }),
  sentence(reflecting, 'submitEarly', { seq: 7, event: 'tool-settled', effect: 't3.model.0' }),
  sentence(reflecting, 'superseded', { seq: 14, event: 'output-checked', effect: 't5.model.0' }),
  sentence(reflecting, 'rejected', { seq: 14, event: 'output-checked', effect: 't5.model.0' }),
  sentence(reflecting, 'outputMissing', { seq: 20, event: 'model-replied', effect: 't8.model.0' }),
  sentence(reflecting, 'accepted', { seq: 24, event: 'output-checked' }),
  {
    what: 'the number of attempts',
    scenario: reflecting,
    fault: fault('finishOf', (original) => (rules) => {
      const strategy = original(rules);
      const { onChecked } = strategy;
      return {
        ...strategy,
        onChecked: (state, result) => onChecked!(withAgentRules(state, { maxAttempts: 1 }), result),
      };
    }),
    seq: 14,
    event: 'output-checked',
    effect: 't5.model.0',
    difference: /^it issued t5\.model\.0; now it issues nothing$/,
  },
  {
    what: 'the number of calls that run at once',
    scenario: calls,
    fault: fault(
      'scheduleCalls',
      (original) => (slots, rules, at) => original(slots, { ...rules, maxParallel: 1 }, at),
    ),
    seq: 2,
    event: 'calls-judged',
    effect: 't1.tool.1',
    difference: /^it issued .*t1\.tool\.0, t1\.tool\.1, t1\.client\.7; now it issues .*t1\.tool\.0, t1\.client\.7$/,
  },
  {
    what: 'the recovery of a lost call that acts once',
    scenario: verify,
    fault: fault('onEffectLost', (original) => (state, effect) => {
      const unverifiable = (call: Call): Call => ({ ...call, verifiable: false });
      return withCalls(state, unverifiable, (changed) => original(changed, effect));
    }),
    seq: 2,
    event: 'effect-lost',
    effect: 't1.verify.0',
    difference: /^it issued t1\.verify\.0; now it issues t1\.tool\.3$/,
  },
  {
    what: 'the order of results',
    scenario: calls,
    fault: fault('resultsMessage', (original) => (slots, rules) => original(slots.toReversed(), rules)),
    seq: 10,
    event: 'client-result-given',
    effect: 't2.model.0',
    difference: /^the history for t2\.model\.0 has digest/,
  },
  {
    what: 'the reaction to a conversation that is too long',
    scenario: length,
    fault: fault(
      'onModelFailed',
      underRules((rules) => without(rules, 'compaction')),
    ),
    seq: 7,
    event: 'model-failed',
    effect: 't3.compact.1',
    difference: /^it issued t3\.compact\.1; now it issues nothing$/,
  },
  {
    what: 'which answers have to be confirmed',
    scenario: outage,
    fault: fault('finishOf', (original) => (rules) => {
      const strategy = original(rules);
      return { ...strategy, onText: (state) => strategy.onText({ ...state, confirmed: !state.confirmed }) };
    }),
    seq: 7,
    event: 'model-replied',
    effect: 't4.model.0',
    difference: /^it issued t4\.model\.0; now it issues nothing$/,
  },
  {
    what: 'which approvals count',
    scenario: calls,
    fault: fault('fits', (original) => (state, event) => {
      return original(state, event) && !(event.type === 'approval-given' && event.by === 'ann');
    }),
    seq: 6,
    event: 'approval-given',
    effect: 't1.approval.3',
    difference:
      /^the event "approval-given" no longer applies: it refers to t1\.approval\.3; outstanding are t1\.approval\.3, /,
  },
  {
    what: 'the outcome of a run',
    scenario: overdue,
    fault: fault(
      'endMidTurn',
      (original) => (state, _, why) => original(state, { type: 'cancelled', phase: 'tool' }, why),
    ),
    seq: 7,
    event: 'deadline-passed',
    difference: /^the run was exhausted after it; now it is cancelled$/,
  },
];

const { core, withFault } = loadMutableCore(CHANGES.map(({ fault: { target } }) => target));

async function journalOf(scenario: Scenario): Promise<readonly JournalEntry[]> {
  const log: Logged[] = [];
  const last = await play(scenario, world({ log, store: logged(memoryJournal(), log), faults: true }));
  return entriesOf(last.log, RUN);
}

test.each(CHANGES.map((change) => [change.what, change] as const))('replay finds a change of %s', async (_, change) => {
  const { scenario, seq, event, effect, difference } = change;
  const entries = await journalOf(scenario);
  expect(core.replay(entries)).toMatchObject({ type: 'replayed' });
  const replayed = await withFault(change.fault, () => core.replay(entries));
  expect(replayed).toMatchObject({ type: 'diverged', seq, event, difference: expect.stringMatching(difference) });
  expect('effect' in replayed ? replayed.effect : undefined).toBe(effect);
});
