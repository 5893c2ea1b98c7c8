import { accepts, mutant } from './mutant.ts';

/** I3 an effect settles at most once; duplicate, late and foreign events are no-ops. */
export const settling = [
  mutant(
    'I3',
    "a result is not checked against its effect's kind",
    'fits',
    accepts(['tool-settled'], (_, event, slot) => {
      return slot !== undefined && event.type === 'tool-settled' && event.result.type === 'result';
    }),
  ),
  mutant(
    'I3',
    'a client answers a call that waits for an approval',
    'fits',
    accepts(['client-result-given'], (_, __, slot) => slot?.type === 'asking'),
  ),
  mutant(
    'I3',
    'a running tool is reported as not done',
    'fits',
    accepts(['tool-settled'], (_, __, slot) => slot?.type === 'running' || slot?.type === 'parked'),
  ),
  mutant('I3', 'an effect id is identified by its index alone', 'slotFor', () => ({ phase }, effect) => {
    if (phase.type !== 'tools') return undefined;
    const { slots } = phase;
    return slots[slots.length === 1 ? 0 : Number(effect.slice(effect.lastIndexOf('.') + 1))];
  }),
  mutant(
    'I3',
    'a reply of an earlier turn is accepted',
    'fits',
    accepts(['model-replied', 'model-failed'], ({ phase }) => phase.type === 'model'),
  ),
  mutant(
    'I3',
    'a parked call is parked again',
    'fits',
    accepts(['tool-parked'], (_, __, slot) => slot?.type === 'parked'),
  ),
  mutant(
    'I3',
    'a child run starts again',
    'fits',
    accepts(['child-started'], (_, __, slot) => slot?.type === 'running'),
  ),
  mutant(
    'I3',
    'an approval expires before its time',
    'fits',
    accepts(['deadline-passed'], (_, __, slot) => slot?.type === 'asking'),
  ),
  mutant(
    'I3',
    'a decision for an earlier turn is accepted',
    'fits',
    accepts(['turn-prepared'], ({ phase }) => phase.type === 'preparing'),
  ),
  mutant(
    'I3',
    'the summary of an earlier turn is accepted',
    'fits',
    accepts(['history-compacted'], ({ phase }) => phase.type === 'compacting'),
  ),
  mutant(
    'I3',
    'the validation of an earlier answer is accepted',
    'fits',
    accepts(['output-checked'], ({ phase }) => phase.type === 'validating'),
  ),
  mutant(
    'I3',
    'a run that has ended is forked',
    'fits',
    accepts(['run-forked'], ({ phase }) => phase.type !== 'new'),
  ),
];
