import { mutant, settled, slotOf } from './mutant.ts';

/** I9 the order in which parallel effects settle changes neither the history nor the outcome. */
export const order = [
  mutant('I9', 'an error refuses the calls that have not started', 'advanceCalls', (original) => (state, slots) => {
    const failed = slots.some((slot) => slot.type === 'settled' && slot.result.isError);
    const refused = slots.map((slot) => (slot.type === 'queued' ? settled(slot.call, 'failed', true) : slot));
    return original(state, failed ? refused : slots);
  }),
  mutant('I9', 'an approval counts for the same call of the same turn too', 'onCallEvent', (original) => {
    return (state, effect, event) => {
      const { phase } = state;
      const slot = slotOf(state, effect);
      if (phase.type !== 'tools' || slot?.type !== 'asking' || event.type !== 'approval-given' || !event.approved) {
        return original(state, effect, event);
      }
      const slots = phase.slots.map((one) =>
        one !== slot && one.type === 'asking' && one.digest === slot.digest
          ? ({ type: 'queued', call: one.call } as const)
          : one,
      );
      return original({ ...state, phase: { ...phase, slots } }, effect, event);
    };
  }),
];
