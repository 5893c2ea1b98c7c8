import { describe, expect, test } from 'vitest';
import { TreadleError } from '../errors.ts';
import { tool } from '../tools/tool.ts';
import { defineAgent } from './define.ts';

const model = { id: 'm', reply: () => Promise.reject(new Error('unexpected model call')) };
const output = { name: 'answer', description: 'Answers' };
const reflectionHandler = (): string => '';
const valid = {
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
    defineAgent({ ...valid, ...changes } as never);
const tools = (changes: object): object => ({ tools: { output, ...changes } });
const validation = (changes: object): object => ({ validation: { ...valid.validation, ...changes } });
const validators = (...customValidators: unknown[]): object => validation({ customValidators });
const validate = (): undefined => undefined;

test('returns a valid definition unchanged', () => {
  expect(defineAgent(valid as never)).toBe(valid);
});

test.for([undefined, null, 'agent'])('rejects %s as a definition', (definition) => {
  expect(() => defineAgent(definition as never)).toThrow(
    new TreadleError(
      'invalid-agent',
      'The definition of an agent must be an object. Give name, model, prompts, tools and validation.',
    ),
  );
});

const MISUSE: Record<string, readonly (readonly [string, object, string])[]> = {
  'a missing part': [
    ['no name', { name: undefined }, 'The agent has no name. Give one.'],
    ['instructions', { instructions: 'x' }, 'Agent "a" has no option "instructions". Use "prompts.system".'],
    ['outputSchema', { outputSchema: {} }, 'Agent "a" has no option "outputSchema". Use "validation.outputSchema".'],
    [
      'an unknown setting',
      { settings: { temprature: 0 } },
      'Agent "a" has no setting "temprature". Did you mean "temperature"?',
    ],
    ['an unknown option', { paralel: true }, 'Agent "a" has no option "paralel". Did you mean "parallel"?'],
    [
      'an unknown option of a part',
      { prompts: { user: 'x', sytem: 'y' } },
      '"prompts" of agent "a" has no option "sytem". Did you mean "system"?',
    ],
    ['an array of tools', { tools: [] }, 'its tools are an array. Give { helpers: [tools], output: '],
    ['an empty name', { name: '' }, 'The agent has no name. Give one.'],
    ['no model', { model: undefined }, 'it has no model. Give one, such as openaiChat({ model })'],
    ['a model that is not a Model', { model: {} }, 'it has no model. Give one, such as openaiChat({ model })'],
    [
      'the name of a model',
      { model: 'gpt' },
      'The model is the text "gpt". Pass a model, such as openaiChat({ model: "gpt" })',
    ],
    ['no prompts', { prompts: undefined }, 'it has no prompts.user. Give a text, content blocks or a function'],
    [
      'no user prompt',
      { prompts: { system: 'x' } },
      'it has no prompts.user. Give a text, content blocks or a function',
    ],
    [
      'a user prompt of null',
      { prompts: { user: null } },
      'it has no prompts.user. Give a text, content blocks or a function',
    ],
    [
      'an error prompt that is not a function',
      { prompts: { user: 'Go', error: 'no' } },
      'its prompts.error is not a function',
    ],
    ['no tools', { tools: undefined }, 'it has no tools.output. Give the tool that the model calls with its answer'],
    [
      'no output tool',
      { tools: { helpers: [] } },
      'it has no tools.output. Give the tool that the model calls with its answer',
    ],
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
      'submit without a reflectionHandler',
      tools({ output: { ...output, submit: {} } }),
      'it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit',
    ],
    [
      'submit: false without a reflectionHandler',
      tools({ output: { ...output, submit: false } }),
      'it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit',
    ],
    [
      'submit: false',
      tools({ output: { ...output, reflectionHandler, submit: false } }),
      'its submit is not an object. Give { name, description }, or leave it out for the default',
    ],
    [
      'submit: null',
      tools({ output: { ...output, reflectionHandler, submit: null } }),
      'its submit is not an object. Give { name, description }, or leave it out for the default',
    ],
    [
      'a reflectionHandler that is not a function',
      tools({ output: { ...output, reflectionHandler: true } }),
      'the reflectionHandler of its output tool is not a function',
    ],
  ],
  helpers: [
    ['helpers that are not an array', tools({ helpers: {} }), 'its tools.helpers is not an array'],
    ['a helper that is not a tool', tools({ helpers: [null] }), 'helper 1 is not a tool'],
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
      'its helper "look" cannot be executed.',
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
      'a helper named like a renamed submit',
      tools({ helpers: [helper('done')], output: { ...output, reflectionHandler, submit: { name: 'done' } } }),
      'two of its tools are named "done", the name of its submit tool. Rename one',
    ],
    [
      'submit named like the output',
      tools({ output: { ...output, reflectionHandler, submit: { name: 'answer' } } }),
      'two of its tools are named "answer", the name of its output tool. Rename one',
    ],
    [
      'two helpers of the same name',
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
    ['textOnly', validation({ textOnly: 'ignore' }), 'validation.textOnly is "ignore"; use "fail" or "feedback"'],
    [
      'earlySubmit',
      validation({ earlySubmit: 'ignore' }),
      'validation.earlySubmit is "ignore"; use "fail" or "feedback"',
    ],
  ],
  validators: [
    ['one without a name', validators({ validate }), 'custom validator 1 has no name'],
    ['an undefined one', validators({ name: 'a', validate }, undefined), 'custom validator 2 has no name'],
    ['one without a function', validators({ name: 'a' }), 'the validator "a" has no validate function'],
    [
      'two of the same name',
      validators({ name: 'a', validate }, { name: 'a', validate }),
      'two of its validators are named "a". Rename one',
    ],
  ],
};

describe.for(Object.entries(MISUSE))('rejects %s', ([, cases]) => {
  test.for(cases)('%s', ([, changes, message]) => {
    expect(define(changes)).toThrow(message);
    expect(define(changes)).toThrow(expect.objectContaining({ code: 'invalid-agent' }));
  });
});

describe('rejects an invalid tool or schema', () => {
  test('a tool name that providers reject', () => {
    expect(define(tools({ helpers: [helper('look up')] }))).toThrow(
      'The tool name "look up" is not accepted by providers.',
    );
    expect(define(tools({ output: { ...output, name: 'the answer' } }))).toThrow('The tool name "the answer"');
    expect(define(tools({ output: { ...output, reflectionHandler, submit: { name: '' } } }))).toThrow(
      'The tool name ""',
    );
  });

  test('an output schema without a JSON Schema and without parameters', () => {
    const schema = { '~standard': { version: 1, vendor: 'other', validate: (value: unknown) => ({ value }) } };
    expect(define(validation({ outputSchema: schema }))).toThrow(
      'The outputSchema of agent "a" (other) cannot describe itself as JSON Schema. Give that as "parameters"',
    );
    const described = {
      ...validation({ outputSchema: schema }),
      ...tools({ output: { ...output, parameters: { type: 'object' } } }),
    };
    expect(define(described)).not.toThrow();
  });
});

test('a helper may be named submit if the agent has no such tool', () => {
  expect(define(tools({ helpers: [helper('submit')] }))).not.toThrow();
  expect(
    define(tools({ helpers: [helper('submit')], output: { ...output, reflectionHandler, submit: { name: 'done' } } })),
  ).not.toThrow();
});

test('accepts a cached helper that is pure', () => {
  expect(define(tools({ helpers: [{ ...helper('look', { effect: 'pure' }), cache: true }] }))).not.toThrow();
});
