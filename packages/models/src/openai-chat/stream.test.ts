import type { ModelReply } from '@treadle/core';
import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, reasoning, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true, maxTokensField: 'max_tokens' });
const tools = ['edit_existing_file', 'ls', 'ls_all'].map((name) => ({ name, description: '', parameters: {} }));
const { replay, expectSameHoweverCut, expectFailureWhenCutBefore } = replayer(protocol, tools);
const fixture = fixtures();

const cut = {
  type: 'failure',
  error: { code: 'protocol', message: expect.stringContaining('cut off'), retryable: true },
};

const EXPECTED: Record<string, unknown> = {
  'openai-text.sse': {
    type: 'reply',
    content: [text('Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok"')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 21, outputTokens: 14, cachedTokens: 16, reasoningTokens: 0 },
    model: 'gpt-5-mini-2025-08-07',
  },
  'openai-one-call.sse': {
    type: 'reply',
    content: [call('call_w7P1nRkq2mX0aJtYhD5cVb8s', 'get_weather', '{"city":"Tromsø","days":3}')],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 93, outputTokens: 17, cachedTokens: 0, reasoningTokens: 0 },
    model: 'gpt-5-mini-2025-08-07',
  },
  'openai-parallel-calls.sse': {
    type: 'reply',
    content: [
      text("I'll look up both."),
      call('call_Ht3zqYbK9mW2eRxLpN7vC1uD', 'get_weather', '{"city": "Oslo"}'),
      call('call_Zk8sVfQ4nJ6tBgMwXc0yE2aR', 'get_weather', '{"city": "Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 88, outputTokens: 49, cachedTokens: 64, reasoningTokens: 0 },
    model: 'gpt-5-mini-2025-08-07',
  },
  'openai-length.sse': {
    type: 'reply',
    content: [text('Once upon'), call('call_5yGm0TnKxq3bZ1sWvR9dPcLe', 'write', '{"path":"tale.txt","content":"Once')],
    finish: 'length',
    rawFinish: 'length',
    usage: { inputTokens: 40, outputTokens: 16, cachedTokens: 0, reasoningTokens: 0 },
    model: 'gpt-5-mini-2025-08-07',
  },
  'openai-refusal.sse': {
    type: 'reply',
    content: [{ type: 'text', text: "I'm sorry, I cannot assist with that.", refusal: true }],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 30, outputTokens: 9, cachedTokens: 0, reasoningTokens: 0 },
    model: 'gpt-5-mini-2025-08-07',
  },
  'azure-content-filter.sse': {
    type: 'reply',
    content: [text('First you')],
    finish: 'content-filter',
    rawFinish: 'content_filter',
    usage: { inputTokens: 12, outputTokens: 2 },
    model: 'gpt-4.1-2025-04-14',
  },
  'deepseek-reasoning-call.sse': {
    type: 'reply',
    content: [
      reasoning("The user wants Oslo's weather."),
      text('Let me check.'),
      call('call_00_q1Nv', 'get_weather', '{"city": "Oslo"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 170, outputTokens: 61, cachedTokens: 128, reasoningTokens: 22 },
    model: 'deepseek-reasoner',
  },
  'openrouter-reasoning.sse': {
    type: 'reply',
    content: [reasoning('Two and two.'), text('4')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 9, outputTokens: 6, cachedTokens: 0, reasoningTokens: 4, cost: 0.0000021 },
    model: 'qwen/qwen3-coder',
  },
  'openrouter-error-frame.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message: 'The provider broke off with an error: Provider disconnected unexpectedly (upstream connect error)',
      retryable: true,
      status: 502,
    },
  },
  'groq-usage-elsewhere.sse': {
    type: 'reply',
    content: [text('Hi')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 72, outputTokens: 10 },
    model: 'openai/gpt-oss-20b',
  },
  'index-zero-every-call.sse': {
    type: 'reply',
    content: [
      call('call_zw6ljpb4', 'get_weather', '{"city":"Oslo"}'),
      call('call_k2m1x0qd', 'get_weather', '{"city":"Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'qwen3:8b',
  },
  'no-index-no-id-no-done.sse': {
    type: 'reply',
    content: [
      call('call_0', 'get_weather', '{"city":"Oslo"}'),
      call('call_1', 'get_weather', '{"city":"Rome"}'),
      call('call_2', 'get_time', '{}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 55, outputTokens: 31 },
    model: 'gemini-2.5-flash',
  },
  'name-in-every-chunk.sse': {
    type: 'reply',
    content: [call('call_9b1e', 'run', '{"code":"if (a) {}{} else {}", "n": 1}')],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 40, outputTokens: 20 },
    model: 'qwen-plus',
  },
  'arguments-as-object.sse': {
    type: 'reply',
    content: [call('call_0', 'get_weather', '{"city":"Oslo"}'), call('call_1', 'get_weather', '{"city":"Rome"}')],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'qwen3:8b',
  },
  'arguments-repeated.sse': {
    type: 'reply',
    content: [
      call('tool_1a', 'shell', String.raw`{"command": "ls notes && echo \"{}{}\""}`),
      call('tool_1b', 'read_file', '{"path": "notes/Größe.md"}'),
      call('tool_1c', 'read_file', '{"path": "notes/Größe.md"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'cursor/composer-2.5',
  },
  'arguments-encoded-twice.sse': {
    type: 'reply',
    content: [call('chatcmpl-tool-9a', 'sales_data', String.raw`{"shop_name": "A店", "note": "a \"b\"\n"}`)],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'Qwen/Qwen2.5-7B-Instruct',
  },
  'name-in-pieces.sse': {
    type: 'reply',
    content: [
      call('tool_0', 'edit_existing_file', '{"filepath":"a.ts"}'),
      call('tool_1', 'ls', ''),
      call('tool_2', 'ls_all', '{}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'gemini-2.5-pro',
  },
  'empty-finish-reason.sse': {
    type: 'reply',
    content: [text(' Hello Tromsø')],
    finish: 'stop',
    rawFinish: '',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'mistral:latest',
  },
  'no-finish-reason-call.sse': {
    type: 'reply',
    content: [text('Let me look.'), call('call_8f3a', 'get_weather', '{"city": "Paris"}')],
    finish: 'tool-calls',
    rawFinish: '',
    usage: { inputTokens: 10, outputTokens: 21 },
    model: 'gemma-4-31b-it-4bit',
  },
  'bom-ping-multiline.sse': {
    type: 'reply',
    content: [text('pong')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'qwen3:8b',
  },
  'closed-in-mid-frame.sse': {
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('not JSON'), retryable: true },
  },
  'closed-without-finish.sse': cut,
  'pings-and-blanks.sse': {
    type: 'reply',
    content: [text('Still here.')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 12, outputTokens: 4 },
    model: 'qwen3-32b',
  },
  'closed-in-done.sse': {
    type: 'reply',
    content: [text('All said.')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'qwen3-32b',
  },
  'vllm-error-object.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message: 'The provider broke off with an error: CUDA out of memory',
      retryable: true,
      status: 500,
    },
  },
};

test.each(Object.keys(EXPECTED))(
  '%s: reads the same whole, byte by byte, split at every point and with CRLF',
  (name) => {
    expect(replay([fixture(name)]).reply).toEqual(EXPECTED[name]);
    expectSameHoweverCut(fixture(name));
  },
);

test('fails if the stream is truncated anywhere before its finish reason', () => {
  const whole = fixture('openai-parallel-calls.sse');
  const finish = whole.indexOf('"finish_reason":"tool_calls"');
  expectFailureWhenCutBefore(whole, finish);
});

test.each(['empty-finish-reason.sse', 'no-finish-reason-call.sse'])(
  '%s: fails if the stream is truncated anywhere before the end of [DONE]',
  (name) => {
    const whole = fixture(name);
    expectFailureWhenCutBefore(whole, whole.indexOf('[DONE]') + '[DONE]'.length);
  },
);

test('emits the pieces of the reply as deltas', () => {
  const { deltas } = replay([fixture('openai-parallel-calls.sse')]);
  expect(deltas).toEqual([
    { type: 'text-delta', text: "I'll look up both." },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '{"ci' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: 'ty": "O' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: 'slo"}' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: '' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: '{"ci' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: 'ty": "R' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: 'ome"}' },
  ]);
});

test('emits neither a part of a name, nor repeated arguments, nor arguments that are encoded twice', () => {
  const callDelta = (call: number, name: string, json: string): object => ({
    type: 'call-delta',
    call,
    name,
    arguments: json,
  });
  expect(replay([fixture('name-in-pieces.sse')]).deltas).toEqual([
    callDelta(0, 'edit_existing_file', ''),
    callDelta(0, 'edit_existing_file', '{"filepath":'),
    callDelta(0, 'edit_existing_file', '"a.ts"}'),
    callDelta(1, 'ls', ''),
    callDelta(2, 'ls_all', ''),
    callDelta(2, 'ls_all', '{}'),
  ]);
  const repeated = replay([fixture('arguments-repeated.sse')]).deltas.filter((one) => one.type === 'call-delta');
  expect(repeated.map((one) => one.arguments).join('')).toBe(
    String.raw`{"command": "ls notes && echo \"{}{}\""}` + '{"path": "notes/Größe.md"}'.repeat(2),
  );
  expect(replay([fixture('arguments-encoded-twice.sse')]).deltas).toEqual([callDelta(0, 'sales_data', '')]);
});

test.each([
  ['nothing', {}],
  ['only reasoning', { reasoning_content: 'Hm' }],
  ['a call without arguments', { tool_calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: '' } }] }],
  ['arguments that are cut off', { tool_calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: '{"a":1' } }] }],
  [
    'arguments that are not an object',
    { tool_calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: '1' } }] },
  ],
])('fails on [DONE] without a finish reason after %s', (_, delta) => {
  const start = `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: '' }] })}\n\n`;
  expect(replay([Buffer.from(`${start}data: [DONE]\n\n`)]).reply).toEqual(cut);
  expect(protocol.decode(JSON.stringify({ choices: [{ index: 0, message: delta }] }))).toEqual(cut);
});

test.each([
  ['f', {}, true],
  ['f', { a: {} }, false],
  // It may be the beginning of a name.
  ['ls', {}, false],
])('reads [DONE] without a finish reason after a call of %s with the parameters %j: %s', (name, properties, isRead) => {
  const parameters = { type: 'object', properties };
  const known = [...tools.filter((tool) => tool.name !== name), { name, description: '', parameters }];
  const delta = { tool_calls: [{ index: 0, id: 'a', function: { name, arguments: '' } }] };
  const data = `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: '' }] })}\n\ndata: [DONE]\n\n`;
  const expected = isRead ? { type: 'reply', content: [call('a', name, '')], finish: 'tool-calls' } : cut;
  expect(replayer(protocol, known).replay([Buffer.from(data)]).reply).toMatchObject(expected);
});

test('reads a whole answer without a finish reason', () => {
  const reply = protocol.decode(JSON.stringify({ choices: [{ index: 0, message: { content: 'a' } }] }));
  expect(reply).toMatchObject({ type: 'reply', content: [text('a')], finish: 'stop', rawFinish: '' });
});

test('fails on a truncated [DONE] without a finish reason', () => {
  const start = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n';
  expect(replay([Buffer.from(`${start}data: [DON`)]).reply).toMatchObject({
    error: { message: 'The answer contains data that is not JSON: [DON' },
  });
});

test('reports data that is not JSON in full, so that a key in it can be redacted', () => {
  const junk = `${'x'.repeat(500)}sk-1`;
  const message = `The answer contains data that is not JSON: ${junk}`;
  expect(replay([Buffer.from(`data: ${junk}\n\n`)]).reply).toMatchObject({ error: { code: 'protocol', message } });
  expect(protocol.decode(junk)).toMatchObject({ error: { code: 'protocol', message } });
});

test('ignores invalid token counts', () => {
  const counted = (usage: unknown): unknown => {
    const choices = [{ index: 0, message: { content: 'a' }, finish_reason: 'stop' }];
    const reply = protocol.decode(JSON.stringify({ choices, usage }));
    return reply.type === 'reply' && reply.usage;
  };
  const none = { inputTokens: 0, outputTokens: 0 };
  const details = {
    prompt_tokens_details: { cached_tokens: -1 },
    completion_tokens_details: { reasoning_tokens: 1e300 },
  };
  expect(counted({ prompt_tokens: -3, completion_tokens: 1e99, ...details, cost: -1 })).toEqual(none);
  expect(counted('many')).toEqual(none);
  expect(counted({ prompt_tokens: '12', completion_tokens: 3, cost: 0.5 })).toEqual({
    inputTokens: 12,
    outputTokens: 3,
    cost: 0.5,
  });
});

test('decodes a whole answer like a stream', () => {
  expect(protocol.decode(fixture('openai-whole.json').toString())).toEqual({
    type: 'reply',
    content: [
      text("I'll look up both."),
      call('call_A1', 'get_weather', '{"city":"Oslo"}'),
      call('call_B2', 'get_weather', '{"city":"Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_calls',
    usage: { inputTokens: 88, outputTokens: 49, cachedTokens: 0, reasoningTokens: 5 },
    model: 'gpt-5-mini-2025-08-07',
  });
});

const hasToolCalls = (reply: ModelReply): boolean =>
  reply.type === 'reply' && reply.content.some((part) => part.type === 'tool-call');

function answer(message: object, finish = 'stop'): ModelReply {
  return protocol.decode(JSON.stringify({ choices: [{ index: 0, message, finish_reason: finish }] }));
}

// Seed 000, case 26.
test('a reply has tool calls if the answer contains some', () => {
  const reply = answer({ content: null, tool_calls: [{ id: 'c', function: { name: 'shell', arguments: '{}' } }] });
  expect(hasToolCalls(reply)).toBe(true);
  expect(reply).toMatchObject({ finish: 'tool-calls', rawFinish: 'stop' });
});

// Seed 000, case 27.
test('a reply has no tool calls if the answer contains none, null or an empty list', () => {
  for (const message of [{ content: 'a' }, { content: 'a', tool_calls: null }, { content: 'a', tool_calls: [] }]) {
    expect(hasToolCalls(answer(message))).toBe(false);
    expect(answer(message)).toMatchObject({ finish: 'stop', content: [text('a')] });
  }
});

test.each([
  ['stop', 'stop', 'tool-calls'],
  ['tool_calls', 'stop', 'tool-calls'],
  ['function_call', 'stop', 'tool-calls'],
  ['length', 'length', 'length'],
  ['max_tokens', 'length', 'length'],
  ['content_filter', 'content-filter', 'content-filter'],
  ['eos_token', 'stop', 'tool-calls'],
])('maps the finish reason %s to %s, and with calls to %s', (raw, plain, withCalls) => {
  expect(answer({ content: 'a' }, raw)).toMatchObject({ finish: plain, rawFinish: raw });
  const calls = [{ id: 'c', function: { name: 'f', arguments: '{}' } }];
  expect(answer({ content: 'a', tool_calls: calls }, raw)).toMatchObject({ finish: withCalls, rawFinish: raw });
});

test('preserves the order of the parts', () => {
  const chunk = (delta: object, finish: string | null = null): Uint8Array =>
    Buffer.from(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
  const { reply } = replay([
    chunk({ reasoning: 'a', reasoning_content: 'a' }),
    chunk({ content: 'b' }),
    chunk({ tool_calls: [{ index: 0, id: 'x', function: { name: 'f', arguments: '{"a"' } }] }),
    chunk({ content: 'c' }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }),
    chunk({
      content: [
        { type: 'thinking', thinking: [{ type: 'text', text: 'd' }] },
        { type: 'text', text: 'e' },
      ],
    }),
    chunk({ function_call: null }, 'tool_calls'),
  ]);
  expect(reply).toMatchObject({
    content: [reasoning('a'), text('b'), call('x', 'f', '{"a":1}'), text('c'), reasoning('d'), text('e')],
  });
});

test('separates calls with the same id by their index', () => {
  const entry = (index: number, json: string): object => ({
    index,
    id: 'same',
    function: { name: 'f', arguments: json },
  });
  expect(answer({ tool_calls: [entry(0, '{"a":1}'), entry(1, '{"a":2}')] })).toMatchObject({
    content: [call('same', 'f', '{"a":1}'), call('same', 'f', '{"a":2}')],
  });
});

test.each([
  ['null', 'cut off'],
  ['"text"', 'cut off'],
  ['{"choices":null}', 'cut off'],
  ['{"choices":[null]}', 'cut off'],
  ['{"choices":"abc"}', 'cut off'],
  ['{"choices":[{"delta":7,"finish_reason":7}]}', undefined],
  ['<html>', 'not JSON'],
])('does not throw on the answer %s', (body, message) => {
  const reply = protocol.decode(body);
  if (message !== undefined)
    expect(reply).toMatchObject({ type: 'failure', error: { message: expect.stringContaining(message) } });
});

test('reads 1 MB of arguments in deltas of one character', () => {
  const state = protocol.start();
  const piece = {
    name: '',
    data: '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}',
  };
  const size = 1024 * 1024;
  let count = 0;
  for (let n = 0; n < size; n++) protocol.step(state, piece, () => count++);
  protocol.step(
    state,
    { name: '', data: '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}' },
    () => {},
  );
  expect(count).toBe(size);
  expect(protocol.end(state)).toMatchObject({ content: [{ type: 'tool-call', arguments: 'x'.repeat(size) }] });
});

test('reads a call with a text, in pieces', async () => {
  const chunk = (delta: object, finish_reason: string | null = null): string =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  const text = [
    chunk({ tool_calls: [{ index: 0, id: 'c1', type: 'custom', custom: { name: 'patch', input: '' } }] }),
    chunk({ tool_calls: [{ index: 0, custom: { input: '{"a"' } }] }),
    chunk({ tool_calls: [{ index: 0, custom: { input: ':\n' } }] }),
    chunk({}, 'tool_calls'),
    'data: [DONE]\n\n',
  ].join('');
  const { reply } = await replay([Buffer.from(text)]);
  const json = JSON.stringify({ input: '{"a":\n' });
  expect(reply).toMatchObject({ content: [{ ...call('c1', 'patch', json), custom: true }], finish: 'tool-calls' });
});
