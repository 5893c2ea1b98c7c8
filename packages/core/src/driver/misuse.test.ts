import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { agentTool } from '../agents/agent-tool.ts';
import { TreadleError } from '../errors.ts';
import type { Journal } from '../journal/port.ts';
import { forkRun } from '../journal/fork.ts';
import { userText, type Message } from '../messages.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { registry } from '../tools/registry.ts';
import { tool, type ToolDefinition } from '../tools/tool.ts';
import { handoff } from './handoff.ts';
import type { ContinueOptions, LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const quick = tool({ name: 'quick', description: 'quick', execute: () => 'quick ran' });
const pick = tool({ name: 'pick', description: 'The client picks' });

/** The error of runLoop and streamLoop for these options. Expects that no model is called. */
async function errorFor(options: Partial<LoopOptions>): Promise<unknown> {
  const model = scriptedModel([]);
  const whole = { model, tools: [quick], input: 'Go.', ...options };
  const thrown = await runLoop(whole).catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(TreadleError);
  expect(() => streamLoop(whole)).toThrow((thrown as Error).message);
  expect(model.requests).toEqual([]);
  const { code, message } = thrown as TreadleError;
  return { code, message };
}

const invalidOptions: readonly (readonly [string, Partial<LoopOptions>, string])[] = [
  [
    'a missing model',
    { model: undefined as never },
    'There is no model. Pass one, such as openaiChat({ model }) of @treadle/models.',
  ],
  ['maxTurns 0', { maxTurns: 0 }, 'maxTurns is 0. Use a whole number of at least 1.'],
  ['a fraction as maxTurns', { maxTurns: 1.5 }, 'maxTurns is 1.5. Use a whole number of at least 1.'],
  ['a text as maxTurns', { maxTurns: '3' as never }, 'A run has "3" as "maxTurns". Use a number.'],
  ['a number as limits', { limits: 5 as never }, 'A run has 5 as "limits". Use an object.'],
  [
    'a text as a limit',
    { limits: { tokens: '5' as never } },
    'limits.tokens is "5". Use a number of at least 0, or omit it for no limit.',
  ],
  ['a number as runId', { runId: 7 as never }, 'A run has 7 as "runId". Use a text that is not empty.'],
  [
    'an object as instructions',
    { instructions: { a: 1 } as never },
    'A run has an object as "instructions". Use a text.',
  ],
  [
    'rules as policy',
    { policy: { deny: ['bash'] } as never },
    'The policy has no "judge". Pass policy(rules) of @treadle/core/policy.',
  ],
  [
    'a text as output',
    { output: 'json' as never },
    "The output is a string, not a schema. Use z.object({ … }), or JSON Schema: { type: 'object', properties: { … } }.",
  ],
  ['an empty runId', { runId: '' }, 'A run has "" as "runId". Use a text that is not empty.'],
  ['a misspelt option', { maxTruns: 3 } as never, 'A run has no option "maxTruns". Did you mean "maxTurns"?'],
  [
    'an option that every object inherits',
    { valueOf: 3 } as never,
    expect.stringMatching(/^A run has no option "valueOf"/) as string,
  ],
  ['a misspelt model', { modle: {} } as never, 'A run has no option "modle". Did you mean "model"?'],
  ['a text as onItem', { onItem: 'log' as never }, 'A run has "log" as "onItem". Use a function.'],
  ['null as onFinish', { onFinish: null as never }, 'A run has null as "onFinish". Use a function.'],
  ['a text as parallel', { parallel: 'no' as never }, 'A run has "no" as "parallel". Use true or false.'],
  ['a text as allowedTools', { allowedTools: 'quick' as never }, 'A run has "quick" as "allowedTools". Use an array.'],
  ['null as tools', { tools: null as never }, 'A run has null as "tools". Use an array.'],
  [
    'a clock without now',
    { clock: {} as never },
    'A run has an object as "clock". Use an object with the function "now".',
  ],
  ['a list of guardrails', { guardrails: [] as never }, 'A run has an array as "guardrails". Use an object.'],
  [
    'a misspelt compaction',
    { compaction: { token: 5 } as never },
    '"compaction" has no option "token". Did you mean "tokens"?',
  ],
  [
    'a text among models',
    { models: ['gpt' as never] },
    'The model is the text "gpt". Pass a model, such as openaiChat({ model: "gpt" }) of @treadle/models.',
  ],
  [
    'an agent with a misspelt option',
    { agents: [{ name: 'b', instruction: 'x' } as never] },
    'An agent has no option "instruction". Did you mean "instructions"?',
  ],
  [
    'an agent without a name',
    { agents: [{} as never] },
    'An agent has no name. Give one that its handoff tool can be named after.',
  ],
  ...[0, null, false, '', [], new Date()].map(
    (output) =>
      [
        `${JSON.stringify(output)} as output`,
        { output: output as never },
        expect.stringMatching(/^The output is .*, not a schema\. Use z\.object/) as string,
      ] as const,
  ),
  [
    'an empty object as output',
    { output: {} },
    'The output is an empty schema, which accepts everything. Describe the answer, or omit it.',
  ],
  ['the option maxTurn', { maxTurn: 3 } as never, 'A run has no option "maxTurn". Use "maxTurns".'],
  ['the option store', { store: {} } as never, 'A run has no option "store". Use "journal".'],
  ['infinite maxTurns', { maxTurns: Infinity }, 'maxTurns is Infinity. Use a whole number of at least 1.'],
  ['maxParallel 0', { maxParallel: 0 }, 'maxParallel is 0. Use a whole number of at least 1.'],
  ['maxCallsPerTurn 0', { maxCallsPerTurn: 0 }, 'maxCallsPerTurn is 0. Use a whole number of at least 1.'],
  ['a negative errorLimit', { errorLimit: -1 }, 'errorLimit is -1. Use a whole number of at least 0.'],
  ['NaN as repeatLimit', { repeatLimit: NaN }, 'repeatLimit is NaN. Use a whole number of at least 0.'],
  ['maxResultChars 0', { maxResultChars: 0 }, 'maxResultChars is 0. Use a whole number of at least 1.'],
  ['toolTimeoutMs 0', { toolTimeoutMs: 0 }, 'toolTimeoutMs is 0. Use a whole number of at least 1.'],
  [
    'an unknown limit',
    { limits: { money: 1 } as never },
    'limits.money is not a limit. The limits are calls, tokens, cost, durationMs.',
  ],
  ['a limit of turns', { limits: { turns: 5 } as never }, 'limits.turns is not a limit. Use the option "maxTurns".'],
  ['the option prompt', { prompt: 'Go.' } as never, 'A run has no option "prompt". Use "input".'],
  ['the option messages', { messages: [] } as never, 'A run has no option "messages". Use "input".'],
  ['the option system', { system: 'Be brief.' } as never, 'A run has no option "system". Use "instructions".'],
  ['the option maxSteps', { maxSteps: 5 } as never, 'A run has no option "maxSteps". Use "maxTurns".'],
  [
    'the option temperature',
    { temperature: 1 } as never,
    'A run has no option "temperature". Use "settings.temperature".',
  ],
  [
    'an unknown setting',
    { settings: { temprature: 0.2 } as never },
    'A run has no setting "temprature". Did you mean "temperature"?',
  ],
  [
    'a setting of another library',
    { settings: { maxTokens: 9 } as never },
    'A run has no setting "maxTokens". Use temperature, maxOutputTokens, topP, stop, seed, reasoning, presencePenalty, ' +
      'frequencyPenalty, logitBias, serviceTier, promptCacheKey, verbosity, topLogprobs.',
  ],
  [
    'a plain object as output',
    { output: { city: { type: 'string' } } },
    'The output is a plain object with city, not a schema. ' +
      "Use z.object({ … }), or JSON Schema: { type: 'object', properties: { … } }.",
  ],
  [
    'an infinite limit',
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
    'an unknown tool in toolChoice',
    { toolChoice: { tool: 'quikc' } },
    '"quikc" is named in toolChoice or allowedTools, but there is no such tool.',
  ],
  [
    'an unknown tool in allowedTools',
    { allowedTools: ['quick', 'quikc'] },
    '"quikc" is named in toolChoice or allowedTools, but there is no such tool.',
  ],
  [
    'toolChoice required without tools',
    { toolChoice: 'required', tools: [] },
    'toolChoice is "required", but there is no tool to call. Add tools, or omit toolChoice.',
  ],
  [
    'a toolChoice that is not in allowedTools',
    { toolChoice: { tool: 'pick' }, allowedTools: ['quick'], tools: [quick, pick] },
    'toolChoice requires "pick", which is not in allowedTools.',
  ],
];

test.each(invalidOptions)('rejects with invalid-options: %s', async (_, options, message) => {
  expect(await errorFor(options)).toEqual({ code: 'invalid-options', message });
});

const assistant = (...ids: string[]): Message => ({
  role: 'assistant',
  content: ids.map((id) => ({ type: 'tool-call', id, name: 'quick', arguments: '{}' })),
});
const results = (...ids: string[]): Message => ({
  role: 'tool',
  content: ids.map((callId) => ({ type: 'tool-result', callId, name: 'quick', content: [], isError: false })),
});

const invalidInputs: readonly (readonly [string, unknown, string])[] = [
  ['undefined', undefined, 'it is undefined. Pass a text, or an array of messages.'],
  ['a number', 42, 'it is 42. Pass a text, or an array of messages.'],
  ['one message', userText('a'), 'it is an object. Pass a text, or an array of messages.'],
  ['an empty text', '', 'it is empty. Pass a text, or an array of messages.'],
  ['an empty array', [], 'it is empty. Pass a text, or an array of messages.'],
  ['a string as message', ['hello'], 'message 0 is "hello", not an object.'],
  [
    'a system message',
    [{ role: 'system', content: 'Be brief.' }],
    'message 0.role is "system". Pass its text as the option "instructions".',
  ],
  ['a number as content', [{ role: 'user', content: 7 }], 'message 0.content is 7, not an array.'],
  ['a call without its result', [userText('a'), assistant('1')], 'the calls [1] of its last message have no results.'],
  [
    'a message between a call and its result',
    [assistant('1'), userText('a'), results('1')],
    'message 1 comes before the results of the calls [1].',
  ],
  [
    'results in another order',
    [assistant('1', '2'), results('2', '1')],
    'message 1 answers the calls [2, 1], but the open calls are [1, 2].',
  ],
  [
    'a missing result',
    [assistant('1', '2'), results('1')],
    'message 1 answers the calls [1], but the open calls are [1, 2].',
  ],
  [
    'a result without a call',
    [userText('a'), results('1')],
    'message 1 answers the calls [1], but the open calls are [].',
  ],
  [
    'a tool message without results',
    [userText('a'), results()],
    'message 1 answers the calls [], but the open calls are [].',
  ],
];

test.each(invalidInputs)('rejects the input with invalid-input, and reports where: %s', async (_, input, problem) => {
  const message = `The input is not a valid conversation: ${problem}`;
  expect(await errorFor({ input: input as never })).toEqual({
    code: 'invalid-input',
    message: expect.stringContaining(message),
  });
});

test('accepts a conversation with calls and their results', async () => {
  using model = scriptedModel(['Done.']);
  const input = [userText('a'), assistant('1', '2'), results('1', '2'), userText('b')];
  expect((await runLoop({ model, input })).messages).toHaveLength(5);
});

test('rejects two tools with the same name with duplicate-tool, and names both sources', async () => {
  expect(await errorFor({ tools: [quick, pick, { ...pick, name: 'quick' }] })).toEqual({
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
    'a name that providers reject',
    { name: 'get weather', description: '' },
    /Use 1 to 64 letters, digits, "_" or "-"\.$/,
  ],
  ['a missing description', { name: 'x' }, /Describe in a sentence what it does\.$/],
  ['timeoutMs 0', { name: 'x', description: '', timeoutMs: 0 }, /Give a number above 0\.$/],
])('throws invalid-tool: %s', (_, definition, message) => {
  expect(() => tool(definition as never)).toThrow(
    expect.objectContaining({ code: 'invalid-tool', message: expect.stringMatching(message) }),
  );
});

// ── resuming ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const resume = (options: Partial<ContinueOptions>): Promise<unknown> =>
  runLoop({ model: scriptedModel([]), tools: [pick], runId: 'run', journal: memoryJournal(), answers: [], ...options });

test('rejects resuming an unknown run with unknown-run', async () => {
  await expect(resume({})).rejects.toMatchObject({
    code: 'unknown-run',
    message: 'The journal has no run "run". Check the id, and that this is the journal the run was started with.',
  });
});

test('rejects resuming without a journal with invalid-options', async () => {
  await expect(resume({ journal: undefined as never })).rejects.toMatchObject({
    code: 'invalid-options',
    message: 'There is no input. Pass it to start a run, or pass runId and journal to resume one.',
  });
});

test('streamLoop rejects both the result and the iteration of an unknown run', async () => {
  const live = streamLoop({ model: scriptedModel([]), runId: 'run', journal: memoryJournal(), answers: [] });
  const read = async (): Promise<void> => {
    for await (const _ of live) throw new Error('unexpected item');
  };
  await expect(read()).rejects.toMatchObject({ code: 'unknown-run' });
  await expect(live.result).rejects.toMatchObject({ code: 'unknown-run' });
});

test('rejects a runId that exists with run-exists, without changing that run or calling the model', async () => {
  const journal = memoryJournal();
  await runLoop({ model: scriptedModel(['Done.']), input: 'Go.', journal, runId: 'run' });
  const before = await journal.read('run');
  const model = scriptedModel(['x']);
  await expect(runLoop({ model, input: 'Go again.', journal, runId: 'run' })).rejects.toMatchObject({
    code: 'run-exists',
    message:
      'Run "run" already exists. To resume it, pass its runId and journal without "input", or resume: "auto". ' +
      'To start another run, choose another runId.',
  });
  expect(model.requests).toEqual([]);
  expect(await journal.read('run')).toEqual(before);
});

test('rejects a changed journal with journal-damaged, and reports where', async () => {
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
    await expect(resume({ journal: { append: () => {}, read } })).rejects.toMatchObject({
      code: 'journal-damaged',
      message: expect.stringContaining(`Run "run" cannot be resumed: ${where}`),
    });
  }
});

test('rejects with answer-unfit an answer to a run that waits for nothing', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.', runId: 'run' });
  const answer = { type: 'result', effect: 't1.client.0', content: '' } as const;
  const unfit = { code: 'answer-unfit', message: 'Run "run" does not wait for "t1.client.0". It waits for nothing.' };
  await expect(live.answer(answer)).rejects.toThrow(expect.objectContaining(unfit));
  await live.result;
  await expect(live.answer(answer)).rejects.toThrow(expect.objectContaining(unfit));
});

test('throws invalid-options for a second iteration', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.' });
  for await (const _ of live);
  expect(() => live[Symbol.asyncIterator]()).toThrow(
    expect.objectContaining({ code: 'invalid-options', message: expect.stringContaining('Use onItem') }),
  );
});

const validOptions = { model: scriptedModel([]), input: 'go' };

/** Calls runLoop with options that the types do not allow. */
const runUntyped = (options: unknown): Promise<unknown> => runLoop(options as LoopOptions);

describe('rejects values that the types do not allow', () => {
  test.each([
    ['no options', undefined, 'There is no model'],
    ['tools that are not an array', { ...validOptions, tools: {} }, 'Use an array'],
    ['undefined as a tool', { ...validOptions, tools: [undefined] }, 'tools[0] is not a tool'],
    [
      'a tool that was not created by tool()',
      { ...validOptions, tools: [{ name: 'raw', description: 'x' }] },
      'Make it with tool(',
    ],
    ['a signal that is not an AbortSignal', { ...validOptions, signal: {} }, 'AbortController'],
    ['a path as the journal', { ...validOptions, journal: 'runs.db' }, 'sqliteStore(path)'],
    ['an unknown toolChoice', { ...validOptions, toolChoice: 'sometimes' }, 'Use auto, required, none'],
    ['a toolChoice object without a tool', { ...validOptions, toolChoice: {} }, '{ tool: name }'],
    ['an empty input', { ...validOptions, input: ' ' }, 'Pass a text'],
    ['a tool call in a user message', { ...validOptions, input: [{ role: 'user', content: [call()] }] }, 'message 0'],
    ['an image without a source', { ...validOptions, input: [{ role: 'user', content: [image()] }] }, 'message 0'],
  ])('%s', async (_, options, remedy) => {
    const error = await runUntyped(options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(TreadleError);
    expect((error as TreadleError).message).toContain(remedy);
  });

  test.each([
    ['null', null, 'is not accepted by providers'],
    ['an execute that is not a function', { execute: 'ls' }, 'Tool "a" has "ls" as "execute". Use a function.'],
    ['an input schema that is not an object', { input: { type: 'string' } }, 'define its properties'],
    ['a plain object of schemas as input', { input: { type: z.string(), city: z.string() } }, 'Use z.object({ … })'],
    ['a function as input', { input: () => true }, 'is a function, not a schema'],
    ['a schema object as parameters', { parameters: z.object({}) }, 'Give it as "input"'],
    ['a plain object beside parameters', { input: { a: 1 }, parameters: {} }, 'plain object with a, not a schema'],
    ['inputSchema', { inputSchema: z.object({}) }, 'Tool "a" has no option "inputSchema". Use "input".'],
    ['a handler', { handler: () => 'x' }, 'Tool "a" has no option "handler". Use "execute".'],
    ['a timeout', { timeout: 5 }, 'Tool "a" has no option "timeout". Use "timeoutMs".'],
    ['an infinite timeout', { timeoutMs: Infinity }, 'Give a number above 0'],
    ['an unknown effect', { effect: 'twice' }, 'Use pure, idempotent, once'],
  ])('%s in a tool definition', (_, definition, remedy) => {
    const make = (): unknown => tool((definition && { name: 'a', description: 'a', ...definition }) as ToolDefinition);
    expect(make).toThrow(TreadleError);
    expect(make).toThrow(remedy);
  });
});

test.each([
  [{ type: 'strng' }, 'there is no type "strng"'],
  [{ type: 'object', properties: { a: 'string' } }, "'a' in its 'properties' is not a schema"],
  [{ type: 'object', properties: { type: { enum: 'a' } } }, "its 'enum' is not a list"],
  [{ type: 'string', pattern: '(' }, 'a pattern is not valid'],
  [{ $ref: '#/$defs/a' }, "there is no '#/$defs/a' in it"],
])('rejects the output %j before the model is called', async (output, problem) => {
  const model = scriptedModel([]);
  await expect(runLoop({ model, input: 'Go.', output })).rejects.toMatchObject({
    code: 'invalid-options',
    message: expect.stringContaining(`The output is not a valid JSON Schema: ${problem}`),
  });
  expect(model.requests).toEqual([]);
});

test.each([
  ['no options', undefined, 'has undefined as options. Use an object.'],
  ['a misspelt option', { maxTruns: 3 }, 'has no option "maxTruns". Did you mean "maxTurns"?'],
  [
    'an option of the calling run',
    { journal: memoryJournal() },
    'The tool "ask" has "journal", which the calling run sets. Omit it.',
  ],
  ['maxTurns 0', { maxTurns: 0 }, 'maxTurns is 0.'],
  ['an unknown limit', { limits: { turns: 1 } }, 'limits.turns is not a limit.'],
  ['no model', { model: undefined }, 'There is no model.'],
  ['share 2', { share: 2 }, 'has the share 2. Use a number above 0, up to 1.'],
  ['two tools of the same name', { tools: [quick, quick] }, 'two tools named "quick"'],
])('rejects a tool that is a run with %s', (_, options, message) => {
  const definition = options && { name: 'ask', description: 'Asks', model: scriptedModel([]), ...(options as object) };
  expect(() => agentTool(definition as never)).toThrow(message);
});

test.each([[undefined], ['bob'], [{ instructions: 'x' }], [{ name: 'b', tools: {} }]])(
  'rejects a handoff to %j',
  (agent) => {
    expect(() => handoff(agent as never)).toThrow(expect.objectContaining({ code: 'invalid-options' }));
  },
);

test.each([
  [undefined, 'undefined is not an answer. Make it with approve(wait), deny(wait, reason) or answer(wait, value)'],
  ['yes', '"yes" is not an answer. Make it with'],
  [{}, 'An answer lacks "type". Use "approval", "result", "answer". Make it with'],
  [{ type: 'client-result', effect: 'e', content: '' }, 'The answer for "e" has the type "client-result". Use'],
  [{ type: 'approval' }, 'An answer lacks "effect", "digest", "approved". Make it with'],
  [{ type: 'approval', effect: 'e', approved: true }, 'The answer for "e" lacks "digest". Make it with'],
  [{ type: 'approval', effect: 'e', digest: 'd' }, 'The answer for "e" lacks "approved".'],
  [{ type: 'result', effect: 'e' }, 'The answer for "e" lacks "content".'],
  [{ type: 'answer', effect: 'e' }, 'The answer for "e" lacks "value".'],
  [{ type: 'answer', effect: 5, value: 'x' }, 'An answer has an "effect" that is not a text.'],
])('rejects the answer %j', async (answer, message) => {
  const live = streamLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
  await expect(live.answer(answer as never)).rejects.toMatchObject({
    code: 'answer-unfit',
    message: expect.stringContaining(message),
  });
  await expect(resume({ answers: [answer as never] })).rejects.toBeInstanceOf(TreadleError);
  await live.result;
});

test('rejects a principal without a tenant', async () => {
  const principal = { subject: 'ann' } as never;
  await expect(runLoop({ model: scriptedModel([]), input: 'Go.', principal })).rejects.toMatchObject({
    code: 'invalid-input',
    message: 'The tenant undefined is not a text. Choose another one.',
  });
});

test.each([
  [{ newRunid: 'b' }, 'A fork has no option "newRunid". Did you mean "newRunId"?'],
  [{ newRunId: '' }, 'A fork has "" as "newRunId". Use a text that is not empty.'],
  [{ changes: { instruction: 'x' } }, 'A fork has no change "instruction". Did you mean "instructions"?'],
])('rejects a fork with %j', async (options, message) => {
  const fork = { journal: memoryJournal(), runId: 'run', at: 0, ...(options as object) };
  await expect(forkRun(fork)).rejects.toThrow(message);
});

test('rejects a misnamed option of a tool that is a run', () => {
  const definition = { name: 'ask', description: 'Asks', model: scriptedModel([]), system: 'Be brief.' };
  expect(() => agentTool(definition)).toThrow('The tool "ask" has no option "system". Use "instructions".');
});

test('rejects an unknown setting of a tool that is a run', () => {
  const definition = { name: 'ask', description: 'Asks', model: scriptedModel([]), settings: { top_p: 1 } as never };
  expect(() => agentTool(definition)).toThrow('The tool "ask" has no setting "top_p". Did you mean "topP"?');
});

test('ignores options and settings without a value', async () => {
  const own = { name: 'own', description: 'own', handler: undefined } as ToolDefinition;
  const model = scriptedModel([{ text: 'done' }]);
  const unset = { settings: { temprature: undefined }, modle: undefined, onItem: undefined } as object;
  const run = await runLoop({ model, tools: [tool(own)], input: 'Go.', ...unset });
  expect(run.outcome).toMatchObject({ type: 'completed' });
});

test.each([{ type: 'object' }, {}, { $ref: '#/$defs/a' }, { anyOf: [] }, { description: 'any' }, { minProperties: 1 }])(
  'accepts the JSON Schema %j',
  (input) => {
    expect(tool({ name: 'a', description: 'a', input }).parameters).toBe(input);
  },
);

function call(): unknown {
  return { type: 'tool-call', id: 'a', name: 'a', arguments: '{}' };
}

function image(): unknown {
  return { type: 'image', mediaType: 'image/png' };
}
