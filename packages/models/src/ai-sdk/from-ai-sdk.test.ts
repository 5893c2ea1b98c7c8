import { createOpenAI as createV4 } from '@ai-sdk/openai';
import { runLoop, tool, TreadleError, type ModelRequest } from '@treadle/core';
import { createOpenAI as createV3 } from 'ai-sdk-openai-v3';
import { describe, expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { asked, request, type Asked } from '../../test/request.ts';
import {
  DONE,
  chunk,
  reset,
  says,
  scriptedServer,
  stall,
  status,
  stream,
  type ScriptedServer,
  type Step,
} from '../../test/scripted-server.ts';
import { router } from '../router/router.ts';
import { fromAiSdk, type FromAiSdkOptions } from './from-ai-sdk.ts';
import type { AiSdkModel } from './language-model.ts';

const KEY = 'sk-test-0123456789abcdef';

const PROVIDERS: readonly [name: string, chat: (host: ScriptedServer) => AiSdkModel][] = [
  ['v4', (host) => createV4({ apiKey: KEY, baseURL: host.url }).chat('m')],
  ['v3', (host) => createV3({ apiKey: KEY, baseURL: host.url }).chat('m')],
];

async function ask(
  model: AiSdkModel,
  options: FromAiSdkOptions = {},
  fields: Partial<ModelRequest> = {},
  signal = new AbortController().signal,
): Promise<Asked> {
  const adapted = fromAiSdk(model, { clock: hurriedClock(), random: () => 0, ...options });
  const answer = await asked(adapted, fields, signal);
  expect(JSON.stringify(answer.reply)).not.toContain(KEY);
  return answer;
}

const errorOf = ({ reply }: Asked): unknown => (reply.type === 'failure' ? reply.error : reply);

const read = tool({
  name: 'read',
  description: 'Read a text file',
  input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  effect: 'pure',
  execute: ({ path }) => {
    if (path === 'missing.txt') throw new Error('no such file');
    return `${String(path)}: 42`;
  },
});

const call = (index: number, id: string, args: string): object => ({
  index,
  id,
  type: 'function',
  function: { name: 'read', arguments: args },
});

const wholeMessage = (message: object, finish: string): Step =>
  status(200, {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1_763_200_000,
    model: 'm-2025',
    choices: [{ index: 0, message: { role: 'assistant', content: null, ...message }, finish_reason: finish }],
    usage: {
      prompt_tokens: 10,
      completion_tokens: 5,
      total_tokens: 15,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 2 },
    },
  });

describe.each(PROVIDERS)('@ai-sdk/openai, specification %s', (_, chat) => {
  test('runs a streamed loop: executes the calls and emits the text as it arrives', async () => {
    await using host = await scriptedServer(
      stream(
        chunk({ role: 'assistant', content: 'I ' }),
        chunk({ content: 'look.' }),
        chunk({ tool_calls: [call(0, 'c1', '{"path":')] }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: ' "a.txt"}' } }] }),
        chunk({ tool_calls: [call(1, 'c2', '{"path":"missing.txt"}')] }),
        chunk({}, 'tool_calls'),
        DONE,
      ),
      says('Done.'),
    );
    const shown: string[] = [];
    const result = await runLoop({
      model: fromAiSdk(chat(host)),
      tools: [read],
      instructions: 'Be brief.',
      input: 'Read both.',
      onItem: (item) => {
        if (item.type === 'text-delta') shown.push(item.text);
      },
    });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2, calls: 2 });
    expect(shown).toEqual(['I ', 'look.', 'Done.']);
    expect(host.seen[0]!.headers['authorization']).toBe(`Bearer ${KEY}`);
    expect(host.seen[1]!.body).toMatchObject({
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Read both.' },
        {
          role: 'assistant',
          content: 'I look.',
          tool_calls: [
            { id: 'c1', function: { name: 'read', arguments: '{"path":"a.txt"}' } },
            { id: 'c2', function: { name: 'read', arguments: '{"path":"missing.txt"}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'a.txt: 42' },
        { role: 'tool', tool_call_id: 'c2', content: expect.stringContaining('no such file') },
      ],
      tools: [{ type: 'function', function: { name: 'read', parameters: read.parameters } }],
      tool_choice: 'auto',
    });
  });

  test('runs a loop without streaming', async () => {
    await using host = await scriptedServer(
      wholeMessage({ tool_calls: [call(0, 'c1', '{"path":"a.txt"}')] }, 'tool_calls'),
      wholeMessage({ content: 'Done.' }, 'stop'),
    );
    const result = await runLoop({
      model: fromAiSdk(chat(host), { stream: false }),
      tools: [read],
      input: 'Read it.',
    });
    expect(result).toMatchObject({
      outcome: { type: 'completed' },
      text: 'Done.',
      calls: 1,
      usage: { inputTokens: 20, outputTokens: 10, cachedTokens: 8, reasoningTokens: 4 },
    });
    expect(host.seen[1]!.body).toMatchObject({ messages: [{}, { role: 'assistant' }, { content: 'a.txt: 42' }] });
  });

  test('returns the reply with usage, attempts and deltas', async () => {
    await using host = await scriptedServer(
      stream(
        chunk({ role: 'assistant', content: '' }),
        chunk({ tool_calls: [call(0, 'c1', '')] }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: '{"path":"a.txt"}' } }] }),
        chunk({}, 'tool_calls'),
        `data: ${JSON.stringify({
          id: 'chatcmpl-1',
          model: 'm-2025',
          choices: [],
          usage: {
            prompt_tokens: 10,
            completion_tokens: 5,
            total_tokens: 15,
            prompt_tokens_details: { cached_tokens: 4 },
            completion_tokens_details: { reasoning_tokens: 2 },
          },
        })}\n\n`,
        DONE,
      ),
    );
    const { reply, deltas } = await ask(chat(host), {}, { tools: [read] });
    expect(reply).toMatchObject({
      type: 'reply',
      content: [{ type: 'tool-call', id: 'c1', name: 'read', arguments: '{"path":"a.txt"}' }],
      finish: 'tool-calls',
      rawFinish: 'tool_calls',
      usage: { inputTokens: 10, outputTokens: 5, cachedTokens: 4, reasoningTokens: 2 },
      model: 'm-2025',
      attempts: [{ model: 'm-2025', ms: 0 }],
    });
    expect(deltas.map((delta) => (delta.type === 'call-delta' ? delta.arguments : delta)).join('')).toBe(
      '{"path":"a.txt"}',
    );
    expect(deltas[0]).toMatchObject({ type: 'call-delta', call: 0, name: 'read' });
  });

  test('sends settings, tool choice and images', async () => {
    await using host = await scriptedServer(says('Hello'), says('Hello'), says('Hello'));
    const model = chat(host);
    const settings = { temperature: 0.5, maxOutputTokens: 9, topP: 0.5, stop: ['\n'], seed: 7 };
    await ask(model, {}, { settings, tools: [read], toolChoice: { tool: 'read' }, parallel: false });
    expect(host.seen[0]!.body).toMatchObject({
      temperature: 0.5,
      top_p: 0.5,
      stop: ['\n'],
      seed: 7,
      max_tokens: 9,
      parallel_tool_calls: false,
      tool_choice: { type: 'function', function: { name: 'read' } },
    });
    const other = { name: 'other', description: 'Other', parameters: { type: 'object' } };
    await ask(model, {}, { tools: [read, other], toolChoice: 'required', allowedTools: ['other'] });
    expect(host.seen[1]!.body).toMatchObject({
      tool_choice: 'required',
      tools: [{ function: { name: 'other' } }],
    });
    expect(host.seen[1]!.body).not.toHaveProperty('parallel_tool_calls');
    await ask(
      model,
      {},
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is this?' },
              { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'iVBORw0KGgo=' } },
              { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://host/a.png' } },
              { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source: { type: 'data', data: 'JVBERi0=' } },
            ],
          },
        ],
      },
    );
    expect(host.seen[2]!.body).toMatchObject({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
            { type: 'image_url', image_url: { url: 'https://host/a.png' } },
            { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
          ],
        },
      ],
    });
  });

  test.each([
    [401, { error: { message: `Incorrect API key provided: ${KEY}.`, code: 'invalid_api_key' } }, 'auth', false],
    [400, { error: { message: 'too long', code: 'context_length_exceeded' } }, 'context-length', false],
    [429, { error: { message: 'slow down', type: 'rate_limit' } }, 'rate-limit', true],
    [500, { error: { message: 'oops', type: 'server_error' } }, 'overloaded', true],
    [503, '<html><title>Bad day</title></html>', 'overloaded', true],
  ])('status %i is a failure', async (code, body, error, retryable) => {
    await using host = await scriptedServer(status(code, body, { 'retry-after': '2' }));
    const asked = await ask(chat(host), { maxRetries: 0 });
    expect(errorOf(asked)).toEqual({
      code: error,
      message: expect.stringMatching(new RegExp(`^The provider answered ${code}: `)),
      retryable,
      status: code,
      retryAfterMs: 2000,
    });
    expect(host.seen).toHaveLength(1);
  });

  test('retries after the time that the server asks for, and reports every attempt', async () => {
    await using host = await scriptedServer(
      status(429, { error: { message: 'slow down' } }, { 'retry-after': '2' }),
      status(500, { error: { message: 'oops' } }),
      says('Hello'),
    );
    const clock = hurriedClock();
    const { reply } = await ask(chat(host), { clock });
    expect(reply).toMatchObject({
      content: [{ type: 'text', text: 'Hello' }],
      attempts: [{ error: { code: 'rate-limit' } }, { error: { code: 'overloaded' } }, { model: 'm-2025' }],
    });
    expect(clock.waits).toEqual([2000, 500]);
  });

  test('does not retry a reply that breaks after a delta was emitted', async () => {
    const begin = chunk({ role: 'assistant', content: 'Hel' });
    await using host = await scriptedServer(
      reset(begin),
      stream(begin, 'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n'),
      stream(begin),
    );
    const model = chat(host);
    for (const code of [['network', 'protocol'], ['overloaded'], ['protocol']]) {
      const asked = await ask(model);
      const error = errorOf(asked) as { code: string; message: string };
      expect(code).toContain(error.code);
      expect(error.message).not.toContain('base URL');
      expect(asked.deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
    }
    expect(host.seen).toHaveLength(3);
  });

  test('fails with network if the host refuses the connection', async () => {
    const host = await scriptedServer();
    const model = chat(host);
    await host[Symbol.asyncDispose]();
    expect(errorOf(await ask(model, { maxRetries: 0 }))).toMatchObject({
      code: 'network',
      message: expect.stringMatching(/^Connection to .*ECONNREFUSED/),
      retryable: true,
    });
  });

  test('fails with cancelled if the signal aborts during or before the request', async () => {
    await using host = await scriptedServer(stall(chunk({ role: 'assistant', content: 'Hel' })));
    const controller = new AbortController();
    const model = fromAiSdk(chat(host));
    const cancelled = { type: 'failure', error: { code: 'cancelled' } };
    expect(await model.reply(request(), () => controller.abort(), controller.signal)).toMatchObject(cancelled);
    await host.quiet();
    expect(await model.reply(request(), () => {}, controller.signal)).toMatchObject(cancelled);
    expect(host.seen).toHaveLength(1);
  });
});

test('does not multiply retries in a router, and reports or omits refused tools', async () => {
  const [[, chat]] = PROVIDERS as [(typeof PROVIDERS)[number]];
  const refused = status(400, { error: { message: 'm does not support tools' } });
  await using host = await scriptedServer(
    status(500, { error: { message: 'oops' } }),
    status(500, { error: { message: 'oops' } }),
    refused,
    refused,
    says('Hello'),
  );
  const clock = hurriedClock();
  const routed = router({ models: { a: fromAiSdk(chat(host), { clock }) }, default: 'a', maxRetries: 1, clock });
  const failed = await routed.reply(request(), () => {}, new AbortController().signal);
  expect(failed).toMatchObject({ error: { code: 'overloaded' }, attempts: { length: 2 } });
  expect(host.seen).toHaveLength(2);
  expect(errorOf(await ask(chat(host), {}, { tools: [read] }))).toMatchObject({
    code: 'invalid-request',
    message: expect.stringMatching(/"m" does not support tools here.*toolSupport/),
  });
  const { reply } = await ask(chat(host), { toolSupport: 'degrade' }, { tools: [read] });
  expect(reply).toMatchObject({ content: [{ text: 'Hello' }], attempts: [{ error: {} }, { model: 'm-2025' }] });
  expect(host.seen.at(-1)!.body).not.toHaveProperty('tools');
});

test('OpenAI Responses: sends reasoning and its signatures back unchanged', async () => {
  const answer = (output: object[]): Step =>
    status(200, {
      id: 'resp_1',
      object: 'response',
      created_at: 1_763_200_000,
      model: 'o-2025',
      status: 'completed',
      output,
      usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
    });
  const reasoning = {
    type: 'reasoning',
    id: 'rs_1',
    encrypted_content: 'gAAAA==',
    summary: [{ type: 'summary_text', text: 'I read it.' }],
  };
  const called = {
    type: 'function_call',
    id: 'fc_1',
    call_id: 'c1',
    name: 'read',
    arguments: '{"path":"a.txt"}',
    status: 'completed',
  };
  const message = {
    type: 'message',
    id: 'msg_1',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'Done.', annotations: [] }],
  };
  await using host = await scriptedServer(answer([reasoning, called]), answer([message]));
  // The scripted server only implements Chat Completions, so this fetch converts requests and answers.
  const bodies: unknown[] = [];
  const fetchOwn: typeof fetch = (url, init) => {
    bodies.push(JSON.parse(init!.body as string));
    return fetch(url, { ...init, body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: '' }] }) });
  };
  const provider = createV4({ apiKey: KEY, baseURL: host.url, fetch: fetchOwn });
  const model = fromAiSdk(provider.responses('o4-mini'), {
    stream: false,
    providerOptions: { openai: { store: false } },
  });
  const result = await runLoop({
    model,
    tools: [read],
    input: 'Read it.',
    settings: { reasoning: 'low' },
  });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  expect(result.messages[1]).toMatchObject({
    content: [{ type: 'reasoning', text: 'I read it.', protocol: 'ai-sdk:openai.responses' }, { type: 'tool-call' }],
  });
  expect(bodies[0]).toMatchObject({ store: false, reasoning: { effort: 'low' } });
  expect(bodies[1]).toMatchObject({
    input: [
      { role: 'user' },
      { type: 'reasoning', id: 'rs_1', encrypted_content: 'gAAAA==', summary: reasoning.summary },
      { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"path":"a.txt"}' },
      { type: 'function_call_output', call_id: 'c1', output: 'a.txt: 42' },
    ],
  });
});

test.each([
  [null, /its second argument must be an object/],
  [{ headers: 5 }, /"headers" must be an object/],
  [{ headers: { 'x y': '1' } }, /the header "x y" cannot be sent/],
  [{ maxRetries: -1 }, /"maxRetries" must be a whole number from 0/],
  [{ maxRetries: '2' }, /fromAiSdk has "2" as "maxRetries"\. Use a number\./],
  [{ stream: 'no' }, /has "no" as "stream"\. Use true or false\./],
  [{ maxRetires: 2 }, /fromAiSdk has no option "maxRetires"\. Did you mean "maxRetries"\?/],
  [{ providerOptions: { openai: true } }, /"providerOptions" must be an object for each provider/],
  [{ price: { input: 1 } }, /"price" lacks "input" or "output"/],
  [{ toolSupport: 'maybe' }, /"toolSupport" is "maybe"/],
])('throws for the options %j', (options, message) => {
  const model = createV4({ apiKey: KEY }).chat('m');
  expect(() => fromAiSdk(model, options as never)).toThrow(message);
  expect(() => fromAiSdk(model, options as never)).toThrow(TreadleError);
});

test.each(['thrown', 'in a part'])(
  'redacts secrets of the headers in an error, even where a message is cut: %s',
  async (how) => {
    const error = { message: `${'x'.repeat(1_945)} hunter2 tokentokentoken`, type: 'invalid_request_error' };
    const model: AiSdkModel = {
      specificationVersion: 'v4',
      provider: 'acme',
      modelId: 'm',
      doGenerate: () => Promise.reject(new Error('not asked')),
      doStream: async () => {
        if (how === 'thrown')
          throw Object.assign(new Error(error.message), { name: 'AI_APICallError', statusCode: 400 });
        return { stream: ReadableStream.from([{ type: 'error', error }]) };
      },
    };
    const headers = { authorization: 'Bearer tokentokentoken', 'x-api-key': 'hunter2' };
    const failure = JSON.stringify(errorOf(await ask(model, { headers })));
    expect(failure).toContain('xxx');
    expect(failure).not.toMatch(/hunt|token/);
  },
);

test.each([
  ['a name', 'openai/gpt-5', /"openai\/gpt-5" is only a name/],
  ['undefined', undefined, /pass a language model of the AI SDK/],
  [
    'a V2 model',
    { specificationVersion: 'v2', doStream() {}, doGenerate() {} },
    /has the specification v2.*AI SDK 6 or 7/,
  ],
  ['another object', {}, /is not a language model of the AI SDK/],
  ['an embedding model', createV4({ apiKey: KEY }).embedding('m'), /no doStream and doGenerate/],
])('throws for %s', (_, model, message) => {
  expect(() => fromAiSdk(model as never)).toThrow(message);
  expect(() => fromAiSdk(model as never)).toThrow(TreadleError);
});
