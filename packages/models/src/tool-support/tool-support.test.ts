import {
  runLoop,
  tool,
  userText,
  type Message,
  type Model,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
} from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { asked, request as requestOf, type Asked } from '../../test/request.ts';
import { DONE, chunk, says, scriptedServer, status, stream } from '../../test/scripted-server.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';
import { withToolSupport } from './tool-support.ts';

const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const weather = { name: 'get_weather', description: 'The weather', parameters };
const other = { name: 'other', description: 'Another', parameters: { type: 'object' } };

const request = (fields: Partial<ModelRequest> = {}): ModelRequest => requestOf({ tools: [weather], ...fields });

const refused = (): ModelReply => ({
  type: 'failure',
  error: { code: 'invalid-request', message: 'scripted does not support tools', retryable: false },
});
const error = {
  code: 'invalid-request',
  message:
    'The model "scripted" does not support tools here. ' +
    'Use another model, or set toolSupport (tool_support in treadle.toml) to "degrade" or "text". scripted does not support tools',
  retryable: false,
};

const ask = (model: Model, fields: Partial<ModelRequest> = {}): Promise<Asked> => asked(model, request(fields));

/** Each step of the script takes `ms` milliseconds. */
function slow(ms: number, ...script: ScriptStep[]): { clock: ReturnType<typeof manualClock>; script: ScriptStep[] } {
  const clock = manualClock();
  const slowed = script.map((step) => async () => {
    await clock.advance(ms);
    return step;
  });
  return { clock, script: slowed };
}

test('does not change requests to a model that supports tools', async () => {
  const model = scriptedModel([{ calls: [{ name: 'get_weather' }] }]);
  const { reply } = await ask(withToolSupport(model, 'text'));
  expect(reply).toMatchObject({ type: 'reply', content: [{ type: 'tool-call', name: 'get_weather' }] });
  expect(model.requests).toEqual([request()]);
});

test('error: each failure names the model and what to do', async () => {
  const model = scriptedModel([refused(), refused()]);
  const supported = withToolSupport(model, 'error');
  expect((await ask(supported)).reply).toEqual({ type: 'failure', error });
  expect((await ask(supported)).reply).toEqual({ type: 'failure', error });
});

test('passes any other failure on unchanged', async () => {
  const failure = { type: 'failure', error: { code: 'auth', message: 'No.', retryable: false } } as const;
  expect((await ask(withToolSupport(scriptedModel([failure]), 'text'))).reply).toEqual(failure);
});

test('degrade: asks without tools, and every reply contains the refusal', async () => {
  const { clock, script } = slow(5, refused(), 'Hello', 'Again');
  const model = scriptedModel(script);
  const supported = withToolSupport(model, 'degrade', { clock });
  const first = await ask(supported, { toolChoice: 'required', allowedTools: ['get_weather'] });
  expect(first.reply).toMatchObject({
    content: [{ type: 'text', text: 'Hello' }],
    attempts: [
      { model: 'scripted', ms: 5, error },
      { model: 'scripted', ms: 5 },
    ],
  });
  expect(first.deltas).toEqual([{ type: 'text-delta', text: 'Hello' }]);
  const second = await ask(supported);
  expect(second.reply.attempts).toEqual([
    { model: 'scripted', ms: 0, error },
    { model: 'scripted', ms: 5 },
  ]);
  const plain = { ...request(), tools: [] };
  expect(model.requests.slice(1)).toEqual([plain, plain]);
});

test('keeps the refusal of one model apart from other models', async () => {
  const one = scriptedModel([refused(), 'Hello', 'Hello']);
  const two = scriptedModel([refused(), 'Hello']);
  const supported = withToolSupport(one, 'degrade');
  await ask(supported);
  await ask(withToolSupport(two, 'degrade'));
  await ask(supported);
  expect([one.requests.length, two.requests.length]).toEqual([3, 2]);
  one.assertDone();
});

const call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>';

test('text: describes the tools, reads the calls, and sends no tools after the refusal', async () => {
  const model = scriptedModel([refused(), `Let me look.\n${call}`, 'Sunny.']);
  const supported = withToolSupport(model, 'text');
  const options = { instructions: 'Be brief.', output: { type: 'object' }, toolChoice: 'required' } as const;
  const { reply, deltas } = await ask(supported, options);
  expect(reply).toMatchObject({
    type: 'reply',
    content: [
      { type: 'text', text: 'Let me look.' },
      { type: 'tool-call', id: 'call_1_0', name: 'get_weather', arguments: '{"city":"Oslo"}' },
    ],
    finish: 'tool-calls',
    model: 'scripted',
    attempts: [{ error }, { model: 'scripted' }],
  });
  expect(deltas.at(-1)).toEqual({
    type: 'call-delta',
    call: 0,
    name: 'get_weather',
    arguments: '{"city":"Oslo"}',
  });
  expect(deltas.map((delta) => (delta.type === 'text-delta' ? delta.text : '')).join('')).toBe('Let me look.');

  const { output: _, ...sent } = options;
  expect(model.requests[1]).toEqual({
    ...request(sent),
    tools: [],
    toolChoice: 'auto',
    instructions: expect.stringContaining(JSON.stringify(weather)),
  });
  const { instructions } = model.requests[1]!;
  expect(instructions).toMatch(/^Be brief\.\n\n/);
  expect(instructions).toContain('You must call a tool now.');
  const again = await ask(supported);
  expect(again.reply).toMatchObject({ content: [{ type: 'text', text: 'Sunny.' }], finish: 'stop' });
  expect(again.reply).not.toHaveProperty('attempts');
  model.assertDone();
});

test.each([
  [{ toolChoice: 'none' }, ['Do not call a tool.'], ['get_weather', '<tool_call>']],
  [{ toolChoice: { tool: 'other' } }, ['You must call the tool "other" now.'], []],
  [{ allowedTools: ['other'] }, ['"name":"other"', 'If you need no tool'], ['get_weather']],
  [{ allowedTools: [] }, ['Do not call a tool.'], ['get_weather']],
  [{ parallel: false }, ['Call one tool at a time.'], ['For several calls']],
  [{ parallel: true }, ['For several calls'], ['one tool at a time']],
] as const)('text: %j is part of the instructions', async (options, has, hasNot) => {
  const model = scriptedModel([refused(), 'Hello']);
  await ask(withToolSupport(model, 'text'), { tools: [weather, other], ...options });
  const { instructions } = model.requests[1]!;
  for (const words of has) expect(instructions).toContain(words);
  for (const words of hasNot) expect(instructions).not.toContain(words);
});

const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'aGk=' } } as const;
const history: Message[] = [
  userText('Weather?'),
  {
    role: 'assistant',
    content: [
      { type: 'reasoning', text: 'Hm.', signature: 's', protocol: 'p' },
      { type: 'text', text: 'Let me look.' },
      { type: 'tool-call', id: 'a', name: 'get_weather', arguments: '{"city":"Oslo"}' },
      { type: 'tool-call', id: 'b', name: 'other', arguments: '' },
    ],
  },
  {
    role: 'tool',
    content: [
      {
        type: 'tool-result',
        callId: 'a',
        name: 'get_weather',
        content: [{ type: 'text', text: 'Sun' }, image],
        isError: false,
      },
      { type: 'tool-result', callId: 'b', name: 'other', content: [{ type: 'error', text: 'Oh' }], isError: true },
    ],
  },
];
const written: Message[] = [
  userText('Weather?'),
  {
    role: 'assistant',
    content: [
      { type: 'reasoning', text: 'Hm.', signature: 's', protocol: 'p' },
      {
        type: 'text',
        text:
          'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city":"Oslo"}}\n</tool_call>\n' +
          '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
      },
    ],
  },
  {
    role: 'user',
    content: [
      { type: 'text', text: '<tool_response name="get_weather">\nSun\n</tool_response>\n' },
      image,
      { type: 'text', text: '<tool_response name="other" error="true">\nOh\n</tool_response>\n' },
    ],
  },
];

test.each(['text', 'degrade'] as const)('%s: writes earlier calls and results as text, once', async (mode) => {
  const messages = [...history];
  const seen: (readonly Message[])[] = [];
  const model = withToolSupport(
    {
      id: 'scripted',
      async reply({ messages, tools }) {
        seen.push(messages);
        if (tools.length > 0) return refused();
        return { type: 'reply', content: [], finish: 'stop', usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' };
      },
    },
    mode,
  );
  await ask(model, { messages });
  messages.push({ role: 'assistant', content: [{ type: 'text', text: 'Sunny.' }] }, userText('And now?'));
  await ask(model, { messages });
  expect(seen[1]).toEqual([...written, ...messages.slice(3)]);
  // The same array, so that a protocol can cache what it derives from it.
  expect(seen[2]).toBe(seen[1]);
  expect(seen[1]![0]).toBe(messages[0]);

  messages.splice(1, 2);
  await ask(model, { messages });
  expect(seen[3]).toEqual(messages);
  messages.splice(2, 1, userText('Or now?'));
  await ask(model, { messages });
  expect(seen[4]).toEqual(messages);
  // A request without tools gets the same history.
  await ask(model, { messages: [...history], tools: [] });
  expect(seen[5]).toEqual(written);
});

test('text: keeps the order of reasoning and native calls, and the finish reason length', async () => {
  const reply: ModelReply = {
    type: 'reply',
    content: [
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'One <tool_' },
      { type: 'text', text: `call>{"name":"get_weather"}</tool_call>` },
      { type: 'tool-call', id: 'x', name: 'get_weather', arguments: '{}' },
      { type: 'text', text: 'Two' },
    ],
    finish: 'length',
    usage: { inputTokens: 1, outputTokens: 1 },
    model: 'm',
  };
  const { reply: made, deltas } = await ask(withToolSupport(scriptedModel([refused(), reply]), 'text'));
  expect(made).toMatchObject({
    content: [
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'One' },
      { type: 'tool-call', id: 'call_1_0', name: 'get_weather', arguments: '{}' },
      { type: 'tool-call', id: 'x', name: 'get_weather', arguments: '{}' },
      { type: 'text', text: 'Two' },
    ],
    finish: 'length',
  });
  expect(deltas.filter(({ type }) => type === 'text-delta')).toEqual([
    { type: 'text-delta', text: 'One' },
    { type: 'text-delta', text: 'Two' },
  ]);
});

test('text: emits held text before a delta of another type', async () => {
  const emitted: ModelDelta[] = [
    { type: 'text-delta', text: 'a <' },
    { type: 'reasoning-delta', text: 'Hm.' },
    { type: 'text-delta', text: 'tool_call>{"name":"get_weather"}</tool_call> <tool' },
  ];
  const model: Model = {
    id: 'scripted',
    async reply({ tools }, emit) {
      if (tools.length > 0) return refused();
      emitted.forEach(emit);
      const content = emitted.map(({ type, ...part }) => ({ ...part, type: type.replace('-delta', '') }));
      return {
        type: 'reply',
        content,
        finish: 'stop',
        usage: { inputTokens: 1, outputTokens: 1 },
        model: 'm',
      } as ModelReply;
    },
  };
  const { reply, deltas } = await ask(withToolSupport(model, 'text'));
  expect(deltas).toEqual([
    { type: 'text-delta', text: 'a' },
    { type: 'text-delta', text: ' <' },
    { type: 'reasoning-delta', text: 'Hm.' },
    { type: 'text-delta', text: 'tool_call>{"name":"get_weather"}</tool_call>' },
    { type: 'text-delta', text: ' <tool' },
  ]);
  expect(reply).toMatchObject({
    content: [
      { type: 'text', text: 'a <' },
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'tool_call>{"name":"get_weather"}</tool_call> <tool' },
    ],
    finish: 'stop',
  });
});

test('rejects a mode that does not exist', () => {
  expect(() => withToolSupport(scriptedModel([]), 'maybe' as 'text')).toThrow(
    'withToolSupport: "toolSupport" is "maybe". Use "error", "degrade" or "text".',
  );
  expect(() => openaiChat({ model: 'm', toolSupport: 'maybe' as 'text' })).toThrow('openaiChat: "toolSupport"');
});

// ── Over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────

const OLLAMA = status(400, { error: { message: 'library/gemma:2b does not support tools' } });
const LLAMA = status(500, { error: { code: 500, message: 'tools param requires --jinja flag', type: 'server_error' } });
const get_weather = tool({
  name: 'get_weather',
  description: 'The weather',
  input: parameters,
  effect: 'pure',
  execute: (input) => `Sun in ${(input as { city: string }).city}`,
});

test('error over HTTP: does not retry, and the outcome names the refusal', async () => {
  await using server = await scriptedServer(LLAMA);
  const model = openaiChat({ model: 'gemma:2b', baseURL: server.url, clock: hurriedClock() });
  const { outcome } = await runLoop({ model, tools: [get_weather], input: 'Weather?' });
  expect(outcome).toEqual({
    type: 'failed',
    error: {
      code: 'invalid-request',
      message:
        'The model "gemma:2b" does not support tools here. ' +
        'Use another model, or set toolSupport (tool_support in treadle.toml) to "degrade" or "text". ' +
        'The provider answered 500: tools param requires --jinja flag',
    },
  });
  expect(server.seen).toHaveLength(1);
});

test('degrade over HTTP: completes the run without tools, and the journal contains the refusal', async () => {
  await using server = await scriptedServer(OLLAMA, says('No idea.'), says('Still none.'));
  const model = openaiChat({ model: 'gemma:2b', baseURL: server.url, toolSupport: 'degrade' });
  const journal = memoryJournal();
  for (const runId of ['a', 'b']) {
    const result = await runLoop({ model, tools: [get_weather], input: 'Weather?', journal, runId });
    expect(result.outcome).toEqual({ type: 'completed' });
    const replied = (await journal.read(runId)).find(({ event }) => event.type === 'model-replied')!.event;
    expect(replied).toMatchObject({
      attempts: [
        { error: { code: 'invalid-request', message: expect.stringContaining('"gemma:2b" does not support tools') } },
        { model: 'm-2025' },
      ],
    });
  }
  expect(server.seen.map(({ body }) => 'tools' in (body as object))).toEqual([true, false, false]);
});

test('text over HTTP: runs the calls in a streamed text', async () => {
  const pieces = [
    'Let me',
    ' look.\n<tool',
    '_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}',
    '\n</tool_call>',
  ];
  await using server = await scriptedServer(
    OLLAMA,
    stream(...pieces.map((content) => chunk({ content })), chunk({}, 'stop'), DONE),
    says('It is sunny.'),
  );
  const model = openaiChat({ model: 'gemma:2b', baseURL: server.url, toolSupport: 'text' });
  const deltas: string[] = [];
  const result = await runLoop({
    model,
    tools: [get_weather],
    input: 'Weather?',
    onItem: (item) => {
      if (item.type === 'text-delta') deltas.push(item.text);
      if (item.type === 'call-delta') deltas.push(`(${item.name} ${item.arguments})`);
    },
  });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'It is sunny.', turns: 2, calls: 1 });
  expect(deltas).toEqual(['Let me', ' look.', '(get_weather {"city":"Oslo"})', 'It is sunny.']);
  const { messages, ...body } = server.seen[2]!.body as { messages: { role: string; content: string }[] };
  expect(body).not.toHaveProperty('tools');
  expect(messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user']);
  expect(messages.at(-1)!.content).toBe('<tool_response name="get_weather">\nSun in Oslo\n</tool_response>\n');
});

test('text: answers a call of an unknown tool with the available tools', async () => {
  const call = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>';
  const model = scriptedModel([refused(), call, 'So be it.']);
  const get_weather = tool({ ...weather, input: parameters, execute: () => 'rain' });
  const { text, messages } = await runLoop({
    model: withToolSupport(model, 'text'),
    tools: [get_weather],
    input: 'Weather?',
  });
  expect(text).toBe('So be it.');
  expect(messages[2]).toMatchObject({
    role: 'tool',
    content: [{ name: 'weather', isError: true, content: [{ text: expect.stringContaining('get_weather') }] }],
  });
});

test('rejects something else than a model', () => {
  expect(() => withToolSupport('llama' as never, 'text')).toThrow('withToolSupport: pass a model');
});
