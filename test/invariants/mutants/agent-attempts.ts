import type { AgentRules, AgentState } from '@treadle/core';
import type { CheckedOutput } from '../core-functions.ts';
import type { Replacement } from '../mutable-core.ts';
import { agentFinish, mutant, unanswered, withAgentRules, withState, without } from './mutant.ts';

/** Attempts of a typed agent: proposals, rejections, what helpers remember, and how the run ends. */
export const attempts = [
  mutant(
    'I1',
    "the agent's own prompt for the next attempt is ignored",
    'finishOf',
    agentFinish('onChecked', (original) => (state, result) => original(state, without(result, 'prompt'))),
  ),
  mutant(
    'I4',
    'a rejected output is the answer',
    'finishOf',
    agentFinish('onChecked', () => () => ({ type: 'end' })),
  ),
  mutant(
    'I4',
    'one attempt too many',
    'finishOf',
    attemptsChanged((most) => most + 1),
  ),
  mutant(
    'I4',
    'one attempt too few',
    'finishOf',
    attemptsChanged((most) => most - 1),
  ),
  mutant(
    'I4',
    'attempts are not counted',
    'nextAttempt',
    nextAttempt(({ last }) => ({ attempt: last?.attempt ?? 1 })),
  ),
  mutant(
    'I4',
    'a prompt that cannot be written has no consequence',
    'finishOf',
    agentFinish('onChecked', (original) => (state, result) => original(state, without(result, 'promptProblem'))),
  ),
  mutant(
    'I4',
    'a prompt that cannot be written is reported although there is no next attempt',
    'finishOf',
    attemptsChanged((most, result) => ('promptProblem' in result ? Infinity : most)),
  ),
  mutant(
    'I4',
    'a reply without calls is answered although it must end the run',
    'finishOf',
    agentFinish('onText', (original) => (state) => {
      return original(state.turn > 1 ? state : withAgentRules(state, { textOnly: 'feedback' }));
    }),
  ),
  mutant('I4', 'a falsy output is lost', 'onOutputChecked', (original) => (state, event) => {
    const next = original(state, event);
    const lost = event.result.type === 'valid' && !event.result.value;
    return lost ? withState(next, { output: undefined }) : next;
  }),
  mutant('I4', 'a lost validation of an output is not repeated', 'onEffectLost', (original) => (state, effect) => {
    const { phase } = state;
    return phase.type === 'validating' && phase.slots ? unanswered(state) : original(state, effect);
  }),
  mutant(
    'live',
    'a snapshot lacks what helpers remember',
    'snapshotOf',
    (original) => (state, seq) =>
      original({ ...state, agent: state.agent && { ...state.agent, memory: undefined } }, seq),
  ),
  mutant(
    'I6',
    'a proposal is kept after its attempt',
    'nextAttempt',
    nextAttempt(({ last }) => ({ proposal: last?.proposal })),
  ),
  mutant(
    'I6',
    'a proposal is lost after its turn',
    'finishOf',
    agentFinish('onResults', (original) => (state, slots) => {
      const move = original(state, slots);
      return move.type === 'continue' ? { type: 'continue' } : move;
    }),
  ),
  mutant(
    'I6',
    'turns are counted over all attempts',
    'turnsUsed',
    () =>
      ({ turn }) =>
        turn,
  ),
  mutant(
    'I6',
    'an attempt has one turn less than the one before',
    'nextAttempt',
    nextAttempt(({ last, turn }) => ({ from: last ? turn - 1 : turn })),
  ),
  mutant(
    'I6',
    'the memory of an attempt is kept for the next one',
    'nextAttempt',
    nextAttempt(({ rules, last }) => ({ memory: last ? last.memory : rules.memory })),
  ),
  mutant(
    'I6',
    'the memory of the run is lost with the attempt',
    'nextAttempt',
    nextAttempt(({ rules }) => ({ memory: rules.memory })),
  ),
  mutant('I6', 'memory that a helper changed is not stored', 'chargeCall', (original) => (state, event) => ({
    ...original(state, event),
    agent: state.agent,
  })),
  mutant('I6', 'memory that a helper did not change is lost', 'chargeCall', (original) => (state, event) => {
    const memory = event.type === 'tool-settled' && event.result.type === 'result' ? event.result.memory : undefined;
    const charged = original(state, event);
    return memory && charged.agent ? { ...charged, agent: { ...charged.agent, memory } } : charged;
  }),
  mutant(
    'I6',
    'the reason of a rejection is lost',
    'nextAttempt',
    nextAttempt(() => ({ rejection: undefined })),
  ),
  mutant('I6', 'a validation has the number of another attempt', 'phaseEffect', (original) => (state, phase) => {
    const effect = original(state, phase);
    return effect.type === 'validate-output' && state.agent ? { ...effect, attempt: state.turn } : effect;
  }),
];

/** A rejected output with another number of attempts. */
function attemptsChanged(change: (most: number, result: CheckedOutput) => number): Replacement<'finishOf'> {
  return agentFinish('onChecked', (original) => (state, result) => {
    const maxAttempts = change(state.rules.agent!.maxAttempts, result);
    return original(withAgentRules(state, { maxAttempts }), result);
  });
}

interface AttemptInput {
  readonly rules: AgentRules;
  readonly last: AgentState | undefined;
  readonly turn: number;
}

function nextAttempt(change: (input: AttemptInput) => Partial<AgentState>): Replacement<'nextAttempt'> {
  return (original) => (rules, last, turn) => ({ ...original(rules, last, turn), ...change({ rules, last, turn }) });
}
