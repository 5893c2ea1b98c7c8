import { runLoop, tool } from '@treadle/core';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { answer, answering, typeOf } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked, type Asked } from '../../test/request.ts';
import { anthropic, type AnthropicOptions } from './anthropic.ts';

const KEY = 'sk-ant-test-51Nb2xQ9vT7mZ';

const fixture = fixtures('anthropic');

const recorded = (name: string): Response => answer(fixture(name), typeOf(name));

function failing(status: number, type: string, message: string, headers: Record<string, string> = {}): Response {
  const body = { type: 'error', error: { type, message }, request_id: 'req_1' };
  return Response.json(body, { status, headers });
}

async function ask(options: Partial<AnthropicOptions>): Promise<Asked> {
  const answered = await asked(anthropic({ model: 'claude-x', apiKey: KEY, clock: hurriedClock(), ...options }));
  expect(JSON.stringify(answered.reply)).not.toContain(KEY);
  return answered;
}

test('sends the request and reads a streamed reply', async () => {
  const { fetch, seen } = answering(recorded('text.sse'));
  const { reply, deltas } = await ask({ fetch });
  expect(reply).toMatchObject({ type: 'reply', finish: 'stop', model: 'claude-opus-5' });
  expect(deltas.length).toBe(4);
  expect(seen).toEqual([
    {
      url: 'https://api.anthropic.com/v1/messages',
      headers: {
        'content-type': 'application/json',
        accept: 'text/event-stream',
        'user-agent': expect.any(String),
        'x-api-key': KEY,
        'anthropic-version': '2023-06-01',
      },
      body: {
        model: 'claude-x',
        messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
        max_tokens: 32_000,
        stream: true,
        cache_control: { type: 'ephemeral' },
      },
    },
  ]);
});

test('reads a whole reply, uses base URL, version and betas, and prefers headers of the user', async () => {
  const { fetch, seen } = answering(recorded('whole-thinking-calls.json'), recorded('whole-text.json'));
  const options = { fetch, baseURL: 'http://127.0.0.1:8080/v1/', stream: false, cache: false } as const;
  const { reply } = await ask({ ...options, version: '2027-01-01', betas: ['a-2026', 'b-2026'] });
  expect(reply).toMatchObject({ type: 'reply', finish: 'tool-calls', usage: { reasoningTokens: 58 } });
  expect(seen[0]).toMatchObject({
    url: 'http://127.0.0.1:8080/v1/messages',
    headers: { accept: 'application/json', 'anthropic-version': '2027-01-01', 'anthropic-beta': 'a-2026,b-2026' },
    body: { stream: false },
  });
  expect(seen[0]!.body).not.toHaveProperty('cache_control');
  await ask({ ...options, betas: ['a'], headers: { 'Anthropic-Version': 'mine', 'Anthropic-Beta': 'c' } });
  expect(seen[1]!.headers).toMatchObject({ 'anthropic-version': 'mine', 'anthropic-beta': 'c' });
});

test('retries temporary failures, and reports permanent ones at once without the key', async () => {
  const busy = answering(
    failing(529, 'overloaded_error', 'Overloaded'),
    failing(429, 'rate_limit_error', 'Slow down', { 'retry-after': '7' }),
    recorded('text.sse'),
  );
  expect((await ask({ fetch: busy.fetch })).reply).toMatchObject({
    type: 'reply',
    attempts: [
      { error: { code: 'overloaded', status: 529 } },
      { error: { code: 'rate-limit', retryAfterMs: 7_000 } },
      { model: 'claude-opus-5' },
    ],
  });
  const locked = answering(failing(401, 'authentication_error', `invalid x-api-key: ${KEY}`));
  expect((await ask({ fetch: locked.fetch })).reply).toMatchObject({
    type: 'failure',
    error: { code: 'auth', message: 'The provider answered 401: invalid x-api-key: [redacted]', status: 401 },
  });
  expect(locked.seen).toHaveLength(1);
});

test('does not retry an error in mid-stream after the first delta', async () => {
  const { fetch, seen } = answering(recorded('overloaded-in-mid-stream.sse'), recorded('text.sse'));
  const { reply, deltas } = await ask({ fetch });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'overloaded', retryable: true } });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Once' }]);
  expect(seen).toHaveLength(1);
});

test('sends thoughts back unchanged in a run, with each form of thinking', async () => {
  for (const thinking of ['adaptive', 'budget'] as const) {
    const { fetch, seen } = answering(
      recorded('thinking-call.sse'),
      recorded('redacted-thinking.sse'),
      recorded('max-tokens-in-call.sse'),
      recorded('thinking-omitted.sse'),
    );
    const result = await runLoop({
      model: anthropic({ model: 'claude-x', apiKey: KEY, fetch, thinking, maxRetries: 0 }),
      tools: [
        tool({
          name: 'get_weather',
          description: 'The weather',
          input: { type: 'object', properties: { city: { type: 'string' } } },
          execute: async () => 'cold',
        }),
      ],
      settings: { reasoning: 'low' },
      input: 'Weather in Oslo?',
    });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: '4', turns: 4 });
    const last = seen.at(-1)!.body as { messages: { role: string; content: { type: string }[] }[] };
    expect(last.messages.map(({ content }) => content.map(({ type }) => type).join())).toEqual([
      'text',
      'thinking,text,tool_use',
      'tool_result',
      'thinking,redacted_thinking,tool_use',
      'tool_result',
      'text,tool_use',
      'tool_result',
    ]);
    expect(seen.map(({ body }) => (body as { thinking?: { type: string } }).thinking?.type)).toEqual(
      thinking === 'adaptive'
        ? ['adaptive', 'adaptive', 'adaptive', 'adaptive']
        : ['enabled', 'enabled', 'enabled', undefined],
    );
  }
});

test.each([
  [undefined, 'anthropic: pass an object'],
  [{}, 'anthropic: "model" is missing'],
  [{ model: 'm', apiKey: 'a b' }, 'anthropic: "apiKey" must be'],
  [{ model: 'm', betas: 'a' }, 'anthropic: "betas" must be a list of names'],
  [{ model: 'm', thinking: 'hard' }, 'anthropic: "thinking" must be "adaptive" or "budget"'],
  [{ model: 'm', thinkingDisplay: 'all' }, 'anthropic: "thinkingDisplay" must be "summarized" or "omitted"'],
  [{ model: 'm', version: 'a\nb' }, 'anthropic: the header "anthropic-version" cannot be sent'],
  [{ model: 'm', baseURL: 'ftp://x' }, 'anthropic: "baseURL" is not an http(s) URL'],
])('rejects the options %j', (options, message) => {
  expect(() => anthropic(options as unknown as AnthropicOptions)).toThrow(message);
});
