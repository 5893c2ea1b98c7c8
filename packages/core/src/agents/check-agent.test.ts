import { describe, expect, test } from 'vitest';
import { TreadleError } from '../errors.ts';
import { tool } from '../tools/tool.ts';
import { defineAgent } from './define.ts';

const model = { id: 'm', reply: () => Promise.reject(new Error('not asked')) };
const output = { name: 'answer', description: 'Answers' };
const reflectionHandler = (): string => '';
const whole = {
  name: 'a',
  description: 'An agent',
  model,
  prompts: { user: 'Go' },
  tools: { output },
  validation: { outputSchema: { type: 'object' }, maxAttempts: 1 },
};
const helper = (name: string, more: object = {}): object => ({
  definition: { name, description: 'Helps', ...more },
  handler: () => 1,
});

const define =
  (changes: object): (() => unknown) =>
  () =>
    defineAgent({ ...whole, ...changes } as never);
const tools = (given: object): object => ({ tools: { output, ...given } });
const validation = (given: object): object => ({ validation: { ...whole.validation, ...given } });
const validators = (...customValidators: unknown[]): object => validation({ customValidators });
const validate = (): undefined => undefined;

test('a whole definition is fine, and is what it was', () => {
  expect(defineAgent(whole as never)).toBe(whole);
});

test.for([undefined, null, 'agent'])('%s is no definition', (given) => {
  expect(() => defineAgent(given as never)).toThrow(
    new TreadleError(
      'invalid-agent',
      'An agent is defined by an object. Give name, model, prompts, tools and validation.',
    ),
  );
});

const MISUSE: Record<string, readonly (readonly [string, object, string])[]> = {
  'missing parts': [
    ['no name', { name: undefined }, 'The agent has no name.'],
    ['an empty name', { name: '' }, 'The agent has no name.'],
    ['no model', { model: undefined }, 'it has no model. Give one, such as openaiChat({ model })'],
    ['a model that is none', { model: 'gpt' }, 'it has no model. Give one, such as openaiChat({ model })'],
    ['no prompts', { prompts: undefined }, 'it has no prompts.user to begin with'],
    ['no user prompt', { prompts: { system: 'x' } }, 'it has no prompts.user to begin with'],
    ['a user prompt of null', { prompts: { user: null } }, 'it has no prompts.user to begin with'],
    ['an error prompt that is none', { prompts: { user: 'Go', error: 'no' } }, 'its prompts.error is no function'],
    ['no tools', { tools: undefined }, 'it has no tools.output. Give the tool by which the model answers'],
    ['no output tool', { tools: { helpers: [] } }, 'it has no tools.output. Give the tool by which the model answers'],
    [
      'no validation',
      { validation: undefined },
      'it has no validation.outputSchema. Give a schema, such as z.object({ … })',
    ],
    [
      'no schema',
      validation({ outputSchema: undefined }),
      'it has no validation.outputSchema. Give a schema, such as z.object({ … })',
    ],
    ['a schema of null', validation({ outputSchema: null }), 'it has no validation.outputSchema.'],
  ],
  'reflection and submit': [
    [
      'submit alone',
      tools({ output: { ...output, submit: {} } }),
      'it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit',
    ],
    [
      'submit: false alone',
      tools({ output: { ...output, submit: false } }),
      'it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit',
    ],
    [
      'submit: false',
      tools({ output: { ...output, reflectionHandler, submit: false } }),
      'with a reflectionHandler there is always a submit tool. Give its name and description, or leave it out',
    ],
    [
      'submit: null',
      tools({ output: { ...output, reflectionHandler, submit: null } }),
      'with a reflectionHandler there is always a submit tool. Give its name and description, or leave it out',
    ],
    [
      'a handler that is none',
      tools({ output: { ...output, reflectionHandler: true } }),
      'the reflectionHandler of its output tool is no function',
    ],
  ],
  helpers: [
    ['no list', tools({ helpers: {} }), 'its tools.helpers is no list'],
    ['no tool', tools({ helpers: [null] }), 'helper 1 is no tool'],
    [
      'no handler',
      tools({ helpers: [{ definition: { name: 'look', description: 'x' } }] }),
      'its helper "look" has no handler. Give { definition, handler }',
    ],
    [
      'no definition',
      tools({ helpers: [{ handler: () => 1 }] }),
      'helper 1 has no definition. Give { definition, handler }',
    ],
    [
      'a tool that the client executes',
      tools({ helpers: [tool({ name: 'look', description: 'x' })] }),
      'its helper "look" has nothing that executes it.',
    ],
    [
      'cached but not pure',
      tools({ helpers: [{ ...helper('look'), cache: true }] }),
      `its helper "look" is cached but not pure. Set effect: 'pure' if running it changes nothing, or remove cache`,
    ],
    [
      'cached but idempotent',
      tools({ helpers: [{ ...helper('look', { effect: 'idempotent' }), cache: true }] }),
      'its helper "look" is cached but not pure.',
    ],
  ],
  names: [
    [
      'a helper named like the output',
      tools({ helpers: [helper('answer')] }),
      'two of its tools are named "answer", the name of its output tool. Rename one',
    ],
    [
      'a tool named like the output',
      tools({ helpers: [tool({ name: 'answer', description: 'x', execute: () => 1 })] }),
      'two of its tools are named "answer", the name of its output tool. Rename one',
    ],
    [
      'a helper named like submit',
      tools({ helpers: [helper('submit')], output: { ...output, reflectionHandler } }),
      'two of its tools are named "submit", the name of its submit tool. Rename one',
    ],
    [
      'a helper named like the submit that was renamed',
      tools({ helpers: [helper('done')], output: { ...output, reflectionHandler, submit: { name: 'done' } } }),
      'two of its tools are named "done", the name of its submit tool. Rename one',
    ],
    [
      'submit named like the output',
      tools({ output: { ...output, reflectionHandler, submit: { name: 'answer' } } }),
      'two of its tools are named "answer", the name of its output tool. Rename one',
    ],
    [
      'two helpers of one name',
      tools({ helpers: [helper('look'), helper('look')] }),
      'two of its tools are named "look". Rename one',
    ],
  ],
  limits: [
    ...[0, -1, 1.5, Number.NaN, Infinity, '2', undefined].map(
      (maxAttempts) =>
        [
          `maxAttempts ${String(maxAttempts)}`,
          validation({ maxAttempts }),
          `validation.maxAttempts is ${String(maxAttempts)}. Give a whole number of at least 1`,
        ] as const,
    ),
    ...[0, 2.5].map(
      (maxIterationsPerAttempt) =>
        [
          `maxIterationsPerAttempt ${maxIterationsPerAttempt}`,
          validation({ maxIterationsPerAttempt }),
          `validation.maxIterationsPerAttempt is ${maxIterationsPerAttempt}. Give a whole number of at least 1`,
        ] as const,
    ),
    ['textOnly', validation({ textOnly: 'ignore' }), 'validation.textOnly is "ignore"; it can be "fail" or "feedback"'],
    [
      'earlySubmit',
      validation({ earlySubmit: 'ignore' }),
      'validation.earlySubmit is "ignore"; it can be "fail" or "feedback"',
    ],
  ],
  validators: [
    ['one without a name', validators({ validate }), 'custom validator 1 has no name'],
    ['one that is nothing', validators({ name: 'a', validate }, undefined), 'custom validator 2 has no name'],
    ['one without a function', validators({ name: 'a' }), 'the validator "a" has no validate function'],
    [
      'two of one name',
      validators({ name: 'a', validate }, { name: 'a', validate }),
      'two of its validators are named "a". Rename one',
    ],
  ],
};

describe.for(Object.entries(MISUSE))('%s', ([, cases]) => {
  test.for(cases)('%s', ([, changes, message]) => {
    expect(define(changes)).toThrow(message);
    expect(define(changes)).toThrow(expect.objectContaining({ code: 'invalid-agent' }));
  });
});

describe('what is wrong with a single tool or schema is told by making it', () => {
  test('a name that no provider takes', () => {
    expect(define(tools({ helpers: [helper('look up')] }))).toThrow(
      'The tool name "look up" is not one that providers take.',
    );
    expect(define(tools({ output: { ...output, name: 'the answer' } }))).toThrow('The tool name "the answer"');
    expect(define(tools({ output: { ...output, reflectionHandler, submit: { name: '' } } }))).toThrow(
      'The tool name ""',
    );
  });

  test('a schema that cannot describe itself', () => {
    const schema = { '~standard': { version: 1, vendor: 'mute', validate: (value: unknown) => ({ value }) } };
    expect(define(validation({ outputSchema: schema }))).toThrow(
      'The outputSchema of agent "a" (mute) cannot describe itself as JSON Schema. Give that as "parameters"',
    );
    const described = {
      ...validation({ outputSchema: schema }),
      ...tools({ output: { ...output, parameters: { type: 'object' } } }),
    };
    expect(define(described)).not.toThrow();
  });
});

test('submit is a free name without reflection', () => {
  expect(define(tools({ helpers: [helper('submit')] }))).not.toThrow();
  expect(
    define(tools({ helpers: [helper('submit')], output: { ...output, reflectionHandler, submit: { name: 'done' } } })),
  ).not.toThrow();
});

test('a cached helper that is pure is fine', () => {
  expect(define(tools({ helpers: [{ ...helper('look', { effect: 'pure' }), cache: true }] }))).not.toThrow();
});
