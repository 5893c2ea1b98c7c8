import { describe, expect, test } from 'vitest';
import type { ToolCall } from '../../messages.ts';
import type { AgentRules, Rules } from '../rules.ts';
import { refusedSlot, settledSlot, NEW } from '../step.ts';
import type { AgentState, Call, Slot, State } from '../state.ts';
import { output } from './output.ts';

const direct: AgentRules = { name: 'a', output: 'answer', maxAttempts: 2, textOnly: 'fail', earlySubmit: 'fail' };
const reflecting: AgentRules = { ...direct, submit: 'submit' };

function stateOf(agent: AgentRules, progress: Partial<AgentState> = {}, turn = 3): State {
  const rules = { wording: 1, finish: 'output', agent } as Partial<Rules> as Rules;
  const at = { attempt: 1, from: 0, proposal: undefined, memory: undefined, rejection: undefined, ...progress };
  return { ...NEW, rules, turn, agent: at };
}

const calls = (...names: readonly string[]): readonly ToolCall[] =>
  names.map((name, index) => ({ type: 'tool-call', id: `${index}`, name, arguments: `{"n":${index}}` }));

const callOf = (name: string, index: number): Call => ({
  turn: 3,
  index,
  id: `${index}`,
  name,
  arguments: `{"n":${index}}`,
  resources: [],
  effect: 'pure',
  exclusive: false,
  client: false,
  verifiable: false,
  ...(name !== 'look' && { claimed: true as const }),
});
const settled = (name: string, index: number): Slot =>
  settledSlot(callOf(name, index), [{ type: 'text', text: 'x' }], false, 'claimed');
const held = (name: string, index: number): Slot => ({ type: 'held', call: callOf(name, index) });

function claims(state: State, ...names: readonly string[]): readonly unknown[] {
  const all = calls(...names);
  const claim = output.claim!(state, all);
  return all.map((_, index) => claim(index)?.type);
}

describe('a reply without calls', () => {
  test('fails the run with textOnly fail', () => {
    expect(output.onText(stateOf(direct))).toEqual({
      type: 'fail',
      code: 'no-tool-called',
      message: 'The model replied without calling a tool, so there is no output.',
    });
  });

  test('is answered with textOnly feedback', () => {
    expect(output.onText(stateOf({ ...direct, textOnly: 'feedback' }))).toEqual({
      type: 'ask',
      text: 'Your reply called no tool. Work with the tools, and give your answer by calling "answer".',
    });
  });
});

describe('claim', () => {
  test.for([
    [['look'], [undefined]],
    [['answer'], ['hold']],
    [
      ['look', 'answer', 'look'],
      [undefined, 'hold', undefined],
    ],
    [
      ['answer', 'look', 'answer'],
      ['answer', undefined, 'hold'],
    ],
    [
      ['submit', 'answer'],
      [undefined, 'hold'],
    ],
  ] as const)('1. claims the output calls without reflection: %j', ([names, expected]) => {
    expect(claims(stateOf(direct), ...names)).toEqual(expected);
  });

  test.for([
    [['look'], [undefined]],
    [
      ['answer', 'answer'],
      ['run', 'run'],
    ],
    [
      ['answer', 'submit'],
      ['run', 'hold'],
    ],
    [
      ['submit', 'answer'],
      ['hold', 'run'],
    ],
    [
      ['submit', 'answer', 'submit'],
      ['answer', 'run', 'hold'],
    ],
    [['submit'], ['answer']],
  ] as const)('2. claims output and submit calls with reflection: %j', ([names, expected]) => {
    expect(claims(stateOf(reflecting), ...names)).toEqual(expected);
  });

  test('2. holds a submit if an earlier reply proposed an output', () => {
    expect(claims(stateOf(reflecting, { proposal: '{}' }), 'submit')).toEqual(['hold']);
  });

  test('answers an early submit with an error, and a superseded call without one', () => {
    expect(output.claim!(stateOf(reflecting), calls('submit'))(0)).toEqual({
      type: 'answer',
      text: 'There is nothing to submit yet. Call "answer" with your output first.',
      isError: true,
    });
    expect(output.claim!(stateOf(direct), calls('answer', 'answer'))(0)).toEqual({
      type: 'answer',
      text: 'Not used: a later call in the same reply takes its place.',
      isError: false,
    });
  });
});

describe('onResults', () => {
  test('validates the arguments of a held output call', () => {
    const slots = [settled('answer', 0), held('answer', 1), settled('look', 2)];
    expect(output.onResults!(stateOf(direct), slots)).toEqual({ type: 'validate', text: '{"n":1}' });
  });

  test('ignores an output call that was not claimed', () => {
    const extra = refusedSlot({ ...callOf('answer', 1), claimed: undefined as never }, 'too many', 'capped', 'denied');
    expect(output.onResults!(stateOf(direct), [held('answer', 0), extra])).toEqual({
      type: 'validate',
      text: '{"n":0}',
    });
  });

  test('validates the last output of the reply for a submit, or the earlier proposal', () => {
    const state = stateOf(reflecting, { proposal: 'before' });
    expect(output.onResults!(state, [held('submit', 0), settled('answer', 1)])).toEqual({
      type: 'validate',
      text: '{"n":1}',
    });
    expect(output.onResults!(state, [held('submit', 0)])).toEqual({ type: 'validate', text: 'before' });
  });

  test('stores the last output as proposal if nothing was submitted', () => {
    const state = stateOf(reflecting, { proposal: 'before' });
    expect(output.onResults!(state, [settled('answer', 0), settled('answer', 1)])).toEqual({
      type: 'continue',
      changes: { agent: { ...state.agent, proposal: '{"n":1}' } },
    });
    expect(output.onResults!(state, [settled('look', 0)])).toEqual({
      type: 'continue',
      changes: { agent: state.agent },
    });
  });

  test('fails the run for an early submit, unless earlySubmit is feedback', () => {
    expect(output.onResults!(stateOf(reflecting), [settled('submit', 0)])).toEqual({
      type: 'fail',
      code: 'submit-before-output',
      message: 'The model called "submit" before it called "answer", so there was nothing to submit.',
    });
    expect(
      output.onResults!(stateOf({ ...reflecting, earlySubmit: 'feedback' }), [settled('submit', 0)]),
    ).toMatchObject({
      type: 'continue',
    });
  });
});

describe('3. onChecked', () => {
  const memory = { run: { n: 2 }, attempt: { n: 1 } };
  const rules = { ...direct, memory: { run: { n: 0 }, attempt: { n: 0 } } };

  test('ends the run if the output is valid', () => {
    expect(output.onChecked!(stateOf(direct), { type: 'valid', value: 0 })).toEqual({ type: 'end' });
  });

  test('starts the next attempt if it is invalid, with the memory of the run but not of the attempt', () => {
    const state = stateOf(rules, { proposal: 'p', memory });
    const rejection = { problems: ['no'], validator: 'v' };
    expect(output.onChecked!(state, { type: 'invalid', ...rejection })).toEqual({
      type: 'ask',
      text: 'Your output was not accepted. Mend what is wrong and give it again. This is attempt 2 of 2.',
      changes: {
        agent: { attempt: 2, from: 3, proposal: undefined, memory: { run: { n: 2 }, attempt: { n: 0 } }, rejection },
      },
    });
    expect(output.onChecked!(state, { type: 'invalid', ...rejection, prompt: 'Again' })).toMatchObject({
      text: 'Again',
    });
  });

  test('ends the run as exhausted if it is invalid in the last attempt', () => {
    const state = stateOf(rules, { attempt: 2, memory });
    expect(output.onChecked!(state, { type: 'invalid', problems: ['no'] })).toEqual({
      type: 'exhaust',
      limit: 'attempts',
      changes: { agent: { ...state.agent, rejection: { problems: ['no'] } } },
    });
  });

  test('fails the run if the prompt could not be created', () => {
    const state = stateOf(rules, { memory });
    expect(output.onChecked!(state, { type: 'invalid', problems: ['no'], promptProblem: 'no prompt' })).toEqual({
      type: 'fail',
      code: 'prompt-failed',
      message: 'no prompt',
      changes: { agent: { ...state.agent, rejection: { problems: ['no'] } } },
    });
  });
});
