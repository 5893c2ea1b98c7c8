import { expect, test } from 'vitest';
import { z } from 'zod';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { replay } from '../journal/replay.ts';
import { defineAgent } from './define.ts';
import { executeAgent } from './execute.ts';

test('a pure helper does not overwrite the state that a concurrent helper wrote', async () => {
  const { promise: written, resolve: write } = Promise.withResolvers<void>();
  const agent = defineAgent({
    name: 'counting',
    description: 'Counts',
    model: scriptedModel([
      { calls: [{ name: 'read' }, { name: 'count' }] },
      { calls: [{ name: 'answer', arguments: { output: 1 } }] },
    ]),
    prompts: { user: 'Count.' },
    state: { run: { seen: 0 }, attempt: { seen: 0 } },
    tools: {
      helpers: [
        {
          definition: { name: 'read', description: 'Reads', effect: 'pure' },
          handler: async (_, { state }) => {
            await written;
            return state.run.seen;
          },
        },
        {
          definition: { name: 'count', description: 'Counts' },
          handler: (_, { state }) => {
            state.run.seen++;
            state.attempt.seen++;
            return state.run.seen;
          },
        },
      ],
      output: { name: 'answer', description: 'The answer' },
    },
    validation: { outputSchema: z.number(), maxAttempts: 1 },
    projectFinalState: ({ run, attempt }) => ({ run, attempt }),
  });

  const settled: unknown[] = [];
  const result = await executeAgent(agent, {
    input: undefined,
    callbacks: { onToolResult: (_, name) => name === 'count' && write() },
    onItem: (item) => {
      if (item.type === 'fact' && item.event.type === 'tool-settled') settled.push(item.event.result);
    },
  });

  expect(settled).toEqual([
    {
      type: 'result',
      content: [{ type: 'text', text: '1' }],
      isError: false,
      memory: { run: { seen: 1 }, attempt: { seen: 1 } },
    },
    { type: 'result', content: [{ type: 'text', text: '0' }], isError: false },
  ]);
  expect(result).toMatchObject({ type: 'success', finalState: { run: { seen: 1 }, attempt: { seen: 1 } } });
});

test('a validator that never returns falls under toolTimeoutMs, and does not count when it returns later', async () => {
  const clock = manualClock();
  const late = Promise.withResolvers<void>();
  const signals: AbortSignal[] = [];
  const agent = defineAgent({
    name: 'slow',
    description: 'Answers',
    model: scriptedModel([1, 2].map((output) => ({ calls: [{ name: 'answer', arguments: { output } }] }))),
    prompts: { user: 'Go.' },
    tools: { output: { name: 'answer', description: 'The answer' } },
    validation: {
      outputSchema: z.number(),
      maxAttempts: 2,
      customValidators: [
        {
          name: 'judge',
          async validate(output, { signal }) {
            signals.push(signal);
            if (output === 1) await late.promise;
            // The first attempt returns before the second one is accepted.
            else late.resolve();
          },
        },
      ],
    },
    toolTimeoutMs: 500,
  });
  const running = executeAgent(agent, { input: undefined, clock });
  await clock.advance(500);
  expect(await running).toMatchObject({ type: 'success', output: 2, metadata: { attempts: 2 } });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  expect(clock.pending).toBe(0);
});

test('a run that was detached is resumed by executing it again', async () => {
  const detaching = new AbortController();
  const model = scriptedModel([
    { calls: [{ name: 'work' }] },
    { calls: [{ name: 'answer', arguments: { output: 1 } }] },
  ]);
  let attempts = 0;
  const agent = defineAgent({
    name: 'working',
    description: 'Works',
    model,
    prompts: { user: 'Work.' },
    tools: {
      helpers: [
        {
          definition: { name: 'work', description: 'Works', effect: 'idempotent' },
          handler: (_, { signal }) => {
            attempts += 1;
            if (attempts > 1) return 'worked';
            queueMicrotask(() => detaching.abort());
            return new Promise((resolve) => {
              signal.addEventListener('abort', resolve);
            });
          },
        },
      ],
      output: { name: 'answer', description: 'The answer' },
    },
    validation: { outputSchema: z.number(), maxAttempts: 1 },
  });
  const options = { input: undefined, journal: memoryJournal(), runId: 'run' };
  expect(await executeAgent(agent, { ...options, detach: detaching.signal })).toMatchObject({
    error: { code: 'EXECUTION_PAUSED', context: { waiting: [] } },
  });
  expect(await executeAgent(agent, options)).toMatchObject({ type: 'success', output: 1 });
  expect(attempts).toBe(2);
  model.assertDone();
});

test.each([
  [{ settings: { temprature: 1 } }, 'An execution has no setting "temprature". Did you mean "temperature"?'],
  [{ jurnal: memoryJournal() }, 'An execution has no option "jurnal". Did you mean "journal"?'],
  [{ runId: '' }, 'An execution has "" as "runId". Use a text that is not empty.'],
  [{ onItem: 'log' }, 'An execution has "log" as "onItem". Use a function.'],
  [{ callbacks: { onSucess: () => {} } }, 'An execution has no callback "onSucess". Did you mean "onSuccess"?'],
  [{ callbacks: { onSuccess: 1 } }, 'An execution has 1 as "onSuccess". Use a function.'],
])('rejects the options %j of an execution', async (wrong, message) => {
  const agent = defineAgent({
    name: 'a',
    description: 'An agent',
    model: scriptedModel([]),
    prompts: { user: 'Go' },
    tools: { output: { name: 'answer', description: 'The answer' } },
    validation: { outputSchema: z.number(), maxAttempts: 1 },
  });
  await expect(executeAgent(agent, { input: undefined, ...(wrong as object) })).rejects.toThrow(message);
});

test('the results of helpers and reflections are filtered, and count as what they expose', async () => {
  const journal = memoryJournal();
  const agent = defineAgent({
    name: 'filtered',
    description: 'Answers',
    model: scriptedModel([
      { calls: [{ name: 'read' }] },
      { calls: [{ name: 'answer', arguments: { output: 1 } }] },
      { calls: [{ name: 'submit' }] },
    ]),
    prompts: { user: 'Go.' },
    tools: {
      helpers: [
        {
          definition: { name: 'read', description: 'Reads', touches: () => [{ type: 'read', path: '.env' }] },
          handler: () => 'The key is sk-secret.',
        },
      ],
      output: { name: 'answer', description: 'The answer', reflectionHandler: () => 'Is it sk-secret?' },
    },
    validation: { outputSchema: z.number(), maxAttempts: 1 },
  });
  const result = await executeAgent(agent, {
    input: undefined,
    journal,
    runId: 'run',
    resultFilters: [
      {
        name: 'secrets',
        filter: ({ content }) => ({
          type: 'changed',
          content: content.map((block) =>
            'text' in block ? { ...block, text: block.text.replace('sk-secret', '[key]') } : block,
          ),
        }),
      },
    ],
    exposes: (touch) => (touch.type === 'read' ? 'private' : undefined),
  });
  expect(result).toMatchObject({ type: 'success', output: 1 });
  const entries = await journal.read('run');
  expect(JSON.stringify(entries)).not.toContain('sk-secret');
  expect(JSON.stringify(result.messages)).toContain('Is it [key]?');
  expect(replay(entries).state.exposure).toMatchObject({ private: { tool: 'read', what: 'read .env' } });
});
