import type { Mutant } from '../mutate.ts';

/** I4 a run ends in exactly one outcome, or is paused on named outstanding effects. */
export const ending: readonly Mutant[] = [
  {
    property: 'I4',
    name: 'a run that has ended can be cancelled',
    file: 'loop/fits.ts',
    find: "return phase.type !== 'new' && phase.type !== 'ended';",
    replace: "return phase.type !== 'new';",
  },
  {
    property: 'I4',
    name: 'a run is paused while a tool is verified',
    file: 'loop/outstanding.ts',
    find: "return !phase.slots.some(({ type }) => type === 'running' || type === 'verifying');",
    replace: "return !phase.slots.some(({ type }) => type === 'running');",
  },
  {
    property: 'I4',
    name: 'a lost model call is not made again',
    file: 'loop/slots.ts',
    find: "if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
    replace:
      "if (phase.type === 'model') return { state: { ...state }, effects: NO_EFFECTS };\n" +
      "  if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
  },
  {
    property: 'I4',
    name: 'one place is always left free',
    file: 'loop/schedule.ts',
    find: 'running < rules.maxParallel',
    replace: 'running + 1 < rules.maxParallel',
  },
  {
    property: 'I4',
    name: 'a parked call is not named',
    file: 'loop/outstanding.ts',
    find: "if (slot.type === 'parked') return parkedWaiting(slotEffectId(slot), slot);",
    replace: '',
  },
  {
    property: 'I4',
    name: 'a person who is to be asked is not told',
    file: 'loop/slots.ts',
    find: 'return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };',
    replace: 'return next;',
  },
  {
    property: 'live',
    name: 'what was under way at a crash is not given up for lost',
    file: 'loop/opening.ts',
    find: 'events: [...accepted, ...lost, ...given, ...taken, ...expired]',
    replace: 'events: [...accepted, ...given, ...taken, ...expired]',
  },
  {
    property: 'I4',
    name: 'a lost compaction is not begun again',
    file: 'loop/slots.ts',
    find: "if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
    replace:
      "if (phase.type === 'compacting') return { state: { ...state }, effects: NO_EFFECTS };\n  if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
  },
  {
    property: 'I4',
    name: 'a lost preparation is not begun again',
    file: 'loop/slots.ts',
    find: "if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
    replace:
      "if (phase.type === 'preparing') return { state: { ...state }, effects: NO_EFFECTS };\n  if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
  },
  {
    property: 'I4',
    name: 'a lost validation is not begun again',
    file: 'loop/slots.ts',
    find: "if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
    replace:
      "if (phase.type === 'validating') return { state: { ...state }, effects: NO_EFFECTS };\n  if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);",
  },
  {
    property: 'I4',
    name: 'what a child waits for is not named',
    file: 'loop/outstanding.ts',
    find: 'if (inside.length === 0) return',
    replace: 'if (inside) return',
  },
  {
    property: 'I4',
    name: 'what a child waits for is named as if it were here',
    file: 'loop/outstanding.ts',
    find: 'effect: `${effect}/${wait.effect}`',
    replace: 'effect: wait.effect',
  },
  {
    property: 'I4',
    name: 'an answer is accepted though it is invalid',
    file: 'loop/reply.ts',
    find: "if (result.type === 'valid') return act(",
    replace: 'if (result.type) return act(',
  },
  {
    property: 'I4',
    name: 'an answer is not held against its schema',
    file: 'loop/reply.ts',
    find: "if (move.type !== 'end' || !state.rules.output) return act(heard, move);",
    replace: 'return act(heard, move);',
  },
  {
    property: 'I4',
    name: 'the validated answer is lost',
    file: 'loop/reply.ts',
    find: "if (result.type === 'valid') state.output = result.value;",
    replace: '',
  },
];
