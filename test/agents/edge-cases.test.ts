import { manualClock, type ScriptStep } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { broken, even, look, reflecting, resultsIn, rolesIn, summing } from './agents.ts';
import { calling, callingAll, fail, succeed } from './run.ts';

const input = { input: '1, 2' };

describe('tool execution', () => {
  describe('the output tool is called in the first reply', () => {
    test('without reflection, validates the output and ends', async () => {
      const { result, requests } = await succeed(summing(), [calling('answer', { total: 3 })], input);
      expect(result).toEqual({
        type: 'success',
        output: { total: 3 },
        metadata: {
          runId: result.metadata.runId,
          attempts: 1,
          iterations: 1,
          tokens: { input: 10, output: 5 },
          cost: 0,
          latencyMs: result.metadata.latencyMs,
          tools: { answer: { calls: 1, errors: 0 } },
          callbackErrors: [],
        },
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'Add up 1, 2' }] },
          {
            role: 'assistant',
            content: [{ type: 'tool-call', id: 'call_0_0', name: 'answer', arguments: '{"total":3}' }],
          },
          {
            role: 'tool',
            content: [
              {
                type: 'tool-result',
                callId: 'call_0_0',
                name: 'answer',
                content: [{ type: 'text', text: 'Accepted.' }],
                isError: false,
              },
            ],
          },
        ],
      });
      expect(requests).toHaveLength(1);
    });

    test('with reflection, calls the handler and waits for submit', async () => {
      const { result, requests } = await succeed(
        reflecting(),
        [calling('answer', { total: 3 }), calling('submit')],
        input,
      );
      expect(requests).toHaveLength(2);
      expect(resultsIn(requests[1]!.messages)).toEqual([['answer: The total would be 3.']]);
      expect(result.output).toEqual({ total: 3 });
    });
  });

  describe('several calls of the output tool with reflection', () => {
    test('reflects each output, and submit takes the last one', async () => {
      const { result } = await succeed(
        reflecting(),
        [
          calling('answer', { total: 1 }),
          callingAll(['answer', { total: 2 }], ['answer', { total: 3 }]),
          calling('submit'),
        ],
        input,
      );
      expect(result.output).toEqual({ total: 3 });
      expect(resultsIn(result.messages)).toEqual([
        ['answer: The total would be 1.'],
        ['answer: The total would be 2.', 'answer: The total would be 3.'],
        ['submit: Accepted.'],
      ]);
    });

    test('a submit without an output is an error', async () => {
      const { error, result } = await fail(reflecting(), [calling('submit')], input);
      expect(error.code).toBe('SUBMIT_BEFORE_OUTPUT');
      expect(resultsIn(result.messages)).toEqual([
        ['submit!: There is nothing to submit yet. Call "answer" with your output first.'],
      ]);
    });

    test('with earlySubmit "feedback", the submit gets an error result and the attempt continues', async () => {
      const { result } = await succeed(
        reflecting({ validation: { earlySubmit: 'feedback' } }),
        [calling('submit'), callingAll(['submit'], ['submit']), calling('answer', { total: 3 }), calling('submit')],
        input,
      );
      const early = 'submit!: There is nothing to submit yet. Call "answer" with your output first.';
      expect(resultsIn(result.messages).slice(0, 2)).toEqual([[early], [early, early]]);
      expect(result.metadata).toMatchObject({ attempts: 1, iterations: 4, tools: { submit: { calls: 4, errors: 0 } } });
    });

    test('a submit after a rejection needs a new output', async () => {
      const { error } = await fail(
        reflecting({ validation: { customValidators: [even], maxAttempts: 3 } }),
        [callingAll(['answer', { total: 1 }], ['submit']), calling('submit')],
        input,
      );
      expect(error).toMatchObject({ code: 'SUBMIT_BEFORE_OUTPUT', context: { attempt: 2, iteration: 1 } });
    });

    test('an output without a reflection still counts as the last one', async () => {
      const { result, log } = await succeed(
        reflecting(),
        [
          calling('answer', { total: 1 }),
          calling('answer', { total: 'three' }),
          calling('submit'),
          callingAll(['answer', { total: 3 }], ['submit']),
        ],
        input,
      );
      expect(log.find(([name]) => name === 'onValidationFailure')?.[2]).toEqual({
        output: { total: 'three' },
        problems: [expect.stringContaining('total')],
        message: expect.stringContaining('The output does not match its schema: '),
      });
      expect(result.output).toEqual({ total: 3 });
    });
  });

  describe('different tools in one reply', () => {
    test('[helper, output, helper]: all calls get a result, then the attempt ends', async () => {
      const { result, requests } = await succeed(
        summing({ helpers: [look] }),
        [callingAll(['look', { at: 'a' }], ['answer', { total: 3 }], ['look', { at: 'b' }])],
        input,
      );
      expect(requests).toHaveLength(1);
      expect(resultsIn(result.messages)).toEqual([['look: seen a', 'answer: Accepted.', 'look: seen b']]);
      expect(result.output).toEqual({ total: 3 });
    });

    test('the last of several outputs counts', async () => {
      const { result } = await succeed(
        summing({ helpers: [look] }),
        [callingAll(['answer', { total: 'bad' }], ['look', { at: 'a' }], ['answer', { total: 3 }])],
        input,
      );
      expect(result.output).toEqual({ total: 3 });
      expect(resultsIn(result.messages)).toEqual([
        ['answer: Not used: a later call in the same reply replaces it.', 'look: seen a', 'answer: Accepted.'],
      ]);
    });

    test('a rejection is the result of the rejected call', async () => {
      const { result } = await succeed(
        summing({ helpers: [look], validation: { customValidators: [even] } }),
        [
          callingAll(['look', { at: 'a' }], ['answer', { total: 3 }], ['look', { at: 'b' }]),
          calling('answer', { total: 4 }),
        ],
        input,
      );
      expect(resultsIn(result.messages)).toEqual([
        ['look: seen a', 'answer!: Rejected by "even": 3 is odd', 'look: seen b'],
        ['answer: Accepted.'],
      ]);
    });

    test.for([
      ['output, then submit', ['answer', 'look', 'submit']],
      ['submit, then output', ['submit', 'look', 'answer']],
    ] as const)('%s in one reply: submit ends the attempt with that output', async ([, order]) => {
      const args = { answer: { total: 3 }, look: { at: 'a' }, submit: {} };
      const { result, requests } = await succeed(
        reflecting({ helpers: [look] }),
        [callingAll(...order.map((name) => [name, args[name]] as const))],
        input,
      );
      expect(requests).toHaveLength(1);
      expect(result.output).toEqual({ total: 3 });
      const results = { answer: 'The total would be 3.', look: 'seen a', submit: 'Accepted.' };
      expect(resultsIn(result.messages)).toEqual([order.map((name) => `${name}: ${results[name]}`)]);
    });

    test('the last of two submits counts', async () => {
      const { result } = await succeed(
        reflecting(),
        [callingAll(['submit'], ['answer', { total: 3 }], ['submit'])],
        input,
      );
      expect(resultsIn(result.messages)).toEqual([
        [
          'submit: Not used: a later call in the same reply replaces it.',
          'answer: The total would be 3.',
          'submit: Accepted.',
        ],
      ]);
    });

    test('keeps the text of a reply with calls', async () => {
      const { result } = await succeed(
        summing(),
        [{ text: 'Here it is:', calls: [{ name: 'answer', arguments: { total: 3 } }] }],
        input,
      );
      expect(result.messages[1]?.content).toEqual([
        { type: 'text', text: 'Here it is:' },
        { type: 'tool-call', id: 'call_0_0', name: 'answer', arguments: '{"total":3}' },
      ]);
    });

    test('ignores an output beyond the maximum number of calls per reply', async () => {
      const many = [
        ...Array.from({ length: 127 }, () => ['look', { at: 'a' }] as const),
        ['answer', { total: 3 }] as const,
        ['answer', { total: 999 }] as const,
      ];
      const { result } = await succeed(summing({ helpers: [look] }), [callingAll(...many)], input);
      expect(resultsIn(result.messages)[0]!.slice(-2)).toEqual([
        'answer: Accepted.',
        'answer!: Not executed: at most 128 calls are taken from one reply. Call it again if it is still needed.',
      ]);
      expect(result.output).toEqual({ total: 3 });
    });
  });

  describe('unknown tool', () => {
    test('gets an error result with the available tools, and the execution continues', async () => {
      const { result, log } = await succeed(
        summing({ helpers: [look] }),
        [callingAll(['nothing', { a: 1 }], ['look', { at: 'a' }]), calling('answer', { total: 3 })],
        input,
      );
      const message = 'There is no tool "nothing". Available tools: look, answer. Use one of them.';
      expect(resultsIn(result.messages)[0]).toEqual([`nothing!: ${message}`, 'look: seen a']);
      expect(log).toContainEqual(['onToolCall', '1/2 1/15', 'nothing', { a: 1 }]);
      expect(log).toContainEqual(['onToolResult', '1/2 1/15', 'nothing', message]);
    });

    test('submit is an unknown tool without reflection', async () => {
      const { result } = await succeed(summing(), [calling('submit'), calling('answer', { total: 3 })], input);
      expect(resultsIn(result.messages)[0]).toEqual([
        'submit!: There is no tool "submit". Available tools: answer. Use one of them.',
      ]);
    });
  });

  describe('a handler that throws', () => {
    test('gets an error result, and the execution continues', async () => {
      const { result, log } = await succeed(
        summing({ helpers: [broken] }),
        [calling('broken'), calling('answer', { total: 3 })],
        input,
      );
      const message = 'The tool "broken" failed: it is broken';
      expect(resultsIn(result.messages)[0]).toEqual([`broken!: ${message}`]);
      expect(log.filter(([name]) => name === 'onToolResult')).toEqual([
        ['onToolResult', '1/2 1/15', 'broken', message],
      ]);
    });

    test.for([
      [
        'throws',
        () => {
          throw new Error('cannot show');
        },
      ],
      ['rejects', () => Promise.reject(new Error('cannot show'))],
    ] as const)(
      'a reflection that %s gets an error result; the output can be submitted',
      async ([, reflectionHandler]) => {
        const agent = reflecting();
        const { result } = await succeed(
          { ...agent, tools: { output: { name: 'answer', description: 'Answers', reflectionHandler } } },
          [calling('answer', { total: 3 }), calling('submit')],
          input,
        );
        expect(resultsIn(result.messages)[0]).toEqual(['answer!: The tool "answer" failed: cannot show']);
        expect(result.output).toEqual({ total: 3 });
        expect(result.metadata.tools).toEqual({ answer: { calls: 1, errors: 1 }, submit: { calls: 1, errors: 0 } });
      },
    );

    test('consecutive errors do not end the execution', async () => {
      const script: ScriptStep[] = Array.from({ length: 14 }, () => calling('broken'));
      const { result } = await succeed(
        summing({ helpers: [broken] }),
        [...script, calling('answer', { total: 3 })],
        input,
      );
      expect(result.metadata).toMatchObject({
        attempts: 1,
        iterations: 15,
        tools: { broken: { calls: 14, errors: 14 } },
      });
    });

    test('repeated identical outputs end the execution only by maxAttempts', async () => {
      const script: ScriptStep[] = Array.from({ length: 6 }, () => calling('answer', { total: 1 }));
      const { error, result } = await fail(
        summing({ validation: { customValidators: [even], maxAttempts: 6 } }),
        script,
        input,
      );
      expect(error).toEqual({
        code: 'MAX_ATTEMPTS_EXCEEDED',
        message: 'No output was accepted in 6 attempts. "even" rejected the output: 1 is odd',
        context: {
          attempts: 6,
          lastError: { validator: 'even', problems: ['1 is odd'], message: '"even" rejected the output: 1 is odd' },
        },
      });
      expect(result.metadata).toMatchObject({ attempts: 6, iterations: 6, tools: { answer: { calls: 6, errors: 0 } } });
    });
  });

  describe('iteration limit', () => {
    test('fails with the iteration count and the tokens so far, without validation', async () => {
      const { result, log } = await fail(
        reflecting({
          validation: {
            maxIterationsPerAttempt: 2,
            customValidators: [{ name: 'never', validate: () => expect.fail('validated') }],
          },
        }),
        [calling('answer', { total: 1 }), calling('answer', { total: 2 })],
        { ...input, clock: manualClock() },
      );
      expect(result).toMatchObject({
        error: {
          code: 'MAX_ITERATIONS',
          message: 'Attempt 1 gave no output within 2 iterations.',
          context: { attempt: 1, iterationCount: 2, maxIterations: 2 },
        },
        metadata: { attempts: 1, iterations: 2, tokens: { input: 20, output: 10 }, latencyMs: 0 },
      });
      expect(resultsIn(result.messages)).toEqual([
        ['answer: The total would be 1.'],
        ['answer: The total would be 2.'],
      ]);
      expect(log.map(([name]) => name)).not.toContain('onValidationFailure');
    });

    test('applies to each attempt separately', async () => {
      const look2 = [calling('look', { at: 'a' }), calling('look', { at: 'b' })];
      const { error } = await fail(
        summing({
          helpers: [look],
          validation: { maxIterationsPerAttempt: 3, customValidators: [even], maxAttempts: 3 },
        }),
        [...look2, calling('answer', { total: 1 }), ...look2, calling('look', { at: 'c' })],
        input,
      );
      expect(error.context).toEqual({ attempt: 2, iterationCount: 3, maxIterations: 3 });
    });

    test('an output in the last iteration is validated, and a rejection starts another attempt', async () => {
      const { result } = await succeed(
        summing({ validation: { maxIterationsPerAttempt: 1, customValidators: [even] } }),
        [calling('answer', { total: 1 }), calling('answer', { total: 2 })],
        input,
      );
      expect(result.metadata).toMatchObject({ attempts: 2, iterations: 2 });
    });

    test('a rejection in the last iteration of the last attempt is MAX_ATTEMPTS_EXCEEDED', async () => {
      const { error } = await fail(
        summing({ validation: { maxIterationsPerAttempt: 1, maxAttempts: 1 } }),
        [calling('answer', {})],
        input,
      );
      expect(error.code).toBe('MAX_ATTEMPTS_EXCEEDED');
    });
  });

  describe('abort during an iteration', () => {
    test('prevents the next model call', async () => {
      const controller = new AbortController();
      const { result, requests } = await fail(summing({ helpers: [look] }), [calling('look', { at: 'a' })], {
        ...input,
        signal: controller.signal,
        callbacks: { onToolResult: () => controller.abort() },
      });
      expect(requests).toHaveLength(1);
      expect(result.error).toMatchObject({
        code: 'EXECUTION_CANCELLED',
        context: { attempt: 1, phase: 'iteration' },
      });
    });
  });
});

describe('conversation history', () => {
  test('alternates assistant messages with tool results', async () => {
    const { requests } = await succeed(
      reflecting({ helpers: [look] }),
      [calling('look', { at: 'a' }), calling('answer', { total: 3 }), calling('submit')],
      input,
    );
    expect(requests.map(({ messages }) => rolesIn(messages))).toEqual([
      ['user'],
      ['user', 'assistant', 'tool'],
      ['user', 'assistant', 'tool', 'assistant', 'tool'],
    ]);
    for (const { messages } of requests) {
      for (const { role, content } of messages) {
        const kinds = new Set<string>(content.map(({ type }) => type));
        expect([...kinds]).toEqual([{ user: 'text', assistant: 'tool-call', tool: 'tool-result' }[role]]);
      }
    }
  });

  test('grows without changes, and the next attempt continues it', async () => {
    const { requests, result } = await succeed(
      summing({
        prompts: { user: 'Add up', error: ({ message }) => `Again: ${message}` },
        validation: { customValidators: [even] },
      }),
      [calling('answer', { total: 3 }), calling('answer', { total: 4 })],
      input,
    );
    const [first, second] = requests;
    expect(first!.messages).toEqual([{ role: 'user', content: [{ type: 'text', text: 'Add up' }] }]);
    expect(second!.messages.slice(0, 1)).toEqual(first!.messages);
    expect(second!.messages.slice(1)).toEqual([
      {
        role: 'assistant',
        content: [{ type: 'tool-call', id: 'call_0_0', name: 'answer', arguments: '{"total":3}' }],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            callId: 'call_0_0',
            name: 'answer',
            content: [{ type: 'error', text: 'Rejected by "even": 3 is odd' }],
            isError: true,
            errorType: 'invalid_params',
          },
        ],
      },
      { role: 'user', content: [{ type: 'text', text: 'Again: "even" rejected the output: 3 is odd' }] },
    ]);
    expect(result.messages.slice(0, 4)).toEqual(second!.messages);
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool', 'user', 'assistant', 'tool']);
  });

  test('opens the next attempt with a default sentence if there is no error prompt', async () => {
    const { requests } = await succeed(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 }), calling('answer', { total: 4 })],
      input,
    );
    expect(requests[1]!.messages.at(-1)).toEqual({
      role: 'user',
      content: [
        {
          type: 'text',
          text: 'Your output was not accepted. Correct it and submit it again. This is attempt 2 of 2.',
        },
      ],
    });
  });

  test('groups all results of a reply in one message, in call order', async () => {
    const { requests } = await succeed(
      summing({ helpers: [look, broken] }),
      [
        callingAll(['look', { at: 'a' }], ['broken'], ['nothing'], ['look', { at: 'b' }]),
        calling('answer', { total: 3 }),
      ],
      input,
    );
    const results = requests[1]!.messages.filter(({ role }) => role === 'tool');
    expect(results).toHaveLength(1);
    expect(results[0]!.content.map((result) => ('callId' in result ? result.callId : undefined))).toEqual([
      'call_0_0',
      'call_0_1',
      'call_0_2',
      'call_0_3',
    ]);
  });
});

describe('replies without a call', () => {
  const empty = {
    type: 'reply',
    content: [],
    finish: 'stop',
    usage: { inputTokens: 1, outputTokens: 0 },
    model: 'm',
  } as const;
  const thinking = { ...empty, content: [{ type: 'reasoning', text: 'Hm' }] } as const;

  test.for([
    ['an empty reply', empty],
    ['a reply with reasoning only', thinking],
    ['a reply of white space', ' \n'],
  ] as const)('%s is INVALID_RESPONSE with an empty text', async ([, reply]) => {
    const { error, result } = await fail(summing(), [reply], input);
    expect(error).toMatchObject({ code: 'INVALID_RESPONSE', context: { attempt: 1, iteration: 1, text: '' } });
    expect(rolesIn(result.messages)).toEqual(['user']);
  });

  test('with textOnly "feedback", each is answered by a user message and stays in the history', async () => {
    const { result, requests } = await succeed(
      summing({ helpers: [look], validation: { textOnly: 'feedback' } }),
      [empty, thinking, 'It is 3.', calling('look', { at: 'a' }), empty, empty, calling('answer', { total: 3 })],
      input,
    );
    expect(rolesIn(requests.at(-1)!.messages)).toEqual([
      'user',
      'assistant',
      'user',
      'assistant',
      'user',
      'assistant',
      'user',
      'assistant',
      'tool',
      'user',
      'assistant',
      'user',
    ]);
    expect(requests[1]!.messages.slice(1)).toEqual([
      { role: 'assistant', content: [{ type: 'text', text: '(The reply was empty.)' }] },
      {
        role: 'user',
        content: [
          {
            type: 'text',
            text: 'Your reply called no tool. Work with the tools, and give your answer by calling "answer".',
          },
        ],
      },
    ]);
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 7 });
  });

  test('count as iterations', async () => {
    const { error } = await fail(
      summing({ validation: { textOnly: 'feedback', maxIterationsPerAttempt: 2 } }),
      ['Hm.', 'Hm.'],
      input,
    );
    expect(error.context).toEqual({ attempt: 1, iterationCount: 2, maxIterations: 2 });
  });

  test('an empty text in a reply with a call is dropped', async () => {
    const { result } = await succeed(
      summing(),
      [{ text: '', calls: [{ name: 'answer', arguments: { total: 3 } }] }],
      input,
    );
    expect(result.output).toEqual({ total: 3 });
  });
});
