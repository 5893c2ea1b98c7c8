import { runLoop, tool, TreadleError, userText, type Model } from '@treadle/core';
import { expect, test } from 'vitest';
import { answer, answering, type Seen } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked } from '../../test/request.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';
import { azure, type AzureOptions } from './azure.ts';
import { openaiCompatible, type OpenAiCompatibleOptions } from './openai-compatible.ts';
import {
  deepSeek,
  groq,
  llamaCpp,
  lmStudio,
  mistral,
  openRouter,
  together,
  vllm,
  type PresetOptions,
} from './presets.ts';

const KEY = 'sk-test-51Nb2xQ9vT7mZ';
const fixture = (name: string): string => fixtures()(name).toString();

/** A host that answers request n with stream n. */
const server = (...streams: string[]): ReturnType<typeof answering> =>
  answering(...streams.map((stream) => answer(stream, 'text/event-stream')));

const shell = { name: 'shell', description: 'Run', parameters: { type: 'object', properties: {} } };
const read = { name: 'read', description: 'Read', parameters: { type: 'object', properties: {} } };
const output = { type: 'object', properties: {} };
const schemaText = `Give the final answer as JSON alone, without other words, that fits this JSON Schema:\n${JSON.stringify(output)}`;
const byName = { type: 'function', function: { name: 'read' } };
const bySchema = { type: 'json_schema', json_schema: { name: 'answer', schema: output } };

/** What a host receives for a request with everything in which hosts differ. */
async function sentTo(make: (fetch: typeof globalThis.fetch) => Model): Promise<Seen> {
  const { fetch, seen } = server(fixture('groq-usage-elsewhere.sse'));
  const { reply } = await asked(make(fetch), {
    tools: [shell, read],
    toolChoice: { tool: 'read' },
    settings: { maxOutputTokens: 9, reasoning: 'low' },
    output,
  });
  expect(reply).toMatchObject({ type: 'reply' });
  return seen[0]!;
}

interface Expected {
  readonly url: string;
  readonly body: Record<string, unknown>;
  /** Whether the instructions contain the schema of the answer. */
  readonly schemaAsText: boolean;
  readonly tools: number;
}

const usage = { stream_options: { include_usage: true } };
const effort = { reasoning_effort: 'low' };
const capped = { max_tokens: 9 };
const cappedAnew = { max_completion_tokens: 9 };

test.each<[string, (options: PresetOptions) => Model, Expected]>([
  [
    'openRouter',
    openRouter,
    {
      url: 'https://openrouter.ai/api/v1/chat/completions',
      body: { ...usage, ...capped, reasoning: { effort: 'low' }, tool_choice: byName, response_format: bySchema },
      schemaAsText: false,
      tools: 2,
    },
  ],
  [
    'groq',
    groq,
    {
      url: 'https://api.groq.com/openai/v1/chat/completions',
      body: { ...usage, ...cappedAnew, ...effort, tool_choice: byName },
      schemaAsText: true,
      tools: 2,
    },
  ],
  [
    'together',
    together,
    {
      url: 'https://api.together.xyz/v1/chat/completions',
      body: { ...usage, ...capped, ...effort, tool_choice: byName, response_format: bySchema },
      schemaAsText: false,
      tools: 2,
    },
  ],
  [
    'deepSeek',
    deepSeek,
    {
      url: 'https://api.deepseek.com/chat/completions',
      body: { ...usage, ...capped, ...effort, response_format: { type: 'json_object' } },
      schemaAsText: true,
      tools: 1,
    },
  ],
  [
    'mistral',
    mistral,
    {
      url: 'https://api.mistral.ai/v1/chat/completions',
      body: { ...capped, ...effort, tool_choice: byName, response_format: bySchema },
      schemaAsText: false,
      tools: 2,
    },
  ],
  [
    'vllm',
    vllm,
    {
      url: 'http://127.0.0.1:8000/v1/chat/completions',
      body: { ...usage, ...capped, ...effort, tool_choice: byName },
      schemaAsText: true,
      tools: 2,
    },
  ],
  [
    'llamaCpp',
    llamaCpp,
    {
      url: 'http://127.0.0.1:8080/v1/chat/completions',
      body: { ...usage, ...capped, ...effort, tool_choice: 'required' },
      schemaAsText: true,
      tools: 1,
    },
  ],
  [
    'lmStudio',
    lmStudio,
    {
      url: 'http://127.0.0.1:1234/v1/chat/completions',
      body: { ...usage, ...capped, ...effort, tool_choice: 'required' },
      schemaAsText: true,
      tools: 1,
    },
  ],
  [
    'azure',
    (options) => azure({ ...options, resource: 'acme-eu' }),
    {
      url: 'https://acme-eu.openai.azure.com/openai/v1/chat/completions',
      body: { ...usage, ...cappedAnew, ...effort, tool_choice: byName, response_format: bySchema },
      schemaAsText: false,
      tools: 2,
    },
  ],
])('%s: sends the request to its address with its key', async (name, make, { url, body, schemaAsText, tools }) => {
  const seen = await sentTo((fetch) => make({ model: 'm', apiKey: KEY, fetch }));
  expect(seen.url).toBe(url);
  if (name === 'azure') {
    expect(seen.headers).toMatchObject({ 'api-key': KEY });
    expect(seen.headers).not.toHaveProperty('authorization');
  } else {
    expect(seen.headers).toMatchObject({ authorization: `Bearer ${KEY}` });
  }
  expect(seen.body).toEqual({
    model: 'm',
    messages: [...(schemaAsText ? [{ role: 'system', content: schemaText }] : []), { role: 'user', content: 'hi' }],
    tools: tools === 2 ? [expect.anything(), expect.anything()] : [{ type: 'function', function: read }],
    stream: true,
    ...body,
  });
});

test('openaiCompatible sends the defaults to an unknown host, and respects quirks', async () => {
  const options = { model: 'm', baseURL: 'http://10.0.0.7:9000/v1', headers: { 'X-Team': 'a' } };
  const plain = await sentTo((fetch) => openaiCompatible({ ...options, fetch }));
  expect(plain).toMatchObject({
    url: 'http://10.0.0.7:9000/v1/chat/completions',
    headers: { 'x-team': 'a' },
    body: { max_tokens: 9, tool_choice: byName, response_format: bySchema },
  });
  expect(plain.headers).not.toHaveProperty('authorization');
  const quirky = await sentTo((fetch) => openaiCompatible({ ...options, fetch, quirks: { toolChoice: 'auto' } }));
  expect(quirky.body).not.toHaveProperty('tool_choice');
});

test('openaiChat uses features of OpenAI only at OpenAI', async () => {
  const sentBodyAt = async (baseURL: string | undefined): Promise<Record<string, unknown>> => {
    const { fetch, seen } = server(fixture('openai-text.sse'));
    const fields = { tools: [shell, read], allowedTools: ['read'], settings: { maxOutputTokens: 9 } };
    const model = openaiChat({ model: 'm', fetch, ...(baseURL !== undefined && { baseURL }) });
    await asked(model, fields);
    return seen[0]!.body;
  };
  expect(await sentBodyAt(undefined)).toMatchObject({
    tools: [{}, {}],
    tool_choice: { type: 'allowed_tools' },
    max_completion_tokens: 9,
  });
  const elsewhere = await sentBodyAt('http://10.0.0.7:9000/v1');
  expect(elsewhere).toMatchObject({ tools: [{}, {}], max_tokens: 9 });
  expect(elsewhere).not.toHaveProperty('tool_choice');
});

test('a preset respects baseURL and quirks', async () => {
  const seen = await sentTo((fetch) =>
    lmStudio({ model: 'm', fetch, baseURL: 'http://desk:1234/v1', quirks: { output: 'schema' } }),
  );
  expect(seen).toMatchObject({
    url: 'http://desk:1234/v1/chat/completions',
    body: { tool_choice: 'required', response_format: bySchema },
  });
});

test('azure builds the address from deployment and version, or uses baseURL', async () => {
  const old = await sentTo((fetch) => azure({ model: 'my gpt', resource: 'acme', apiVersion: '2024-10-21', fetch }));
  expect(old.url).toBe(
    'https://acme.openai.azure.com/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21',
  );
  const baseURL = 'https://acme.services.ai.azure.com/openai/v1?api-version=preview';
  const foundry = await sentTo((fetch) => azure({ model: 'm', baseURL, fetch }));
  expect(foundry.url).toBe('https://acme.services.ai.azure.com/openai/v1/chat/completions?api-version=preview');
});

test('azure sends allowed tools', async () => {
  const { fetch, seen } = server(fixture('azure-content-filter.sse'));
  const model = azure({ model: 'm', resource: 'acme', fetch });
  await asked(model, { tools: [shell, read], allowedTools: ['read'] });
  expect(seen[0]!.body['tool_choice']).toMatchObject({ type: 'allowed_tools' });
});

const weather = tool({
  name: 'get_weather',
  description: 'The weather',
  input: { type: 'object', properties: { city: { type: 'string' } } },
  effect: 'pure',
  execute: () => 'snow',
});

test('openRouter sends signatures back unchanged and reports the cost', async () => {
  const { fetch, seen } = server(
    fixture('openrouter-signed-reasoning-call.sse'),
    fixture('openrouter-encrypted-reasoning-call.sse'),
    fixture('openrouter-reasoning.sse'),
  );
  const model = openRouter({ model: 'anthropic/claude-sonnet-4.5', fetch });
  expect(model.priced).toBe(true);
  const result = await runLoop({ model, tools: [weather], input: 'Weather?', limits: { cost: 1 } });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, usage: { cost: expect.closeTo(0.0028521, 9) } });
  expect(seen[2]!.body['messages']).toMatchObject([
    { role: 'user' },
    {
      role: 'assistant',
      reasoning_details: [
        {
          type: 'reasoning.text',
          text: 'Oslo it is.',
          signature: expect.stringMatching(/^EqoBCkg/),
          format: 'anthropic-claude-v1',
          index: 0,
        },
      ],
      tool_calls: [{ id: 'toolu_01Nn6xU' }],
    },
    { role: 'tool', tool_call_id: 'toolu_01Nn6xU' },
    { role: 'assistant', reasoning_details: [{ type: 'reasoning.encrypted', data: 'CiQB4/H/XpZ0fZ' }] },
    { role: 'tool' },
  ]);
});

test('openRouter does not send signatures to another address', async () => {
  const first = server(fixture('openrouter-signed-reasoning-call.sse'), fixture('openrouter-reasoning.sse'));
  const asked = openRouter({ model: 'anthropic/claude-sonnet-4.5', fetch: first.fetch });
  const { messages } = await runLoop({ model: asked, tools: [weather], input: 'Weather?' });
  expect(messages[1]!.content[0]).toMatchObject({ type: 'reasoning', protocol: 'openrouter@openrouter.ai' });

  const second = server(fixture('openrouter-reasoning.sse'));
  const elsewhere = openRouter({ model: 'm', baseURL: 'https://proxy.example/v1', fetch: second.fetch });
  await runLoop({ model: elsewhere, tools: [weather], input: [...messages, userText('And now?')] });
  const [, assistant] = second.seen[0]!.body['messages'] as Record<string, unknown>[];
  expect(assistant).toMatchObject({ role: 'assistant', reasoning: 'Oslo it is.' });
  expect(assistant).not.toHaveProperty('reasoning_details');
});

test('deepSeek sends the reasoning back with its call', async () => {
  const { fetch, seen } = server(fixture('deepseek-reasoning-call.sse'), fixture('groq-usage-elsewhere.sse'));
  const model = deepSeek({ model: 'deepseek-reasoner', fetch });
  await runLoop({ model, tools: [weather], input: 'Weather?' });
  expect(seen[1]!.body['messages']).toMatchObject([
    { role: 'user' },
    { role: 'assistant', content: 'Let me check.', reasoning_content: "The user wants Oslo's weather." },
    { role: 'tool' },
  ]);
});

test.each<[string, () => unknown, string]>([
  ['no options', () => openaiCompatible(undefined as unknown as OpenAiCompatibleOptions), 'pass an object'],
  ['no baseURL', () => openaiCompatible({ model: 'm' } as OpenAiCompatibleOptions), '"baseURL" is missing'],
  ['no model', () => openaiCompatible({ baseURL: 'http://h/v1' } as OpenAiCompatibleOptions), '"model" is missing'],
  ['no options for a preset', () => groq(undefined as unknown as PresetOptions), 'groq: pass an object'],
  [
    'an unknown quirk',
    () => groq({ model: 'm', quirks: { jsonMode: true } as object }),
    'groq: there is no quirk "jsonMode"',
  ],
  [
    'a quirk of the prototype',
    () => groq({ model: 'm', quirks: { constructor: true } as object }),
    'no quirk "constructor"',
  ],
  [
    'an unknown value',
    () => groq({ model: 'm', quirks: { output: 'xml' } as object }),
    'groq: the quirk "output" must be one of "schema"',
  ],
  ['no resource', () => azure({ model: 'm' }), 'azure: "resource" must be a name'],
  ['a URL as resource', () => azure({ model: 'm', resource: 'evil.org/' }), 'azure: "resource" must be a name'],
  [
    'resource and baseURL',
    () => azure({ model: 'm', resource: 'a', baseURL: 'https://a.org' }),
    'azure: "baseURL" cannot be combined',
  ],
  ['no options for azure', () => azure(undefined as unknown as AzureOptions), 'azure: pass an object'],
  [
    'a misspelt resource',
    () => azure({ model: 'm', resouce: 'r' } as object as AzureOptions),
    'azure has no option "resouce". Did you mean "resource"?',
  ],
])('throws for %s', (_, make, message) => {
  expect(make).toThrow(TreadleError);
  expect(make).toThrow(message);
});
