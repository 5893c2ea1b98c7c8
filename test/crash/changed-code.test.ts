import { memoryJournal, type JournalEntry } from '@treadle/core';
import { expect, test } from 'vitest';
import { mutantOf } from '../invariants/mutate.ts';
import { entriesOf, logged, type Logged } from './logged-store.ts';
import { play, type Scenario } from './scenario.ts';
import { reflecting } from './scenarios/agents.ts';
import { calls } from './scenarios/calls.ts';
import { cancelled, outage, overdue } from './scenarios/endings.ts';
import { length } from './scenarios/length.ts';
import { shaping } from './scenarios/shaping.ts';
import { verify } from './scenarios/verify.ts';
import { RUN, world } from './world.ts';

/** A journal of today, and code that does something otherwise than it did then. */
interface Change {
  readonly what: string;
  readonly scenario: Scenario;
  /** Under `packages/core/src/loop`; `find` stands there exactly once. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** What replay says. */
  readonly seq: number;
  readonly event: string;
  readonly effect?: string;
  readonly difference: RegExp;
}

const wording = (scenario: Scenario, find: string, found: Pick<Change, 'seq' | 'event' | 'effect'>): Change => ({
  what: `the words "${find}"`,
  scenario,
  file: 'wording.ts',
  find,
  replace: `!${find}`,
  ...found,
  difference: /^the history (for t\d\.model\.\d has|and outcome have) digest \d+; it was \d+$/,
});

const CHANGES: readonly Change[] = [
  wording(calls, 'was denied', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  wording(calls, 'was not approved$', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  wording(calls, 'was not approved in time', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
  {
    ...wording(calls, 'There is no tool ', { seq: 10, event: 'client-result-given', effect: 't2.model.0' }),
    find: "|| 'none'}. Use one of them, or answer without.`,\n  notAllowed",
    replace: "|| 'none'}. Use another, or answer without.`,\n  notAllowed",
  },
  wording(verify, 'was interrupted', { seq: 10, event: 'tool-settled', effect: 't2.model.0' }),
  wording(cancelled, 'the run was cancelled', { seq: 5, event: 'cancel-requested' }),
  wording(overdue, 'Not finished: the run met its limit', { seq: 7, event: 'deadline-passed' }),
  wording(outage, 'Before this counts as your answer', { seq: 7, event: 'model-replied', effect: 't4.model.0' }),
  wording(shaping, 'What happened so far', { seq: 8, event: 'turn-prepared', effect: 't3.model.0' }),
  wording(shaping, 'Your answer does not have the form', { seq: 14, event: 'turn-prepared', effect: 't5.model.0' }),
  wording(reflecting, 'There is nothing to submit yet', { seq: 7, event: 'tool-settled', effect: 't3.model.0' }),
  wording(reflecting, 'Not used: a later call', { seq: 14, event: 'output-checked', effect: 't5.model.0' }),
  wording(reflecting, 'Rejected$', { seq: 14, event: 'output-checked', effect: 't5.model.0' }),
  wording(reflecting, 'Your reply called no tool', { seq: 20, event: 'model-replied', effect: 't8.model.0' }),
  wording(reflecting, 'Accepted.', { seq: 24, event: 'output-checked' }),
  {
    what: 'how many attempts there are',
    scenario: reflecting,
    file: 'finish/output.ts',
    find: 'agent.attempt >= rules.maxAttempts',
    replace: 'agent.attempt >= 1',
    seq: 14,
    event: 'output-checked',
    effect: 't5.model.0',
    difference: /^it issued t5\.model\.0; now it issues nothing$/,
  },
  {
    what: 'how many calls run at once',
    scenario: calls,
    file: 'schedule.ts',
    find: 'running < rules.maxParallel',
    replace: 'running < 1',
    seq: 2,
    event: 'calls-judged',
    effect: 't1.tool.1',
    difference: /^it issued .*t1\.tool\.0, t1\.tool\.1, t1\.client\.7; now it issues .*t1\.tool\.0, t1\.client\.7$/,
  },
  {
    what: 'what becomes of a call that acts once and was lost',
    scenario: verify,
    file: 'slots.ts',
    find: "if (call.verifiable) return { type: 'queued', call, verify: true };",
    replace: '',
    seq: 2,
    event: 'effect-lost',
    effect: 't1.verify.0',
    difference: /^it issued t1\.verify\.0; now it issues t1\.tool\.3$/,
  },
  {
    what: 'in which order results stand',
    scenario: calls,
    file: 'turn.ts',
    find: 'content: mapped(slots, ({ result }) => result)',
    replace: 'content: slots.map(({ result }) => result).reverse()',
    seq: 10,
    event: 'client-result-given',
    effect: 't2.model.0',
    difference: /^the history for t2\.model\.0 has digest/,
  },
  {
    what: 'that a reply may be too much',
    scenario: length,
    file: 'reply.ts',
    find: "error.code === 'context-length' && first",
    replace: 'false',
    seq: 7,
    event: 'model-failed',
    effect: 't3.compact.1',
    difference: /^it issued t3\.compact\.1; now it issues nothing$/,
  },
  {
    what: 'which answers are asked for again',
    scenario: outage,
    file: 'finish/confirm.ts',
    find: 'state.confirmed',
    replace: '!state.confirmed',
    seq: 7,
    event: 'model-replied',
    effect: 't4.model.0',
    difference: /^it issued t4\.model\.0; now it issues nothing$/,
  },
  {
    what: 'which approvals count',
    scenario: calls,
    file: 'fits.ts',
    find: "slot?.type === 'asking' && slot.digest === event.digest",
    replace: "slot?.type === 'asking' && slot.digest === event.digest && event.by !== 'ann'",
    seq: 6,
    event: 'approval-given',
    effect: 't1.approval.3',
    difference:
      /^the event "approval-given" does not apply any more: it is about t1\.approval\.3; under way are t1\.approval\.3, /,
  },
  {
    what: 'how a run ends',
    scenario: overdue,
    file: 'step.ts',
    find: "{ type: 'exhausted', limit: 'duration' }",
    replace: "{ type: 'cancelled', phase: 'tool' }",
    seq: 7,
    event: 'deadline-passed',
    difference: /^the run was exhausted after it; now it is cancelled$/,
  },
];

async function journalOf(scenario: Scenario): Promise<readonly JournalEntry[]> {
  const log: Logged[] = [];
  const last = await play(scenario, world({ log, store: logged(memoryJournal(), log), faults: true }));
  return entriesOf(last.log, RUN);
}

test.each(CHANGES.map((change) => [change.what, change] as const))(
  'replay finds another code: %s',
  async (_, change) => {
    const { scenario, file, find, replace, seq, event, effect, difference } = change;
    const entries = await journalOf(scenario);
    const { core, remove } = await mutantOf({ file: `loop/${file}`, find, replace });
    try {
      const replayed = core.replay(entries);
      expect(replayed).toMatchObject({ type: 'diverged', seq, event, difference: expect.stringMatching(difference) });
      expect('effect' in replayed ? replayed.effect : undefined).toBe(effect);
    } finally {
      remove();
    }
  },
);
