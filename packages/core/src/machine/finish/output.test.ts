import { describe, expect, test } from 'vitest';
import type { ToolCall } from '../../messages.ts';
import type { AgentRules, Rules } from '../rules.ts';
import { refusedSlot, settledSlot, NEW } from '../step.ts';
import type { AgentState, Call, Slot, State } from '../state.ts';
import { output } from './output.ts';

const plainly: AgentRules = { name: 'a', output: 'answer', maxAttempts: 2, textOnly: 'fail', earlySubmit: 'fail' };
const reflecting: AgentRules = { ...plainly, submit: 'submit' };

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
const done = (name: string, index: number): Slot =>
  settledSlot(callOf(name, index), [{ type: 'text', text: 'x' }], false, 'claimed');
const held = (name: string, index: number): Slot => ({ type: 'held', call: callOf(name, index) });

function claims(state: State, ...names: readonly string[]): readonly unknown[] {
  const all = calls(...names);
  const claim = output.claim!(state, all);
  return all.map((_, index) => claim(index)?.type);
}

describe('a reply without calls', () => {
  test('ends the run', () => {
    expect(output.onText(stateOf(plainly))).toEqual({
      type: 'fail',
      code: 'no-tool-called',
      message: 'The model replied without calling a tool, so there is no output.',
    });
  });

  test('or is answered', () => {
    expect(output.onText(stateOf({ ...plainly, textOnly: 'feedback' }))).toEqual({
      type: 'ask',
      text: 'Your reply called no tool. Work with the tools, and give your answer by calling "answer".',
    });
  });
});

describe('claims', () => {
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
  ] as const)('1. without reflection: %j', ([names, expected]) => {
    expect(claims(stateOf(plainly), ...names)).toEqual(expected);
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
  ] as const)('2. with reflection: %j', ([names, expected]) => {
    expect(claims(stateOf(reflecting), ...names)).toEqual(expected);
  });

  test('2. a submit is held when there is a proposal from before', () => {
    expect(claims(stateOf(reflecting, { proposal: '{}' }), 'submit')).toEqual(['hold']);
  });

  test('an early submit is an error, a superseded call is none', () => {
    expect(output.claim!(stateOf(reflecting), calls('submit'))(0)).toEqual({
      type: 'answer',
      text: 'There is nothing to submit yet. Call "answer" with your output first.',
      isError: true,
    });
    expect(output.claim!(stateOf(plainly), calls('answer', 'answer'))(0)).toEqual({
      type: 'answer',
      text: 'Not used: a later call in the same reply takes its place.',
      isError: false,
    });
  });
});

describe('results', () => {
  test('a held output is validated with its own arguments', () => {
    const slots = [done('answer', 0), held('answer', 1), done('look', 2)];
    expect(output.onResults!(stateOf(plainly), slots)).toEqual({ type: 'validate', text: '{"n":1}' });
  });

  test('an output that was not claimed does not count', () => {
    const extra = refusedSlot({ ...callOf('answer', 1), claimed: undefined as never }, 'too many', 'capped');
    expect(output.onResults!(stateOf(plainly), [held('answer', 0), extra])).toEqual({
      type: 'validate',
      text: '{"n":0}',
    });
  });

  test('a submit is validated with the last output of the reply, or else the one from before', () => {
    const state = stateOf(reflecting, { proposal: 'before' });
    expect(output.onResults!(state, [held('submit', 0), done('answer', 1)])).toEqual({
      type: 'validate',
      text: '{"n":1}',
    });
    expect(output.onResults!(state, [held('submit', 0)])).toEqual({ type: 'validate', text: 'before' });
  });

  test('without a submit the last output is kept', () => {
    const state = stateOf(reflecting, { proposal: 'before' });
    expect(output.onResults!(state, [done('answer', 0), done('answer', 1)])).toEqual({
      type: 'continue',
      changes: { agent: { ...state.agent, proposal: '{"n":1}' } },
    });
    expect(output.onResults!(state, [done('look', 0)])).toEqual({ type: 'continue', changes: { agent: state.agent } });
  });

  test('an early submit ends the run, or not', () => {
    expect(output.onResults!(stateOf(reflecting), [done('submit', 0)])).toEqual({
      type: 'fail',
      code: 'submit-before-output',
      message: 'The model called "submit" before it called "answer", so there was nothing to submit.',
    });
    expect(output.onResults!(stateOf({ ...reflecting, earlySubmit: 'feedback' }), [done('submit', 0)])).toMatchObject({
      type: 'continue',
    });
  });
});

describe('3. the verdict', () => {
  const memory = { run: { n: 2 }, attempt: { n: 1 } };
  const rules = { ...plainly, memory: { run: { n: 0 }, attempt: { n: 0 } } };

  test('valid: the end', () => {
    expect(output.onChecked!(stateOf(plainly), { type: 'valid', value: 0 })).toEqual({ type: 'end' });
  });

  test('invalid: the next attempt, with what the run remembers, without what the attempt did', () => {
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

  test('invalid in the last attempt: attempts are spent', () => {
    const state = stateOf(rules, { attempt: 2, memory });
    expect(output.onChecked!(state, { type: 'invalid', problems: ['no'] })).toEqual({
      type: 'exhaust',
      limit: 'attempts',
      changes: { agent: { ...state.agent, rejection: { problems: ['no'] } } },
    });
  });

  test('a prompt that could not be written fails the run', () => {
    const state = stateOf(rules, { memory });
    expect(output.onChecked!(state, { type: 'invalid', problems: ['no'], promptProblem: 'no words' })).toEqual({
      type: 'fail',
      code: 'prompt-failed',
      message: 'no words',
      changes: { agent: { ...state.agent, rejection: { problems: ['no'] } } },
    });
  });
});
