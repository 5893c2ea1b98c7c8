import { describe, expect, test } from 'vitest';
import { scheduleCalls } from './step.ts';
import type { Rules } from './rules.ts';
import type { Call, Slot } from './state.ts';

/**
 * One letter per call: `q`ueued, `r`unning, `v`erifying, `p`arked, `a`sking, `c`lient, `s`ettled; `V` is queued to be
 * verified, `C` queued for the client. Then `!` for exclusive, and digits for the resources that it needs.
 */
function slotsOf(picture: string): Slot[] {
  return picture.split(' ').map((one, index): Slot => {
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
        throw new Error(`no slot is written ${letter}`);
    }
  });
}

function started(picture: string, rules: Partial<Rules> = {}): string[] {
  const slots = slotsOf(picture);
  const before = slots.map(({ type }) => type);
  const scheduled = scheduleCalls(slots, { maxParallel: 5, parallel: true, ...rules } as Rules);
  const ids = scheduled.effects.map(({ id }) => id);
  // What started is what changed, and nothing else did.
  const changed = scheduled.slots.flatMap((slot, index) => (slot === slots[index] ? [] : index));
  expect(changed).toEqual(ids.map((id) => Number(id.split('.')[2])));
  expect(slots.map(({ type }) => type)).toEqual(before);
  return ids;
}

describe('at most maxParallel run at once', () => {
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
  ])('%s with %d', (picture, maxParallel, ids) => {
    expect(started(picture, { maxParallel })).toEqual(ids);
  });

  test.each<[string, number, string[]]>([
    ['a p c q', 1, ['t1.tool.3']],
    ['C q C', 1, ['t1.client.0', 't1.tool.1', 't1.client.2']],
    ['r C', 1, ['t1.client.1']],
  ])('what waits for somebody takes no place: %s', (picture, maxParallel, ids) => {
    expect(started(picture, { maxParallel })).toEqual(ids);
  });
});

describe('an exclusive call runs alone, and those after it wait until it has', () => {
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
  ])('%s', (picture, ids) => {
    expect(started(picture)).toEqual(ids);
  });
});

describe('calls that share a resource run in call order', () => {
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
  ])('%s', (picture, ids) => {
    expect(started(picture)).toEqual(ids);
  });

  test('also one that waits because the place is taken', () => {
    expect(started('r q1 q1', { maxParallel: 1 })).toEqual([]);
    expect(started('q1 q1 q', { maxParallel: 2 })).toEqual(['t1.tool.0', 't1.tool.2']);
  });
});

describe('parallel: false, each starts when all before it are answered', () => {
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
  ])('%s', (picture, ids) => {
    expect(started(picture, { parallel: false })).toEqual(ids);
  });
});

test('if nothing starts, the slots are the same', () => {
  const slots = slotsOf('r! q q');
  expect(scheduleCalls(slots, { maxParallel: 5, parallel: true } as Rules).slots).toBe(slots);
});

test('unless something is under way or somebody waits, something starts', () => {
  const letters = ['q', 'q!', 'q1', 'q2!', 'q12', 'C', 'C1', 's', 's!', 'V'];
  for (const a of letters) {
    for (const b of letters) {
      for (const c of letters) {
        for (const rules of [{}, { parallel: false }, { maxParallel: 1 }]) {
          const picture = `${a} ${b} ${c}`;
          const queued = slotsOf(picture).some(({ type }) => type === 'queued');
          expect(started(picture, rules).length > 0, picture).toBe(queued);
        }
      }
    }
  }
});
