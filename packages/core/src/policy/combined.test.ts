import { expect, test } from 'vitest';
import { combinedPolicy } from './combined.ts';
import { policy } from './policy.ts';
import type { JudgedCall, Policy, Verdict } from './port.ts';

const call: JudgedCall = {
  id: 'c',
  name: 'act',
  input: {},
  effect: 'once',
  client: false,
  touches: [{ type: 'write', path: 'a' }],
  permissions: [],
  operation: undefined,
};
const context = { runId: 'r', turn: 1, context: undefined, signal: new AbortController().signal };
const code = (...verdicts: Verdict[]): Policy => ({ judge: () => verdicts });
const verdictOf = async (made: Policy): Promise<string | undefined> => (await made.judge([call], context))[0]?.type;

test('of several policies the strictest verdict applies, and a missing one is a denial', async () => {
  const [allow, ask] = [code({ type: 'allow' }), code({ type: 'ask' })];
  expect(await verdictOf(combinedPolicy([allow, ask])!)).toBe('ask');
  expect(await verdictOf(combinedPolicy([ask, policy({ autonomy: 0 }), allow])!)).toBe('deny');
  expect(await verdictOf(combinedPolicy([allow, code()])!)).toBeUndefined();
  expect(combinedPolicy([])).toBeUndefined();
  expect(combinedPolicy([ask])).toBe(ask);
});

test('has the smallest limits', () => {
  const limits = combinedPolicy([policy({ autonomy: 2 }), policy({ autonomy: 1 }), code()])!.limits!();
  expect(limits).toEqual({ turns: 20, calls: 50 });
  expect(combinedPolicy([code(), code()])!.limits!()).toEqual({});
});

test('records the rules of each, and applies recorded ones to the policy at the same place', async () => {
  const both = combinedPolicy([policy({ autonomy: 3 }), code({ type: 'allow' }), policy({ autonomy: 2 })])!;
  expect(both.rules).toEqual({ all: [{ autonomy: 3 }, null, { autonomy: 2 }] });
  expect(combinedPolicy([code(), code()])).not.toHaveProperty('rules');
  expect(await verdictOf(both.withRules!({ all: [{ autonomy: 0 }, null, { autonomy: 3 }] }))).toBe('deny');
  expect(await verdictOf(both.withRules!({ all: [{ autonomy: 3 }, null, { autonomy: 3 }] }))).toBe('allow');
});

test('applies recorded rules of another number of policies to the first that has rules', async () => {
  const both = combinedPolicy([code({ type: 'allow' }), policy({ autonomy: 3 })])!;
  expect(await verdictOf(both.withRules!({ autonomy: 0 }))).toBe('deny');
  expect(await verdictOf(both.withRules!({ all: [{ autonomy: 3 }, { autonomy: 1 }, { autonomy: 3 }] }))).toBe('ask');
  expect(() => combinedPolicy([code(), code()])!.withRules!({ autonomy: 0 })).toThrow('no policy has "withRules"');
});
