import type { ToolCall } from '../../messages.ts';
import { nextAttempt } from '../attempt.ts';
import type { AgentRules } from '../pinned.ts';
import type { AgentState, Slot, State } from '../state.ts';
import { wordingOf } from '../wording.ts';
import type { Claim, FinishStrategy, Move } from './strategy.ts';

/*
 * The answer is what the model calls the output tool with.
 *
 * 1. Without reflection the last call of the output tool in a reply ends the attempt: it is held while all other calls
 *    of the reply run, then its arguments are validated, and the verdict is its result.
 * 2. With reflection the output tool runs like any other and shows the model what it proposes; the last proposal is
 *    kept. A call of the submit tool is held in its place and ends the attempt with that proposal, be it from the same
 *    reply or an earlier one.
 * 3. A rejected output is answered with what is wrong, and the next attempt begins in the same conversation, until
 *    there have been `maxAttempts`.
 */
export const output: FinishStrategy = {
  byCalls: true,

  onText(state) {
    if (rulesOf(state).textOnly === 'fail') return { type: 'fail', code: 'no-tool-called', message: NO_TOOL_CALLED };
    return { type: 'ask', words: wordingOf(state.rules).outputMissing(rulesOf(state).output) };
  },

  claim(state, calls) {
    const { output, submit } = rulesOf(state);
    const words = wordingOf(state.rules);
    const lastOutput = lastOf(calls, output);
    if (submit === undefined) return ending(calls, output, lastOutput, words.superseded);
    const proposed = lastOutput !== -1 || agentOf(state).proposal !== undefined;
    const early: Claim = { type: 'answer', text: words.submitEarly(output), isError: true };
    const submitted = ending(calls, submit, lastOf(calls, submit), words.superseded);
    return (index) => {
      if (calls[index]!.name === output) return { type: 'run' };
      return calls[index]!.name === submit && !proposed ? early : submitted(index);
    };
  },

  onResults(state, slots) {
    const { output, submit, earlySubmit } = rulesOf(state);
    const proposal =
      slots.findLast(({ call }) => call.claimed && call.name === output)?.call.arguments ?? agentOf(state).proposal;
    if (slots.some(({ type }) => type === 'held')) return { type: 'validate', text: proposal! };
    const early = earlySubmit === 'fail' && slots.some((slot) => slot.call.name === submit && isClaimed(slot));
    if (early) return { type: 'fail', code: 'submit-before-output', message: submittedEarly(submit!, output) };
    return { type: 'go-on', note: { agent: { ...agentOf(state), proposal } } };
  },

  onChecked(state, result): Move {
    if (result.type === 'valid') return { type: 'end' };
    const { problems, validator, prompt, promptProblem } = result;
    const agent = { ...agentOf(state), rejection: { problems, ...(validator !== undefined && { validator }) } };
    const rules = rulesOf(state);
    if (agent.attempt >= rules.maxAttempts) return { type: 'exhaust', limit: 'attempts', note: { agent } };
    if (promptProblem !== undefined) {
      return { type: 'fail', code: 'prompt-failed', message: promptProblem, note: { agent } };
    }
    const words = prompt ?? wordingOf(state.rules).tryAgain(agent.attempt + 1, rules.maxAttempts);
    return { type: 'ask', words, note: { agent: nextAttempt(rules, agent, state.turn) } };
  },
};

/** Of several calls that would end the attempt the last one does. */
function ending(
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

function lastOf(calls: readonly ToolCall[], name: string): number {
  return calls.findLastIndex((call) => call.name === name);
}

function isClaimed(slot: Slot): boolean {
  return slot.type === 'settled' && slot.how === 'claimed';
}

/** `run-started` brings the one with the other. */
function rulesOf({ rules }: State): AgentRules {
  return rules.agent!;
}

function agentOf({ agent }: State): AgentState {
  return agent!;
}

const NO_TOOL_CALLED = 'The model replied without calling a tool, so there is no output.';

function submittedEarly(submit: string, output: string): string {
  return `The model called "${submit}" before it had called "${output}", so there was nothing to submit.`;
}
