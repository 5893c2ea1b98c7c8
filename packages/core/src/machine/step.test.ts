import { describe, expect, test } from 'vitest';
import type { Limits, Rules } from './rules.ts';
import type { Call, Slot } from './state.ts';
import { LIMIT_NAMES, NEW, scheduleCalls, shareOfLimits } from './step.ts';

/**
 * One letter per call: `q`ueued, `r`unning, `v`erifying, `p`arked, `a`sking, `c`lient, `s`ettled; `V` is queued to be
 * verified, `C` queued for the client. Then `!` for exclusive, and digits for the resources that it needs.
 */
function slotsOf(notation: string): Slot[] {
  return notation.split(' ').map((one, index): Slot => {
    const letter = one[0]!;
    const call: Call = {
      turn: 1,
      index,
      id: `id${index}`,
      name: 'x',
      arguments: '{}',
      resources: [...one].filter((char) => char >= '0' && char <= '9'),
      effect: 'once',
      exclusive: one.includes('!'),
      client: letter === 'c' || letter === 'C',
      verifiable: true,
    };
    switch (letter) {
      case 'q':
      case 'C':
        return { type: 'queued', call };
      case 'V':
        return { type: 'queued', call, verify: true };
      case 'r':
        return { type: 'running', call };
      case 'v':
        return { type: 'verifying', call };
      case 'p':
        return { type: 'parked', call, on: 'device', waiting: [] };
      case 'a':
        return { type: 'asking', call, digest: '', expiresAt: 0 };
      case 'c':
        return { type: 'client', call };
      case 's': {
        const result = { type: 'tool-result', callId: call.id, name: 'x', content: [], isError: false } as const;
        return { type: 'settled', call, result, how: 'ran' };
      }
      default:
        throw new Error(`no slot for the letter ${letter}`);
    }
  });
}

function started(notation: string, rules: Partial<Rules> = {}): string[] {
  const slots = slotsOf(notation);
  const before = slots.map(({ type }) => type);
  const scheduled = scheduleCalls(slots, { maxParallel: 5, parallel: true, ...rules } as Rules, 0);
  const ids = scheduled.effects.map(({ id }) => id);
  // Exactly the slots that started have changed.
  const changed = scheduled.slots.flatMap((slot, index) => (slot === slots[index] ? [] : index));
  expect(changed).toEqual(ids.map((id) => Number(id.split('.')[2])));
  expect(slots.map(({ type }) => type)).toEqual(before);
  return ids;
}

describe('scheduleCalls runs at most maxParallel calls at once', () => {
  test.each<[string, number, string[]]>([
    ['q q q', 5, ['t1.tool.0', 't1.tool.1', 't1.tool.2']],
    ['q q q', 2, ['t1.tool.0', 't1.tool.1']],
    ['r q q', 2, ['t1.tool.1']],
    ['r r q', 2, []],
    ['r v q', 2, []],
    ['s r q q', 2, ['t1.tool.2']],
    ['s s q', 1, ['t1.tool.2']],
    ['q r q', 2, ['t1.tool.0']],
    ['r r r', 2, []],
    ['V q', 1, ['t1.verify.0']],
    ['V q', 2, ['t1.verify.0', 't1.tool.1']],
  ])('%s with %d', (notation, maxParallel, ids) => {
    expect(started(notation, { maxParallel })).toEqual(ids);
  });

  test.each<[string, number, string[]]>([
    ['a p c q', 1, ['t1.tool.3']],
    ['C q C', 1, ['t1.client.0', 't1.tool.1', 't1.client.2']],
    ['r C', 1, ['t1.client.1']],
  ])('does not count calls that wait for a person, a client or a device: %s', (notation, maxParallel, ids) => {
    expect(started(notation, { maxParallel })).toEqual(ids);
  });
});

describe('scheduleCalls runs an exclusive call alone, and later calls after it', () => {
  test.each<[string, string[]]>([
    ['q! q q', ['t1.tool.0']],
    ['q q! q', ['t1.tool.0']],
    ['r q! q', []],
    ['s q! q', ['t1.tool.1']],
    ['r! q q', []],
    ['v! q', []],
    ['s! q q!', ['t1.tool.1']],
    ['s! s q!', ['t1.tool.2']],
    ['q! q!', ['t1.tool.0']],
    ['a! q', ['t1.tool.1']],
    ['p! q', ['t1.tool.1']],
    ['r q! C', ['t1.client.2']],
    ['C! q q', ['t1.client.0', 't1.tool.1', 't1.tool.2']],
    ['V! q', ['t1.verify.0']],
  ])('%s', (notation, ids) => {
    expect(started(notation)).toEqual(ids);
  });
});

describe('scheduleCalls runs calls that share a resource in call order', () => {
  test.each<[string, string[]]>([
    ['q1 q1 q2', ['t1.tool.0', 't1.tool.2']],
    ['r1 q1 q2', ['t1.tool.2']],
    ['s1 q1 q1', ['t1.tool.1']],
    ['q12 q23 q3', ['t1.tool.0']],
    ['q12 q3 q23', ['t1.tool.0', 't1.tool.1']],
    ['a1 q1 q2', ['t1.tool.2']],
    ['c1 q1', []],
    ['p1 q1', []],
    ['C1 C1', ['t1.client.0']],
    ['q1 C1', ['t1.tool.0']],
    ['q r1 q1', ['t1.tool.0']],
    ['q1 r1 q', ['t1.tool.0', 't1.tool.2']],
  ])('%s', (notation, ids) => {
    expect(started(notation)).toEqual(ids);
  });

  test('keeps that order when maxParallel is reached', () => {
    expect(started('r q1 q1', { maxParallel: 1 })).toEqual([]);
    expect(started('q1 q1 q', { maxParallel: 2 })).toEqual(['t1.tool.0', 't1.tool.2']);
  });
});

describe('scheduleCalls with parallel: false starts a call when all earlier ones have results', () => {
  test.each<[string, string[]]>([
    ['q q q', ['t1.tool.0']],
    ['r q q', []],
    ['s q q', ['t1.tool.1']],
    ['s s q', ['t1.tool.2']],
    ['a q', []],
    ['p q', []],
    ['C q', ['t1.client.0']],
    ['c q', []],
    ['s! q1 q1', ['t1.tool.1']],
  ])('%s', (notation, ids) => {
    expect(started(notation, { parallel: false })).toEqual(ids);
  });
});

test('scheduleCalls returns the same slots if nothing starts', () => {
  const slots = slotsOf('r! q q');
  expect(scheduleCalls(slots, { maxParallel: 5, parallel: true } as Rules, 0).slots).toBe(slots);
});

test('scheduleCalls starts a queued call if none is running or waiting', () => {
  const letters = ['q', 'q!', 'q1', 'q2!', 'q12', 'C', 'C1', 's', 's!', 'V'];
  for (const a of letters) {
    for (const b of letters) {
      for (const c of letters) {
        for (const rules of [{}, { parallel: false }, { maxParallel: 1 }]) {
          const notation = `${a} ${b} ${c}`;
          const queued = slotsOf(notation).some(({ type }) => type === 'queued');
          expect(started(notation, rules).length > 0, notation).toBe(queued);
        }
      }
    }
  }
});

/** A value for every limit. A new limit does not compile until it has one here. */
const limits: Required<Limits> = { calls: 10, tokens: 100, cost: 1, durationMs: 1_000 };

test('shareOfLimits shares every limit of a run with its child runs', () => {
  const state = { ...NEW, rules: { limits } as Rules };
  expect(Object.keys(limits).toSorted()).toEqual([...LIMIT_NAMES].toSorted());
  expect(shareOfLimits(state, 0.5)).toEqual({ calls: 5, tokens: 50, cost: 0.5, durationMs: 500 });
});

test('shareOfLimits divides what is left, in whole numbers except for the cost, and never below 0', () => {
  const used = { calls: 3, usage: { inputTokens: 90, outputTokens: 20, cost: 0.5 }, activeMs: 999 };
  const state = { ...NEW, ...used, rules: { limits } as Rules };
  expect(shareOfLimits(state, 0.5)).toEqual({ calls: 3, tokens: 0, cost: 0.25, durationMs: 0 });
});

test('shareOfLimits returns no limits for a run without limits', () => {
  expect(shareOfLimits({ ...NEW, rules: { limits: {} } as Rules }, 0.5)).toEqual({});
});
