import type { Mutant } from '../mutate.ts';

/** I9 the order in which parallel effects settle changes neither the history nor the outcome. */
export const order: readonly Mutant[] = [
  {
    property: 'I9',
    name: 'a failure refuses the calls that have not begun',
    file: 'loop/turn.ts',
    find: 'const scheduled = schedule(slots, state.rules);',
    replace:
      "const failed = slots.some((slot) => slot.type === 'settled' && slot.result.isError);\n" +
      "  if (failed) slots = slots.map((slot) => (slot.type === 'queued' ? refuse(slot.call, 'failed') : slot));\n" +
      '  if (slots.every(({ type }) => type === "settled")) return finishTurn(state, slots as readonly SettledSlot[]);\n' +
      '  const scheduled = schedule(slots, state.rules);',
  },
  {
    property: 'I9',
    name: 'an approval counts for the same call of the same turn too',
    file: 'loop/step.ts',
    find: 'slots.with(index, changed));',
    replace:
      'slots.with(index, changed).map((one) => ' +
      "(approved && one.type === 'asking' && one.digest === slot.digest ? { type: 'queued', call: one.call } : one)));",
  },
];
