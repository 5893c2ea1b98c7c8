import type { Event, RecordedVerdict } from '@treadle/core';
import { expect, test } from 'vitest';
import { callDecisions } from './decisions.ts';
import type { CallDecision } from './wire.ts';

const ASK: RecordedVerdict = { type: 'ask', rule: 'payments' };
const ALLOW: RecordedVerdict = { type: 'allow', rule: 'all' };
const judged = (...verdicts: RecordedVerdict[]): Event => ({
  type: 'calls-judged',
  at: 1,
  effect: 't1.policy.0',
  verdicts,
});
const approval = (index: number, approved: boolean, more: { by?: string; reason?: string } = {}): Event => ({
  type: 'approval-given',
  at: 2,
  effect: `t1.approval.${index}`,
  digest: '',
  approved,
  ...more,
});
const changed = (index: number, verdict: RecordedVerdict): Event => ({
  type: 'policy-changed',
  at: 3,
  verdicts: { [`t1.tool.${index}`]: verdict },
});
const expired = (index: number): Event => ({ type: 'deadline-passed', at: 4, effect: `t1.approval.${index}` });
const decision = (approved: boolean, given: Partial<CallDecision>): CallDecision => ({
  approved,
  source: 'person',
  by: [],
  rule: 'payments',
  reason: null,
  ...given,
});

/** The decisions after each event. The calls 1 and 2 can run. */
function decided(...events: readonly Event[]): readonly (readonly (readonly [number, CallDecision])[])[] {
  const decisions = callDecisions();
  return events.map((event) => decisions.add(event, () => [1, 2]));
}

test('a call that nobody was asked about has a decision only if the policy denied it', () => {
  const denied = { type: 'deny', reason: 'No.', rule: 'payments' } as const;
  const policy = decision(false, { source: 'policy', reason: 'No.' });
  expect(decided(judged(ALLOW, denied))).toEqual([[[2, policy]]]);
  expect(decided(judged(ALLOW))).toEqual([[[2, { ...policy, rule: null, reason: null }]]]);
});

test('people decide about a call, each about theirs', () => {
  expect(decided(judged(ASK, ASK), approval(2, false, { by: 'bob', reason: 'No.' }), approval(1, true))).toEqual([
    [],
    [[2, decision(false, { by: ['bob'], reason: 'No.' })]],
    [[1, decision(true, {})]],
  ]);
});

test('an approval of several people has all of their names, and one denial denies', () => {
  const two = judged({ ...ASK, required: 2 } as RecordedVerdict, ALLOW);
  const [ann, bob] = ['ann', 'bob'].map((by) => approval(1, true, { by })) as [Event, Event];
  expect(decided(two, ann, bob)).toEqual([[], [], [[1, decision(true, { by: ['ann', 'bob'] })]]]);
  expect(decided(two, ann, approval(1, false, { by: 'bob' })).at(-1)).toEqual([
    [1, decision(false, { by: ['ann', 'bob'] })],
  ]);
});

test('without an answer the deadline decides', () => {
  expect(decided(judged(ASK, ALLOW), expired(2), expired(1))).toEqual([
    [],
    [],
    [[1, decision(false, { source: 'deadline' })]],
  ]);
});

test('other rules replace a decision, and may require more people', () => {
  const denial = { type: 'deny', reason: 'New rules.', rule: 'new' } as const;
  expect(decided(judged(ASK, ALLOW), approval(1, true), changed(1, denial)).at(-1)).toEqual([
    [1, decision(false, { source: 'policy', rule: 'new', reason: 'New rules.' })],
  ]);
  const stricter = changed(1, { ...ASK, required: 2 } as RecordedVerdict);
  const [ann, bob] = ['ann', 'bob'].map((by) => approval(1, true, { by })) as [Event, Event];
  expect(decided(judged(ASK, ALLOW), stricter, ann, bob).slice(-2)).toEqual([
    [],
    [[1, decision(true, { by: ['ann', 'bob'] })]],
  ]);
});

test('what people have allowed for the rest of the run decides when the call starts', () => {
  const decisions = callDecisions();
  decisions.add(judged(ASK, ALLOW), () => [1, 2]);
  expect([decisions.started(1), decisions.started(1), decisions.started(2)]).toEqual([
    decision(true, {}),
    undefined,
    undefined,
  ]);
});
