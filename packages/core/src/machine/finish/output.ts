import type { ToolCall } from '../../messages.ts';
import type { AgentRules, Memory } from '../rules.ts';
import type { AgentState, Slot, State } from '../state.ts';
import { wordingOf } from '../wording.ts';
import type { Claim, FinishStrategy, Move } from './finish.ts';

/*
 * The answer of a typed agent is the arguments of a call of the output tool.
 *
 * 1. Without reflection the last call of the output tool in a reply ends the attempt. It is held while all other calls
 *    of the reply run; then its arguments are validated, and the verdict is its result.
 * 2. With reflection the output tool runs like any other tool and shows the model its proposal; the state keeps the last
 *    one. A call of the submit tool is held instead and ends the attempt with that proposal, from the same reply or an
 *    earlier one.
 * 3. A rejected output is answered with the problems. The next attempt starts in the same conversation, up to
 *    `maxAttempts`.
 */
export const output: FinishStrategy = {
  byCalls: true,

  onText(state) {
    if (agentRulesOf(state).textOnly === 'fail')
      return { type: 'fail', code: 'no-tool-called', message: NO_TOOL_CALLED };
    return { type: 'ask', text: wordingOf(state.rules).outputMissing(agentRulesOf(state).output) };
  },

  claim(state, calls) {
    const { output, submit } = agentRulesOf(state);
    const words = wordingOf(state.rules);
    const lastOutput = lastIndexOfCall(calls, output);
    if (submit === undefined) return claimEndingCalls(calls, output, lastOutput, words.superseded);
    const proposed = lastOutput !== -1 || agentStateOf(state).proposal !== undefined;
    const early: Claim = { type: 'answer', text: words.submitEarly(output), isError: true };
    const submitted = claimEndingCalls(calls, submit, lastIndexOfCall(calls, submit), words.superseded);
    return (index) => {
      if (calls[index]!.name === output) return { type: 'run' };
      return calls[index]!.name === submit && !proposed ? early : submitted(index);
    };
  },

  onResults(state, slots) {
    const { output, submit, earlySubmit } = agentRulesOf(state);
    const proposal =
      slots.findLast(({ call }) => call.claimed && call.name === output)?.call.arguments ??
      agentStateOf(state).proposal;
    if (slots.some(({ type }) => type === 'held')) return { type: 'validate', text: proposal! };
    const early = earlySubmit === 'fail' && slots.some((slot) => slot.call.name === submit && isSettledByClaim(slot));
    if (early) return { type: 'fail', code: 'submit-before-output', message: earlySubmitMessage(submit!, output) };
    return { type: 'continue', changes: { agent: { ...agentStateOf(state), proposal } } };
  },

  onChecked(state, result): Move {
    if (result.type === 'valid') return { type: 'end' };
    const { problems, validator, prompt, promptProblem } = result;
    const agent = { ...agentStateOf(state), rejection: { problems, ...(validator !== undefined && { validator }) } };
    const rules = agentRulesOf(state);
    if (agent.attempt >= rules.maxAttempts) return { type: 'exhaust', limit: 'attempts', changes: { agent } };
    if (promptProblem !== undefined) {
      return { type: 'fail', code: 'prompt-failed', message: promptProblem, changes: { agent } };
    }
    const text = prompt ?? wordingOf(state.rules).tryAgain(agent.attempt + 1, rules.maxAttempts);
    return { type: 'ask', text, changes: { agent: nextAttempt(rules, agent, state.turn) } };
  },
};

/** Of several calls that would end the attempt, holds the last one and answers the others. */
function claimEndingCalls(
  calls: readonly ToolCall[],
  name: string,
  last: number,
  superseded: string,
): (index: number) => Claim | undefined {
  return (index) => {
    if (calls[index]!.name !== name) return undefined;
    return index === last ? { type: 'hold' } : { type: 'answer', text: superseded, isError: false };
  };
}

function lastIndexOfCall(calls: readonly ToolCall[], name: string): number {
  return calls.findLastIndex((call) => call.name === name);
}

function isSettledByClaim(slot: Slot): boolean {
  return slot.type === 'settled' && slot.how === 'claimed';
}

/** Set whenever `finish` is `output`. */
function agentRulesOf({ rules }: State): AgentRules {
  return rules.agent!;
}

function agentStateOf({ agent }: State): AgentState {
  return agent!;
}

const NO_TOOL_CALLED = 'The model replied without calling a tool, so there is no output.';

function earlySubmitMessage(submit: string, output: string): string {
  return `The model called "${submit}" before it called "${output}", so there was nothing to submit.`;
}

/** The attempt after `last`, or the first one. The memory of the attempt is reset, all other memory stays. */
export function nextAttempt({ memory }: AgentRules, last: AgentState | undefined, turn: number): AgentState {
  return {
    attempt: (last?.attempt ?? 0) + 1,
    from: turn,
    proposal: undefined,
    memory: last ? memoryAfterAttempt(memory, last.memory) : memory,
    rejection: last?.rejection,
  };
}

function memoryAfterAttempt(first: Memory | undefined, last: Memory | undefined): Memory | undefined {
  if (!last) return first;
  const { attempt: _, ...kept } = last;
  return first?.['attempt'] === undefined ? kept : { ...kept, attempt: first['attempt'] };
}
