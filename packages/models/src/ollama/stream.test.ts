import type { ModelReply } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, reasoning, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { ollamaProtocol } from './ollama.ts';

const protocol = ollamaProtocol({ model: 'm', stream: true });
const { replay, expectSameHoweverCut, expectFailureWhenCutBefore } = replayer(protocol);
const fixture = fixtures('ollama');

const EXPECTED: Record<string, unknown> = {
  'text.ndjson': {
    type: 'reply',
    content: [text('Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok" <3 & more')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 26, outputTokens: 14, cachedTokens: 16 },
    model: 'llama3.2',
  },
  'one-call.ndjson': {
    type: 'reply',
    content: [call('', 'get_weather', '{"city":"Tromsø","days":3}')],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 169, outputTokens: 22 },
    model: 'llama3.2',
  },
  'parallel-calls.ndjson': {
    type: 'reply',
    content: [
      text("I'll look up both."),
      call('call_q1nvx0ab', 'get_weather', '{"city":"Oslo"}'),
      call('call_k2m1x0qd', 'get_weather', '{"city":"Rome","deep":{"a":[1,2.5,null,true,"\\""]}}'),
      call('call_8s7d6f5g', 'now', '{}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 201, outputTokens: 57, cachedTokens: 128 },
    model: 'qwen3:8b',
  },
  'parallel-calls-in-one-line.ndjson': {
    type: 'reply',
    content: [call('', 'get_weather', '{"city":"Oslo"}'), call('', 'get_weather', '{"city":"Rome"}')],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 140, outputTokens: 41 },
    model: 'mistral-nemo',
  },
  'thinking-call.ndjson': {
    type: 'reply',
    content: [
      reasoning("The user wants Oslo's weather.\n"),
      text('Let me check.'),
      call('call_zw6ljpb4', 'get_weather', '{"city":"Oslo"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 155, outputTokens: 61, cachedTokens: 0 },
    model: 'qwen3:8b',
  },
  'refusal.ndjson': {
    type: 'reply',
    content: [reasoning('Policy says no.'), text("I'm sorry, but I can’t help with that.")],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 70, outputTokens: 31 },
    model: 'gpt-oss:20b',
  },
  'length.ndjson': {
    type: 'reply',
    content: [text('Once upon a')],
    finish: 'length',
    rawFinish: 'length',
    usage: { inputTokens: 33, outputTokens: 3, cachedTokens: 0 },
    model: 'llama3.2',
  },
  'error-line.ndjson': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message: 'The provider broke off with an error: an error was encountered while running the model: unexpected EOF',
      retryable: true,
    },
  },
  'bom-blank-lines-no-last-newline.ndjson': {
    type: 'reply',
    content: [text('Hello world')],
    finish: 'stop',
    rawFinish: 'stop',
    usage: { inputTokens: 26, outputTokens: 8 },
    model: 'llama3.2',
  },
  'closed-in-mid-line.ndjson': {
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('not JSON'), retryable: true },
  },
  'closed-without-done.ndjson': {
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('cut off'), retryable: true },
  },
};

test.each(Object.keys(EXPECTED))(
  '%s: reads the same whole, byte by byte, split at every point and with CRLF',
  (name) => {
    expect(replay([fixture(name)]).reply).toEqual(EXPECTED[name]);
    expectSameHoweverCut(fixture(name));
  },
);

test('fails if the stream is truncated anywhere before the end of its last line', () => {
  const whole = fixture('parallel-calls.ndjson');
  expectFailureWhenCutBefore(whole, whole.length - 1);
  expect(replay([whole.subarray(0, -1)]).reply.type).toBe('reply');
});

test('emits the pieces of the reply as deltas, and numbers calls across lines', () => {
  const { deltas } = replay([fixture('thinking-call.ndjson'), fixture('text.ndjson')]);
  expect(deltas).toEqual([
    { type: 'reasoning-delta', text: 'The user' },
    { type: 'reasoning-delta', text: ' wants Oslo' },
    { type: 'reasoning-delta', text: "'s weather.\n" },
    { type: 'text-delta', text: 'Let me' },
    { type: 'text-delta', text: ' check.' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '{"city":"Oslo"}' },
  ]);
  const calls = replay([fixture('parallel-calls.ndjson')]).deltas.filter(({ type }) => type === 'call-delta');
  expect(calls.map((delta) => delta.type === 'call-delta' && delta.call)).toEqual([0, 1, 2]);
});

test('decodes whole answers', () => {
  expect(protocol.decode(fixture('whole.json').toString())).toEqual({
    type: 'reply',
    content: [
      reasoning('Two cities.'),
      text("I'll look up both."),
      call('call_q1nvx0ab', 'get_weather', '{"city":"Oslo"}'),
      call('call_k2m1x0qd', 'get_weather', '{"city":"Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'stop',
    usage: { inputTokens: 201, outputTokens: 57, cachedTokens: 128 },
    model: 'qwen3:8b',
  });
  expect(protocol.decode(fixture('whole-length.json').toString())).toEqual({
    type: 'reply',
    content: [text('Once upon a')],
    finish: 'length',
    rawFinish: 'length',
    usage: { inputTokens: 33, outputTokens: 3 },
    model: 'llama3.2',
  });
  expect(protocol.decode(fixture('loaded.json').toString())).toEqual({
    type: 'reply',
    content: [],
    finish: 'stop',
    rawFinish: 'load',
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'llama3.2',
  });
});

test.each([
  ['stop', 'stop', 'tool-calls'],
  ['length', 'length', 'length'],
  ['unload', 'stop', 'tool-calls'],
  ['', 'stop', 'tool-calls'],
])('maps the done reason "%s" to %s, and with calls to %s', (reason, plain, withCalls) => {
  const answer = (message: object): ModelReply =>
    protocol.decode(JSON.stringify({ message, done: true, done_reason: reason }));
  const raw = reason === '' ? {} : { rawFinish: reason };
  const usage = { inputTokens: 0, outputTokens: 0 };
  expect(answer({ content: 'a' })).toEqual({
    type: 'reply',
    content: [text('a')],
    finish: plain,
    ...raw,
    usage,
    model: '',
  });
  expect(answer({ tool_calls: [{ function: { name: 'f' } }] })).toEqual({
    type: 'reply',
    content: [call('', 'f', '{}')],
    finish: withCalls,
    ...raw,
    usage,
    model: '',
  });
});

test('stores arguments that are text unchanged', () => {
  const calls = [{ id: 7, function: { name: 'f', arguments: '{"a": 1}' } }, null, { function: null }, 'x'];
  expect(protocol.decode(JSON.stringify({ message: { tool_calls: calls }, done: true }))).toMatchObject({
    content: [call('', 'f', '{"a": 1}'), call('', '', '{}')],
  });
});

test.each([
  ['null', 'cut off'],
  ['"text"', 'cut off'],
  ['{"message":null,"done":false}', 'cut off'],
  ['{"message":7,"done":"yes"}', 'cut off'],
  ['{"message":{"content":7,"thinking":[],"tool_calls":"abc"},"done":1}', 'cut off'],
  ['{"error":"no"}', 'no'],
  ['{"error":{"message":"no"}}', 'no'],
  ['<html>', 'not JSON'],
  ['', 'not JSON'],
])('fails on the answer %s', (body, message) => {
  expect(protocol.decode(body)).toMatchObject({
    type: 'failure',
    error: { message: expect.stringContaining(message) },
  });
});

test('reports data that is not JSON in full, so that a key in it can be redacted', () => {
  const junk = `${'x'.repeat(500)}sk-1`;
  const message = `The answer contains data that is not JSON: ${junk}`;
  expect(protocol.decode(junk)).toMatchObject({ error: { code: 'protocol', message } });
});

test('ignores invalid token counts', () => {
  const counts = { prompt_eval_count: -1, prompt_eval_cached_count: 1e300, eval_count: 2.5 };
  expect(protocol.decode(JSON.stringify({ message: { content: 'a' }, done: true, ...counts }))).toMatchObject({
    usage: { inputTokens: 0, outputTokens: 0 },
  });
});

const odd = fc.oneof(fc.jsonValue(), fc.constantFrom(null, true, 7, 'x', [], {}, [null], [{}]));
const line = fc
  .record(
    {
      model: odd,
      message: fc.oneof(
        odd,
        fc.record(
          {
            content: odd,
            thinking: odd,
            tool_calls: fc.oneof(odd, fc.array(fc.record({ id: odd, function: odd }, { requiredKeys: [] }))),
          },
          { requiredKeys: [] },
        ),
      ),
      done: odd,
      done_reason: odd,
      error: fc.option(odd, { nil: undefined }),
      eval_count: odd,
      prompt_eval_count: odd,
      prompt_eval_cached_count: odd,
    },
    { requiredKeys: [] },
  )
  .map((chunk) => Buffer.from(`${JSON.stringify(chunk)}\n`));

test('returns a reply or a failure for any input, and never throws', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(line, fc.uint8Array()), { maxLength: 5 }), (chunks) => {
      const { reply } = replay(chunks);
      expect(['reply', 'failure']).toContain(reply.type);
      if (reply.type === 'reply') expect(JSON.parse(JSON.stringify(reply))).toEqual(reply);
      const whole = Buffer.concat(chunks).toString('utf8');
      expect(['reply', 'failure']).toContain(protocol.decode(whole).type);
      expect(protocol.failure(500, whole)).toMatchObject({ message: expect.any(String), status: 500 });
    }),
    { numRuns: 500 },
  );
});

test('joins 1 MB of text in lines of one character once', () => {
  const state = protocol.start();
  const size = 1024 * 1024;
  const piece = { name: '', data: '{"message":{"content":"x"},"done":false}' };
  let count = 0;
  for (let n = 0; n < size; n++) protocol.step(state, piece, () => count++);
  protocol.step(state, { name: '', data: '{"done":true}' }, () => {});
  expect(count).toBe(size);
  expect(protocol.end(state)).toMatchObject({ content: [{ type: 'text', text: 'x'.repeat(size) }] });
});
