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
    file: 'loop/step.ts',
    find: "if (phase.type === 'model') return { state, effects: [modelEffect(state, effect)] };",
    replace: "if (phase.type === 'model') return { state, effects: NO_EFFECTS };",
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
    find: "if (slot.type === 'parked') return { type: 'parked', effect: slotEffectId(slot), call, on: slot.on };",
    replace: '',
  },
  {
    property: 'I4',
    name: 'a person who is to be asked is not told',
    file: 'loop/step.ts',
    find: 'return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };',
    replace: 'return next;',
  },
  {
    property: 'live',
    name: 'what was under way at a crash is not given up for lost',
    file: 'loop/run.ts',
    find: 'events: [...lost, ...given, ...expired]',
    replace: 'events: [...given, ...expired]',
  },
];
