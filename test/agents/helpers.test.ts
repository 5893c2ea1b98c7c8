import { executeAgent, tool, type HelperContext, type HelperTool } from '@treadle/core';
import { manualClock, memoryJournal } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { broken, even, look, reflecting, resultsIn, summing } from './agents.ts';
import { calling, callingAll, fail, succeed } from './run.ts';

const input = '1, 2';
const answer = calling('answer', { total: 4 });

/** A pure helper that counts how often it runs. */
function counting(
  handler: (input: { at: string }, context: HelperContext) => unknown = ({ at }) => `seen ${at}`,
  changes: Partial<HelperTool> = { cache: true },
): { readonly helper: HelperTool; readonly runs: () => number } {
  let runs = 0;
  const helper: HelperTool = {
    definition: { ...look.definition, effect: 'pure' },
    handler: (args, context) => {
      runs++;
      return handler(args as { at: string }, context);
    },
    ...changes,
  };
  return { helper, runs: () => runs };
}

describe('cache', () => {
  const twice = [calling('look', { at: 'a' }), calling('look', { at: 'a' }), calling('look', { at: 'b' }), answer];

  test('is off by default', async () => {
    const { helper, runs } = counting(undefined, {});
    await succeed(summing({ helpers: [helper] }), twice, { input });
    expect(runs()).toBe(3);
  });

  test.for(['sync', 'async'] as const)('runs the same call once per attempt, %s', async (how) => {
    const { helper, runs } = counting(({ at }) => (how === 'sync' ? `seen ${at}` : Promise.resolve(`seen ${at}`)));
    const { result, log } = await succeed(summing({ helpers: [helper] }), twice, { input });
    expect(runs()).toBe(2);
    expect(resultsIn(result.messages).slice(0, 3)).toEqual([['look: seen a'], ['look: seen a'], ['look: seen b']]);
    expect(result.metadata.tools['look']).toEqual({ calls: 3, errors: 0 });
    expect(log.filter(([name]) => name === 'onToolCall')).toHaveLength(3);
  });

  test('is cleared with each attempt', async () => {
    const { helper, runs } = counting();
    await succeed(
      summing({ helpers: [helper], validation: { customValidators: [even] } }),
      [calling('look', { at: 'a' }), calling('answer', { total: 3 }), calling('look', { at: 'a' }), answer],
      { input },
    );
    expect(runs()).toBe(2);
  });

  test('is not shared between executions', async () => {
    const { helper, runs } = counting();
    const agent = summing({ helpers: [helper] });
    await succeed(agent, [calling('look', { at: 'a' }), answer], { input });
    await succeed(agent, [calling('look', { at: 'a' }), answer], { input });
    expect(runs()).toBe(2);
  });

  test('runs identical parallel calls once', async () => {
    const { helper, runs } = counting(async ({ at }) => `seen ${at}`);
    const { result } = await succeed(
      summing({ helpers: [helper] }),
      [callingAll(['look', { at: 'a' }], ['look', { at: 'b' }], ['look', { at: 'a' }]), answer],
      { input },
    );
    expect(runs()).toBe(2);
    expect(resultsIn(result.messages)[0]).toEqual(['look: seen a', 'look: seen b', 'look: seen a']);
  });

  test('caches falsy results', async () => {
    const { helper, runs } = counting(() => undefined);
    await succeed(summing({ helpers: [helper] }), twice, { input });
    expect(runs()).toBe(2);
  });

  const ways: readonly (readonly [string, () => unknown])[] = [
    [
      'thrown',
      (): never => {
        throw new Error('not now');
      },
    ],
    ['rejected', () => Promise.reject(new Error('not now'))],
    ['returned', () => ({ content: 'not now', isError: true })],
    ['returned by a promise', async () => ({ content: 'not now', isError: true })],
  ];

  test.for(ways)('does not cache an error that is %s', async ([, fails]) => {
    let first = true;
    const { helper, runs } = counting(() => {
      const give = first ? fails : () => 'seen';
      first = false;
      return give();
    });
    const { result } = await succeed(
      summing({ helpers: [helper] }),
      [calling('look', { at: 'a' }), calling('look', { at: 'a' }), calling('look', { at: 'a' }), answer],
      { input },
    );
    expect(resultsIn(result.messages).slice(0, 3)).toEqual([
      [expect.stringMatching(/^look!: .*not now/)],
      ['look: seen'],
      ['look: seen'],
    ]);
    expect(runs()).toBe(2);
  });

  test('does not cache a call that timed out', async () => {
    const clock = manualClock();
    let hangs = true;
    const { helper, runs } = counting(() => {
      if (!hangs) return 'seen';
      hangs = false;
      setImmediate(() => void clock.advance(100));
      return new Promise(() => {});
    });
    const { result } = await succeed(
      summing({ helpers: [helper], toolTimeoutMs: 100 }),
      [calling('look', { at: 'a' }), calling('look', { at: 'a' }), answer],
      { input, clock },
    );
    expect(resultsIn(result.messages)[1]).toEqual(['look: seen']);
    expect(runs()).toBe(2);
  });

  test('does not confuse inputs whose JSON is the same', async () => {
    const runs: unknown[] = [];
    const helper: HelperTool = {
      definition: {
        name: 'look',
        description: 'Looks',
        effect: 'pure',
        input: z.object({ at: z.array(z.string()).transform((at) => new Set(at)) }),
        parameters: { type: 'object' },
      },
      handler: (value) => {
        const seen = [...(value as { at: Set<string> }).at].join();
        runs.push(seen);
        return `seen ${seen}`;
      },
      cache: true,
    };
    const { result } = await succeed(
      summing({ helpers: [helper] }),
      [callingAll(['look', { at: ['a'] }], ['look', { at: ['b'] }]), answer],
      { input },
    );
    expect(resultsIn(result.messages)[0]).toEqual(['look: seen a', 'look: seen b']);
  });
});

describe('parallel calls', () => {
  function gated(most?: number): { readonly helper: HelperTool; readonly peak: () => number } {
    let running = 0;
    let peak = 0;
    const waiting: (() => void)[] = [];
    const open = most ?? 3;
    const helper: HelperTool = {
      definition: look.definition,
      async handler(value) {
        peak = Math.max(peak, ++running);
        if (running >= open) for (const go of waiting.splice(0)) go();
        else await new Promise<void>((resolve) => void waiting.push(resolve));
        running--;
        return `seen ${(value as { at: string }).at}`;
      },
    };
    return { helper, peak: () => peak };
  }
  const three = callingAll(['look', { at: 'a' }], ['look', { at: 'b' }], ['look', { at: 'c' }]);

  test('helpers of one reply run in parallel, and their results are in call order', async () => {
    const { helper, peak } = gated(3);
    const { result } = await succeed(summing({ helpers: [helper] }), [three, answer], { input });
    expect(peak()).toBe(3);
    expect(resultsIn(result.messages)[0]).toEqual(['look: seen a', 'look: seen b', 'look: seen c']);
  });

  test('parallel: false runs them one after the other', async () => {
    const { helper, peak } = gated(1);
    await succeed(summing({ helpers: [helper], parallel: false }), [three, answer], { input });
    expect(peak()).toBe(1);
  });

  test('maxParallel limits the calls that run at the same time', async () => {
    const { helper, peak } = gated(2);
    const four = callingAll(['look', { at: 'a' }], ['look', { at: 'b' }], ['look', { at: 'c' }], ['look', { at: 'd' }]);
    await succeed(summing({ helpers: [helper], maxParallel: 2 }), [four, answer], { input });
    expect(peak()).toBe(2);
  });

  test('reflections of one reply run in call order', async () => {
    const order: number[] = [];
    const agent = reflecting();
    const { result } = await succeed(
      {
        ...agent,
        tools: {
          output: {
            name: 'answer',
            description: 'Answers',
            reflectionHandler: async ({ total }) => {
              order.push(total);
              await Promise.resolve();
              order.push(total);
              return '';
            },
          },
        },
      },
      [callingAll(['answer', { total: 1 }], ['answer', { total: 2 }], ['submit'])],
      { input },
    );
    expect(order).toEqual([1, 1, 2, 2]);
    expect(result.output).toEqual({ total: 2 });
  });
});

describe('state', () => {
  interface Run {
    seen: string[];
  }
  interface Steps {
    count: number;
  }
  const noting: HelperTool<Run, Steps> = {
    definition: look.definition,
    handler: (value, { state, attempt }) => {
      state.run.seen.push((value as { at: string }).at);
      state.attempt.count++;
      return `${state.run.seen.join()} ${state.attempt.count} in attempt ${attempt}`;
    },
  };
  const state = { run: (value: string) => ({ seen: [value] }), attempt: { count: 0 } };
  const projectFinalState = (final: { run: Run; attempt: Steps }): unknown => ({
    run: final.run,
    attempt: final.attempt,
  });

  test('of the run lasts over attempts; of the attempt is reset', async () => {
    const { result } = await succeed(
      summing<Run, Steps>({ helpers: [noting], state, projectFinalState, validation: { customValidators: [even] } }),
      [
        callingAll(['look', { at: 'a' }], ['look', { at: 'b' }]),
        calling('answer', { total: 3 }),
        calling('look', { at: 'c' }),
        answer,
      ],
      { input: 'x' },
    );
    expect(resultsIn(result.messages)).toEqual([
      ['look: x,a 1 in attempt 1', 'look: x,a,b 2 in attempt 1'],
      ['answer!: Rejected by "even": 3 is odd'],
      ['look: x,a,b,c 1 in attempt 2'],
      ['answer: Accepted.'],
    ]);
    expect(result.finalState).toEqual({ run: { seen: ['x', 'a', 'b', 'c'] }, attempt: { count: 1 } });
  });

  test('discards the changes of a helper that failed', async () => {
    const failing: HelperTool<Run, Steps> = {
      definition: { name: 'fail', description: 'Writes and fails' },
      handler: (_, { state }) => {
        state.run.seen.push('never');
        throw new Error('no');
      },
    };
    const { result } = await succeed(
      summing<Run, Steps>({ helpers: [noting, failing], state, projectFinalState }),
      [callingAll(['look', { at: 'a' }], ['fail'], ['look', { at: 'b' }]), answer],
      { input: 'x' },
    );
    expect(result.finalState).toEqual({ run: { seen: ['x', 'a', 'b'] }, attempt: { count: 2 } });
  });

  test('helpers that may write run one after the other', async () => {
    const slow: HelperTool<Run, Steps> = {
      ...noting,
      handler: async (value, context) => {
        const before = context.state.attempt.count;
        await new Promise(setImmediate);
        context.state.attempt.count = before + 1;
        return value;
      },
    };
    const { result } = await succeed(
      summing<Run, Steps>({ helpers: [slow], state, projectFinalState }),
      [callingAll(['look', { at: 'a' }], ['look', { at: 'b' }], ['look', { at: 'c' }]), answer],
      { input: 'x' },
    );
    expect(result.finalState).toMatchObject({ attempt: { count: 3 } });
  });

  test('is frozen for pure helpers', async () => {
    const pure: HelperTool<Run, Steps> = {
      definition: { ...look.definition, effect: 'pure' },
      handler: (_, { state }) => {
        expect(Object.isFrozen(state.run.seen)).toBe(true);
        state.run.seen.push('never');
      },
    };
    const { result } = await succeed(
      summing<Run, Steps>({ helpers: [pure], state, projectFinalState }),
      [calling('look', { at: 'a' }), answer],
      { input: 'x' },
    );
    expect(resultsIn(result.messages)[0]).toEqual([expect.stringMatching(/^look!: .*(extensible|read only)/)]);
    expect(result.finalState).toEqual({ run: { seen: ['x'] }, attempt: { count: 0 } });
  });

  test('a change without a JSON form is an error result', async () => {
    const odd: HelperTool<{ n: unknown }> = {
      definition: look.definition,
      handler: (_, { state }) => void (state.run.n = 1n),
    };
    const { result } = await succeed(
      summing<{ n: unknown }>({ helpers: [odd], state: { run: { n: 1 } }, projectFinalState: ({ run }) => run }),
      [calling('look', { at: 'a' }), answer],
      { input },
    );
    expect(resultsIn(result.messages)[0]).toEqual([
      expect.stringMatching(/^look!: What the tool "look" remembers cannot be stored: /),
    ]);
    expect(result.finalState).toEqual({ n: 1 });
  });

  test('is journaled with the result', async () => {
    const journal = memoryJournal();
    const agent = summing<Run, Steps>({ helpers: [noting], state, projectFinalState });
    const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
    await fail(agent, [calling('look', { at: 'a' }), failure], { input: 'x', journal, runId: 'r' });
    const settled = (await journal.read('r')).find(({ event }) => event.type === 'tool-settled');
    expect(settled?.event).toMatchObject({ result: { memory: { run: { seen: ['x', 'a'] }, attempt: { count: 1 } } } });
  });

  test('rejects an initial state that is not JSON', async () => {
    const agent = summing<unknown>({ state: { run: { n: 1n } } });
    await expect(fail(agent, [], { input })).rejects.toThrow(
      'The state of agent "summing" cannot be created, or is not plain JSON',
    );
  });

  test('is unchanged without helpers that write', async () => {
    const { result } = await succeed(summing<Run, Steps>({ state, projectFinalState }), [answer], { input: 'x' });
    expect(result.finalState).toEqual({ run: { seen: ['x'] }, attempt: { count: 0 } });
  });
});

describe('plain tools as helpers', () => {
  test('work together with handlers', async () => {
    const double = tool({
      name: 'double',
      description: 'Doubles',
      input: z.object({ n: z.number() }),
      execute: ({ n }) => n * 2,
    });
    const { result } = await succeed(
      summing({ helpers: [look, double] }),
      [callingAll(['double', { n: 2 }], ['look', { at: 'a' }]), answer],
      { input },
    );
    expect(resultsIn(result.messages)[0]).toEqual(['double: 4', 'look: seen a']);
  });
});

test('inputs are validated before the handler is called', async () => {
  const seen: unknown[] = [];
  const helper: HelperTool = {
    definition: {
      name: 'look',
      description: 'Looks',
      input: z.object({ n: z.coerce.number() }),
      parameters: { type: 'object' },
    },
    handler: (value) => void seen.push(value),
  };
  const { result } = await succeed(
    summing({ helpers: [helper] }),
    [callingAll(['look', { n: 'x' }], ['look', { n: '3' }]), answer],
    { input },
  );
  expect(seen).toEqual([{ n: 3 }]);
  expect(resultsIn(result.messages)[0]![0]).toMatch(/^look!: The tool "look" was not called\. .*n/);
});

test('a helper gets the context, a signal and a key', async () => {
  const contexts: HelperContext[] = [];
  const context = { user: 'me' };
  const helper: HelperTool = {
    definition: look.definition,
    handler: (_, received) => void contexts.push(received),
  };
  await succeed(summing({ helpers: [helper] }), [calling('look', { at: 'a' }), answer], { input, context, runId: 'r' });
  const { signal, report, ask, hold, ...rest } = contexts[0]!;
  expect(signal).toBeInstanceOf(AbortSignal);
  for (const method of [report, ask, hold]) expect(method).toBeTypeOf('function');
  expect(rest).toEqual({ key: 'r/t1.tool.0', context, principal: undefined, agentInput: input, state: {}, attempt: 1 });
});

test('metadata.tools counts the calls and errors of every tool name', async () => {
  const { result } = await succeed(
    reflecting({ helpers: [look, broken], validation: { customValidators: [even], earlySubmit: 'feedback' } }),
    [
      calling('submit'),
      callingAll(['look', { at: 'a' }], ['look', {}], ['broken'], ['nothing']),
      callingAll(['answer', { total: 'x' }], ['answer', { total: 3 }], ['submit'], ['submit']),
      callingAll(['answer', { total: 4 }], ['submit']),
    ],
    { input },
  );
  expect(result.metadata.tools).toEqual({
    submit: { calls: 4, errors: 0 },
    look: { calls: 2, errors: 1 },
    broken: { calls: 1, errors: 1 },
    nothing: { calls: 1, errors: 1 },
    answer: { calls: 3, errors: 1 },
  });
});

test('submit can have another name and description', async () => {
  const agent = reflecting();
  const submit = { name: 'done', description: 'Says that it is done' };
  const output = { name: 'answer', description: 'Answers', reflectionHandler: () => 'fine', submit };
  const { result, requests, log } = await succeed(
    { ...agent, tools: { output } },
    [calling('submit'), calling('answer', { total: 4 }), calling('done')],
    { input },
  );
  expect(requests[0]!.tools[1]).toMatchObject(submit);
  expect(resultsIn(result.messages)).toEqual([
    ['submit!: There is no tool "submit". Available tools: answer, done. Use one of them.'],
    ['answer: fine'],
    ['done: Accepted.'],
  ]);
  expect(log).toContainEqual(['onToolCall', '1/2 3/15', 'done', {}]);
});

test('passes settings, toolChoice and maxResultChars to the loop', async () => {
  const long = { definition: look.definition, handler: () => 'x'.repeat(100) };
  const { requests, result } = await succeed(
    summing({ helpers: [long], toolChoice: 'auto', maxResultChars: 20, settings: { temperature: 0, seed: 1 } }),
    [calling('look', { at: 'a' }), answer],
    { input, settings: { seed: 2 } },
  );
  expect(requests[0]).toMatchObject({ toolChoice: 'auto', settings: { temperature: 0, seed: 2 } });
  expect(resultsIn(result.messages)[0]![0]).toContain('80 of 100 characters left out');
});

test('a plain tool does not get the state of the agent', async () => {
  const seen: unknown[] = [];
  const plain = tool({
    name: 'plain',
    description: 'Looks at its context',
    execute: (_, context) => void seen.push(context.memory),
  });
  const agent = { ...summing({ helpers: [plain] }), state: { run: { n: 1 } } };
  await succeed(agent, [calling('plain'), answer], { input });
  expect(seen).toEqual([undefined]);
});

test('rejects an initial state that throws', async () => {
  const broken = (): never => {
    throw new Error('no such file');
  };
  const agent = { ...summing(), state: { run: broken } };
  await expect(executeAgent(agent, { input })).rejects.toThrow(
    'The state of agent "summing" cannot be created, or is not plain JSON: no such file',
  );
});

test.each([
  ['a Set', { seen: new Set() }],
  ['a Date', { at: new Date(0) }],
  ['NaN', { n: Number.NaN }],
])('rejects %s in the state', async (_, run) => {
  await expect(executeAgent({ ...summing(), state: { run } }, { input })).rejects.toThrow(
    'it contains a value that JSON cannot represent, such as a Date or a Set',
  );
  const writer: HelperTool<{ kept: unknown }> = {
    definition: look.definition,
    handler: (_value, { state }) => void (state.run.kept = run),
  };
  const agent = { ...summing({ helpers: [writer] }), state: { run: { kept: 1 } } };
  const { result } = await succeed(agent, [calling('look', { at: 'a' }), answer], { input });
  expect(resultsIn(result.messages)[0]![0]).toContain(
    'cannot be stored: it contains a value that JSON cannot represent',
  );
});
