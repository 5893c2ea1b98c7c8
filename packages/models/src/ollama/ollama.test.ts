import { runLoop, tool, TreadleError, type ModelRequest } from '@treadle/core';
import { expect, test } from 'vitest';
import { answer, answering } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked, type Asked } from '../../test/request.ts';
import { ollama, type OllamaOptions } from './ollama.ts';

const fixture = fixtures('ollama');

type Answer = { readonly status?: number; readonly type?: string; readonly body: string | Buffer<ArrayBuffer> };

/** Sends these answers one after the other. */
const server = (...answers: Answer[]): ReturnType<typeof answering> =>
  answering(...answers.map(({ body, type = 'application/x-ndjson', status }) => answer(body, type, status)));

const ask = (options: Partial<OllamaOptions>, overrides: Partial<ModelRequest> = {}): Promise<Asked> =>
  asked(ollama({ model: 'gemma3', maxRetries: 0, ...options }), overrides);

test('sends the request and reads a streamed reply', async () => {
  const { fetch, seen } = server({ body: fixture('length.ndjson') });
  const { reply, deltas } = await ask({ fetch, contextTokens: 8192, keepAlive: -1, think: false });
  expect(reply).toMatchObject({ type: 'reply', finish: 'length', model: 'llama3.2' });
  expect(deltas).toHaveLength(3);
  expect(seen).toEqual([
    {
      url: 'http://127.0.0.1:11434/api/chat',
      headers: expect.objectContaining({ accept: 'application/x-ndjson', 'content-type': 'application/json' }),
      body: {
        model: 'gemma3',
        messages: [{ role: 'user', content: 'hi' }],
        stream: true,
        truncate: false,
        shift: false,
        think: false,
        keep_alive: -1,
        options: { num_ctx: 8192 },
      },
    },
  ]);
  expect(seen[0]!.headers).not.toHaveProperty('authorization');
});

test('reads a whole reply, at another host and with a key', async () => {
  const { fetch, seen } = server({ body: fixture('whole.json'), type: 'application/json; charset=utf-8' });
  const options = { fetch, stream: false, baseURL: 'https://ollama.com/', apiKey: 'secret-key-1' };
  const { reply, deltas } = await ask(options);
  expect(reply).toMatchObject({ type: 'reply', finish: 'tool-calls' });
  expect(deltas).toEqual([]);
  expect(seen).toMatchObject([
    { url: 'https://ollama.com/api/chat', headers: { authorization: 'Bearer secret-key-1' }, body: { stream: false } },
  ]);
});

const json = (status: number, error: string): Answer => ({
  status,
  type: 'application/json',
  body: JSON.stringify({ error }),
});
const tools = [{ name: 'now', description: 'The time', parameters: { type: 'object', properties: {} } }];

test.each([
  [
    json(404, "model 'gemma3' not found"),
    'invalid-request',
    false,
    ["model 'gemma3' not found", 'Run "ollama pull gemma3"'],
  ],
  [json(404, 'model "gemma3" not found, try pulling it first'), 'invalid-request', false, ['"ollama pull gemma3"']],
  [
    json(400, 'ollama.example/library/gemma3:latest does not support tools'),
    'invalid-request',
    false,
    ['The model "gemma3" does not support tools', 'ollama.example/library/gemma3:latest'],
  ],
  [
    json(400, '"gemma3" does not support thinking'),
    'invalid-request',
    false,
    ['"gemma3" does not support thinking', 'remove settings.reasoning'],
  ],
  [json(400, 'think value "low" is not supported for this model'), 'invalid-request', false, ['remove']],
  [
    json(
      400,
      '{"error":{"code":400,"message":"request (8889 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":8889,"n_ctx":4096}}',
    ),
    'context-length',
    false,
    ['8889 tokens'],
  ],
  [
    json(
      400,
      'the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the context length in settings, or use a model with a longer context length',
    ),
    'context-length',
    false,
    ['shorten the prompt'],
  ],
  [json(503, 'server busy, please try again.  maximum pending requests exceeded'), 'overloaded', true, ['server busy']],
  [json(500, 'llama runner process has terminated: exit status 2'), 'overloaded', true, ['llama runner']],
  [json(401, 'unauthorized'), 'auth', false, ['unauthorized', 'No API key was provided']],
  [{ ...json(200, 'model is on fire'), type: 'application/json' }, 'overloaded', true, ['model is on fire']],
  [{ body: '{"error":"model is on fire"}\n' }, 'overloaded', true, ['model is on fire']],
  [{ body: fixture('error-line.ndjson') }, 'overloaded', true, ['unexpected EOF']],
  [
    { body: '{"error":"the input length exceeds the context length"}\n' },
    'context-length',
    false,
    ['exceeds the context length'],
  ],
])('reports %j as %s', async (answer, code, retryable, texts) => {
  const { reply } = await ask({ fetch: server(answer).fetch }, { tools });
  expect(reply).toMatchObject({ type: 'failure', error: { code, retryable } });
  for (const part of texts) expect(reply.type === 'failure' && reply.error.message).toContain(part);
});

test('in the loop: adds missing call ids, names the tool in results, and sends thinking back', async () => {
  const { fetch, seen } = server(
    { body: fixture('thinking-call.ndjson').toString().replace('"id":"call_zw6ljpb4",', '') },
    { body: fixture('parallel-calls-in-one-line.ndjson') },
    { body: fixture('text.ndjson') },
  );
  const weather = tool({
    name: 'get_weather',
    description: 'The weather',
    input: { type: 'object', properties: { city: { type: 'string' } } },
    effect: 'pure',
    execute: (input) => `Snow in ${(input as { city: string }).city}`,
  });
  const result = await runLoop({ model: ollama({ model: 'qwen3', fetch }), tools: [weather], input: 'Weather?' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 3, calls: 3 });
  const ids = (
    seen[2]!.body['messages'] as { tool_calls?: { id: string }[]; tool_call_id?: string; content: string }[]
  ).flatMap((message) => message.tool_calls?.map(({ id }) => id) ?? message.tool_call_id ?? []);
  expect(ids).toEqual([ids[0], ids[0], ids[2], ids[3], ids[2], ids[3]]);
  expect(new Set(ids).size).toBe(3);
  expect(seen[2]!.body['messages']).toMatchObject([
    { role: 'user', content: 'Weather?' },
    {
      role: 'assistant',
      content: 'Let me check.',
      thinking: "The user wants Oslo's weather.\n",
      tool_calls: [{ function: { name: 'get_weather', arguments: { city: 'Oslo' } } }],
    },
    { role: 'tool', tool_name: 'get_weather', content: 'Snow in Oslo' },
    { role: 'assistant', content: '', tool_calls: [{}, {}] },
    { role: 'tool', tool_name: 'get_weather', content: 'Snow in Oslo' },
    { role: 'tool', tool_name: 'get_weather', content: 'Snow in Rome' },
  ]);
});

test.each([
  [{ contextTokens: 0 }, 'contextTokens'],
  [{ contextTokens: 1.5 }, 'contextTokens'],
  [{ keepAlive: true }, 'keepAlive'],
  [{ think: 'much' }, 'think'],
  [{ model: '' }, 'model'],
  [{ baseURL: 'localhost:11434' }, 'baseURL'],
])('rejects the options %j', (overrides, name) => {
  const make = (): unknown => ollama({ model: 'm', ...overrides } as OllamaOptions);
  expect(make).toThrow(TreadleError);
  expect(make).toThrow(name);
});

test('rejects missing options', () => {
  expect(() => ollama(undefined as unknown as OllamaOptions)).toThrow('ollama: pass an object');
});
