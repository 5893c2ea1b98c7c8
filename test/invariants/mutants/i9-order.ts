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
    file: 'loop/slots.ts',
    find: 'others[index] = next;',
    replace:
      'others[index] = next;\n  for (const [at, one] of others.entries())\n' +
      "    if (approved && one.type === 'asking' && one.digest === (slot as { digest?: string }).digest)\n" +
      "      others[at] = { type: 'queued', call: one.call };",
  },
];
