import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { defineAgent, executeAgent, type AgentError, type ExecuteMetadata } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { broken, even, look, nobody, reflecting, resultsIn, rolesIn, summing, total } from './agents.ts';
import { calling, callingAll, fail, run, succeed } from './run.ts';

// Every check box of the document's success criteria, by its own words.

const root = path.resolve(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');

const TOKENS = { input: 10, output: 5 };

describe('Functional Requirements', () => {
  test('Helper tools execute and results feed back to model for further iterations', async () => {
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

  test('Reflection mode allows output tool to be called multiple times before submit', async () => {
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

  test('Submit tool properly terminates iteration loop in reflection mode', async () => {
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

  test('Output tool immediately terminates loop in non-reflection mode', async () => {
    const { result, requests } = await succeed(summing(), [calling('answer', { total: 3 })], { input: '1, 2' });
    expect(requests).toHaveLength(1);
    expect(requests[0]!.tools.map(({ name }) => name)).toEqual(['answer']);
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 1 });
    expect(result.output).toEqual({ total: 3 });
  });

  test('Iteration limit (`maxIterationsPerAttempt`) prevents runaway loops', async () => {
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

  test('Unknown tools return error results (not crash)', async () => {
    const { result } = await succeed(summing(), [calling('nothing'), calling('answer', { total: 1 })], { input: '1' });
    expect(resultsIn(result.messages)[0]).toEqual([
      'nothing!: There is no tool "nothing". Available tools: answer. Use one of them.',
    ]);
  });

  test('Tool handler exceptions return error results (not crash)', async () => {
    const { result } = await succeed(
      summing({ helpers: [broken] }),
      [calling('broken'), calling('answer', { total: 1 })],
      { input: '1' },
    );
    expect(resultsIn(result.messages)[0]).toEqual(['broken!: The tool "broken" failed: it is broken']);
  });

  test('Conversation history structure matches Anthropic API format', async () => {
    const { result } = await succeed(
      summing({ helpers: [look], validation: { customValidators: [even] } }),
      [
        callingAll(['look', { at: 'a' }], ['look', { at: 'b' }]),
        calling('answer', { total: 1 }),
        calling('answer', { total: 2 }),
      ],
      { input: '1, 1' },
    );
    // `run` holds every history against the rules of the providers; a user message after results goes with them.
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

  test('Tokens accumulate correctly across all iterations and attempts', async () => {
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

  test('Abort signal cancels execution mid-iteration with correct phase context', async () => {
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

describe('Callback Requirements', () => {
  test('`onToolCall` fires before each tool execution (helpers + reflection)', async () => {
    const order: string[] = [];
    const agent = defineAgent({
      name: 'ordered',
      description: 'Tells when what happens',
      model: nobody,
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

  test('`onToolResult` fires after each tool execution with result or error', async () => {
    const { told } = await succeed(
      reflecting({ helpers: [look, broken] }),
      [calling('look', { at: 'a' }), calling('broken'), calling('answer', { total: 1 }), calling('submit')],
      { input: '1' },
    );
    expect(told.filter(([name]) => name === 'onToolResult')).toEqual([
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onToolResult', '1/2 2/15', 'broken', 'The tool "broken" failed: it is broken'],
      ['onToolResult', '1/2 3/15', 'answer', 'The total would be 1.'],
      ['onToolResult', '1/2 4/15', 'submit', 'Accepted.'],
    ]);
  });

  test('Callback errors caught and collected in metadata (do not break execution)', async () => {
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

  test('Existing callbacks (`onAttemptStart`, `onValidationFailure`, etc.) continue to work', async () => {
    const { told } = await succeed(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 1 }), calling('answer', { total: 2 })],
      { input: '1, 1' },
    );
    expect(told).toEqual([
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

describe('Error Handling Requirements', () => {
  test('`MAX_ITERATIONS` error returned when iteration limit exceeded', async () => {
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

  test('`SUBMIT_BEFORE_OUTPUT` error returned if submit called before output tool (reflection mode)', async () => {
    const { error } = await fail(reflecting({ helpers: [look] }), [calling('look', { at: 'a' }), calling('submit')], {
      input: '1',
    });
    expect(error).toEqual({
      code: 'SUBMIT_BEFORE_OUTPUT',
      message: 'The model called "submit" before it had called "answer", so there was nothing to submit.',
      context: { attempt: 1, iteration: 2 },
    });
  });

  test('`INVALID_RESPONSE` error returned if no tools called', async () => {
    const { error } = await fail(summing({ helpers: [look] }), [calling('look', { at: 'a' }), 'It is 3.'], {
      input: '1',
    });
    expect(error).toEqual({
      code: 'INVALID_RESPONSE',
      message: 'The model replied without calling a tool, so there is no output.',
      context: { attempt: 1, iteration: 2, text: 'It is 3.' },
    });
  });

  test('Tool execution errors do not crash, return `is_error: true` results', async () => {
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

  describe('All error paths include metadata (tokens, latency, callback errors)', () => {
    const onFailure = (): void => {
      throw new Error('not told');
    };
    const expected = (iterations: number, tools: ExecuteMetadata['tools'] = {}): Omit<ExecuteMetadata, 'runId'> => ({
      attempts: iterations === 0 ? 0 : 1,
      iterations,
      tokens: { input: iterations * TOKENS.input, output: iterations * TOKENS.output },
      cost: 0,
      latencyMs: 0,
      tools,
      callbackErrors: [{ callback: 'onFailure', message: 'not told' }],
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
      const { runId, ...told } = result.metadata;
      expect(runId).toMatch(/./);
      expect(told).toEqual(metadata);
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

describe('Type Safety Requirements', () => {
  // What the compiler says is in types.test.ts, under the same names; here is what a definition in JavaScript meets.
  const tools =
    (given: object): (() => unknown) =>
    () =>
      defineAgent({
        name: 'untyped',
        description: 'Comes from JavaScript',
        model: nobody,
        prompts: { user: 'Go' },
        tools: given as never,
        validation: { outputSchema: total, maxAttempts: 1 },
      });
  const output = { name: 'answer', description: 'Answers' };

  test('`ToolsConfig` enforces helper tool structure (definition + handler)', () => {
    expect(tools({ helpers: [{ definition: look.definition }], output })).toThrow(
      'Agent "untyped": its helper "look" has no handler. Give { definition, handler }.',
    );
    expect(tools({ helpers: [{ handler: look.handler }], output })).toThrow(
      'Agent "untyped": helper 1 has no definition. Give { definition, handler }.',
    );
  });

  test('Reflection mode type-checks: handler present implies submit tool', () => {
    const reflectionHandler = (): string => '';
    expect(tools({ output: { ...output, reflectionHandler, submit: false } })).toThrow(
      'Agent "untyped": its submit is not an object. Give { name, description }, or leave it out for the default.',
    );
  });

  test('Invalid states unrepresentable (cannot have submit without handler)', () => {
    expect(tools({ output: { ...output, submit: {} } })).toThrow(
      'Agent "untyped": it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit.',
    );
  });

  test('Generic `Output` type flows through tool configuration', async () => {
    const seen: unknown[] = [];
    const agent = defineAgent({
      name: 'dated',
      description: 'Gives a day',
      model: nobody,
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

  test('Callback signatures properly typed', () => {
    expect(read('test/agents/types.test.ts')).toContain("Parameters<On<'onToolCall'>>");
  });
});

describe('Testing Requirements', () => {
  // Each box is kept by the tests of these names; what is held here is that they are there.
  const tests = (file: string): readonly string[] =>
    [...read(`test/agents/${file}`).matchAll(/(?:test|describe)(?:\.for\([^\n]*\))?\(\s*(['"`])(.+?)\1/g)].map(
      ([, , name]) => name!,
    );

  test('Unit tests cover all tool execution scenarios (helpers, reflection, non-reflection)', () => {
    for (const number of [1, 2, 3, 4, 5, 6, 7]) {
      expect(tests('edge-cases.test.ts')).toContainEqual(expect.stringMatching(new RegExp(String.raw`^${number}\. `)));
    }
    expect(tests('helpers.test.ts').length).toBeGreaterThan(10);
  });

  test('Unit tests cover all error cases (unknown tools, handler errors, iteration limit)', () => {
    expect(tests('edge-cases.test.ts')).toEqual(
      expect.arrayContaining([
        '4. Unknown Tool Called',
        '5. Tool Handler Throws Exception',
        '6. Iteration Limit Exceeded',
      ]),
    );
  });

  test('Unit tests verify conversation history structure and accumulation', () => {
    expect(tests('edge-cases.test.ts')).toEqual(
      expect.arrayContaining(['1. Structure Requirements', '2. Accumulation Pattern', '3. Tool Result Grouping']),
    );
  });

  test('Unit tests verify token accumulation across iterations', () => {
    expect(tests('usage.test.ts').length).toBeGreaterThan(3);
  });

  test('Unit tests verify abort signal behaviour during iteration', () => {
    expect(tests('abort.test.ts').length).toBeGreaterThan(6);
  });

  test('Unit tests verify callback invocations (timing, arguments, error handling)', () => {
    expect(tests('callbacks.test.ts').length).toBeGreaterThan(10);
  });

  test('Integration tests verify end-to-end workflows with actual agent definitions', async () => {
    const rows = ['Oslo,3', 'Rome,4', 'Oslo,5'].map((line) => line.split(','));
    const report = defineAgent<string, { city: string; sum: number }, { read: number }>({
      name: 'report',
      description: 'Finds the city with the largest sum',
      model: nobody,
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
    const { result, requests, told } = await succeed(
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
    expect(told.map(([name, at]) => `${name} ${at}`)).toEqual([
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

describe('Migration Requirements', () => {
  const page = 'docs/typed-agents.md';

  test('All existing agents using `tools.additional` migrated to new structure', () => {
    const sources = globSync(['packages/*/src/**/*.ts', 'examples/**/*.ts'], { cwd: root });
    const left = sources.filter((file) => /\badditional\s*:\s*\[/.test(read(file)));
    expect(left).toEqual([]);
  });

  test('Migration guide documents transformation from old to new API', () => {
    const guide = existsSync(path.join(root, page)) ? read(page) : '';
    const section = guide.split(/^## /m).find((part) => /^[^\n]*(migrat|additional)/i.test(part)) ?? '';
    expect(section).toContain('additional');
    expect(section).toContain('helpers');
    expect(section).toContain('handler');
  });

  test('No breaking changes to agents not using helper tools (output-only agents work unchanged)', async () => {
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

describe('Documentation Requirements', () => {
  const define = read('packages/core/src/agents/define.ts');
  const callbacks = read('packages/core/src/agents/callbacks.ts');

  test('JSDoc comments updated for `ToolsConfig` interface', () => {
    const tools = bodyOf(define, 'AgentTools');
    expect(tools).toContain('/** ');
    for (const name of ['AgentDefinition', 'HelperTool', 'HelperContext', 'OutputTool', 'SubmitTool']) {
      expect(define, name).toMatch(new RegExp(String.raw`\*/\nexport (interface|type) ${name}\b`));
    }
  });

  test('JSDoc comments added for new callback types', () => {
    expect(callbacks).toMatch(/\*\/\nexport interface ExecuteCallbacks\b/);
    const body = bodyOf(callbacks, 'ExecuteCallbacks');
    for (const name of ['onToolCall', 'onToolResult', 'onAttemptComplete']) {
      expect(body, name).toMatch(new RegExp(String.raw`\*/\n  ${name}\?`));
    }
  });

  test('Inline comments explain iteration loop logic', () => {
    expect(read('packages/core/src/loop/step.ts')).toContain('One turn, in order.');
    expect(read('packages/core/src/loop/finish/output.ts')).toMatch(/^\/\*\n[\s\S]* \* 1\. [\s\S]* \* 3\. /m);
  });

  test('Error messages provide clear guidance (e.g., "Add reflectionHandler or remove submit tool")', () => {
    const submit = { name: 'done' };
    const define = (): unknown =>
      defineAgent({
        name: 'lost',
        description: 'Submits nothing',
        model: nobody,
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

test('an execution without callbacks goes the same way', async () => {
  const model = scriptedModel([calling('answer', { total: 3 })]);
  const { messages, type } = await executeAgent(summing(), { input: '1, 2', model });
  const { result } = await run(summing(), [calling('answer', { total: 3 })], { input: '1, 2' });
  expect({ messages, type }).toEqual({ messages: result.messages, type: 'success' });
});
