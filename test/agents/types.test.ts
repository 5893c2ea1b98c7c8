import {
  defineAgent,
  executeAgent,
  streamAgent,
  type Agent,
  type AgentDefinition,
  type AgentError,
  type AgentErrorCode,
  type AgentTools,
  type AttemptEnd,
  type ExecuteCallbacks,
  type ExecuteFailure,
  type ExecuteMetadata,
  type ExecuteResult,
  type ExecuteSuccess,
  type ExecutionState,
  type HelperTool,
  type Item,
  type Message,
  type OutputTool,
  type Tool,
  type ValidationFailure,
  type Waiting,
} from '@treadle/core';
import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { unusedModel } from './agents.ts';

interface Totals {
  total: number;
}

const output = { name: 'answer', description: 'Gives the total' };
const base = { name: 'typed', description: 'Types', model: unusedModel };
const prompts = { user: 'Add up' };

describe('submit requires a reflectionHandler', () => {
  const reflectionHandler = ({ total }: Totals): string => `${total}`;

  test('submit is optional with a reflectionHandler', () => {
    expectTypeOf({ ...output, reflectionHandler }).toExtend<OutputTool<Totals>>();
    expectTypeOf({ ...output, reflectionHandler, submit: { name: 'done' } }).toExtend<OutputTool<Totals>>();
    expectTypeOf({ ...output }).toExtend<OutputTool<Totals>>();
  });

  test('submit without reflectionHandler does not compile', () => {
    // @ts-expect-error submit without a reflectionHandler
    const named: OutputTool<Totals> = { ...output, submit: { name: 'done' } };
    // @ts-expect-error the default submit without a reflectionHandler
    const empty: OutputTool<Totals> = { ...output, submit: {} };
    // @ts-expect-error an undefined reflectionHandler
    const unhandled: OutputTool<Totals> = { ...output, reflectionHandler: undefined, submit: {} };
    expect([named, empty, unhandled]).toHaveLength(3);
  });

  test('reflectionHandler without a submit tool does not compile', () => {
    // @ts-expect-error submit cannot be disabled
    const off: OutputTool<Totals> = { ...output, reflectionHandler, submit: false };
    // @ts-expect-error submit cannot be null
    const none: OutputTool<Totals> = { ...output, reflectionHandler, submit: null };
    // @ts-expect-error submit cannot be undefined
    const open: OutputTool<Totals> = { ...output, reflectionHandler, submit: undefined };
    expect([off, none, open]).toHaveLength(3);
  });

  test('defineAgent enforces it', () => {
    const validation = { outputSchema: z.object({ total: z.number() }), maxAttempts: 1 };
    const define = (): unknown =>
      defineAgent({
        ...base,
        prompts,
        // @ts-expect-error submit without a reflectionHandler
        tools: { output: { ...output, submit: { name: 'done' } } },
        validation,
      });
    expect(define).toThrow('Add a reflectionHandler or remove submit');
    const without = (): unknown =>
      defineAgent({
        ...base,
        prompts,
        // @ts-expect-error submit cannot be disabled
        tools: { output: { ...output, reflectionHandler, submit: false } },
        validation,
      });
    expect(without).toThrow('its submit is not an object');
  });
});

describe('helpers', () => {
  const definition = { name: 'look', description: 'Looks' };

  test('are a definition with a handler, or a tool', () => {
    expectTypeOf({ definition, handler: () => 1 }).toExtend<HelperTool>();
    expectTypeOf({ definition, handler: async (input: unknown) => input }).toExtend<HelperTool>();
    expectTypeOf<NonNullable<AgentTools<Totals>['helpers']>[number]>().toEqualTypeOf<HelperTool | Tool>();
  });

  test('a helper without a handler or a definition does not compile', () => {
    // @ts-expect-error no handler
    const unhandled: AgentTools<Totals> = { helpers: [{ definition }], output };
    // @ts-expect-error no definition
    const unnamed: AgentTools<Totals> = { helpers: [{ handler: () => 1 }], output };
    // @ts-expect-error a definition without a handler
    const bare: AgentTools<Totals> = { helpers: [{ name: 'look', description: 'Looks', input_schema: {} }], output };
    // @ts-expect-error unknown property
    const additional: AgentTools<Totals> = { additional: [definition], output };
    expect([unhandled, unnamed, bare, additional]).toHaveLength(4);
  });

  test('the input of a handler is unknown', () => {
    const helper: HelperTool<{ n: number }, { seen: string[] }> = {
      definition,
      handler(input, context) {
        expectTypeOf(input).toBeUnknown();
        expectTypeOf(context.state).toEqualTypeOf<{ run: { n: number }; attempt: { seen: string[] } }>();
        expectTypeOf(context.attempt).toBeNumber();
        expectTypeOf(context.signal).toEqualTypeOf<AbortSignal>();
      },
    };
    // @ts-expect-error the input is unknown
    const unchecked: HelperTool = { definition, handler: (input) => input.at };
    expect([helper, unchecked]).toHaveLength(2);
  });
});

describe('the output type is inferred', () => {
  test('from a zod schema', async () => {
    const agent = defineAgent({
      ...base,
      prompts: { user: (input: { day: string }) => input.day },
      tools: {
        output: {
          ...output,
          reflectionHandler: (value) => {
            expectTypeOf(value).toEqualTypeOf<{ total: number; on: Date }>();
            return '';
          },
        },
      },
      validation: {
        outputSchema: z.object({ total: z.number(), on: z.string().transform((text) => new Date(text)) }),
        customValidators: [
          {
            name: 'positive',
            validate: (value, context) => {
              expectTypeOf(value).toEqualTypeOf<{ total: number; on: Date }>();
              expectTypeOf(context.input).toEqualTypeOf<{ day: string }>();
              return value.total > 0;
            },
          },
        ],
        maxAttempts: 1,
      },
      projectFinalState: (final) => {
        expectTypeOf(final.output).toEqualTypeOf<{ total: number; on: Date }>();
        expectTypeOf(final.input).toEqualTypeOf<{ day: string }>();
        return { year: final.output.on.getFullYear() };
      },
    });
    expectTypeOf(agent).toEqualTypeOf<
      Agent<{ day: string }, { total: number; on: Date }, unknown, unknown, { year: number }>
    >();
    const execute = () =>
      executeAgent(agent, {
        input: { day: 'today' },
        callbacks: {
          onSuccess: (_, value) => expectTypeOf(value).toEqualTypeOf<{ total: number; on: Date }>(),
        },
      });
    type Result = Awaited<ReturnType<typeof execute>>;
    expectTypeOf<Result>().toEqualTypeOf<ExecuteResult<{ total: number; on: Date }, { year: number }>>();
    expectTypeOf<Extract<Result, { type: 'success' }>['output']>().toEqualTypeOf<{ total: number; on: Date }>();
    expectTypeOf<Extract<Result, { type: 'success' }>['finalState']>().toEqualTypeOf<{ year: number } | undefined>();
    const live = () => streamAgent(agent, { input: { day: 'today' } });
    expectTypeOf<Awaited<ReturnType<typeof live>['result']>>().toEqualTypeOf<Result>();
    expectTypeOf<ReturnType<typeof live>>().toExtend<AsyncIterable<Item>>();
    // @ts-expect-error the input is not a string
    const wrong = () => executeAgent(agent, { input: 'today' });
    expect([execute, live, wrong]).toHaveLength(3);
  });

  test('from a valibot schema', () => {
    const agent = defineAgent({
      ...base,
      prompts: { user: (input: string) => input },
      tools: { output: { ...output, parameters: { type: 'object' } } },
      validation: {
        outputSchema: v.object({ total: v.pipe(v.number(), v.transform(String)) }),
        customValidators: [
          {
            name: 'short',
            validate: (value) => {
              expectTypeOf(value).toEqualTypeOf<{ total: string }>();
            },
          },
        ],
        maxAttempts: 1,
      },
    });
    expectTypeOf(agent).toExtend<Agent<string, { total: string }>>();
    expectTypeOf<
      Parameters<typeof executeAgent<string, { total: string }, unknown, unknown, unknown>>[0]
    >().toEqualTypeOf<Agent<string, { total: string }>>();
    expect(agent.name).toBe('typed');
  });

  test('from an arktype schema', () => {
    const agent = defineAgent({
      ...base,
      prompts: { user: (input: string) => input },
      tools: {
        output: {
          ...output,
          reflectionHandler: (value) => {
            expectTypeOf(value).toEqualTypeOf<{ total: number }>();
            return `${value.total}`;
          },
        },
      },
      validation: { outputSchema: type({ total: 'number' }), maxAttempts: 1 },
    });
    expectTypeOf(agent).toExtend<Agent<string, { total: number }>>();
    expect(agent.name).toBe('typed');
  });

  test('an output of another type does not compile', () => {
    const validation = { outputSchema: z.object({ total: z.number() }), maxAttempts: 1 };
    const agent = defineAgent({
      ...base,
      prompts,
      tools: {
        output: {
          ...output,
          // @ts-expect-error the output has no property sum
          reflectionHandler: ({ sum }) => `${sum}`,
        },
      },
      validation,
    });
    expect(agent.name).toBe('typed');
  });
});

describe('the state type', () => {
  interface Seen {
    names: string[];
  }
  interface Steps {
    count: number;
  }

  test('Run and Attempt are the types in handlers and projectFinalState', () => {
    const agent = defineAgent<string, Totals, Seen, Steps, number>({
      ...base,
      prompts: { user: (input) => input },
      tools: {
        helpers: [
          {
            definition: { name: 'look', description: 'Looks' },
            handler: (_, { state }) => {
              expectTypeOf(state.run).toEqualTypeOf<Seen>();
              expectTypeOf(state.attempt).toEqualTypeOf<Steps>();
            },
          },
        ],
        output,
      },
      validation: { outputSchema: z.object({ total: z.number() }), maxAttempts: 1 },
      state: { run: (input) => ({ names: [input] }), attempt: { count: 0 } },
      projectFinalState: ({ run, attempt }) => {
        expectTypeOf(run).toEqualTypeOf<Seen>();
        expectTypeOf(attempt).toEqualTypeOf<Steps>();
        return run.names.length + attempt.count;
      },
    });
    expectTypeOf(agent).toEqualTypeOf<Agent<string, Totals, Seen, Steps, number>>();
    const execute = () => executeAgent(agent, { input: '' });
    expectTypeOf<Awaited<ReturnType<typeof execute>>>().toEqualTypeOf<ExecuteResult<Totals, number>>();
  });

  test('explicit type arguments: Input, Output and Run', () => {
    const agent = defineAgent<{ day: string }, Totals, Seen>({
      ...base,
      prompts: { user: ({ day }) => day },
      tools: {
        helpers: [
          {
            definition: { name: 'look', description: 'Looks' },
            handler: (_, { state }) => void state.run.names.push('a'),
          },
        ],
        output,
      },
      validation: { outputSchema: z.object({ total: z.number() }), maxAttempts: 1 },
      state: { run: { names: [] } },
    });
    expectTypeOf(agent).toEqualTypeOf<Agent<{ day: string }, Totals, Seen>>();
    // @ts-expect-error the schema does not match Output
    const wrong: AgentDefinition<string, Totals>['validation'] = { outputSchema: z.string(), maxAttempts: 1 };
    // @ts-expect-error the initial state does not match Run
    const other: AgentDefinition<string, Totals, Seen>['state'] = { run: { names: 'a' } };
    expect([wrong, other]).toHaveLength(2);
  });

  test('JSON Schema needs explicit type arguments', () => {
    const agent = defineAgent<string, Totals>({
      ...base,
      prompts,
      tools: { output },
      validation: { outputSchema: { type: 'object' }, maxAttempts: 1 },
    });
    expectTypeOf(agent).toEqualTypeOf<Agent<string, Totals>>();
  });

  test('a definition that was not passed to defineAgent cannot be executed', () => {
    const plain: AgentDefinition<string, Totals> = {
      ...base,
      prompts,
      tools: { output },
      validation: { outputSchema: { type: 'object' }, maxAttempts: 1 },
    };
    // @ts-expect-error not an Agent
    const execute = () => executeAgent(plain, { input: '' });
    expectTypeOf(execute).toBeFunction();
  });
});

describe('results', () => {
  test('are discriminated by type', () => {
    const inspect = (result: ExecuteResult<Totals>): unknown => {
      // @ts-expect-error only a success has an output
      void result.output;
      // @ts-expect-error only a failure has an error
      void result.error;
      if (result.type === 'success') expectTypeOf(result.output).toEqualTypeOf<Totals>();
      else expectTypeOf(result.error).toEqualTypeOf<AgentError>();
      expectTypeOf(result.metadata).toEqualTypeOf<ExecuteMetadata>();
      return expectTypeOf(result.messages).toEqualTypeOf<readonly Message[]>();
    };
    expectTypeOf<ExecuteResult<Totals>>().toEqualTypeOf<ExecuteSuccess<Totals> | ExecuteFailure>();
    expectTypeOf(inspect).toBeFunction();
  });

  test('errors are discriminated by code, each with its context', () => {
    type ContextOf<Code extends AgentErrorCode> = Extract<AgentError, { code: Code }>['context'];
    interface Position {
      readonly attempt: number;
      readonly iteration: number;
    }
    expectTypeOf<AgentErrorCode>().toEqualTypeOf<
      | 'MAX_ITERATIONS'
      | 'SUBMIT_BEFORE_OUTPUT'
      | 'INVALID_RESPONSE'
      | 'MAX_ATTEMPTS_EXCEEDED'
      | 'EXECUTION_CANCELLED'
      | 'LIMIT_EXCEEDED'
      | 'API_ERROR'
      | 'PROMPT_FAILED'
      | 'STATE_PROJECTION_FAILED'
      | 'EXECUTION_PAUSED'
    >();
    expectTypeOf<ContextOf<'MAX_ITERATIONS'>>().toEqualTypeOf<{
      readonly attempt: number;
      readonly iterationCount: number;
      readonly maxIterations: number;
    }>();
    expectTypeOf<ContextOf<'SUBMIT_BEFORE_OUTPUT'>>().toEqualTypeOf<Position>();
    expectTypeOf<ContextOf<'INVALID_RESPONSE'>>().toExtend<Position & { readonly text: string }>();
    expectTypeOf<ContextOf<'MAX_ATTEMPTS_EXCEEDED'>>().toEqualTypeOf<{
      readonly attempts: number;
      readonly lastError: ValidationFailure;
    }>();
    expectTypeOf<ContextOf<'EXECUTION_CANCELLED'>['phase']>().toEqualTypeOf<'prompt' | 'iteration' | 'validation'>();
    expectTypeOf<ContextOf<'EXECUTION_CANCELLED'>['during']>().toEqualTypeOf<'model' | 'tool' | undefined>();
    expectTypeOf<ContextOf<'LIMIT_EXCEEDED'>['limit']>().toEqualTypeOf<
      'calls' | 'tokens' | 'cost' | 'duration' | 'budget'
    >();
    expectTypeOf<ContextOf<'API_ERROR'>['code']>().toBeString();
    expectTypeOf<ContextOf<'PROMPT_FAILED'>>().toEqualTypeOf<{ readonly prompt: 'system' | 'user' | 'error' }>();
    expectTypeOf<ContextOf<'STATE_PROJECTION_FAILED'>>().toEqualTypeOf<Position>();
    expectTypeOf<ContextOf<'EXECUTION_PAUSED'>['waiting']>().toEqualTypeOf<readonly Waiting[]>();

    const describeError = (error: AgentError): string => {
      // @ts-expect-error not every context has maxIterations
      void error.context.maxIterations;
      if (error.code === 'MAX_ITERATIONS') return `${error.context.iterationCount} of ${error.context.maxIterations}`;
      return error.code === 'MAX_ATTEMPTS_EXCEEDED' ? error.context.lastError.message : error.message;
    };
    const context = { attempt: 1, iterationCount: 2, maxIterations: 2 };
    expect(describeError({ code: 'MAX_ITERATIONS', message: '', context })).toBe('2 of 2');
  });
});

test('callbacks get the state first', () => {
  type On<Name extends keyof ExecuteCallbacks<Totals>> = NonNullable<ExecuteCallbacks<Totals>[Name]>;
  expectTypeOf<ExecutionState>().toEqualTypeOf<{
    readonly attempt: number;
    readonly maxAttempts: number;
    readonly iteration: number;
    readonly maxIterations: number;
  }>();
  expectTypeOf<Parameters<On<'onAttemptStart'>>>().toEqualTypeOf<[state: ExecutionState]>();
  expectTypeOf<Parameters<On<'onAttemptComplete'>>>().toEqualTypeOf<[state: ExecutionState, how: AttemptEnd]>();
  expectTypeOf<Parameters<On<'onToolCall'>>>().toEqualTypeOf<
    [state: ExecutionState, toolName: string, toolInput: unknown]
  >();
  expectTypeOf<Parameters<On<'onToolResult'>>>().toEqualTypeOf<
    [state: ExecutionState, toolName: string, toolResult: string]
  >();
  expectTypeOf<Parameters<On<'onValidationFailure'>>>().toEqualTypeOf<
    [state: ExecutionState, failure: ValidationFailure]
  >();
  expectTypeOf<Parameters<On<'onSuccess'>>>().toEqualTypeOf<[state: ExecutionState, output: Totals]>();
  expectTypeOf<Parameters<On<'onFailure'>>>().toEqualTypeOf<[state: ExecutionState, error: AgentError]>();
  expectTypeOf<keyof ExecuteCallbacks<Totals>>().toEqualTypeOf<
    | 'onAttemptStart'
    | 'onAttemptComplete'
    | 'onToolCall'
    | 'onToolResult'
    | 'onValidationFailure'
    | 'onSuccess'
    | 'onFailure'
  >();
  // @ts-expect-error the result is a string
  const wrong: ExecuteCallbacks<Totals> = { onToolResult: (_state, _name, result: number) => result };
  expect(wrong).toBeDefined();
});
