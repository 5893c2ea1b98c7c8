import type { AgentRules } from '../machine/rules.ts';
import { describe, expect, test } from 'vitest';
import type { AgentDefinition } from './define.ts';
import { defineAgent } from './define.ts';
import { acceptedAgain, failureText, outputCheck, type Accepted } from './validation.ts';
import type { AnyAgent } from './tools.ts';

const { signal } = new AbortController();

type Definition = AgentDefinition<unknown, { n: number }>;

function agentOf(validation: Partial<Definition['validation']> = {}, error?: Definition['prompts']['error']): AnyAgent {
  return defineAgent<unknown, { n: number }>({
    name: 'a',
    description: 'An agent',
    model: { id: 'm', reply: () => Promise.reject(new Error('not asked')) },
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
  const run = outputCheck({ agent, input: 'in', context: 'around', accept: (one) => void accepted.push(one) });
  return { checked: await run({ text, attempt, signal, rules: { maxAttempts: 2 } as AgentRules }), accepted };
}

describe('layers', () => {
  test('what is no JSON comes first', async () => {
    expect(
      await check(agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('asked') }] }), '{"n":'),
    ).toEqual({
      checked: { type: 'invalid', problems: [expect.stringContaining('JSON')] },
      accepted: [],
    });
  });

  test('then the schema', async () => {
    const agent = agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('asked') }] });
    expect(await check(agent, '{"n":"x"}')).toEqual({
      checked: { type: 'invalid', problems: [expect.stringContaining('n')] },
      accepted: [],
    });
  });

  test('then the validators in order, until the first that refuses', async () => {
    const asked: unknown[] = [];
    const agent = agentOf({
      customValidators: [
        { name: 'first', validate: (...given) => void asked.push(given) },
        { name: 'second', validate: async () => 'no' },
        { name: 'third', validate: () => expect.fail('asked') },
      ],
    });
    expect(await check(agent, '{"n":1}')).toEqual({
      checked: { type: 'invalid', validator: 'second', problems: ['no'] },
      accepted: [],
    });
    expect(asked).toEqual([[{ n: 1 }, { input: 'in', attempt: 1, signal, context: 'around' }]]);
  });

  test('an output that all of them take is accepted', async () => {
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
  ['something else', () => ({ why: 'no' }), ['{"why":"no"}']],
  ['a rejection', () => Promise.reject(new Error('no')), ['no']],
  [
    'a throw',
    (): never => {
      throw new Error('no');
    },
    ['no'],
  ],
];

test.for(VERDICTS)('a validator that gives %s', async ([, validate, problems]) => {
  const { checked } = await check(
    agentOf({ customValidators: [{ name: 'v', validate: validate as never }] }),
    '{"n":1}',
  );
  expect(checked).toEqual(
    problems ? { type: 'invalid', validator: 'v', problems } : { type: 'valid', value: { n: 1 } },
  );
});

describe('the error prompt', () => {
  test('gets the failure, the input and the attempt', async () => {
    const told: unknown[] = [];
    const agent = agentOf({ customValidators: [{ name: 'v', validate: () => 'no' }] }, (...given) => {
      told.push(given);
      return 'Again';
    });
    const { checked } = await check(agent, '{"n":1}');
    expect(checked).toEqual({ type: 'invalid', validator: 'v', problems: ['no'], prompt: 'Again' });
    expect(told).toEqual([
      [
        { validator: 'v', problems: ['no'], message: '"v" refused the output: no', output: { n: 1 } },
        { input: 'in', attempt: 1, maxAttempts: 2 },
      ],
    ]);
  });

  test('is not asked for after the last attempt', async () => {
    const { checked } = await check(
      agentOf({}, () => expect.fail('asked')),
      '{}',
      2,
    );
    expect(checked).toEqual({ type: 'invalid', problems: [expect.any(String)] });
  });

  test('that fails is told as such', async () => {
    const { checked } = await check(
      agentOf({}, () => Promise.reject(new Error('no words'))),
      '{}',
    );
    expect(checked).toMatchObject({ type: 'invalid', promptProblem: 'prompts.error failed: no words' });
    expect(
      (
        await check(
          agentOf({}, () => ''),
          '{}',
        )
      ).checked,
    ).toMatchObject({ promptProblem: 'prompts.error gave no text.' });
    expect(
      (
        await check(
          agentOf({}, () => 5 as never),
          '{}',
        )
      ).checked,
    ).toMatchObject({ promptProblem: 'prompts.error gave no text.' });
  });
});

test('an output of a run that was accepted elsewhere is made anew, without the validators', async () => {
  const agent = agentOf({ customValidators: [{ name: 'v', validate: () => expect.fail('asked') }] });
  expect(await acceptedAgain(agent, { n: 1 })).toEqual({ output: { n: 1 } });
  expect(await acceptedAgain(agent, { n: 'x' })).toBeUndefined();
});

test('a failure in one sentence', () => {
  expect(failureText({ problems: ['a', 'b'] })).toBe('The output does not match its schema: a; b');
  expect(failureText({ validator: 'v', problems: ['a'] })).toBe('"v" refused the output: a');
});
