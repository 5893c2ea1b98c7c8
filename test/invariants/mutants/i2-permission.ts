import type { State } from '@treadle/core';
import type { Replacement } from '../mutable-core.ts';
import { mutant, withCalls, without } from './mutant.ts';

const rerunsAnyTool: Replacement<'onEffectLost'> = (original) => (state, effect) =>
  withCalls(
    state,
    (call) => ({ ...call, effect: 'pure' }),
    (changed) => original(changed, effect),
  );

/** I2 a tool runs only after a recorded verdict, enough people or a grant allowed it, and never one outside the allowed set. */
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
  mutant(
    'I2',
    'anybody may approve',
    'approvalProblem',
    (original) => (ask, answer) => original(without(ask, 'approvers'), answer),
  ),
  mutant('I2', 'one approval is enough where several are required', 'isApproved', () => () => true),
  mutant(
    'I2',
    'the approvals of one person count several times',
    'approvalProblem',
    (original) => (ask, answer) => original(without(ask, 'approvedBy'), answer),
  ),
  mutant(
    'I3',
    'an approval without a name counts where several are required',
    'approvalProblem',
    (original) => (ask, answer) => original(ask, { ...answer, by: answer.by ?? ask.approvers?.[0] ?? 'anonymous' }),
  ),
  mutant(
    'I2',
    'a grant covers other touches',
    'isGranted',
    (original) => (state, call, ask) => original(state, call, { ...ask, touches: [] }),
  ),
  mutant(
    'I2',
    'a grant covers other tools',
    'isGranted',
    (original) => (state, call, ask) =>
      state.grants?.some(({ tool }) => original(state, { ...call, name: tool }, ask)) ?? false,
  ),
  mutant('I2', 'a grant covers the same path at another place', 'touchKey', (original) => (touch) => {
    return original('on' in touch ? without(touch, 'on') : touch);
  }),
  mutant('I2', 'a grant covers calls without the promises of its sandbox', 'arePromised', () => () => true),
  mutant('I4', 'an approval is not bound to where the call runs', 'whereBound', () => () => ''),
  mutant('I4', 'an open approval counts where the promises do not hold', 'boundAgain', () => (_, slot) => slot),
  mutant(
    'I2',
    'a call that is judged again starts by its first verdict',
    'onCallRejudged',
    (original) => (state, event) =>
      original(state, event.effect.includes('.tool.') ? { ...event, verdict: { type: 'allow' } } : event),
  ),
  mutant('I4', 'the promises of the first verdict stay', 'ruledCall', (original) => (call, verdict) => {
    const { sandbox } = call;
    return sandbox ? { ...original(call, verdict), sandbox } : original(call, verdict);
  }),
  mutant('I2', 'a grant covers a tool that has changed', 'definitionOf', () => () => 'the same'),
  mutant('I2', 'a grant of one person covers what needs two', 'hasEnoughApprovers', () => () => true),
  mutant(
    'I2',
    'an approval of one call is a grant',
    'withGrant',
    (original) => (state, event) => original(state, { ...event, forRun: true }),
  ),
  mutant('I2', 'a grant needs only one of several people', 'withGrant', (original) => (state, event) => {
    const { phase } = state;
    if (phase.type !== 'tools') return original(state, event);
    const slots = phase.slots.map((slot) => (slot.type === 'asking' ? without(slot, 'onlyThisCall') : slot));
    return { ...original({ ...state, phase: { ...phase, slots } }, event), phase };
  }),
  mutant('I6', 'a grant is not used', 'isGranted', () => () => false),
  mutant(
    'I2',
    'a grant answers an ask that is for each call',
    'isGranted',
    (original) => (state, call, ask) => original(state, call, ask.type === 'ask' ? without(ask, 'eachTime') : ask),
  ),
  mutant('I6', 'written paths are counted again', 'withWritten', () => (written, touches = []) => {
    const paths = touches.flatMap((touch) => (touch.type === 'write' ? touch.path : []));
    return paths.length === 0 ? written : [...(written ?? []), ...paths];
  }),
  mutant(
    'I6',
    'paths that are only read count as written',
    'withWritten',
    (original) => (written, touches) =>
      original(
        written,
        touches?.map((touch) => (touch.type === 'read' ? { ...touch, type: 'write' } : touch)),
      ),
  ),
  mutant(
    'I6',
    'what a denied call would write counts as written',
    'writtenAfter',
    (original) => (state, _, verdicts) =>
      original(state, state.phase.type === 'judging' ? state.phase.slots : [], verdicts),
  ),
  mutant(
    'I2',
    'new rules do not apply to calls that have not started',
    'onPolicyChanged',
    (original) => (state, event) => {
      const verdicts = Object.keys(event.verdicts ?? {}).map((effect) => [effect, { type: 'allow' }]);
      return original(state, { ...event, verdicts: Object.fromEntries(verdicts) });
    },
  ),
  mutant(
    'I2',
    'new rules without a verdict allow a call that has not started',
    'onPolicyChanged',
    (original) => (state, event) => {
      const all = Array.from({ length: 200 }, (_, index) => [`t${state.turn}.tool.${index}`, { type: 'allow' }]);
      return original(state, { ...event, verdicts: { ...Object.fromEntries(all), ...event.verdicts } });
    },
  ),
  mutant('I2', 'new rules loosen an open approval', 'stricterAsk', (original) => (state, slot, verdict, at) => {
    return verdict?.type === 'allow' ? { type: 'queued', call: slot.call } : original(state, slot, verdict, at);
  }),
  mutant('I2', 'new rules extend an open approval', 'stricterAsk', (original) => (state, slot, verdict, at) => {
    const asked = original(state, slot, verdict, at);
    return asked.type === 'asking' ? { ...asked, expiresAt: Math.max(asked.expiresAt, at + 86_400_000) } : asked;
  }),
  mutant(
    'I4',
    'new rules do not raise the number of approvals',
    'stricterAsk',
    (original) => (state, slot, verdict, at) => {
      const asked = original(state, slot, verdict, at);
      if (asked.type !== 'asking') return asked;
      return slot.required === undefined ? without(asked, 'required') : { ...asked, required: slot.required };
    },
  ),
  mutant('I4', 'new rules do not restrict who may approve', 'stricterAsk', (original) => (state, slot, verdict, at) => {
    const asked = original(state, slot, verdict, at);
    if (asked.type !== 'asking') return asked;
    return slot.approvers === undefined ? without(asked, 'approvers') : { ...asked, approvers: slot.approvers };
  }),
  mutant('I4', 'approvals count of people who may not approve any more', 'stricterAsk', (original) => {
    return (state, slot, verdict, at) => {
      const asked = original(state, slot, verdict, at);
      return asked.type === 'asking' && slot.approvedBy ? { ...asked, approvedBy: slot.approvedBy } : asked;
    };
  }),
  mutant('I2', 'a tool that needs approvals is not judged', 'mustBeJudged', (original) => (state, slots) => {
    const unmarked = slots.map((slot) => ({ ...slot, call: without(slot.call, 'needsApproval') }));
    return original(state, unmarked);
  }),
  mutant(
    'I2',
    'a run that was started without a policy is never judged',
    'isJudged',
    () =>
      ({ rules }) =>
        rules.judged,
  ),
  mutant(
    'I4',
    'new rules judge a call that has started',
    'isUnstarted',
    (original) => (slot) => original(slot) || slot.type === 'running',
  ),
  mutant('live', 'the looser verdict applies', 'stricterVerdict', (original) => (a, b) => {
    const stricter = original(a, b);
    return JSON.stringify(stricter) === JSON.stringify(a) ? b : a;
  }),
  mutant('live', 'a tool that needs approvals is allowed', 'mustApprove', () => () => false),
  mutant('live', 'a change of the policy is not recorded', 'policyChange', () => async () => undefined),
];

function choiceIn({ decision, choice }: State): State['choice'] {
  return decision?.toolChoice ?? choice;
}

function freeToChoose(state: State): State {
  return { ...state, choice: 'auto', decision: state.decision && without(state.decision, 'toolChoice') };
}
