import type { Phase } from '@treadle/core';
import type { Replacement } from '../mutable-core.ts';
import { mutant, unanswered, underRules, withState, without } from './mutant.ts';

const notRepeated =
  (phase: Phase['type']): Replacement<'onEffectLost'> =>
  (original) =>
  (state, effect) =>
    state.phase.type === phase ? unanswered(state) : original(state, effect);

/** I4 a run ends in exactly one outcome, or is paused on named outstanding effects. */
export const ending = [
  mutant(
    'I4',
    'a run that has ended can be cancelled',
    'isLive',
    () =>
      ({ phase }) =>
        phase.type !== 'new',
  ),
  mutant('I4', 'a run is paused while a tool is verified', 'isPaused', () => ({ phase }) => {
    return phase.type === 'tools' && !phase.slots.some(({ type }) => type === 'running');
  }),
  mutant('I4', 'a lost model call is not repeated', 'onEffectLost', notRepeated('model')),
  mutant(
    'I4',
    'one call fewer than allowed runs at once',
    'scheduleCalls',
    (original) => (slots, rules, at) => original(slots, { ...rules, maxParallel: rules.maxParallel - 1 }, at),
  ),
  mutant('I4', 'a parked call is not named', 'parkedWaiting', () => () => []),
  mutant('I4', 'an approval is not requested', 'onCallsJudged', (original) => (state, event) => {
    const { effects, ...next } = original(state, event);
    return { ...next, effects: effects.filter(({ type }) => type !== 'ask-approval') };
  }),
  mutant('live', 'effects that a crash interrupted are not marked as lost', 'startedEffects', () => () => []),
  mutant('I4', 'a lost compaction is not repeated', 'onEffectLost', notRepeated('compacting')),
  mutant('I4', 'a lost preparation is not repeated', 'onEffectLost', notRepeated('preparing')),
  mutant('I4', 'a lost validation is not repeated', 'onEffectLost', notRepeated('validating')),
  mutant(
    'I4',
    'what a child waits for is not named',
    'parkedWaiting',
    (original) => (effect, slot) => original(effect, { ...slot, waiting: [] }),
  ),
  mutant(
    'I4',
    'what a child waits for is named without its path',
    'parkedWaiting',
    (original) => (effect, slot) => (slot.waiting.length === 0 ? original(effect, slot) : slot.waiting),
  ),
  mutant(
    'I4',
    'an invalid answer is accepted',
    'onOutputChecked',
    (original) => (state, event) =>
      original(state, state.agent ? event : { ...event, result: { type: 'valid', value: undefined } }),
  ),
  mutant(
    'I4',
    'an answer is not validated',
    'onTextReply',
    underRules((rules) => without(rules, 'output')),
  ),
  mutant(
    'I4',
    'the validated answer is lost',
    'onOutputChecked',
    (original) => (state, event) => withState(original(state, event), { output: undefined }),
  ),
];
