import { describe, expect, test } from 'vitest';
import type { AskVerdict, Verdict } from './port.ts';
import { possibleVerdict, stricterVerdict } from './verdicts.ts';

const ALLOW: Verdict = { type: 'allow' };
const DENY: Verdict = { type: 'deny', reason: 'no' };
const ASK: AskVerdict = { type: 'ask', reason: 'may I?' };

describe('stricterVerdict', () => {
  test.each<[Verdict | undefined, Verdict | undefined, Verdict | undefined]>([
    [ALLOW, ALLOW, ALLOW],
    [ALLOW, ASK, ASK],
    [ALLOW, DENY, DENY],
    [ASK, DENY, DENY],
    [ALLOW, undefined, undefined],
    [ASK, undefined, undefined],
  ])('of %j and %j, in both orders, is %j', (a, b, stricter) => {
    expect(stricterVerdict(a, b)).toEqual(stricter);
    expect(stricterVerdict(b, a)).toEqual(stricter);
  });

  test('of two denials is the first', () => {
    expect(stricterVerdict(DENY, { type: 'deny', reason: 'never' })).toBe(DENY);
  });

  test.each<[string, Partial<AskVerdict>, Partial<AskVerdict>, Partial<AskVerdict>]>([
    ['the shorter time', { ttlMs: 10 }, { ttlMs: 20 }, { ttlMs: 10 }],
    ['the shorter time, if the other has the default', {}, { ttlMs: 1e12 }, { ttlMs: 86_400_000 }],
    ['the higher number of approvals', { required: 2 }, {}, { required: 2 }],
    ['the people who may answer both', { approvers: ['a', 'b'] }, { approvers: ['b', 'c'] }, { approvers: ['b'] }],
    ['the people who may answer one, if anybody may answer the other', {}, { approvers: ['b'] }, { approvers: ['b'] }],
    ['the reason of the first', { reason: 'one' }, { reason: 'two' }, { reason: 'one' }],
    ['the rule of the second, if the first has none', {}, { rule: 'paths' }, { rule: 'paths' }],
  ])('of two asks has %s', (_, a, b, expected) => {
    expect(stricterVerdict({ type: 'ask', ...a }, { type: 'ask', ...b })).toEqual({ type: 'ask', ...expected });
  });
});

test('possibleVerdict returns a verdict that people can satisfy unchanged', () => {
  for (const verdict of [ALLOW, DENY, ASK, { ...ASK, required: 2, approvers: ['a', 'b'] }, undefined]) {
    expect(possibleVerdict(verdict)).toBe(verdict);
  }
});
