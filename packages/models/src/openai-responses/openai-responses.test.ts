import { TreadleError, runLoop, tool } from '@treadle/core';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { answer, answering, typeOf } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked, request } from '../../test/request.ts';
import { openaiResponses, type OpenAiResponsesOptions } from './openai-responses.ts';

const KEY = 'sk-test-51Nb2xQ9vT7mZ';
const fixture = fixtures('openai-responses');

const recorded = (name: string): Response => answer(fixture(name), typeOf(name));
const refused = (status: number, body: object, headers: Record<string, string> = {}): Response =>
  Response.json(body, { status, headers });

const { signal } = new AbortController();

test('sends the request and reads a streamed reply', async () => {
  const { fetch, seen } = answering(recorded('text.sse'));
  const model = openaiResponses({ model: 'gpt-5-mini', apiKey: KEY, fetch });
  const { reply, deltas } = await asked(model);
  expect(model.id).toBe('gpt-5-mini');
  expect(reply).toMatchObject({
    type: 'reply',
    content: [{ type: 'text', text: 'Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok"' }],
    model: 'gpt-5-mini-2025-08-07',
  });
  expect(deltas).toHaveLength(6);
  expect(seen).toHaveLength(1);
  expect(seen[0]!.url).toBe('https://api.openai.com/v1/responses');
  expect(seen[0]!.headers).toMatchObject({
    authorization: `Bearer ${KEY}`,
    accept: 'text/event-stream',
    'content-type': 'application/json',
  });
  expect(seen[0]!.body).toEqual({
    model: 'gpt-5-mini',
    input: [{ type: 'message', role: 'user', content: 'hi' }],
    stream: true,
    store: false,
    include: ['reasoning.encrypted_content'],
  });
});

test('reads a whole reply, requested or not', async () => {
  const { fetch, seen } = answering(recorded('whole.json'), recorded('whole.json'));
  const model = (stream: boolean) => openaiResponses({ model: 'm', baseURL: 'http://x.example/v1/', fetch, stream });
  for (const streamed of [false, true]) {
    expect(await model(streamed).reply(request(), () => expect.unreachable(), signal)).toMatchObject({
      type: 'reply',
      finish: 'tool-calls',
      usage: { reasoningTokens: 5 },
    });
  }
  expect(seen).toMatchObject([
    { url: 'http://x.example/v1/responses', body: { stream: false } },
    { body: { stream: true } },
  ]);
});

const INCLUDED = ['reasoning.encrypted_content'];

test.each<[Partial<OpenAiResponsesOptions>, unknown]>([
  [{ model: 'gpt-5' }, INCLUDED],
  [{ model: 'o4-mini' }, INCLUDED],
  [{ model: 'openai/gpt-oss-20b' }, INCLUDED],
  [{ model: 'grok-4' }, INCLUDED],
  [{ model: 'gpt-4o' }, undefined],
  [{ model: 'openai/gpt-4.1-mini' }, undefined],
  [{ model: 'ft:gpt-4o-mini:acme::1' }, undefined],
  [{ model: 'chatgpt-4o-latest' }, undefined],
  [{ model: 'gpt-5.1-chat-latest' }, undefined],
  [{ model: 'gpt-5', store: true }, undefined],
  [{ model: 'gpt-5', store: true, encryptedReasoning: true }, INCLUDED],
  [{ model: 'gpt-5', encryptedReasoning: false }, undefined],
])('with %j, include is %j', async (options, include) => {
  const { fetch, seen } = answering(recorded('text.sse'));
  await openaiResponses({ model: 'm', fetch, ...options }).reply(request(), () => {}, signal);
  expect(seen[0]!.body['include']).toEqual(include);
  expect(seen[0]!.body['store']).toBe(options.store ?? false);
});

test('sends the options in the body', async () => {
  const { fetch, seen } = answering(recorded('text.sse'));
  const model = openaiResponses({ model: 'gpt-5', fetch, strict: true, reasoningSummary: 'auto' });
  const tools = [{ name: 'f', description: '', parameters: { type: 'object' } }];
  await model.reply(request({ tools, settings: { reasoning: 'high' } }), () => {}, signal);
  expect(seen[0]!.body).toMatchObject({
    reasoning: { effort: 'high', summary: 'auto' },
    tools: [{ name: 'f', strict: true }],
  });
});

test('in the loop: sends reasoning back in its position among calls and results', async () => {
  const { fetch, seen } = answering(recorded('reasoning-call.sse'), recorded('text.sse'));
  const input = { type: 'object', properties: {} };
  const result = await runLoop({
    model: openaiResponses({ model: 'gpt-5-mini', fetch }),
    instructions: 'Be brief.',
    tools: [
      tool({ name: 'get_weather', description: 'Weather', input, effect: 'pure', execute: () => 'snow' }),
      tool({
        name: 'get_time',
        description: 'Time',
        input,
        effect: 'pure',
        execute: () => Promise.reject(new Error('no clock')),
      }),
    ],
    input: 'Weather in Oslo?',
  });
  expect(result).toMatchObject({
    outcome: { type: 'completed' },
    turns: 2,
    calls: 2,
    usage: { inputTokens: 191, outputTokens: 75, cachedTokens: 144, reasoningTokens: 22 },
  });
  expect(seen[1]!.body).toMatchObject({
    instructions: 'Be brief.',
    input: [
      { role: 'user', content: 'Weather in Oslo?' },
      {
        type: 'reasoning',
        id: 'rs_0c7e3a51d2f84b96006918168a10f48193970b',
        encrypted_content: expect.stringMatching(/^gAAAAABpGBaLw7Jx/),
        summary: [{ text: expect.stringMatching(/^\*\*Finding/) }, { text: expect.stringMatching(/^\*\*Calling/) }],
      },
      { type: 'function_call', call_id: 'call_q1Nv8TzXw3RmKc5LbJ0sYhGd', arguments: '{"city":"Oslo"}' },
      { type: 'reasoning', id: 'rs_0c7e3a51d2f84b960069181698ed688193a552', summary: [] },
      { type: 'function_call', call_id: 'call_B7fLs2QeVn9XtMw4KzRcJy6P', name: 'get_time', arguments: '{}' },
      { type: 'function_call_output', call_id: 'call_q1Nv8TzXw3RmKc5LbJ0sYhGd', output: 'snow' },
      {
        type: 'function_call_output',
        call_id: 'call_B7fLs2QeVn9XtMw4KzRcJy6P',
        output: expect.stringMatching(/^Error: .*no clock/),
      },
    ],
  });
});

test('reports an error in mid-stream and does not retry after the first delta', async () => {
  const { fetch, seen } = answering(recorded('failed.sse'));
  const { reply, deltas } = await asked(openaiResponses({ model: 'm', fetch }));
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'overloaded' }, attempts: { length: 1 } });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
  expect(seen).toHaveLength(1);
});

test('retries temporary errors, and never shows the key', async () => {
  const { fetch } = answering(
    refused(429, { error: { message: 'slow down', code: 'rate_limit_exceeded' } }, { 'retry-after': '7' }),
    refused(400, {
      error: {
        message: `Your input exceeds the context window of this model (${KEY}).`,
        type: 'invalid_request_error',
        param: 'input',
        code: 'context_length_exceeded',
      },
    }),
  );
  const clock = hurriedClock();
  const reply = await openaiResponses({ model: 'm', apiKey: KEY, fetch, clock }).reply(request(), () => {}, signal);
  expect(reply).toMatchObject({
    type: 'failure',
    error: {
      code: 'context-length',
      message: 'The provider answered 400: Your input exceeds the context window of this model ([redacted]).',
      retryable: false,
      status: 400,
    },
    attempts: [{ error: { code: 'rate-limit', retryAfterMs: 7_000 } }, {}],
  });
  expect(clock.waits[0]).toBe(7_000);
});

test.each([
  [undefined, /pass an object/],
  [{}, /"model" is missing/],
  [{ model: 'm', baseURL: 'localhost:8080' }, /"baseURL" is not an http\(s\) URL/],
])('rejects the options %j', (options, message) => {
  const make = (): unknown => openaiResponses(options as OpenAiResponsesOptions);
  expect(make).toThrow(TreadleError);
  expect(make).toThrow(message);
  expect(make).toThrow(/^openaiResponses: /);
});
