import type { State } from '@treadle/core';
import type { Replacement } from '../mutable-core.ts';
import { mutant, withCalls, without } from './mutant.ts';

const rerunsAnyTool: Replacement<'onEffectLost'> = (original) => (state, effect) =>
  withCalls(
    state,
    (call) => ({ ...call, effect: 'pure' }),
    (changed) => original(changed, effect),
  );

/** I2 a tool runs only after a recorded verdict allowed it, and never one outside the allowed set. */
export const permission = [
  mutant(
    'I2',
    'a call without a verdict runs',
    'applyVerdict',
    (original) => (state, slot, verdict, at) => (verdict === undefined ? slot : original(state, slot, verdict, at)),
  ),
  mutant(
    'I2',
    'a denied call runs',
    'applyVerdict',
    (original) => (state, slot, verdict, at) => (verdict?.type === 'deny' ? slot : original(state, slot, verdict, at)),
  ),
  mutant('I2', 'an approval of other arguments counts', 'fits', (original) => (state, event) => {
    if (event.type !== 'approval-given' || state.phase.type !== 'tools') return original(state, event);
    return state.phase.slots.some(
      (slot) => slot.type === 'asking' && original(state, { ...event, digest: slot.digest }),
    );
  }),
  mutant('I2', 'the digest leaves out the arguments', 'applyVerdict', (original) => (state, slot, verdict, at) => {
    const judged = original(state, { ...slot, call: { ...slot.call, arguments: '' } }, verdict, at);
    return judged.type === 'settled' ? judged : { ...judged, call: slot.call };
  }),
  mutant(
    'I2',
    'an approval after its expiry counts',
    'slotAfter',
    (original) => (state, slot, event) =>
      original(state, slot, event.type === 'approval-given' ? { ...event, at: -Infinity } : event),
  ),
  mutant(
    'I2',
    'a rejection by a person counts as an approval',
    'slotAfter',
    (original) => (state, slot, event) =>
      original(state, slot, event.type === 'approval-given' ? { ...event, approved: true } : event),
  ),
  mutant(
    'I2',
    'the allowed set is only sent to the model',
    'isToolAllowed',
    (original) => (state, name) => original({ ...state, rules: without(state.rules, 'allowedTools') }, name),
  ),
  mutant(
    'I2',
    'a required tool is only sent to the model',
    'refusalFor',
    (original) => (state, candidate) =>
      original(typeof choiceIn(state) === 'object' ? freeToChoose(state) : state, candidate),
  ),
  mutant(
    'I2',
    'the choice none is only sent to the model',
    'refusalFor',
    (original) => (state, candidate) => original(choiceIn(state) === 'none' ? freeToChoose(state) : state, candidate),
  ),
  mutant(
    'I2',
    'a call with a problem runs',
    'refusalFor',
    (original) => (state, candidate) => original(state, { ...candidate, check: without(candidate.check, 'problem') }),
  ),
  mutant(
    'I2',
    'a call that was not checked runs',
    'planCalls',
    (original) => (state, calls, checks) =>
      original(
        state,
        calls,
        calls.map((_, index) => checks[index] ?? {}),
      ),
  ),
  mutant(
    'I2',
    'a tool receives its arguments without the repair',
    'planCalls',
    (original) => (state, calls, checks) =>
      original(
        state,
        calls,
        checks.map((check) => without(check, 'arguments')),
      ),
  ),
  mutant('I2', 'recovery runs a tool again that acts once', 'onEffectLost', rerunsAnyTool),
  mutant('live', 'recovery of a real run runs a tool again that acts once', 'onEffectLost', rerunsAnyTool),
  mutant(
    'I2',
    'the tools of a turn are only sent to the model',
    'isToolAllowed',
    (original) => (state, name) => original({ ...state, decision: undefined }, name),
  ),
  mutant(
    'I2',
    'the tool choice of a turn is only sent to the model',
    'refusalFor',
    (original) => (state, candidate) =>
      original({ ...state, decision: state.decision && without(state.decision, 'toolChoice') }, candidate),
  ),
];

function choiceIn({ decision, choice }: State): State['choice'] {
  return decision?.toolChoice ?? choice;
}

function freeToChoose(state: State): State {
  return { ...state, choice: 'auto', decision: state.decision && without(state.decision, 'toolChoice') };
}
