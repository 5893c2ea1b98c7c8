import { expect, test } from 'vitest';
import { TreadleError } from '../errors.ts';
import type { Journal } from '../journal/port.ts';
import { userText, type Message } from '../messages.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { registry } from '../tools/registry.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { ContinueOptions, LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const quick = tool({ name: 'quick', description: 'quick', execute: () => 'quick ran' });
const pick = tool({ name: 'pick', description: 'The client picks' });

/** What somebody gets who does it wrong, from both faces; and nothing was asked or executed. */
async function misuse(options: Partial<LoopOptions>): Promise<unknown> {
  const model = scriptedModel([]);
  const whole = { model, tools: [quick], input: 'Go.', ...options };
  const thrown = await runLoop(whole).catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(TreadleError);
  expect(() => streamLoop(whole)).toThrow((thrown as Error).message);
  expect(model.requests).toEqual([]);
  const { code, message } = thrown as TreadleError;
  return { code, message };
}

const wrong: readonly (readonly [string, Partial<LoopOptions>, string])[] = [
  [
    'no model',
    { model: undefined as never },
    'There is no model. Pass one, such as openaiChat({ model }) of @treadle/models.',
  ],
  ['no turns', { maxTurns: 0 }, 'maxTurns is 0. Use a whole number of at least 1.'],
  ['half a turn', { maxTurns: 1.5 }, 'maxTurns is 1.5. Use a whole number of at least 1.'],
  ['endless turns', { maxTurns: Infinity }, 'maxTurns is Infinity. Use a whole number of at least 1.'],
  ['nothing in parallel', { maxParallel: 0 }, 'maxParallel is 0. Use a whole number of at least 1.'],
  ['no calls', { maxCallsPerTurn: 0 }, 'maxCallsPerTurn is 0. Use a whole number of at least 1.'],
  ['negative errors', { errorLimit: -1 }, 'errorLimit is -1. Use a whole number of at least 0.'],
  ['no number of repetitions', { repeatLimit: NaN }, 'repeatLimit is NaN. Use a whole number of at least 0.'],
  ['no room', { maxResultChars: 0 }, 'maxResultChars is 0. Use a whole number of at least 1.'],
  ['no time', { toolTimeoutMs: 0 }, 'toolTimeoutMs is 0. Use a whole number of at least 1.'],
  [
    'an unknown limit',
    { limits: { money: 1 } as never },
    'limits.money is not a limit. The limits are calls, tokens, cost, durationMs.',
  ],
  [
    'a limit without end',
    { limits: { tokens: Infinity } },
    'limits.tokens is Infinity. Use a number of at least 0, or omit it for no limit.',
  ],
  [
    'a negative limit',
    { limits: { cost: -1 } },
    'limits.cost is -1. Use a number of at least 0, or omit it for no limit.',
  ],
  ['an unknown finish', { finish: 'maybe' as never }, 'finish is "maybe"; it can be "plain" or "confirm".'],
  [
    'a demand for a tool that is not there',
    { toolChoice: { tool: 'quikc' } },
    '"quikc" is named in toolChoice or allowedTools, but there is no such tool.',
  ],
  [
    'leave for a tool that is not there',
    { allowedTools: ['quick', 'quikc'] },
    '"quikc" is named in toolChoice or allowedTools, but there is no such tool.',
  ],
  [
    'a demand without tools',
    { toolChoice: 'required', tools: [] },
    'toolChoice is "required", but there is no tool to call. Add tools, or omit toolChoice.',
  ],
  [
    'a demand for what is not allowed',
    { toolChoice: { tool: 'pick' }, allowedTools: ['quick'], tools: [quick, pick] },
    'toolChoice requires "pick", which is not in allowedTools.',
  ],
];

test.each(wrong)('misuse: %s is invalid-options, and the message says what to do', async (_, options, message) => {
  expect(await misuse(options)).toEqual({ code: 'invalid-options', message });
});

const assistant = (...ids: string[]): Message => ({
  role: 'assistant',
  content: ids.map((id) => ({ type: 'tool-call', id, name: 'quick', arguments: '{}' })),
});
const results = (...ids: string[]): Message => ({
  role: 'tool',
  content: ids.map((callId) => ({ type: 'tool-result', callId, name: 'quick', content: [], isError: false })),
});

const conversations: readonly (readonly [string, unknown, string])[] = [
  ['nothing', undefined, 'it is empty. Pass a text, or at least one message.'],
  ['no messages', [], 'it is empty. Pass a text, or at least one message.'],
  ['a text for a message', ['hello'], 'message 0 does not have a role of user, assistant, tool and an array of '],
  [
    'a system message',
    [{ role: 'system', content: [] }],
    'message 0 does not have a role of user, assistant, tool and an array of ',
  ],
  [
    'a text for content',
    [{ role: 'user', content: 'hello' }],
    'message 0 does not have a role of user, assistant, tool and an array of ',
  ],
  ['a call without its result', [userText('a'), assistant('1')], 'the calls [1] of its last message have no results.'],
  [
    'a call with a late result',
    [assistant('1'), userText('a'), results('1')],
    'message 1 comes before the results of the calls [1].',
  ],
  [
    'results in another order',
    [assistant('1', '2'), results('2', '1')],
    'message 1 answers the calls [2, 1], but the open calls are [1, 2].',
  ],
  [
    'a result too few',
    [assistant('1', '2'), results('1')],
    'message 1 answers the calls [1], but the open calls are [1, 2].',
  ],
  [
    'a result for nothing',
    [userText('a'), results('1')],
    'message 1 answers the calls [1], but the open calls are [].',
  ],
  ['a message of no results', [userText('a'), results()], 'message 1 answers the calls [], but the open calls are [].'],
];

test.each(conversations)('misuse: %s as input is invalid-input, and the message says where', async (_, input, what) => {
  const words = `The input is not a valid conversation: ${what}`;
  expect(await misuse({ input: input as never })).toEqual({
    code: 'invalid-input',
    message: expect.stringContaining(words),
  });
});

test('misuse: a conversation with calls and their results is fine', async () => {
  using model = scriptedModel(['Done.']);
  const input = [userText('a'), assistant('1', '2'), results('1', '2'), userText('b')];
  expect((await runLoop({ model, input })).messages).toHaveLength(5);
});

test('misuse: two tools of one name are duplicate-tool, naming both sources', async () => {
  expect(await misuse({ tools: [quick, pick, { ...pick, name: 'quick' }] })).toEqual({
    code: 'duplicate-tool',
    message: 'There are two tools named "quick": one from tools[0], one from tools[2]. Rename or leave out one.',
  });
  const known = registry();
  known.register(quick, 'a.ts');
  expect(() => known.register(quick, 'b.ts')).toThrow(
    expect.objectContaining({
      code: 'duplicate-tool',
      message: expect.stringContaining('one from a.ts, one from b.ts'),
    }),
  );
});

test.each([
  [
    'a name that providers refuse',
    { name: 'get weather', description: '' },
    /Use 1 to 64 letters, digits, "_" or "-"\.$/,
  ],
  ['no description', { name: 'x' }, /Describe in a sentence what it does\.$/],
  ['no time to run', { name: 'x', description: '', timeoutMs: 0 }, /Give a number above 0\.$/],
])('misuse: a tool with %s is invalid-tool', (_, definition, message) => {
  expect(() => tool(definition as never)).toThrow(
    expect.objectContaining({ code: 'invalid-tool', message: expect.stringMatching(message) }),
  );
});

// ── continuing ───────────────────────────────────────────────────────────────────────────────────────────────────────

const goingOn = (options: Partial<ContinueOptions>): Promise<unknown> =>
  runLoop({ model: scriptedModel([]), tools: [pick], runId: 'run', journal: memoryJournal(), answers: [], ...options });

test('misuse: going on with an unknown run is unknown-run', async () => {
  await expect(goingOn({})).rejects.toMatchObject({
    code: 'unknown-run',
    message: 'The journal has no run "run". Check the id, and that this is the journal the run was started with.',
  });
});

test('misuse: going on without a journal is invalid-options', async () => {
  await expect(goingOn({ journal: undefined as never })).rejects.toMatchObject({
    code: 'invalid-options',
    message: 'To resume a run, pass the journal that contains it, and its runId.',
  });
});

test('misuse: streamLoop tells it by its result, and by the iteration; nobody has to look', async () => {
  const live = streamLoop({ model: scriptedModel([]), runId: 'run', journal: memoryJournal(), answers: [] });
  const read = async (): Promise<void> => {
    for await (const _ of live) throw new Error('there is nothing to read');
  };
  await expect(read()).rejects.toMatchObject({ code: 'unknown-run' });
  await expect(live.result).rejects.toMatchObject({ code: 'unknown-run' });
});

test('misuse: a runId that exists is run-exists; the run that has it is untouched, and nothing is asked', async () => {
  const journal = memoryJournal();
  await runLoop({ model: scriptedModel(['Done.']), input: 'Go.', journal, runId: 'run' });
  const before = await journal.read('run');
  const model = scriptedModel(['x']);
  await expect(runLoop({ model, input: 'Go again.', journal, runId: 'run' })).rejects.toMatchObject({
    code: 'run-exists',
    message: expect.stringContaining('"run"'),
  });
  expect(model.requests).toEqual([]);
  expect(await journal.read('run')).toEqual(before);
});

test('misuse: a journal that was changed is journal-damaged, and says where', async () => {
  const journal = memoryJournal();
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'pick' }] }]),
    tools: [pick],
    input: 'Go.',
    journal,
    runId: 'run',
  });
  const [started, replied] = await journal.read('run');
  const damaged: readonly (readonly [string, Journal['read']])[] = [
    [
      'at entry 0, the history for t1.model.0 has digest',
      async () => [{ ...started!, event: { ...started!.event, input: [userText('Stop.')] } as never }],
    ],
    ['at entry 1, the event "run-started" no longer applies', async () => [started!, { ...started!, seq: 1 }]],
    [
      'at entry 1, it issued t1.tool.0; now it issues t1.client.0',
      async () => [started!, { ...replied!, issued: ['t1.tool.0'] }],
    ],
    ['at entry 1, the entry at position 1 has the number 7', async () => [started!, { ...replied!, seq: 7 }]],
    ['at entry 0, the entry has version 2; this code reads version 1', async () => [{ ...started!, v: 2 as never }]],
  ];
  for (const [where, read] of damaged) {
    await expect(goingOn({ journal: { append: () => {}, read } })).rejects.toMatchObject({
      code: 'journal-damaged',
      message: expect.stringContaining(`Run "run" cannot be resumed: ${where}`),
    });
  }
});

test('misuse: an answer to a live run that waits for nothing is answer-unfit', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.', runId: 'run' });
  const answer = { type: 'client-result', effect: 't1.client.0', content: '' } as const;
  const unfit = { code: 'answer-unfit', message: 'Run "run" does not wait for "t1.client.0". It waits for nothing.' };
  expect(() => live.answer(answer)).toThrow(expect.objectContaining(unfit));
  await live.result;
  expect(() => live.answer(answer)).toThrow(expect.objectContaining(unfit));
});

test('misuse: iterating twice is invalid-options, and says what to use instead', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.' });
  for await (const _ of live);
  expect(() => live[Symbol.asyncIterator]()).toThrow(
    expect.objectContaining({ code: 'invalid-options', message: expect.stringContaining('Use onItem') }),
  );
});

// ── a journal that fails ─────────────────────────────────────────────────────────────────────────────────────────────

/** Fails from the nth append on, at once or later. */
function failing(from: number, how: 'throws' | 'rejects'): Journal {
  const journal = memoryJournal();
  let appends = 0;
  return {
    ...journal,
    append(...appended) {
      if (appends++ < from) return journal.append(...appended);
      if (how === 'rejects') return Promise.reject(new Error('disk full'));
      throw new Error('disk full');
    },
  };
}

const failures = (['throws', 'rejects'] as const).flatMap((how) => [0, 1, 2].map((from) => [how, from] as const));

test.each(failures)(
  'a journal that %s at append %i: journal-failed, and nothing that follows is done',
  async (how, from) => {
    const ran: string[] = [];
    const act = tool({ name: 'act', description: 'act', execute: () => `acted ${ran.push('act')}` });
    const model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
    const facts: string[] = [];
    const onItem = (item: Item): unknown => item.type === 'fact' && facts.push(item.event.type);
    const run = runLoop({ model, tools: [act], input: 'Go.', journal: failing(from, how), runId: 'run', onItem });
    await expect(run).rejects.toMatchObject({
      code: 'journal-failed',
      message: 'The journal failed, so run "run" stopped: disk full',
      cause: new Error('disk full'),
    });
    // run-started → the model; model-replied → the tool; tool-settled → the model again
    expect(model.requests).toHaveLength(from === 0 ? 0 : 1);
    expect(ran).toHaveLength(from === 2 ? 1 : 0);
    expect(facts).toEqual(['run-started', 'model-replied', 'tool-settled'].slice(0, from));
  },
);

test('a journal that fails stops what goes on beside it', async () => {
  const clock = manualClock();
  let told: AbortSignal | undefined;
  const hang = tool({
    name: 'hang',
    description: 'hang',
    execute: (_, { signal }) => ((told = signal), new Promise(() => {})),
  });
  const slow = tool({
    name: 'slow',
    description: 'slow',
    execute: () => new Promise((end) => clock.timer(5, () => end('ok'))),
  });
  using model = scriptedModel([{ calls: [{ name: 'hang' }, { name: 'slow' }] }]);
  const live = streamLoop({ model, tools: [hang, slow], input: 'Go.', journal: failing(2, 'rejects'), clock });
  await clock.advance(5);
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
  expect(told!.aborted).toBe(true);
  expect(live.send('Too late.')).toBe(false);
  expect(clock.pending).toBe(0);
});

test('a journal that fails while nobody looks at the result brings nothing down', async () => {
  const clock = manualClock();
  streamLoop({ model: scriptedModel(['x']), input: 'Go.', journal: failing(0, 'rejects'), clock });
  streamLoop({ model: scriptedModel([]), runId: 'run', journal: failing(0, 'throws'), answers: [], clock });
  await clock.advance(0); // an unhandled rejection would fail the test run
});

test('a journal that cannot be read: journal-failed', async () => {
  const read = (): Promise<never> => Promise.reject(new Error('no disk'));
  await expect(goingOn({ journal: { append: () => {}, read } })).rejects.toMatchObject({
    code: 'journal-failed',
    message: expect.stringContaining('no disk'),
  });
});

test('a journal that is slow: nothing begins before the fact that caused it is durable', async () => {
  const clock = manualClock();
  const log: string[] = [];
  const journal: Journal = {
    ...memoryJournal(),
    append: (_, entries) =>
      new Promise((resolve) =>
        clock.timer(10, () => {
          for (const { event } of entries) log.push(`durable: ${event.type}`);
          resolve();
        }),
      ),
  };
  const act = tool({ name: 'act', description: 'act', execute: () => (log.push('tool'), 'acted') });
  using model = scriptedModel([
    () => (log.push('model'), { calls: [{ name: 'act' }] }),
    () => (log.push('model'), 'Done.'),
  ]);
  const run = runLoop({ model, tools: [act], input: 'Go.', journal, clock });
  await clock.advance(40);
  expect((await run).outcome).toEqual({ type: 'completed' });
  expect(log).toEqual([
    'durable: run-started',
    'model',
    'durable: model-replied',
    'tool',
    'durable: tool-settled',
    'model',
    'durable: model-replied',
  ]);
});
