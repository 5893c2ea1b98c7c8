import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { resultTexts } from '../../test/results.ts';
import { textOf, userText, type AssistantPart, type Message } from '../messages.ts';
import type { Model, ModelErrorCode, ModelReply, ToolChoice } from '../model.ts';
import { manualClock, scriptedModel, type ScriptedReply } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const ran: string[] = [];
const recordingTool = (name: string) =>
  tool({ name, description: name, effect: 'pure', execute: () => (ran.push(name), `${name} ran`) });
const tools = [recordingTool('look'), recordingTool('find'), recordingTool('save')];

const callTools = (...names: string[]): ScriptedReply => ({ calls: names.map((name) => ({ name })) });
const choices = (model: ReturnType<typeof scriptedModel>): readonly ToolChoice[] =>
  model.requests.map(({ toolChoice }) => toolChoice);
const lastMessage = (messages: readonly Message[]): string => {
  const last = messages.at(-1)!;
  return last.role === 'tool' ? last.role : `${last.role}: ${textOf(last.content)}`;
};

/** Runs with `tools`, and returns the names of the tools that ran. */
async function run(options: Omit<LoopOptions, 'input'>): Promise<{ result: LoopResult; ran: readonly string[] }> {
  ran.length = 0;
  const result = await runLoop({ tools, input: 'Go.', ...options });
  return { result, ran: [...ran] };
}

// ── reply without calls though one was required ──────────────────────────────────────────────────────────────────────

test.each<[ToolChoice, string, string]>([
  ['required', 'A tool call is required here, and your reply had none. Call one of the tools.', 'look'],
  [{ tool: 'find' }, 'A call of the tool "find" is required here, and your reply had none. Call it.', 'find'],
])('reply without calls with toolChoice %j: the model is reminded once', async (toolChoice, reminder, name) => {
  using model = scriptedModel(['I would rather not.', callTools(name), 'Fine.']);
  const { result } = await run({ model, toolChoice });
  expect(lastMessage(model.requests[1]!.messages)).toBe(`user: ${reminder}`);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Fine.', calls: 1 });
  expect(choices(model)).toEqual([toolChoice, toolChoice, 'auto']);
});

test.each<[ToolChoice, string]>([
  ['required', 'The model did not call any tool, although toolChoice requires it and the model was reminded.'],
  [{ tool: 'find' }, 'The model did not call "find", although toolChoice requires it and the model was reminded.'],
])('reply without calls with toolChoice %j: the second one in a row fails the run', async (toolChoice, message) => {
  using model = scriptedModel(['No.', 'Still no.']);
  const { result } = await run({ model, toolChoice });
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'tool-choice-unmet', message } });
  expect(result.messages).toHaveLength(4);
});

test('reply with calls of other tools than toolChoice names: they are refused, and the second one fails the run', async () => {
  using model = scriptedModel([callTools('look'), callTools('look', 'save')]);
  const { result, ran } = await run({ model, toolChoice: { tool: 'find' } });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'tool-choice-unmet' } });
  expect(ran).toEqual([]);
  const other = (name: string): string =>
    `The tool "${name}" was not called, because this turn requires a call of "find". Call that tool.`;
  expect(resultTexts(result)).toEqual([other('look'), other('look'), other('save')]);
});

test('reply without calls with toolChoice required: an empty reply counts as one', async () => {
  using model = scriptedModel([{ text: '' }, 'No.']);
  const { result } = await run({ model, toolChoice: 'required' });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'tool-choice-unmet' } });
});

test('toolChoice none: the tools are still sent, and a call gets an error result', async () => {
  using model = scriptedModel([callTools('look'), 'Without, then.']);
  const { result, ran } = await run({ model, toolChoice: 'none' });
  expect(ran).toEqual([]);
  expect(resultTexts(result)).toEqual(['Tools may not be called now. Answer with what you have.']);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Without, then.', calls: 0 });
  for (const request of model.requests) {
    expect(request).toMatchObject({
      toolChoice: 'none',
      tools: [{ name: 'look' }, { name: 'find' }, { name: 'save' }],
    });
  }
});

// ── required or named tool choice ────────────────────────────────────────────────────────────────────────────────────

test.each<ToolChoice>(['required', { tool: 'look' }])(
  'toolChoice %j: becomes auto once satisfied',
  async (toolChoice) => {
    using model = scriptedModel([callTools('look'), callTools('save'), 'Done.']);
    const { result, ran } = await run({ model, toolChoice });
    expect(choices(model)).toEqual([toolChoice, 'auto', 'auto']);
    expect(ran).toEqual(['look', 'save']);
    expect(result.outcome).toEqual({ type: 'completed' });
  },
);

test('toolChoice auto: the model may call any tool, or none', async () => {
  using calls = scriptedModel([callTools('look', 'save'), 'Done.']);
  expect((await run({ model: calls })).ran).toEqual(['look', 'save']);
  using none = scriptedModel(['Done.']);
  expect((await run({ model: none, toolChoice: 'auto' })).result.outcome).toEqual({ type: 'completed' });
});

test('toolChoice of a named tool: calls of other tools in the same reply do not run', async () => {
  using model = scriptedModel([callTools('look', 'find'), 'Done.']);
  const { result, ran } = await run({ model, toolChoice: { tool: 'find' } });
  expect(ran).toEqual(['find']);
  expect(resultTexts(result)).toEqual([
    'The tool "look" was not called, because this turn requires a call of "find". Call that tool.',
    'find ran',
  ]);
});

test('allowedTools: calls of other tools get an error result, although all tools are sent', async () => {
  using model = scriptedModel([callTools('save', 'look'), 'Done.']);
  const allowedTools = ['look', 'find'];
  const { result, ran } = await run({ model, allowedTools });
  expect(ran).toEqual(['look']);
  expect(resultTexts(result)).toEqual([
    'The tool "save" is not allowed here. Allowed tools: look, find. Use one of them, or answer without a tool.',
    'look ran',
  ]);
  expect(model.requests[0]!.tools.map(({ name }) => name)).toEqual(['look', 'find', 'save']);
  expect(model.requests[0]!.allowedTools).toEqual(allowedTools);
});

test('allowedTools with toolChoice required: a call of another tool does not satisfy it', async () => {
  using model = scriptedModel([callTools('save'), callTools('find'), 'Done.']);
  const { result, ran } = await run({ model, allowedTools: ['find'], toolChoice: 'required' });
  expect(ran).toEqual(['find']);
  expect(choices(model)).toEqual(['required', 'required', 'auto']);
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('allowedTools: pinned when the run starts', async () => {
  const allowedTools = ['find'];
  using model = scriptedModel([() => (allowedTools.push('save'), callTools('save')), 'Done.']);
  expect((await run({ model, allowedTools })).ran).toEqual([]);
});

// ── finish ───────────────────────────────────────────────────────────────────────────────────────────────────────────

test('finish length: the text is kept, and the outcome is marked as truncated', async () => {
  using model = scriptedModel([{ text: 'Once upon a', finish: 'length' }]);
  const { result } = await run({ model });
  expect(result).toMatchObject({ outcome: { type: 'completed', truncated: true }, text: 'Once upon a' });
});

test('finish length: the outcome is not marked as truncated for an earlier reply', async () => {
  using model = scriptedModel([{ ...callTools('look'), finish: 'length' }, 'Done.']);
  expect((await run({ model })).result.outcome).toStrictEqual({ type: 'completed' });
});

test('finish length in the middle of a call: it gets an error result, complete calls before it run', async () => {
  using model = scriptedModel([
    { text: 'Both:', calls: [{ name: 'look' }, { name: 'save', arguments: '{"a": "b' }], finish: 'length' },
    'Done.',
  ]);
  const { result, ran } = await run({ model });
  expect(ran).toEqual(['look']);
  expect(resultTexts(result)).toEqual([
    'look ran',
    'The tool "save" was not called. The reply was cut off in the middle of the call. Make the call shorter.',
  ]);
  expect(result.outcome).toStrictEqual({ type: 'completed' });
});

test('finish content-filter: the run fails, the text is kept, no call runs', async () => {
  using model = scriptedModel([{ text: 'I must', calls: [{ name: 'save' }], finish: 'content-filter' }]);
  const { result, ran } = await run({ model });
  const message = "The provider's content filter stopped the reply. Change the task, the instructions or the model.";
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'content-filter', message } });
  expect(result.messages).toEqual([
    userText('Go.'),
    { role: 'assistant', content: [{ type: 'text', text: 'I must' }] },
  ]);
  expect(ran).toEqual([]);
});

const emptyContents: readonly (readonly [string, readonly AssistantPart[]])[] = [
  ['no content', []],
  ['white space', [{ type: 'text', text: ' \n' }]],
  ['reasoning only', [{ type: 'reasoning', text: 'hm' }]],
];
const replying = (content: readonly AssistantPart[]): ModelReply => ({
  type: 'reply',
  content,
  finish: 'stop',
  usage: { inputTokens: 1, outputTokens: 0 },
  model: 'm',
});

test.each(emptyContents)(
  'an empty reply (%s): the model is reminded once, and the run continues',
  async (_, content) => {
    using model = scriptedModel([replying(content), 'Here.']);
    const { result } = await run({ model });
    expect(lastMessage(model.requests[1]!.messages)).toBe(
      'user: Your reply was empty. Continue with the task, or give your answer.',
    );
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Here.', turns: 2 });
    expect(result.messages.filter(({ role }) => role === 'assistant')).toHaveLength(1);
  },
);

test.each(emptyContents)('an empty reply (%s): two in a row fail the run', async (_, content) => {
  using model = scriptedModel([replying(content), replying(content)]);
  const { result } = await run({ model });
  const message = 'The model sent an empty reply twice in a row.';
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'empty-reply', message } });
});

test.each([
  ['calls', {}, callTools('look')],
  ['text', { finish: 'confirm' }, 'A plan.'],
] as const)('an empty reply: a reply with %s resets the count', async (_, options, between) => {
  using model = scriptedModel([{ text: '' }, between, { text: '' }, 'Here.']);
  expect((await run({ model, ...options })).result.outcome).toEqual({ type: 'completed' });
});

// ── model failure ────────────────────────────────────────────────────────────────────────────────────────────────────

test.each<ModelErrorCode>(['auth', 'rate-limit', 'context-length', 'network'])(
  'model failure %s: the run fails with the error',
  async (code) => {
    using model = scriptedModel([
      callTools('look'),
      { type: 'failure', error: { code, message: 'the message', retryable: true } },
    ]);
    const { result } = await run({ model });
    expect(result).toMatchObject({
      outcome: { type: 'failed', error: { code, message: 'the message' } },
      turns: 2,
      calls: 1,
    });
    expect(resultTexts(result)).toEqual(['look ran']);
  },
);

test('model failure: another run can start from its messages', async () => {
  using model = scriptedModel([
    callTools('look'),
    { type: 'failure', error: { code: 'network', message: 'x', retryable: true } },
  ]);
  const { result } = await run({ model });
  using second = scriptedModel(['Looked.']);
  const resumed = await runLoop({ model: second, tools, input: result.messages });
  expect(resumed).toMatchObject({ outcome: { type: 'completed' }, text: 'Looked.' });
  expect(second.requests[0]!.messages).toEqual(result.messages);
});

const contractBreakers: readonly (readonly [string, Model['reply']])[] = [
  [
    'throws',
    () => {
      throw new Error('oops');
    },
  ],
  ['rejects', () => Promise.reject(new Error('oops'))],
  ['replies with undefined', async () => undefined as never],
  [
    'replies with an object as arguments',
    async () => replying([{ type: 'tool-call', id: '1', name: 'look', arguments: {} } as never]),
  ],
  ['replies with a text part without text', async () => replying([{ type: 'text' } as never])],
];

test.each(contractBreakers)('model failure: a model that %s fails the run', async (_, reply) => {
  const { result } = await run({ model: { id: 'odd', reply } });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'protocol' } });
  expect(result.outcome).toHaveProperty(
    'error.message',
    expect.stringMatching(/^The model "odd" broke its contract: /),
  );
  expect(result.text).toBe('');
});

test('model failure: the text of the result is empty, although the input has a reply', async () => {
  using model = scriptedModel([{ type: 'failure', error: { code: 'network', message: 'x', retryable: true } }]);
  const old: Message = { role: 'assistant', content: [{ type: 'text', text: 'An old answer.' }] };
  const result = await runLoop({ model, input: [userText('a'), old, userText('b')] });
  expect(result.text).toBe('');
});

// ── text beside calls, final answer ──────────────────────────────────────────────────────────────────────────────────

test('text beside calls: kept in order, in the history and in the items', async () => {
  const content: AssistantPart[] = [
    { type: 'reasoning', text: 'hm', signature: 's' },
    { type: 'text', text: 'First I look. ' },
    { type: 'tool-call', id: 'a', name: 'look', arguments: '{}' },
    { type: 'text', text: 'Then I save.' },
    { type: 'tool-call', id: 'b', name: 'save', arguments: '{}' },
  ];
  using model = scriptedModel([replying(content), 'Done.']);
  const deltas: string[] = [];
  const { result } = await run({ model, onItem: (item) => item.type.endsWith('-delta') && deltas.push(item.type) });
  expect(result.messages[1]).toEqual({ role: 'assistant', content });
  expect(model.requests[1]!.messages[1]).toEqual({ role: 'assistant', content });
  expect([...new Set(deltas)]).toEqual(['reasoning-delta', 'text-delta', 'call-delta']);
  expect(deltas.indexOf('call-delta')).toBeLessThan(deltas.lastIndexOf('text-delta'));
});

test('final answer plain: the first reply without calls ends the run', async () => {
  using model = scriptedModel([callTools('look'), 'The answer.']);
  expect((await run({ model, finish: 'plain' })).result).toMatchObject({
    outcome: { type: 'completed' },
    text: 'The answer.',
    turns: 2,
  });
});

test('final answer confirm: the model is asked once, may call tools, and restates its answer', async () => {
  using model = scriptedModel(['A plan.', callTools('look'), 'The answer.']);
  const { result, ran } = await run({ model, finish: 'confirm' });
  expect(lastMessage(model.requests[1]!.messages)).toMatch(/^user: Before this is accepted as your answer, check it: /);
  expect(ran).toEqual(['look']);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 3 });
  expect(result.messages.filter((message) => lastMessage([message]).includes('check it'))).toHaveLength(1);
});

describe('final answer with an output schema', () => {
  const schema = z.object({ total: z.number() });

  test('the result has the validated value, with its type', async () => {
    using model = scriptedModel(['```json\n{"total": 3}\n```']);
    const result = await runLoop({ model, input: 'add', output: schema });
    expect(result.output?.total).toBe(3);
    expect(model.requests[0]).toMatchObject({
      output: { type: 'object' },
      instructions: expect.stringContaining('total'),
    });
  });

  test('an invalid answer is sent back once with the problems; the second one in a row fails the run', async () => {
    using model = scriptedModel(['three', '{"total": "3"}']);
    const result = await runLoop({ model, input: 'add', output: schema });
    const message = expect.stringMatching(/^The answer does not match its schema: .*total/);
    expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'output-invalid', message } });
    expect(result.output).toBeUndefined();
    using second = scriptedModel(['three', '{"total": 3}']);
    expect(await runLoop({ model: second, input: 'add', output: schema })).toMatchObject({
      outcome: { type: 'completed' },
      output: { total: 3 },
    });
    expect(JSON.stringify(second.requests[1]!.messages)).toContain('it is not JSON');
  });

  test('with outputText a text is the value of a field', async () => {
    const answer = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] } as const;
    const given = async (...script: readonly string[]): Promise<unknown> => {
      const model = scriptedModel(script);
      return (await runLoop({ model, input: 'say', output: answer, outputText: 'answer' })).output;
    };
    expect(await given('It is 7.')).toEqual({ answer: 'It is 7.' });
    expect(await given('{"answer": "7"}')).toEqual({ answer: '7' });
    expect(await given('So:\n```json\n{"answer": "7"}\n```')).toEqual({ answer: '7' });
    expect(await given('7', '"7"')).toEqual({ answer: '7' });
  });

  test('with outputCheck the text itself must be JSON', async () => {
    using model = scriptedModel(['```json\n{"total": 3}\n```', '{"total": 3}']);
    const result = await runLoop({ model, input: 'add', output: schema, outputCheck: 'repair' });
    expect(result).toMatchObject({ text: '{"total": 3}', output: { total: 3 }, turns: 2 });
  });

  test('with outputCheck once an invalid answer fails the run, and the error names the problems', async () => {
    using model = scriptedModel(['{"total": "3"}']);
    const { outcome, turns } = await runLoop({ model, input: 'add', output: schema, outputCheck: 'once' });
    expect([outcome, turns]).toMatchObject([
      { type: 'failed', error: { code: 'output-invalid', message: expect.stringContaining('total') } },
      1,
    ]);
  });

  test.each(['repair', 'once'] as const)(
    'with outputCheck %s a refusal or a cut answer is not checked',
    async (outputCheck) => {
      const replies = [
        { content: [{ type: 'text', text: 'No.', refusal: true }], finish: 'stop' },
        { content: [{ type: 'text', text: '{"to' }], finish: 'length' },
      ] as const;
      for (const reply of replies) {
        using model = scriptedModel([
          { type: 'reply', usage: { inputTokens: 1, outputTokens: 1 }, model: 'm', ...reply },
        ]);
        const result = await runLoop({ model, input: 'add', output: schema, outputCheck });
        expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 1 });
        expect(result.output).toBeUndefined();
      }
    },
  );
});

// ── input while running ──────────────────────────────────────────────────────────────────────────────────────────────

test('input while running: added at the next turn boundary, after the results', async () => {
  const clock = manualClock();
  const gate = Promise.withResolvers<string>();
  const slow = tool({ name: 'slow', description: 'slow', execute: () => gate.promise });
  using model = scriptedModel([callTools('slow'), 'Done.']);
  const live = streamLoop({ model, tools: [slow], input: 'Go.', clock });
  await clock.advance(0);
  expect(await live.send('And hurry.')).toBe(true);
  expect(await live.send({ role: 'user', content: [{ type: 'text', text: 'Please.' }] })).toBe(true);
  gate.resolve('slow ran');
  const { messages, outcome } = await live.result;
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user', 'user', 'assistant']);
  expect(model.requests[1]!.messages.slice(3)).toEqual([userText('And hurry.'), userText('Please.')]);
  expect(outcome).toEqual({ type: 'completed' });
});

test.each(['plain', 'confirm'] as const)(
  'input while running: during a final reply (%s) it starts another turn',
  async (finish) => {
    const clock = manualClock();
    const gate = Promise.withResolvers<string>();
    using model = scriptedModel([
      () => gate.promise,
      'Both answers.',
      ...(finish === 'confirm' ? ['Both answers, again.'] : []),
    ]);
    const tools = [tool({ name: 'unused', description: 'unused', execute: () => '' })];
    const live = streamLoop({ model, tools, input: 'Go.', finish, clock });
    await clock.advance(0);
    expect(await live.send('One more thing.')).toBe(true);
    gate.resolve('First answer.');
    const { messages, turns } = await live.result;
    expect(messages.slice(1, 4).map((message) => lastMessage([message]))).toEqual([
      'assistant: First answer.',
      'user: One more thing.',
      'assistant: Both answers.',
    ]);
    expect(turns).toBe(finish === 'confirm' ? 3 : 2);
  },
);

test('input while running: accepted before the first turn has started', async () => {
  using model = scriptedModel(['First.', 'Second.']);
  const live = streamLoop({ model, input: 'Go.' });
  expect(await live.send('At once.')).toBe(true);
  const { messages } = await live.result;
  expect(messages.map((message) => lastMessage([message]))).toEqual([
    'user: Go.',
    'assistant: First.',
    'user: At once.',
    'assistant: Second.',
  ]);
});

test('input after the end: send returns false', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.' });
  const { messages } = await live.result;
  expect(await live.send('Too late.')).toBe(false);
  expect(messages).toHaveLength(2);
});
