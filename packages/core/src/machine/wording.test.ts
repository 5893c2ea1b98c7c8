import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import type { Rules } from './rules.ts';
import { CURRENT_WORDING, hasWording, wordingOf, type Wording } from './wording.ts';

/** All sentences of an edition, with fixed arguments. Sentences that were added later have a test of their own. */
function sentences(rules: Partial<Rules>): string {
  const sample: { readonly [Name in Exclude<keyof Wording, 'callExpired'>]: readonly unknown[] | undefined } = {
    unknownTool: ['x', ['a', 'b']],
    notAllowed: ['x', []],
    choiceNone: undefined,
    choiceOther: ['x', 'y'],
    badCall: ['x', 'why'],
    denied: ['x', 'why'],
    noVerdict: undefined,
    notApproved: ['x', undefined],
    approvalExpired: ['x'],
    tooManyCalls: [5],
    callsSpent: [7],
    repeated: ['x', 3],
    interrupted: ['x'],
    cancelled: undefined,
    stopped: ['duration'],
    callRequired: [undefined],
    emptyReply: undefined,
    confirm: undefined,
    outputDemand: ['{}'],
    outputInvalid: [['a', 'b']],
    outputMissing: ['out'],
    nothingSaid: undefined,
    submitEarly: ['out'],
    superseded: undefined,
    accepted: undefined,
    rejected: [['a'], 'v'],
    tryAgain: [2, 3],
    summary: ['s'],
    summarise: undefined,
    closing: ['errors'],
  };
  const words = wordingOf(rules as Rules) as unknown as Record<string, string | ((...values: unknown[]) => string)>;
  return Object.entries(sample)
    .map(([name, values]) => {
      const sentence = words[name]!;
      return `${name}: ${typeof sentence === 'string' ? sentence : sentence(...values!)}`;
    })
    .join('\n');
}

const agent = { name: 'a' } as Rules['agent'];

// If a digest differs, an edition was changed, and journals written with it no longer replay.
test.for([
  ['1', { wording: 1 }, 'fc953ef37a637f25'],
  ['1 for agents', { wording: 1, agent }, '8bc094ff15d1fe0f'],
  ['2', { wording: 2 }, '9adf3aa81e91393b'],
  ['2 for agents', { wording: 2, agent }, '261bc3ffdfc2a33a'],
] as const)('edition %s never changes', ([, rules, digest]) => {
  expect(
    createHash('sha256')
      .update(sentences(rules as Partial<Rules>))
      .digest('hex')
      .slice(0, 16),
  ).toBe(digest);
});

test.for([1, 2] as const)('the sentences that were added to edition %s never change', (wording) => {
  expect(wordingOf({ wording } as Rules).callExpired('x')).toBe(
    'The call of "x" had no result in time, and it is not known whether it took effect. Find out before you call it again.',
  );
});

test('new runs use the latest edition', () => {
  expect(hasWording({ wording: CURRENT_WORDING } as Rules)).toBe(true);
  expect(hasWording({ wording: CURRENT_WORDING + 1 } as unknown as Rules)).toBe(false);
});
