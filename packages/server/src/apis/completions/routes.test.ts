import { tool, type Model, type ModelRequest } from '@treadle/core';
import { scriptedModel, type ScriptedModel, type ScriptStep } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import OpenAI from 'openai';
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions';
import pino from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { hashKey, newKey } from '../../http/keys.ts';
import type { TreadleServerOptions } from '../../server-options.ts';
import { treadleServer } from '../../treadle-server.ts';

const closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

function newStore(): SqliteStore {
  const store = sqliteStore(':memory:');
  closers.push(() => store.close());
  return store;
}

const look = tool({
  name: 'look',
  description: 'Looks.',
  parameters: { type: 'object', properties: { at: { type: 'string' } } },
  effect: 'pure',
  execute: async (input) => `seen ${JSON.stringify(input)}`,
});

interface Serving {
  readonly client: OpenAI;
  readonly url: string;
}

async function serve(model: Model, more: Partial<TreadleServerOptions> = {}): Promise<Serving> {
  const server = treadleServer({
    models: { default: 'main', models: new Map([['main', model]]) },
    store: more.store ?? newStore(),
    tools: [look],
    defaultTools: ['look'],
    port: 0,
    log: pino({ level: 'silent' }),
    ...more,
  });
  const { url } = await server.listen();
  closers.push(() => server.close(0));
  return { url, client: clientOf(url) };
}

function clientOf(url: string, apiKey = 'none'): OpenAI {
  return new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0, logLevel: 'off' });
}

const ask = {
  type: 'function',
  function: { name: 'ask', parameters: { type: 'object', properties: {} } },
} as const;
const user: ChatCompletionMessageParam = { role: 'user', content: 'go' };

/** The messages of a model call, reduced to what the tests compare. */
function seen({ messages }: ModelRequest): readonly unknown[] {
  return messages.map(({ role, content }) => [
    role,
    ...content.map((part) => {
      if (part.type === 'tool-call') return `${part.name}(${part.arguments})`;
      if (part.type === 'tool-result')
        return `${part.name} -> ${part.content.map((one) => 'text' in one && one.text).join()}`;
      return 'text' in part ? part.text : part.type;
    }),
  ]);
}

function lastOf(model: ScriptedModel): ModelRequest {
  return model.requests.at(-1)!;
}

const STEPS: readonly ScriptStep[] = [
  { text: 'I look.', calls: [{ name: 'look', arguments: { at: 'it' } }] },
  {
    text: 'I ask.',
    calls: [
      { name: 'look', arguments: { at: 'more' } },
      { name: 'ask', arguments: { a: 1 } },
    ],
  },
  'All done.',
];

describe('a conversation over server and client tools', () => {
  const whole = [
    ['user', 'go'],
    ['assistant', 'I look.', 'look({"at":"it"})'],
    ['tool', 'look -> seen {"at":"it"}'],
    ['assistant', 'I ask.', 'look({"at":"more"})', 'ask({"a":1})'],
    ['tool', 'look -> seen {"at":"more"}', 'ask -> 42'],
  ];

  test.each([[false], [true]])('is complete in the follow-up request (streamed: %s)', async (isStreamed) => {
    using model = scriptedModel(STEPS);
    const { client } = await serve(model);
    const complete = async (messages: ChatCompletionMessageParam[]): Promise<OpenAI.ChatCompletion> => {
      const body = { model: 'main', messages, tools: [ask] };
      if (!isStreamed) return client.chat.completions.create(body);
      return client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion();
    };
    const first = await complete([user]);
    const { message, finish_reason } = first.choices[0]!;
    expect(first.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
    expect(finish_reason).toBe('tool_calls');
    expect(message.content).toBe('I look.\n\nI ask.');
    const hex = first.id.slice('chatcmpl-'.length);
    expect(message.tool_calls).toMatchObject([
      { id: `call_${hex}_2_1`, function: { name: 'ask', arguments: '{"a":1}' } },
    ]);
    expect(first.usage).toMatchObject({ prompt_tokens: 20, completion_tokens: 10, total_tokens: 30 });

    const second = await complete([
      user,
      message,
      { role: 'tool', tool_call_id: message.tool_calls![0]!.id, content: '42' },
    ]);
    expect(second.choices[0]).toMatchObject({ message: { content: 'All done.' }, finish_reason: 'stop' });
    expect(seen(lastOf(model))).toEqual(whole);
  });

  test('continues in another process with the same store, also twice from the same completion', async () => {
    const store = newStore();
    const { client } = await serve(scriptedModel(STEPS.slice(0, 2)), { store });
    const { choices } = await client.chat.completions.create({ model: 'main', messages: [user], tools: [ask] });
    const { message } = choices[0]!;
    const messages = [
      user,
      message,
      { role: 'tool' as const, tool_call_id: message.tool_calls![0]!.id, content: '42' },
    ];
    using model = scriptedModel(['One.', 'Two.']);
    const other = await serve(model, { store });
    for (const text of ['One.', 'Two.']) {
      const next = await other.client.chat.completions.create({ model: 'main', messages, tools: [ask] });
      expect(next.choices[0]!.message.content).toBe(text);
      expect(seen(lastOf(model))).toEqual(whole);
    }
  });

  test.each<[string, object]>([
    ['does not exist', {}],
    ['was not stored', { store: false }],
  ])('that %s continues with the messages of the client', async (_, more) => {
    const store = newStore();
    const { client } = await serve(scriptedModel(STEPS.slice(0, 2)), { store });
    const { choices } = await client.chat.completions.create({
      model: 'main',
      messages: [user],
      tools: [ask],
      ...more,
    });
    const { message } = choices[0]!;
    using model = scriptedModel(['Well.']);
    const other = await serve(model, 'store' in more ? { store } : {});
    const messages = [
      user,
      message,
      { role: 'tool' as const, tool_call_id: message.tool_calls![0]!.id, content: '42' },
    ];
    await other.client.chat.completions.create({ model: 'main', messages, tools: [ask] });
    expect(seen(lastOf(model))).toEqual([
      ['user', 'go'],
      ['assistant', 'I look.\n\nI ask.', 'ask({"a":1})'],
      ['tool', 'ask -> 42'],
    ]);
  });
});

test('stores nothing of a completion that the client has completely', async () => {
  const store = newStore();
  const { client } = await serve(scriptedModel([{ calls: [{ name: 'ask' }] }]), { store });
  const { id, choices } = await client.chat.completions.create({ model: 'main', messages: [user], tools: [ask] });
  expect(choices[0]!.finish_reason).toBe('tool_calls');
  expect(await store.requests.get('default', id)).toBe(undefined);
});

test('does not restore turns of another tenant', async () => {
  const store = newStore();
  const [own, other] = [newKey(), newKey()];
  const scopes = ['agents:invoke', 'tools:execute'] as const;
  const keys = [
    { name: 'own', hash: hashKey(own), scopes, tenant: 'a' },
    { name: 'other', hash: hashKey(other), scopes, tenant: 'b' },
  ];
  using model = scriptedModel([...STEPS.slice(0, 2), 'Theirs.', 'Ours.']);
  const { url } = await serve(model, { store, keys });
  const { choices } = await clientOf(url, own).chat.completions.create({
    model: 'main',
    messages: [user],
    tools: [ask],
  });
  const { message } = choices[0]!;
  const messages = [user, message, { role: 'tool' as const, tool_call_id: message.tool_calls![0]!.id, content: '42' }];
  await clientOf(url, other).chat.completions.create({ model: 'main', messages, tools: [ask] });
  expect(lastOf(model).messages).toHaveLength(3);
  await clientOf(url, own).chat.completions.create({ model: 'main', messages, tools: [ask] });
  expect(lastOf(model).messages).toHaveLength(5);
});

test('passes the settings of the request to the model', async () => {
  using model = scriptedModel(['{"a":1}']);
  const { client } = await serve(model, { defaultTools: [] });
  await client.chat.completions.create({
    model: 'main',
    messages: [{ role: 'system', content: 'Be brief.' }, user, { role: 'developer', content: 'Be kind.' }],
    temperature: 0.5,
    max_completion_tokens: 7,
    stop: 'x',
    seed: 3,
    reasoning_effort: 'high',
    parallel_tool_calls: false,
    tools: [ask],
    tool_choice: 'none',
    response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object' } } },
  });
  expect(model.requests[0]).toMatchObject({
    instructions: 'Be brief.\n\nBe kind.',
    toolChoice: 'none',
    parallel: false,
    settings: { temperature: 0.5, maxOutputTokens: 7, stop: ['x'], seed: 3, reasoning: 'high' },
    output: { type: 'object' },
  });
});

test('leaves text beside calls out of an answer with a format', async () => {
  const { client } = await serve(scriptedModel([{ text: 'I look.', calls: [{ name: 'look' }] }, '{"a":1}']));
  const schema = { type: 'object', properties: { a: { type: 'number' } } };
  const format = { type: 'json_schema', json_schema: { name: 'a', schema } } as const;
  const { choices } = await client.chat.completions.create({
    model: 'main',
    messages: [user],
    response_format: format,
  });
  expect(JSON.parse(choices[0]!.message.content!)).toEqual({ a: 1 });
});

test('streams one unnamed event per chunk, and [DONE] last', async () => {
  const { url } = await serve(scriptedModel(['two words']));
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [user], stream: true }),
  });
  expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
  const frames = (await answer.text()).split('\n\n');
  expect(frames.at(-1)).toBe('');
  expect(frames.at(-2)).toBe('data: [DONE]');
  const deltas = frames.slice(0, -2).map((frame) => JSON.parse(frame.replace(/^data: /, '')).choices[0].delta);
  expect(deltas).toEqual([
    { role: 'assistant', content: '', refusal: null },
    { content: 'two ' },
    { content: 'words' },
    {},
  ]);
});

describe('limits', () => {
  test('a reply that is cut off ends with length and without its calls', async () => {
    const cut: ScriptStep = {
      text: 'I ask.',
      calls: [{ name: 'ask' }, { name: 'ask', arguments: '{"a' }],
      finish: 'length',
    };
    const { client } = await serve(scriptedModel([cut]));
    const { choices } = await client.chat.completions.create({ model: 'main', messages: [user], tools: [ask] });
    expect(choices[0]).toMatchObject({ finish_reason: 'length', message: { content: 'I ask.' } });
    expect(choices[0]!.message.tool_calls).toBe(undefined);
  });

  test('max_tokens counts the tokens of all turns', async () => {
    using model = scriptedModel(STEPS.slice(0, 1));
    const { client } = await serve(model);
    const { choices } = await client.chat.completions.create({ model: 'main', messages: [user], max_tokens: 5 });
    expect(choices[0]).toMatchObject({ finish_reason: 'length', message: { content: 'I look.' } });
  });

  test('max_tool_calls does not count calls for the client', async () => {
    const calls = [
      { name: 'ask', id: 'a' },
      { name: 'ask', id: 'b' },
    ];
    const { client } = await serve(scriptedModel([{ calls }]));
    const body = { model: 'main', messages: [user], tools: [ask], max_tool_calls: 1 };
    const { choices } = await client.chat.completions.stream(body).finalChatCompletion();
    expect(choices[0]!.message.tool_calls).toHaveLength(2);
  });
});

describe('errors', () => {
  const overloaded: ScriptStep = { type: 'failure', error: { code: 'overloaded', message: 'Busy.', retryable: true } };

  test('of the model are an error before and after the first text', async () => {
    const { client } = await serve(scriptedModel([overloaded, STEPS[0]!, overloaded]));
    for (const _ of ['before', 'after']) {
      await expect(client.chat.completions.create({ model: 'main', messages: [user] })).rejects.toMatchObject({
        status: 503,
        code: 'model_overloaded',
      });
    }
  });

  test('of the model in a stream are an error event after the text', async () => {
    const { client } = await serve(scriptedModel([STEPS[0]!, overloaded]));
    const stream = await client.chat.completions.create({ model: 'main', messages: [user], stream: true });
    let text = '';
    const read = async (): Promise<void> => {
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    };
    await expect(read()).rejects.toMatchObject({ code: 'model_overloaded', message: 'Busy.' });
    expect(text).toBe('I look.');
  });

  test.each<[string, object, number, string | null]>([
    ['no messages', { messages: undefined }, 400, 'messages'],
    ['an unknown model', { model: 'other' }, 404, 'model'],
    [
      'a call without its result',
      {
        messages: [
          user,
          { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '' } }] },
        ],
      },
      400,
      'messages[1].tool_calls',
    ],
    ['a tool that no executor runs', { tools: [{ type: 'mcp', server_label: 'elsewhere' }] }, 400, 'tools'],
    [
      'a function with the name of a server tool',
      {
        tools: [
          { type: 'function', function: { name: 'look' } },
          { type: 'mcp', server_label: 'treadle' },
        ],
      },
      400,
      'tools',
    ],
  ])('%s', async (_, body, status, param) => {
    const { url } = await serve(scriptedModel([]));
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [user], stream: true, ...body }),
    });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ error: { type: 'invalid_request_error', param } });
  });

  test('of the store are an error without a finish reason', async () => {
    const store = newStore();
    const broken: SqliteStore = {
      ...store,
      requests: { ...store.requests, create: () => Promise.reject(new Error('The disk is full.')) },
    };
    const { client } = await serve(scriptedModel(STEPS.slice(0, 2)), { store: broken });
    const stream = await client.chat.completions.create({
      model: 'main',
      messages: [user],
      tools: [ask],
      stream: true,
    });
    const reasons: unknown[] = [];
    const read = async (): Promise<void> => {
      for await (const chunk of stream) reasons.push(chunk.choices[0]?.finish_reason);
    };
    await expect(read()).rejects.toMatchObject({ code: 'response_interrupted' });
    expect(reasons.every((reason) => reason === null)).toBe(true);
  });
});

test.each([[true], [false]])('reports a shutdown as an error (streamed: %s)', async (isStreamed) => {
  const asked = Promise.withResolvers<void>();
  const model = scriptedModel([
    (_, signal) => {
      asked.resolve();
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve('Too late.')));
    },
  ]);
  const { client } = await serve(model);
  const answer = client.chat.completions
    .create({ model: 'main', messages: [user], stream: isStreamed })
    .then(async (completion) => {
      if (Symbol.asyncIterator in completion) for await (const _ of completion);
    });
  const failure = answer.catch((error: unknown) => error);
  await asked.promise;
  await closers.pop()!();
  expect(await failure).toMatchObject({ code: 'cancelled' });
});

test.each([[true], [false]])('cancels the run if the client disconnects (streamed: %s)', async (isStreamed) => {
  const asked = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  const model = scriptedModel([
    async (_, signal) => {
      signal.addEventListener('abort', () => ended.resolve());
      asked.resolve();
      await ended.promise;
      return 'Too late.';
    },
  ]);
  const { client } = await serve(model);
  const disconnected = new AbortController();
  const answer = client.chat.completions
    .create({ model: 'main', messages: [user], stream: isStreamed }, { signal: disconnected.signal })
    .then(async (completion) => {
      if (!(Symbol.asyncIterator in completion)) return;
      for await (const _ of completion);
    });
  await asked.promise;
  disconnected.abort();
  await answer.catch(() => undefined);
  await ended.promise;
});
