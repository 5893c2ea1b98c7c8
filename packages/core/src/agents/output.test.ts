import { describe, expect, test } from 'vitest';
import type { AgentRules } from '../machine/rules.ts';
import { defineAgent, type AgentDefinition, type AnyAgent } from './define.ts';
import { acceptedOutput, failureText, outputChecker, type Accepted } from './output.ts';

const { signal } = new AbortController();

type Definition = AgentDefinition<unknown, { n: number }>;

function agentOf(validation: Partial<Definition['validation']> = {}, error?: Definition['prompts']['error']): AnyAgent {
  return defineAgent<unknown, { n: number }>({
    name: 'a',
    description: 'An agent',
    model: { id: 'm', reply: () => Promise.reject(new Error('unexpected model call')) },
    prompts: { user: 'Go', ...(error && { error }) },
    tools: { output: { name: 'answer', description: 'Answers' } },
    validation: {
      outputSchema: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
      maxAttempts: 2,
      ...validation,
    },
  }) as unknown as AnyAgent;
}

async function check(
  agent: AnyAgent,
  text: string,
  attempt = 1,
): Promise<{ checked: unknown; accepted: readonly Accepted[] }> {
  const accepted: Accepted[] = [];
  const checkOutput = outputChecker({
    agent,
    input: 'in',
    context: 'around',
    onAccepted: (output) => void accepted.push(output),
  });
  return { checked: await checkOutput({ text, attempt, signal, rules: { maxAttempts: 2 } as AgentRules }), accepted };
}

describe('order of checks', () => {
  test('rejects invalid JSON before the schema and the validators', async () => {
    expect(
      await check(agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('called') }] }), '{"n":'),
    ).toEqual({
      checked: { type: 'invalid', problems: [expect.stringContaining('JSON')] },
      accepted: [],
    });
  });

  test('rejects what the schema rejects before the validators', async () => {
    const agent = agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('called') }] });
    expect(await check(agent, '{"n":"x"}')).toEqual({
      checked: { type: 'invalid', problems: [expect.stringContaining('n')] },
      accepted: [],
    });
  });

  test('calls the validators in order until one rejects', async () => {
    const calls: unknown[] = [];
    const agent = agentOf({
      customValidators: [
        { name: 'first', validate: (...args) => void calls.push(args) },
        { name: 'second', validate: async () => 'no' },
        { name: 'third', validate: () => expect.fail('called') },
      ],
    });
    expect(await check(agent, '{"n":1}')).toEqual({
      checked: { type: 'invalid', validator: 'second', problems: ['no'] },
      accepted: [],
    });
    expect(calls).toEqual([[{ n: 1 }, { input: 'in', attempt: 1, signal, context: 'around' }]]);
  });

  test('accepts an output that all of them accept', async () => {
    expect(await check(agentOf({ customValidators: [{ name: 'v', validate: () => true }] }), '{"n":1}')).toEqual({
      checked: { type: 'valid', value: { n: 1 } },
      accepted: [{ output: { n: 1 } }],
    });
  });
});

const VERDICTS: readonly (readonly [string, () => unknown, readonly string[] | undefined])[] = [
  ['undefined', () => undefined, undefined],
  ['true', () => true, undefined],
  ['null', () => null, undefined],
  ['an empty list', () => [], undefined],
  ['false', () => false, ['it is not accepted']],
  ['a text', () => 'no', ['no']],
  ['texts', () => ['no', 'never'], ['no', 'never']],
  ['an error', () => new Error('no'), ['no']],
  ['an object', () => ({ why: 'no' }), ['{"why":"no"}']],
  ['a rejection', () => Promise.reject(new Error('no')), ['no']],
  [
    'a throw',
    (): never => {
      throw new Error('no');
    },
    ['no'],
  ],
];

test.for(VERDICTS)('a validator that returns or throws %s', async ([, validate, problems]) => {
  const { checked } = await check(
    agentOf({ customValidators: [{ name: 'v', validate: validate as never }] }),
    '{"n":1}',
  );
  expect(checked).toEqual(
    problems ? { type: 'invalid', validator: 'v', problems } : { type: 'valid', value: { n: 1 } },
  );
});

describe('the error prompt', () => {
  test('is called with the failure, the input and the attempt', async () => {
    const calls: unknown[] = [];
    const agent = agentOf({ customValidators: [{ name: 'v', validate: () => 'no' }] }, (...args) => {
      calls.push(args);
      return 'Again';
    });
    const { checked } = await check(agent, '{"n":1}');
    expect(checked).toEqual({ type: 'invalid', validator: 'v', problems: ['no'], prompt: 'Again' });
    expect(calls).toEqual([
      [
        { validator: 'v', problems: ['no'], message: '"v" rejected the output: no', output: { n: 1 } },
        { input: 'in', attempt: 1, maxAttempts: 2 },
      ],
    ]);
  });

  test('is not called after the last attempt', async () => {
    const { checked } = await check(
      agentOf({}, () => expect.fail('called')),
      '{}',
      2,
    );
    expect(checked).toEqual({ type: 'invalid', problems: [expect.any(String)] });
  });

  test('that throws or returns no text is reported as promptProblem', async () => {
    const { checked } = await check(
      agentOf({}, () => Promise.reject(new Error('no text'))),
      '{}',
    );
    expect(checked).toMatchObject({ type: 'invalid', promptProblem: 'prompts.error failed: no text' });
    expect(
      (
        await check(
          agentOf({}, () => ''),
          '{}',
        )
      ).checked,
    ).toMatchObject({ promptProblem: 'prompts.error returned no text.' });
    expect(
      (
        await check(
          agentOf({}, () => 5 as never),
          '{}',
        )
      ).checked,
    ).toMatchObject({ promptProblem: 'prompts.error returned no text.' });
  });
});

test('acceptedOutput restores an output without calling the validators', async () => {
  const agent = agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('called') }] });
  expect(await acceptedOutput(agent, { n: 1 })).toEqual({ output: { n: 1 } });
  expect(await acceptedOutput(agent, { n: 'x' })).toBeUndefined();
});

test('failureText names the validator and the problems', () => {
  expect(failureText({ problems: ['a', 'b'] })).toBe('The output does not match its schema: a; b');
  expect(failureText({ validator: 'v', problems: ['a'] })).toBe('"v" rejected the output: a');
});
