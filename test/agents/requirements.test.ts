import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { defineAgent, executeAgent, type AgentError, type ExecuteMetadata } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { broken, even, look, reflecting, resultsIn, rolesIn, summing, total, unusedModel } from './agents.ts';
import { calling, callingAll, fail, run, succeed } from './run.ts';

// The acceptance criteria of typed agents, one test each.

const root = path.resolve(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');

const TOKENS = { input: 10, output: 5 };

describe('execution', () => {
  test('sends the results of helpers to the model for further iterations', async () => {
    const agent = summing({ helpers: [look] });
    const { result, requests } = await succeed(
      agent,
      [calling('look', { at: 'a' }), calling('look', { at: 'b' }), calling('answer', { total: 2 })],
      { input: '1, 1' },
    );
    expect(result.output).toEqual({ total: 2 });
    expect(requests.map(({ messages }) => resultsIn(messages))).toEqual([
      [],
      [['look: seen a']],
      [['look: seen a'], ['look: seen b']],
    ]);
  });

  test('with reflection, the output tool can be called several times before submit', async () => {
    const { result } = await succeed(
      reflecting(),
      [
        calling('answer', { total: 1 }),
        calling('answer', { total: 2 }),
        calling('answer', { total: 3 }),
        calling('submit'),
      ],
      { input: '1, 2' },
    );
    expect(result.output).toEqual({ total: 3 });
    expect(resultsIn(result.messages)).toEqual([
      ['answer: The total would be 1.'],
      ['answer: The total would be 2.'],
      ['answer: The total would be 3.'],
      ['submit: Accepted.'],
    ]);
  });

  test('with reflection, submit ends the attempt', async () => {
    const { result, requests } = await succeed(reflecting(), [calling('answer', { total: 3 }), calling('submit')], {
      input: '1, 2',
    });
    expect(requests).toHaveLength(2);
    expect(requests[0]!.tools.map(({ name }) => name)).toEqual(['answer', 'submit']);
    expect(requests[0]!.tools[1]).toMatchObject({
      description: 'Submit your final output for validation. Call this when you are satisfied with your output.',
      parameters: { type: 'object', properties: {} },
    });
    expect(result.output).toEqual({ total: 3 });
  });

  test('without reflection, the output tool ends the attempt', async () => {
    const { result, requests } = await succeed(summing(), [calling('answer', { total: 3 })], { input: '1, 2' });
    expect(requests).toHaveLength(1);
    expect(requests[0]!.tools.map(({ name }) => name)).toEqual(['answer']);
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 1 });
    expect(result.output).toEqual({ total: 3 });
  });

  test('maxIterationsPerAttempt limits the model calls of an attempt', async () => {
    const again = calling('look', { at: 'a' });
    const { error, requests } = await fail(
      summing({ helpers: [look], validation: { maxIterationsPerAttempt: 3 } }),
      [again, again, again],
      { input: '1' },
    );
    expect(requests).toHaveLength(3);
    expect(error.code).toBe('MAX_ITERATIONS');
    const byDefault = await fail(
      summing({ helpers: [look] }),
      Array.from({ length: 15 }, () => again),
      { input: '1' },
    );
    expect(byDefault.error.context).toEqual({ attempt: 1, iterationCount: 15, maxIterations: 15 });
  });

  test('a call of an unknown tool gets an error result', async () => {
    const { result } = await succeed(summing(), [calling('nothing'), calling('answer', { total: 1 })], { input: '1' });
    expect(resultsIn(result.messages)[0]).toEqual([
      'nothing!: There is no tool "nothing". Available tools: answer. Use one of them.',
    ]);
  });

  test('a handler that throws gets an error result', async () => {
    const { result } = await succeed(
      summing({ helpers: [broken] }),
      [calling('broken'), calling('answer', { total: 1 })],
      { input: '1' },
    );
    expect(resultsIn(result.messages)[0]).toEqual(['broken!: The tool "broken" failed: it is broken']);
  });

  test('the history has the structure that Anthropic requires', async () => {
    const { result } = await succeed(
      summing({ helpers: [look], validation: { customValidators: [even] } }),
      [
        callingAll(['look', { at: 'a' }], ['look', { at: 'b' }]),
        calling('answer', { total: 1 }),
        calling('answer', { total: 2 }),
      ],
      { input: '1, 1' },
    );
    // `run` checks every history against the rules of the providers.
    expect(rolesIn(result.messages)).toEqual([
      'user',
      'assistant',
      'tool',
      'assistant',
      'tool',
      'user',
      'assistant',
      'tool',
    ]);
    expect(result.messages[1]).toEqual({
      role: 'assistant',
      content: [
        { type: 'tool-call', id: 'call_0_0', name: 'look', arguments: '{"at":"a"}' },
        { type: 'tool-call', id: 'call_0_1', name: 'look', arguments: '{"at":"b"}' },
      ],
    });
    expect(result.messages[2]).toEqual({
      role: 'tool',
      content: ['a', 'b'].map((at, index) => ({
        type: 'tool-result',
        callId: `call_0_${index}`,
        name: 'look',
        content: [{ type: 'text', text: `seen ${at}` }],
        isError: false,
      })),
    });
  });

  test('sums tokens and cost over all iterations and attempts', async () => {
    const { result } = await succeed(
      summing({ helpers: [look], validation: { customValidators: [even] } }),
      [
        { ...calling('look', { at: 'a' }), usage: { inputTokens: 1, outputTokens: 20, cost: 0.5 } },
        { ...calling('answer', { total: 1 }), usage: { inputTokens: 2, outputTokens: 40, cost: 0.25 } },
        { ...calling('answer', { total: 2 }), usage: { inputTokens: 4, outputTokens: 80, cost: 0.125 } },
      ],
      { input: '1, 1' },
    );
    expect(result.metadata).toMatchObject({
      attempts: 2,
      iterations: 3,
      tokens: { input: 7, output: 140 },
      cost: 0.875,
    });
  });

  test('an abort during an iteration reports its phase', async () => {
    const controller = new AbortController();
    const stop = { definition: look.definition, handler: () => controller.abort() };
    const { error } = await fail(summing({ helpers: [stop] }), [calling('look', { at: 'a' })], {
      input: '1',
      signal: controller.signal,
    });
    expect(error).toEqual({
      code: 'EXECUTION_CANCELLED',
      message: 'The execution was cancelled.',
      context: { attempt: 1, iteration: 1, phase: 'iteration', during: 'tool' },
    });
  });
});

describe('callbacks', () => {
  test('onToolCall is called before each helper and reflection', async () => {
    const order: string[] = [];
    const agent = defineAgent({
      name: 'ordered',
      description: 'Records the order of events',
      model: unusedModel,
      prompts: { user: 'Go' },
      tools: {
        helpers: [{ definition: look.definition, handler: () => void order.push('look runs') }],
        output: {
          name: 'answer',
          description: 'Answers',
          reflectionHandler: () => {
            order.push('answer reflects');
            return 'fine';
          },
        },
      },
      validation: { outputSchema: total, maxAttempts: 1 },
    });
    await succeed(agent, [calling('look', { at: 'a' }), calling('answer', { total: 1 }), calling('submit')], {
      input: undefined,
      callbacks: { onToolCall: (_, name, input) => void order.push(`call ${name} ${JSON.stringify(input)}`) },
    });
    expect(order).toEqual([
      'call look {"at":"a"}',
      'look runs',
      'call answer {"total":1}',
      'answer reflects',
      'call submit {}',
    ]);
  });

  test('onToolResult is called after each tool with its result or error', async () => {
    const { log } = await succeed(
      reflecting({ helpers: [look, broken] }),
      [calling('look', { at: 'a' }), calling('broken'), calling('answer', { total: 1 }), calling('submit')],
      { input: '1' },
    );
    expect(log.filter(([name]) => name === 'onToolResult')).toEqual([
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onToolResult', '1/2 2/15', 'broken', 'The tool "broken" failed: it is broken'],
      ['onToolResult', '1/2 3/15', 'answer', 'The total would be 1.'],
      ['onToolResult', '1/2 4/15', 'submit', 'Accepted.'],
    ]);
  });

  test('errors of callbacks are collected in metadata and do not end the execution', async () => {
    const { result } = await succeed(
      summing({ helpers: [look] }),
      [calling('look', { at: 'a' }), calling('answer', { total: 1 })],
      {
        input: '1',
        callbacks: {
          onToolCall: () => {
            throw new Error('no call');
          },
          onToolResult: () => Promise.reject(new Error('no result')),
        },
      },
    );
    expect(result.output).toEqual({ total: 1 });
    expect(result.metadata.callbackErrors).toEqual([
      { callback: 'onToolCall', message: 'no call' },
      { callback: 'onToolResult', message: 'no result' },
    ]);
  });

  test('attempts and validation failures are reported in order', async () => {
    const { log } = await succeed(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 1 }), calling('answer', { total: 2 })],
      { input: '1, 1' },
    );
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      [
        'onValidationFailure',
        '1/2 1/15',
        {
          validator: 'even',
          problems: ['1 is odd'],
          message: '"even" rejected the output: 1 is odd',
          output: { total: 1 },
        },
      ],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onAttemptStart', '2/2 1/15'],
      ['onAttemptComplete', '2/2 1/15', 'accepted'],
      ['onSuccess', '2/2 1/15', { total: 2 }],
    ]);
  });
});

describe('errors', () => {
  test('MAX_ITERATIONS when the iteration limit is reached', async () => {
    const { error } = await fail(
      summing({ helpers: [look], validation: { maxIterationsPerAttempt: 2 } }),
      [calling('look', { at: 'a' }), calling('look', { at: 'b' })],
      { input: '1' },
    );
    expect(error).toEqual({
      code: 'MAX_ITERATIONS',
      message: 'Attempt 1 gave no output within 2 iterations.',
      context: { attempt: 1, iterationCount: 2, maxIterations: 2 },
    });
  });

  test('SUBMIT_BEFORE_OUTPUT when submit is called before the output tool', async () => {
    const { error } = await fail(reflecting({ helpers: [look] }), [calling('look', { at: 'a' }), calling('submit')], {
      input: '1',
    });
    expect(error).toEqual({
      code: 'SUBMIT_BEFORE_OUTPUT',
      message: 'The model called "submit" before it called "answer", so there was nothing to submit.',
      context: { attempt: 1, iteration: 2 },
    });
  });

  test('INVALID_RESPONSE when the model calls no tool', async () => {
    const { error } = await fail(summing({ helpers: [look] }), [calling('look', { at: 'a' }), 'It is 3.'], {
      input: '1',
    });
    expect(error).toEqual({
      code: 'INVALID_RESPONSE',
      message: 'The model replied without calling a tool, so there is no output.',
      context: { attempt: 1, iteration: 2, text: 'It is 3.' },
    });
  });

  test('errors of tools are results with isError', async () => {
    const { result } = await succeed(
      reflecting({
        helpers: [
          broken,
          {
            ...broken,
            definition: { name: 'later', description: 'Fails later' },
            handler: () => Promise.reject(new Error('too late')),
          },
        ],
      }),
      [
        callingAll(['broken'], ['later']),
        calling('answer', { total: 'x' }),
        calling('answer', { total: 1 }),
        calling('submit'),
      ],
      { input: '1' },
    );
    const errors = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
    expect(errors.map(({ name, isError }) => [name, isError])).toEqual([
      ['broken', true],
      ['later', true],
      ['answer', true],
      ['answer', false],
      ['submit', false],
    ]);
    expect(result.output).toEqual({ total: 1 });
  });

  describe('every failure has metadata: tokens, latency, callback errors', () => {
    const onFailure = (): void => {
      throw new Error('callback failed');
    };
    const expected = (iterations: number, tools: ExecuteMetadata['tools'] = {}): Omit<ExecuteMetadata, 'runId'> => ({
      attempts: iterations === 0 ? 0 : 1,
      iterations,
      tokens: { input: iterations * TOKENS.input, output: iterations * TOKENS.output },
      cost: 0,
      latencyMs: 0,
      tools,
      callbackErrors: [{ callback: 'onFailure', message: 'callback failed' }],
    });
    const once = { maxAttempts: 1, maxIterationsPerAttempt: 1 };
    const seen = { look: { calls: 1, errors: 0 } };
    const answered = { answer: { calls: 1, errors: 0 } };
    const failing = (): never => {
      throw new Error('no');
    };
    type Case = readonly [
      AgentError['code'],
      Parameters<typeof fail<string, z.infer<typeof total>, unknown, unknown, unknown>>,
      Omit<ExecuteMetadata, 'runId'>,
    ];
    const input = { input: '1' };
    const cases: readonly Case[] = [
      [
        'MAX_ITERATIONS',
        [summing({ helpers: [look], validation: once }), [calling('look', { at: 'a' })], input],
        expected(1, seen),
      ],
      ['MAX_ATTEMPTS_EXCEEDED', [summing({ validation: once }), [calling('answer')], input], expected(1, answered)],
      ['INVALID_RESPONSE', [summing(), ['text'], input], expected(1)],
      [
        'SUBMIT_BEFORE_OUTPUT',
        [reflecting(), [calling('submit')], input],
        expected(1, { submit: { calls: 1, errors: 0 } }),
      ],
      ['EXECUTION_CANCELLED', [summing(), [], { ...input, signal: AbortSignal.abort() }], { ...expected(0) }],
      [
        'LIMIT_EXCEEDED',
        [summing({ helpers: [look], limits: { tokens: 1 } }), [calling('look', { at: 'a' })], input],
        expected(1, seen),
      ],
      ['PROMPT_FAILED', [summing({ prompts: { user: failing } }), [], input], expected(0)],
      [
        'STATE_PROJECTION_FAILED',
        [summing({ projectFinalState: failing }), [calling('answer', { total: 1 })], input],
        expected(1, answered),
      ],
    ];

    test.for(cases)('%s', async ([code, [agent, script, options], metadata]) => {
      const { result } = await fail(agent, script, { ...options, clock: manualClock(), callbacks: { onFailure } });
      expect(result.error.code).toBe(code);
      const { runId, ...rest } = result.metadata;
      expect(runId).toMatch(/./);
      expect(rest).toEqual(metadata);
    });

    test('API_ERROR', async () => {
      const error = { code: 'overloaded', message: 'Too busy', retryable: true } as const;
      const { result } = await fail(
        summing({ helpers: [look] }),
        [calling('look', { at: 'a' }), { type: 'failure', error }],
        {
          input: '1',
          clock: manualClock(),
          callbacks: { onFailure },
        },
      );
      expect(result.error).toEqual({
        code: 'API_ERROR',
        message: 'Too busy',
        context: { attempt: 1, iteration: 2, code: 'overloaded' },
      });
      const { runId: _, ...metadata } = result.metadata;
      expect(metadata).toEqual({ ...expected(2, seen), tokens: TOKENS });
    });
  });
});

describe('definitions from JavaScript', () => {
  // types.test.ts has the compile-time checks of the same rules.
  const tools =
    (definition: object): (() => unknown) =>
    () =>
      defineAgent({
        name: 'untyped',
        description: 'Comes from JavaScript',
        model: unusedModel,
        prompts: { user: 'Go' },
        tools: definition as never,
        validation: { outputSchema: total, maxAttempts: 1 },
      });
  const output = { name: 'answer', description: 'Answers' };

  test('a helper needs a definition and a handler', () => {
    expect(tools({ helpers: [{ definition: look.definition }], output })).toThrow(
      'Agent "untyped": its helper "look" has no handler. Give { definition, handler }.',
    );
    expect(tools({ helpers: [{ handler: look.handler }], output })).toThrow(
      'Agent "untyped": helper 1 has no definition. Give { definition, handler }.',
    );
  });

  test('submit cannot be disabled with a reflectionHandler', () => {
    const reflectionHandler = (): string => '';
    expect(tools({ output: { ...output, reflectionHandler, submit: false } })).toThrow(
      'Agent "untyped": its submit is not an object. Give { name, description }, or leave it out for the default.',
    );
  });

  test('submit needs a reflectionHandler', () => {
    expect(tools({ output: { ...output, submit: {} } })).toThrow(
      'Agent "untyped": it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit.',
    );
  });

  test('handlers, validators and callbacks get the typed output', async () => {
    const seen: unknown[] = [];
    const agent = defineAgent({
      name: 'dated',
      description: 'Gives a day',
      model: unusedModel,
      prompts: { user: 'Which day?' },
      tools: { output: { name: 'day', description: 'The day', reflectionHandler: ({ on }) => `${on.getFullYear()}` } },
      validation: {
        outputSchema: z.object({ on: z.string().transform((text) => new Date(text)) }),
        customValidators: [{ name: 'late', validate: ({ on }) => void seen.push(on.getFullYear()) }],
        maxAttempts: 1,
      },
      projectFinalState: ({ output: { on } }) => on.getMonth(),
    });
    const { result } = await succeed(agent, [calling('day', { on: '2020-05-06' }), calling('submit')], {
      input: undefined,
      callbacks: { onSuccess: (_, { on }) => void seen.push(on.getDate()) },
    });
    expect(resultsIn(result.messages)[0]).toEqual(['day: 2020']);
    expect(seen).toEqual([2020, 6]);
    expect(result.finalState).toBe(4);
    expect(result.output.on).toEqual(new Date('2020-05-06'));
  });

  test('types.test.ts checks the signatures of callbacks', () => {
    expect(read('test/agents/types.test.ts')).toContain("Parameters<On<'onToolCall'>>");
  });
});

describe('tests', () => {
  // Checks that the tests that cover these requirements exist.
  const tests = (file: string): readonly string[] =>
    [...read(`test/agents/${file}`).matchAll(/(?:test|describe)(?:\.for\([^\n]*\))?\(\s*(['"`])(.+?)\1/g)].map(
      ([, , name]) => name!,
    );

  test('cover helpers, reflection and no reflection', () => {
    expect(tests('edge-cases.test.ts')).toEqual(
      expect.arrayContaining([
        'the output tool is called in the first reply',
        'several calls of the output tool with reflection',
        'different tools in one reply',
        'unknown tool',
        'a handler that throws',
        'iteration limit',
        'abort during an iteration',
      ]),
    );
    expect(tests('helpers.test.ts').length).toBeGreaterThan(10);
  });

  test('cover unknown tools, errors of handlers and the iteration limit', () => {
    expect(tests('edge-cases.test.ts')).toEqual(
      expect.arrayContaining(['unknown tool', 'a handler that throws', 'iteration limit']),
    );
  });

  test('cover the structure and the growth of the history', () => {
    expect(tests('edge-cases.test.ts')).toEqual(
      expect.arrayContaining([
        'alternates assistant messages with tool results',
        'grows without changes, and the next attempt continues it',
        'groups all results of a reply in one message, in call order',
      ]),
    );
  });

  test('cover the sum of tokens', () => {
    expect(tests('usage.test.ts').length).toBeGreaterThan(3);
  });

  test('cover aborts', () => {
    expect(tests('abort.test.ts').length).toBeGreaterThan(6);
  });

  test('cover the order, arguments and errors of callbacks', () => {
    expect(tests('callbacks.test.ts').length).toBeGreaterThan(10);
  });

  test('cover a whole execution with helpers, reflection, validation and state', async () => {
    const rows = ['Oslo,3', 'Rome,4', 'Oslo,5'].map((line) => line.split(','));
    const report = defineAgent<string, { city: string; sum: number }, { read: number }>({
      name: 'report',
      description: 'Finds the city with the largest sum',
      model: unusedModel,
      prompts: {
        system: 'You read tables.',
        user: (file) => `Which city has the largest sum in ${file}?`,
        error: ({ message }, { attempt }) => `Attempt ${attempt}: ${message}`,
      },
      tools: {
        helpers: [
          {
            definition: {
              name: 'rows',
              description: 'Rows of a city',
              input: z.object({ city: z.string() }),
            },
            handler(input, { state }) {
              const found = rows.filter(([city]) => city === (input as { city: string }).city);
              state.run.read += found.length;
              return found;
            },
          },
        ],
        output: {
          name: 'report',
          description: 'Reports the city',
          reflectionHandler: ({ city, sum }) => `${city}: ${sum}`,
          submit: { name: 'send', description: 'Sends the report' },
        },
      },
      validation: {
        outputSchema: z.object({ city: z.string(), sum: z.number() }),
        customValidators: [{ name: 'adds up', validate: ({ sum }) => (sum === 8 ? true : `${sum} is not the sum`) }],
        maxAttempts: 2,
      },
      state: { run: { read: 0 } },
      projectFinalState: ({ run }) => run.read,
    });
    const { result, requests, log } = await succeed(
      report,
      [
        callingAll(['rows', { city: 'Oslo' }], ['rows', { city: 'Rome' }]),
        callingAll(['report', { city: 'Oslo', sum: 7 }], ['send']),
        calling('rows', { city: 'Oslo' }),
        calling('report', { city: 'Oslo', sum: 8 }),
        calling('send'),
      ],
      { input: 'cities.csv' },
    );
    expect(result.output).toEqual({ city: 'Oslo', sum: 8 });
    expect(result.finalState).toBe(5);
    expect(result.metadata).toMatchObject({
      attempts: 2,
      iterations: 5,
      tokens: { input: 50, output: 25 },
      tools: { rows: { calls: 3, errors: 0 }, report: { calls: 2, errors: 0 }, send: { calls: 2, errors: 0 } },
    });
    expect(requests[0]).toMatchObject({ instructions: 'You read tables.', toolChoice: 'required' });
    expect(resultsIn(result.messages)).toEqual([
      ['rows: [["Oslo","3"],["Oslo","5"]]', 'rows: [["Rome","4"]]'],
      ['report: Oslo: 7', 'send!: Rejected by "adds up": 7 is not the sum'],
      ['rows: [["Oslo","3"],["Oslo","5"]]'],
      ['report: Oslo: 8'],
      ['send: Accepted.'],
    ]);
    expect(result.messages[5]).toEqual({
      role: 'user',
      content: [{ type: 'text', text: 'Attempt 1: "adds up" rejected the output: 7 is not the sum' }],
    });
    expect(log.map(([name, state]) => `${name} ${state}`)).toEqual([
      'onAttemptStart 1/2 1/15',
      'onToolCall 1/2 1/15',
      'onToolResult 1/2 1/15',
      'onToolCall 1/2 1/15',
      'onToolResult 1/2 1/15',
      'onToolCall 1/2 2/15',
      'onToolResult 1/2 2/15',
      'onToolCall 1/2 2/15',
      'onValidationFailure 1/2 2/15',
      'onToolResult 1/2 2/15',
      'onAttemptComplete 1/2 2/15',
      'onAttemptStart 2/2 1/15',
      'onToolCall 2/2 1/15',
      'onToolResult 2/2 1/15',
      'onToolCall 2/2 2/15',
      'onToolResult 2/2 2/15',
      'onToolCall 2/2 3/15',
      'onToolResult 2/2 3/15',
      'onAttemptComplete 2/2 3/15',
      'onSuccess 2/2 3/15',
    ]);
  });
});

describe('migration', () => {
  const page = 'docs/typed-agents.md';

  test('no agent uses tools.additional', () => {
    const sources = globSync(['packages/*/src/**/*.ts', 'examples/**/*.ts'], { cwd: root });
    const unmigrated = sources.filter((file) => /\badditional\s*:\s*\[/.test(read(file)));
    expect(unmigrated).toEqual([]);
  });

  test('the guide documents the migration from tools.additional', () => {
    const guide = existsSync(path.join(root, page)) ? read(page) : '';
    const section = guide.split(/^## /m).find((part) => /^[^\n]*(migrat|additional)/i.test(part)) ?? '';
    expect(section).toContain('additional');
    expect(section).toContain('helpers');
    expect(section).toContain('handler');
  });

  test('agents with only an output tool work unchanged', async () => {
    const agent = defineAgent({
      name: 'output-only',
      description: 'Answers at once',
      model: scriptedModel([calling('answer', { total: 3 })]),
      prompts: { user: 'What is 1 + 2?' },
      tools: { output: { name: 'answer', description: 'Gives the total' } },
      validation: { outputSchema: total, maxAttempts: 1 },
    });
    const result = await executeAgent(agent, { input: undefined });
    expect(result).toMatchObject({ type: 'success', output: { total: 3 }, metadata: { attempts: 1, iterations: 1 } });
  });
});

describe('documentation', () => {
  const define = read('packages/core/src/agents/define.ts');
  const callbacks = read('packages/core/src/agents/callbacks.ts');

  test('the types of agents have doc comments', () => {
    const tools = bodyOf(define, 'AgentTools');
    expect(tools).toContain('/** ');
    for (const name of ['AgentDefinition', 'HelperTool', 'HelperContext', 'OutputTool', 'SubmitTool']) {
      expect(define, name).toMatch(new RegExp(String.raw`\*/\nexport (interface|type) ${name}\b`));
    }
  });

  test('the callbacks have doc comments', () => {
    expect(callbacks).toMatch(/\*\/\nexport interface ExecuteCallbacks\b/);
    const body = bodyOf(callbacks, 'ExecuteCallbacks');
    for (const name of ['onToolCall', 'onToolResult', 'onAttemptComplete']) {
      expect(body, name).toMatch(new RegExp(String.raw`\*/\n  ${name}\?`));
    }
  });

  test('comments explain the loop', () => {
    expect(read('packages/core/src/machine/step.ts')).toContain('One turn, in order.');
    expect(read('packages/core/src/machine/finish/output.ts')).toMatch(/^\/\*\n[\s\S]* \* 1\. [\s\S]* \* 3\. /m);
  });

  test('error messages state a remedy', () => {
    const submit = { name: 'done' };
    const define = (): unknown =>
      defineAgent({
        name: 'invalid',
        description: 'Has submit without reflection',
        model: unusedModel,
        prompts: { user: 'Go' },
        tools: { output: { name: 'answer', description: 'Answers', submit } as never },
        validation: { outputSchema: total, maxAttempts: 1 },
      });
    expect(define).toThrow('Add a reflectionHandler or remove submit.');
  });

  function bodyOf(source: string, name: string): string {
    return new RegExp(String.raw`export interface ${name}\b[\s\S]*?\n}`).exec(source)![0];
  }
});

test('an execution without callbacks has the same result', async () => {
  const model = scriptedModel([calling('answer', { total: 3 })]);
  const { messages, type } = await executeAgent(summing(), { input: '1, 2', model });
  const { result } = await run(summing(), [calling('answer', { total: 3 })], { input: '1, 2' });
  expect({ messages, type }).toEqual({ messages: result.messages, type: 'success' });
});
