import { spawn } from 'node:child_process';
import { once } from 'node:events';
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider } from './provider.ts';
import type { ScriptedReply } from './script.ts';

/** The official clients can read the answers of the provider, and it accepts their requests. */

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

const REPLY: ScriptedReply = {
  reasoning: 'Oslo is in Norway. 🌨️',
  text: 'I look at both, 🌨️ or not.',
  calls: [
    { name: 'get_weather', arguments: '{"city":"Oslo"}' },
    { name: 'get_weather', arguments: '{"city":"Bergen","days":3}' },
  ],
  usage: { input: 100, output: 50, cached: 20, reasoning: 10 },
};
const inputs = [{ city: 'Oslo' }, { city: 'Bergen', days: 3 }];
const parameters = { type: 'object' as const, properties: { city: { type: 'string' } } };

describe.each([false, true])('the official client reads a reply, streamed: %s', (stream) => {
  test('openai-chat', async () => {
    const client = new OpenAI({ apiKey: 'k', baseURL: (await provider.script([REPLY])).baseURL('openai-chat') });
    const asked = {
      model: 'm',
      messages: [{ role: 'user' as const, content: 'Weather?' }],
      tools: [{ type: 'function' as const, function: { name: 'get_weather', parameters } }],
    };
    const whole = stream
      ? await client.chat.completions
          .stream({ ...asked, stream_options: { include_usage: true } })
          .finalChatCompletion()
      : await client.chat.completions.create(asked);
    const [choice] = whole.choices;
    expect(choice).toMatchObject({ finish_reason: 'tool_calls', message: { content: REPLY.text } });
    const calls = choice!.message.tool_calls!.flatMap((call) => (call.type === 'function' ? call.function : []));
    expect(calls.map((call) => JSON.parse(call.arguments) as unknown)).toEqual(inputs);
    expect(whole.usage).toMatchObject({ prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 20 } });
  });

  test('openai-responses', async () => {
    const client = new OpenAI({ apiKey: 'k', baseURL: (await provider.script([REPLY])).baseURL('openai-responses') });
    const asked = {
      model: 'm',
      input: 'Weather?',
      include: ['reasoning.encrypted_content' as const],
      tools: [{ type: 'function' as const, name: 'get_weather', parameters, strict: false }],
    };
    const whole = stream ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
    expect(whole.status).toBe('completed');
    expect(whole.output_text).toBe(REPLY.text);
    expect(whole.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call', 'function_call']);
    expect(whole.output[0]).toMatchObject({
      encrypted_content: expect.any(String),
      summary: [{ text: REPLY.reasoning }],
    });
    const calls = whole.output.flatMap((item) => (item.type === 'function_call' ? item.arguments : []));
    expect(calls.map((json) => JSON.parse(json) as unknown)).toEqual(inputs);
    expect(whole.usage).toMatchObject({ input_tokens: 100, output_tokens_details: { reasoning_tokens: 10 } });
  });

  test('anthropic', async () => {
    const baseURL = (await provider.script([REPLY])).baseURL('anthropic').replace('/v1', '');
    const client = new Anthropic({ apiKey: 'k', baseURL });
    const asked = {
      model: 'm',
      max_tokens: 4096,
      messages: [{ role: 'user' as const, content: 'Weather?' }],
      tools: [{ name: 'get_weather', input_schema: parameters }],
    };
    const whole = stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
    expect(whole).toMatchObject({
      stop_reason: 'tool_use',
      content: [
        { type: 'thinking', thinking: REPLY.reasoning, signature: expect.stringMatching(/^.{40,}$/) },
        { type: 'text', text: REPLY.text },
        { type: 'tool_use', input: inputs[0] },
        { type: 'tool_use', input: inputs[1] },
      ],
      usage: { input_tokens: 80, cache_read_input_tokens: 20, output_tokens: 50 },
    });
  });

  test('google', async () => {
    const baseUrl = (await provider.script([REPLY])).baseURL('google').replace('/v1beta', '');
    const client = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl } });
    const declared = { name: 'get_weather', parametersJsonSchema: parameters };
    const asked = {
      model: 'gemini-3.1-pro-preview',
      contents: 'Weather?',
      config: { tools: [{ functionDeclarations: [declared] }], thinkingConfig: { includeThoughts: true } },
    };
    const chunks = stream
      ? await Array.fromAsync(await client.models.generateContentStream(asked))
      : [await client.models.generateContent(asked)];
    const parts = chunks.flatMap(({ candidates }) => candidates?.[0]?.content?.parts ?? []);
    const textOf = (isThought: boolean): string =>
      parts.flatMap(({ text = '', thought = false }) => (thought === isThought ? text : [])).join('');
    expect([textOf(true), textOf(false)]).toEqual([REPLY.reasoning, REPLY.text]);
    expect(chunks.flatMap(({ functionCalls }) => functionCalls?.map(({ args }) => args) ?? [])).toEqual(inputs);
    expect(parts.filter(({ functionCall }) => functionCall).map((part) => 'thoughtSignature' in part)).toEqual([
      true,
      false,
    ]);
    expect(chunks.at(-1)).toMatchObject({
      candidates: [{ finishReason: 'STOP' }],
      usageMetadata: {
        promptTokenCount: 100,
        cachedContentTokenCount: 20,
        candidatesTokenCount: 40,
        thoughtsTokenCount: 10,
      },
    });
  });

  test('ollama', async () => {
    const client = new Ollama({ host: (await provider.script([REPLY])).baseURL('ollama') });
    const asked = { model: 'm', messages: [{ role: 'user', content: 'Weather?' }] };
    const parts = stream
      ? await Array.fromAsync(await client.chat({ ...asked, stream: true }))
      : [await client.chat({ ...asked, stream: false })];
    expect(parts.map(({ message }) => message.thinking ?? '').join('')).toBe(REPLY.reasoning);
    expect(parts.map(({ message }) => message.content).join('')).toBe(REPLY.text);
    const calls = parts.flatMap(({ message }) => message.tool_calls ?? []);
    expect(calls.map((call) => call.function.arguments)).toEqual(inputs);
    expect(parts.at(-1)).toMatchObject({ done: true, done_reason: 'stop', prompt_eval_count: 100, eval_count: 50 });
  });
});

const post = (url: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

test('requires thinking back unchanged, with its signature', async () => {
  const script = await provider.script([
    { reasoning: 'Hm.', calls: [{ name: 'now', arguments: '{}' }] },
    { text: 'Noon.' },
  ]);
  const headers = { 'x-api-key': 'k', 'anthropic-version': '2023-06-01' };
  const ask = async (...more: unknown[]): Promise<Record<string, unknown>> => {
    const messages = [{ role: 'user', content: 'What time is it?' }, ...more];
    const thinking = { type: 'enabled', budget_tokens: 1024 };
    const body = { model: 'm', max_tokens: 4096, thinking, messages };
    return (await (await post(`${script.baseURL('anthropic')}/messages`, body, headers)).json()) as never;
  };
  const { content } = (await ask()) as { content: [{ signature: string }, { id: string }] };
  const result = { type: 'tool_result', tool_use_id: content[1].id, content: '12:00' };
  const resume = (first: object): Promise<Record<string, unknown>> =>
    ask({ role: 'assistant', content: [first, content[1]] }, { role: 'user', content: [result] });
  const wrong = await resume({ ...content[0], signature: `${content[0].signature.slice(1)}x` });
  expect(wrong).toMatchObject({ type: 'error', error: { message: expect.stringContaining('Invalid `signature`') } });
  expect(await resume({ ...content[0], thinking: 'Ha.' })).toMatchObject({
    error: { type: 'invalid_request_error', message: expect.stringContaining('cannot be modified') },
  });
  expect(await resume(content[0])).toMatchObject({ content: [{ type: 'text', text: 'Noon.' }] });
  expect((await script.requests()).map(({ refused }) => refused !== undefined)).toEqual([false, true, true, false]);
});

test('requires reasoning back before the item that it led to', async () => {
  const script = await provider.script([
    { reasoning: '', calls: [{ name: 'now', arguments: '{}' }] },
    { text: 'Noon.' },
  ]);
  const ask = async (...more: unknown[]): Promise<Record<string, unknown>> => {
    const input = [{ role: 'user', content: 'What time is it?' }, ...more];
    const body = { model: 'm', store: false, include: ['reasoning.encrypted_content'], input };
    const headers = { authorization: 'Bearer k' };
    return (await (await post(`${script.baseURL('openai-responses')}/responses`, body, headers)).json()) as never;
  };
  const { output } = (await ask()) as { output: [{ id: string }, { id: string; call_id: string }] };
  const [reasoning, call] = output;
  const result = { type: 'function_call_output', call_id: call.call_id, output: '12:00' };
  const message = `Item '${call.id}' of type 'function_call' was provided without its required 'reasoning' item: '${reasoning.id}'.`;
  expect(await ask(call, result)).toMatchObject({ error: { message } });
  expect(await ask({ ...reasoning, encrypted_content: 'gAAA' }, call, result)).toMatchObject({
    error: { message: expect.stringContaining('could not be verified') },
  });
  expect(await ask(reasoning, call, result)).toMatchObject({ status: 'completed' });
  await script.add({ text: 'Noon.' });
  expect(await ask({ ...call, id: undefined }, result)).toMatchObject({ status: 'completed' });
});

test('rejects requests with the errors of each form, without taking a step', async () => {
  const script = await provider.script([{ text: 'Hello' }]);
  const answers: [number, unknown][] = [];
  const ask = async (path: string, body: unknown, headers: Record<string, string> = {}): Promise<void> => {
    const response = await post(path, body, headers);
    answers.push([response.status, await response.json()]);
  };
  const bearer = { authorization: 'Bearer k' };
  await ask(`${script.baseURL('openai-chat')}/chat/completions`, { model: 'm', messages: [] }, bearer);
  await ask(`${script.baseURL('openai-chat')}/chat/completions`, { model: 'm', messages: [] });
  await ask(`${script.baseURL('openai-responses')}/responses`, { model: 'm', messages: [] }, bearer);
  await ask(`${script.baseURL('anthropic')}/messages`, { model: 'm' });
  await ask(`${script.baseURL('ollama')}/api/chat`, { messages: [] });
  expect(answers).toMatchObject([
    [400, { error: { type: 'invalid_request_error', param: null, message: expect.stringContaining('empty array') } }],
    [401, { error: { code: 'invalid_api_key' } }],
    [400, { error: { message: "Unknown parameter: 'messages'." } }],
    [401, { type: 'error', error: { type: 'authentication_error' } }],
    [400, { error: 'model is required' }],
  ]);
  await ask(`${script.baseURL('ollama')}/api/chat`, {
    model: 'm',
    stream: false,
    messages: [{ role: 'user', content: 'Hi' }],
  });
  expect(answers.at(-1)).toMatchObject([200, { message: { content: 'Hello' }, done: true }]);
  await ask(`${script.baseURL('ollama')}/api/chat`, { model: 'm', messages: [{ role: 'user', content: 'Hi' }] });
  expect(answers.at(-1)).toEqual([500, { error: 'The script has no step for this request.' }]);
  expect((await post(`${script.baseURL('ollama')}/api/other`, {})).status).toBe(404);
});

test('ends with the process that started it, also when that is killed', async () => {
  const start = `const { startProvider } = await import(${JSON.stringify(new URL('provider.ts', import.meta.url).href)});
    const script = await (await startProvider()).script([]);
    process.stdout.write(script.baseURL('ollama'));`;
  const args = ['--conditions=treadle-source', '--input-type=module', '-e', start];
  const owner = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const [url] = (await once(owner.stdout, 'data')) as [Buffer];
  expect((await post(`${url}/api/other`, {})).status).toBe(404);
  owner.kill('SIGKILL');
  // The provider has inherited this end of the pipe, so it closes when both processes have ended.
  await once(owner.stdout, 'close');
  await expect(post(`${url}/api/other`, {})).rejects.toThrow('fetch failed');
});

test('quiet resolves when no request is in progress', async () => {
  const script = await provider.script([{ fault: 'stall' }, { text: 'Hello' }]);
  const abort = new AbortController();
  const url = `${script.baseURL('ollama')}/api/chat`;
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] });
  const headers = { 'content-type': 'application/json' };
  const stalled = await fetch(url, { method: 'POST', headers, body, signal: abort.signal });
  let isQuiet = false;
  const quiet = provider.quiet().then(() => (isQuiet = true));
  expect(await (await fetch(url, { method: 'POST', headers, body })).text()).toContain('Hello');
  expect(isQuiet).toBe(false);
  abort.abort();
  await quiet;
  await expect(stalled.text()).rejects.toThrow('aborted');
});
