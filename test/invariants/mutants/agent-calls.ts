import type { ToolCall } from '@treadle/core';
import type { Claim } from '../core-functions.ts';
import type { Replacement } from '../mutable-core.ts';
import { agentFinish, mutant, settled, slotOf, withAgentRules, withState, without } from './mutant.ts';

/** Calls that a typed agent claims: held, shown, superseded, early; and the limits for which they do not count. */
export const claims = [
  mutant('I1', 'a held call is answered at once', 'claimCall', (original) => (state, call, check, claim) => {
    const slot = original(state, call, check, claim);
    return slot.type === 'held' ? settled(slot.call, 'held', false, 'claimed') : slot;
  }),
  mutant(
    'I1',
    'a superseded call is left unanswered',
    'finishOf',
    claimsChanged((claim) => (isSuperseded(claim) ? { type: 'hold' } : claim)),
  ),
  mutant(
    'I1',
    'a superseded call is answered with an error',
    'finishOf',
    claimsChanged((claim) => (isSuperseded(claim) ? { ...claim, isError: true } : claim)),
  ),
  mutant(
    'I1',
    'an output is validated before the other calls are answered',
    'advanceCalls',
    (original) => (state, slots) => {
      const early = slots.some(({ type }) => type === 'held') && !slots.some(({ type }) => type === 'queued');
      return original(
        state,
        slots.map((slot) => (early && slot.type !== 'settled' ? { type: 'held', call: slot.call } : slot)),
      );
    },
  ),
  mutant(
    'I1',
    'a cancellation during the validation of an output leaves its call unanswered',
    'endMidTurn',
    (original) => (state, outcome, why) => {
      const { phase } = state;
      return original(phase.type === 'validating' ? { ...state, phase: without(phase, 'slots') } : state, outcome, why);
    },
  ),
  mutant(
    'I1',
    'a rejected output is answered with a success',
    'settleHeldCall',
    (original) => (call, result, state) => {
      const answered = original(call, result, state);
      if (answered.type !== 'settled') return answered;
      return { ...answered, result: { ...answered.result, isError: false } };
    },
  ),
  mutant('I1', 'the problems of an output are not sent to the model', 'settleHeldCall', (original) => {
    return (call, result, state) =>
      original(call, result.type === 'invalid' ? { ...result, problems: [] } : result, state);
  }),
  mutant(
    'I1',
    'an empty reply is followed by a second message of the user',
    'recordEmptyReply',
    () => (state) => state,
  ),
  mutant('I3', 'an output is validated a second time', 'fits', (original) => (state, event) => {
    const { phase } = state;
    const again = event.type === 'output-checked' && phase.type === 'validating' && phase.slots !== undefined;
    return again || original(state, event);
  }),
  mutant(
    'I4',
    'a held call blocks others that share its resource',
    'waitsForResource',
    (original) => (call, slots) =>
      original(
        call,
        slots.map((slot) => (slot.type === 'held' ? { type: 'running', call: slot.call } : slot)),
      ),
  ),
  mutant(
    'I6',
    'the first output of a reply counts',
    'finishOf',
    agentFinish('onResults', (original) => (state, slots) => original(state, slots.toReversed())),
  ),
  mutant(
    'I6',
    'an output counts although it is over the cap',
    'finishOf',
    agentFinish('onResults', (original) => (state, slots) => {
      const { output } = state.rules.agent!;
      return original(
        state,
        slots.map((slot) => (slot.call.name === output ? { ...slot, call: { ...slot.call, claimed: true } } : slot)),
      );
    }),
  ),
  mutant(
    'I6',
    'a rejected output counts as an error',
    'errorsAfter',
    (original) => (errors, slots) =>
      original(
        errors,
        slots.map((slot) => (slot.how === 'claimed' ? { ...slot, how: 'ran' } : slot)),
      ),
  ),
  mutant(
    'I6',
    'a submit before any output is accepted',
    'finishOf',
    agentFinish('claim', (original) => (state, calls) => {
      const agent = state.agent!;
      return original({ ...state, agent: { ...agent, proposal: agent.proposal ?? '' } }, calls);
    }),
  ),
  mutant(
    'I6',
    'a submit accepts only outputs of earlier replies',
    'finishOf',
    claimsChanged((claim, { call, submit, proposal }) => {
      const early = call.name === submit && proposal === undefined;
      return early ? { type: 'answer', text: 'early', isError: true } : claim;
    }),
  ),
  mutant(
    'I6',
    'a submit before any output is answered although it must end the run',
    'finishOf',
    agentFinish('onResults', (original) => (state, slots) => {
      return original(state.turn > 1 ? state : withAgentRules(state, { earlySubmit: 'feedback' }), slots);
    }),
  ),
  mutant('I6', 'an output that is shown counts towards the limit of calls', 'countQueued', () => (slots) => {
    return slots.filter(({ type }) => type === 'queued').length;
  }),
  mutant('I6', 'an approved output counts towards the limit of calls', 'onCallEvent', (original) => {
    return (state, effect, event) => {
      const slot = slotOf(state, effect);
      const next = original(state, effect, event);
      const approved = event.type === 'approval-given' && event.approved && slot?.type === 'asking';
      return approved && slot.call.claimed && event.at < slot.expiresAt
        ? withState(next, { calls: next.state.calls + 1 })
        : next;
    };
  }),
  mutant(
    'I6',
    'an output over the cap of the rules is refused',
    'finishOf',
    claimsChanged((claim, { index, cap }) => (index < cap ? claim : undefined)),
  ),
  mutant(
    'I6',
    'an agent without calls left must not call',
    'toolChoiceOf',
    (original) => (state) => (state.spent > 0 ? 'none' : original(state)),
  ),
  mutant(
    'I6',
    'an agent has a closing turn',
    'reachLimit',
    (original) => (state, limit) => withState(original({ ...state, agent: undefined }, limit), { agent: state.agent }),
  ),
  mutant(
    'I6',
    'the tool choice of an agent is used up by a call',
    'onCallsReply',
    (original) => (state, calls, checks) => {
      const next = original({ ...state }, calls, checks);
      return state.agent && state.choice !== 'none' ? withState(next, { choice: 'auto' }) : next;
    },
  ),
  mutant('I6', 'an output between two equal calls does not interrupt the repetition', 'planCalls', (original) => {
    return (state, calls, checks) => {
      const slots = original(state, calls, checks);
      const helpers = slots.flatMap(({ call }) => (call.claimed ? [] : call.index));
      const alone = original(
        state,
        helpers.map((index) => calls[index]!),
        helpers.map((index) => checks[index] ?? { problem: 'It was not checked.' }),
      );
      return slots.map((slot) => {
        const other = alone[helpers.indexOf(slot.call.index)];
        return other?.type === 'settled' && other.how === 'repeated' ? { ...other, call: slot.call } : slot;
      });
    };
  }),
  mutant('I2', 'an output is shown without a verdict', 'onCallsReply', (original) => (state, calls, checks) => {
    const next = original({ ...state }, calls, checks);
    const { phase } = next.state;
    if (phase.type !== 'judging' || phase.slots.some(({ type, call }) => type === 'queued' && !call.claimed))
      return next;
    const { rules } = state;
    return withState(original({ ...state, rules: { ...rules, judged: false } }, calls, checks), { rules });
  }),
  mutant(
    'I2',
    'an output with bad arguments is shown',
    'claimCall',
    (original) => (state, call, check, claim) => original(state, call, without(check, 'problem'), claim),
  ),
];

function isSuperseded(claim: Claim | undefined): claim is Extract<Claim, { type: 'answer' }> {
  return claim?.type === 'answer' && !claim.isError;
}

interface ClaimedCall {
  readonly call: ToolCall;
  readonly index: number;
  readonly submit: string | undefined;
  /** The output of earlier replies. */
  readonly proposal: string | undefined;
  /** How many calls of one reply the rules allow. */
  readonly cap: number;
}

/** Calls that the agent claims in another way. */
function claimsChanged(
  change: (claim: Claim | undefined, call: ClaimedCall) => Claim | undefined,
): Replacement<'finishOf'> {
  return agentFinish('claim', (original) => (state, calls) => {
    const claimOf = original(state, calls);
    const { agent, maxCallsPerTurn: cap = Infinity } = state.rules;
    const { submit } = agent!;
    return (index) =>
      change(claimOf(index), { call: calls[index]!, index, submit, proposal: state.agent!.proposal, cap });
  });
}
