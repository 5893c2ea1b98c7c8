import type { Mutant } from '../mutate.ts';

/** I3 an effect settles at most once; duplicate, late and foreign events are no-ops. */
export const settling: readonly Mutant[] = [
  {
    property: 'I3',
    name: "a settling event is not checked against its effect's kind",
    file: 'loop/fits.ts',
    find: "return (type === 'running' || type === 'parked') && event.result.type === 'result';",
    replace: "return type !== undefined && event.result.type === 'result';",
  },
  {
    property: 'I3',
    name: 'a client answers what waits for a person',
    file: 'loop/fits.ts',
    find: "return slotOf(state, event.effect)?.type === 'client';",
    replace: "return ['client', 'asking'].includes(slotOf(state, event.effect)?.type ?? '');",
  },
  {
    property: 'I3',
    name: 'a running tool can be said not to have begun',
    file: 'loop/fits.ts',
    find: "return (type === 'running' || type === 'parked') && event.result.type === 'result';",
    replace: "return type === 'running' || type === 'parked';",
  },
  {
    property: 'I3',
    name: 'an id is known by its index alone',
    file: 'loop/outstanding.ts',
    find: 'return slot && slotEffectId(slot) === effect ? index : -1;',
    replace: 'return slot ? index : -1;',
  },
  {
    property: 'I3',
    name: 'a reply of an earlier turn is taken',
    file: 'loop/fits.ts',
    find: "return phase.type === 'model' && phase.effect === event.effect;",
    replace: "return phase.type === 'model';",
  },
  {
    property: 'I3',
    name: 'a parked call is parked again',
    file: 'loop/fits.ts',
    find: "return slotOf(state, event.effect)?.type === 'running';",
    replace: "return ['running', 'parked'].includes(slotOf(state, event.effect)?.type ?? '');",
  },
  {
    property: 'I3',
    name: 'an approval expires before its time',
    file: 'loop/fits.ts',
    find: "return slot?.type === 'asking' && event.at >= slot.expiresAt;",
    replace: "return slot?.type === 'asking';",
  },
  {
    property: 'I3',
    name: 'a decision for an earlier turn is taken',
    file: 'loop/fits.ts',
    find: "return phase.type === 'preparing' && phase.effect === event.effect;",
    replace: "return phase.type === 'preparing';",
  },
  {
    property: 'I3',
    name: 'the summary of an earlier turn is taken',
    file: 'loop/fits.ts',
    find: "return phase.type === 'compacting' && phase.effect === event.effect;",
    replace: "return phase.type === 'compacting';",
  },
  {
    property: 'I3',
    name: 'the check of an earlier answer is taken',
    file: 'loop/fits.ts',
    find: "return phase.type === 'validating' && phase.effect === event.effect;",
    replace: "return phase.type === 'validating';",
  },
  {
    property: 'I3',
    name: 'a run that has ended gets other tools',
    file: 'loop/fits.ts',
    find: "case 'run-forked':\n",
    replace: "case 'run-forked':\n      return phase.type !== 'new';\n",
  },
];
