import { userText, type Message, type ModelDelta, type ModelRequest } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { asked, request, type Asked } from '../../test/request.ts';
import { fromAiSdk, type FromAiSdkOptions } from './from-ai-sdk.ts';
import type { AiSdkModel, AiSdkVersion, CallOptions } from './language-model.ts';

const STOP = { unified: 'stop', raw: 'end_turn' };
const USAGE = {
  inputTokens: { total: 10, noCache: 3, cacheRead: 5, cacheWrite: 2 },
  outputTokens: { total: 7, text: 4, reasoning: 3 },
};
const finish = { type: 'finish', finishReason: STOP, usage: USAGE };

/** A model that answers with these parts and records its call options. */
function handMade(
  parts: readonly unknown[],
  version: AiSdkVersion = 'v4',
  whole: object = {},
): AiSdkModel & { readonly seen: CallOptions[] } {
  const seen: CallOptions[] = [];
  return {
    specificationVersion: version,
    provider: 'acme.chat',
    modelId: 'm',
    seen,
    doGenerate: (options: CallOptions) => {
      seen.push(options);
      return Promise.resolve(whole);
    },
    doStream: (options: CallOptions) => {
      seen.push(options);
      return Promise.resolve({ stream: ReadableStream.from(parts) });
    },
  };
}

function ask(model: AiSdkModel, fields: Partial<ModelRequest> = {}, options: FromAiSdkOptions = {}): Promise<Asked> {
  return asked(fromAiSdk(model, { maxRetries: 0, clock: { now: () => 0, timer: () => () => {} }, ...options }), fields);
}

const attempts = [{ model: 'm', ms: 0 }];
const usage = { inputTokens: 10, outputTokens: 7, cachedTokens: 5, cacheWriteTokens: 2, reasoningTokens: 3 };

describe.each(['v3', 'v4'] as const)('%s', (version) => {
  test('keeps the order in which text, reasoning and calls start', async () => {
    const { reply, deltas } = await ask(
      handMade(
        [
          { type: 'stream-start', warnings: [] },
          { type: 'ping' },
          { type: 'response-metadata', id: 'x', modelId: 'm-1' },
          { type: 'reasoning-start', id: '0' },
          { type: 'reasoning-delta', id: '0', delta: 'Hm' },
          { type: 'reasoning-delta', id: '0', delta: '', providerMetadata: { acme: { signature: 'S' } } },
          { type: 'reasoning-end', id: '0' },
          { type: 'text-start', id: '1' },
          { type: 'tool-input-start', id: 'a', toolName: 'f' },
          { type: 'text-delta', id: '1', delta: 'Hello' },
          { type: 'tool-input-delta', id: 'a', delta: '{"x"' },
          { type: 'tool-input-start', id: 'b', toolName: 'g' },
          { type: 'tool-input-delta', id: 'b', delta: '{}' },
          { type: 'tool-input-delta', id: 'a', delta: ':1}' },
          { type: 'tool-input-end', id: 'a' },
          { type: 'tool-call', toolCallId: 'a', toolName: 'f', input: '{"x":1}' },
          { type: 'tool-call', toolCallId: 'b', toolName: 'g', input: '{"y":2}' },
          { type: 'tool-call', toolCallId: 'b', toolName: 'g', input: '{"again":true}' },
          { type: 'raw', rawValue: {} },
          { type: 'of-a-later-version' },
          'nonsense',
          { ...finish, finishReason: { unified: 'tool-calls', raw: undefined } },
        ],
        version,
      ),
    );
    expect(reply).toEqual({
      type: 'reply',
      content: [
        {
          type: 'reasoning',
          text: 'Hm',
          signature: '{"own":{"acme":{"signature":"S"}}}',
          protocol: 'ai-sdk:acme.chat',
        },
        { type: 'text', text: 'Hello' },
        { type: 'tool-call', id: 'a', name: 'f', arguments: '{"x":1}' },
        { type: 'tool-call', id: 'b', name: 'g', arguments: '{"y":2}' },
        { type: 'tool-call', id: 'b', name: 'g', arguments: '{"again":true}' },
      ],
      finish: 'tool-calls',
      rawFinish: 'tool-calls',
      usage,
      model: 'm-1',
      attempts: [{ model: 'm-1', ms: 0 }],
    });
    expect(deltas).toEqual([
      { type: 'reasoning-delta', text: 'Hm' },
      { type: 'call-delta', call: 0, name: 'f', arguments: '' },
      { type: 'text-delta', text: 'Hello' },
      { type: 'call-delta', call: 0, name: 'f', arguments: '{"x"' },
      { type: 'call-delta', call: 1, name: 'g', arguments: '' },
      { type: 'call-delta', call: 1, name: 'g', arguments: '{}' },
      { type: 'call-delta', call: 0, name: 'f', arguments: ':1}' },
      { type: 'call-delta', call: 2, name: 'g', arguments: '{"again":true}' },
    ]);
  });

  test('returns the same reply without streaming', async () => {
    const model = handMade([], version, {
      content: [
        { type: 'reasoning', text: 'Hm', providerMetadata: { acme: { signature: 'S' } } },
        { type: 'text', text: 'Hello' },
        { type: 'source', sourceType: 'url', id: '1', url: 'https://host' },
        { type: 'tool-call', toolCallId: 'a', toolName: 'f', input: '{"x":1}' },
        null,
      ],
      finishReason: { unified: 'tool-calls', raw: 'tool_use' },
      usage: USAGE,
      response: { modelId: 'm-1' },
      warnings: [],
    });
    expect(await ask(model, {}, { stream: false })).toEqual({
      reply: {
        type: 'reply',
        content: [
          {
            type: 'reasoning',
            text: 'Hm',
            signature: '{"own":{"acme":{"signature":"S"}}}',
            protocol: 'ai-sdk:acme.chat',
          },
          { type: 'text', text: 'Hello' },
          { type: 'tool-call', id: 'a', name: 'f', arguments: '{"x":1}' },
        ],
        finish: 'tool-calls',
        rawFinish: 'tool_use',
        usage,
        model: 'm-1',
        attempts: [{ model: 'm-1', ms: 0 }],
      },
      deltas: [],
    });
  });

  test('sends metadata of calls, texts and hidden reasoning back to the same provider only', async () => {
    const first = handMade(
      [
        { type: 'reasoning-start', id: '0', providerMetadata: { acme: { redacted: 'R' } } },
        { type: 'reasoning-end', id: '0' },
        {
          type: 'tool-call',
          toolCallId: 'a',
          toolName: 'f',
          input: '{"x":1}',
          providerMetadata: { acme: { sig: 'A' } },
        },
        { type: 'tool-call', toolCallId: 'b', toolName: 'f', input: 'broken' },
        { type: 'text-start', id: '1', providerMetadata: { acme: { itemId: 'T' } } },
        { type: 'text-delta', id: '1', delta: 'Hello' },
        finish,
      ],
      version,
    );
    const { reply } = await ask(first);
    if (reply.type === 'failure') throw new Error(reply.error.message);
    const history: Message[] = [userText('hi'), { role: 'assistant', content: reply.content }];
    await ask(first, { messages: history });
    expect(first.seen[1]!.prompt[1]).toEqual({
      role: 'assistant',
      content: [
        { type: 'reasoning', text: '', providerOptions: { acme: { redacted: 'R' } } },
        { type: 'tool-call', toolCallId: 'a', toolName: 'f', input: { x: 1 }, providerOptions: { acme: { sig: 'A' } } },
        { type: 'tool-call', toolCallId: 'b', toolName: 'f', input: {} },
        { type: 'text', text: 'Hello', providerOptions: { acme: { itemId: 'T' } } },
      ],
    });
    const other = { ...handMade([finish], version), provider: 'other.chat' };
    await ask(other, { messages: history });
    expect(other.seen[0]!.prompt[1]).toEqual({
      role: 'assistant',
      content: [
        { type: 'tool-call', toolCallId: 'a', toolName: 'f', input: { x: 1 } },
        { type: 'tool-call', toolCallId: 'b', toolName: 'f', input: {} },
        { type: 'text', text: 'Hello' },
      ],
    });
  });
});

test('sends unsigned reasoning back, but not that of others, with a broken signature, or a message of such parts', async () => {
  const model = handMade([finish]);
  await ask(model, {
    instructions: 'Be brief.',
    messages: [
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'plain' },
          { type: 'reasoning', text: 'theirs', signature: 'S', protocol: 'anthropic' },
          { type: 'reasoning', text: 'broken', signature: '{', protocol: 'ai-sdk:acme.chat' },
          { type: 'text', text: 'Hi \ud800' },
        ],
      },
      { role: 'assistant', content: [{ type: 'reasoning', text: 'x', signature: 'S', protocol: 'anthropic' }] },
    ],
  });
  expect(model.seen[0]!.prompt).toEqual([
    { role: 'system', content: 'Be brief.' },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'plain' },
        { type: 'text', text: 'Hi \ufffd' },
      ],
    },
  ]);
});

test.each(['v3', 'v4'] as const)('marks a failed result with media as an error once: %s', async (version) => {
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } } as const;
  const failed = { type: 'tool-result', callId: 'a', name: 'f', isError: true } as const;
  const model = handMade([finish], version);
  const content = [
    { ...failed, content: [{ type: 'text', text: 'see' }, image] },
    { ...failed, content: [{ type: 'error', text: 'no' }, image] },
  ] as const;
  await ask(model, { messages: [{ role: 'tool', content }] });
  const [message] = model.seen[0]!.prompt as [{ content: { output: { value: { text?: string }[] } }[] }];
  expect(message.content.map(({ output }) => output.value.flatMap(({ text }) => text ?? []))).toEqual([
    ['The call failed.', 'see'],
    ['Error: no'],
  ]);
});

test('converts results to the form of each version', async () => {
  const result = { type: 'tool-result', callId: 'a', name: 'f', isError: false } as const;
  const png = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } } as const;
  const messages: Message[] = [
    {
      role: 'tool',
      content: [
        { ...result, content: [{ type: 'text', text: 'fine' }] },
        { ...result, content: [{ type: 'error', text: 'no' }], isError: true },
        {
          ...result,
          content: [
            { type: 'text', text: 'see' },
            { type: 'error', text: 'half' },
            png,
            { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://host/a.png' } },
            { type: 'file', mediaType: 'text/csv', name: 'a.csv', source: { type: 'data', data: 'QQ==' } },
            { type: 'file', mediaType: 'text/csv', source: { type: 'url', url: 'https://host/a.csv' } },
          ],
        },
      ],
    },
  ];
  const outputs = async (version: AiSdkVersion): Promise<unknown[]> => {
    const model = handMade([finish], version);
    await ask(model, { messages });
    const [{ content }] = model.seen[0]!.prompt as [{ content: { output: unknown }[] }];
    return content.map(({ output }) => output);
  };
  const plain = [
    { type: 'text', value: 'fine' },
    { type: 'error-text', value: 'no' },
  ];
  const words = [
    { type: 'text', text: 'see' },
    { type: 'text', text: 'Error: half' },
  ];
  expect(await outputs('v4')).toEqual([
    ...plain,
    {
      type: 'content',
      value: [
        ...words,
        { type: 'file', mediaType: 'image/png', data: { type: 'data', data: 'AA==' } },
        { type: 'file', mediaType: 'image/png', data: { type: 'url', url: new URL('https://host/a.png') } },
        { type: 'file', mediaType: 'text/csv', filename: 'a.csv', data: { type: 'data', data: 'QQ==' } },
        { type: 'file', mediaType: 'text/csv', data: { type: 'url', url: new URL('https://host/a.csv') } },
      ],
    },
  ]);
  expect(await outputs('v3')).toEqual([
    ...plain,
    {
      type: 'content',
      value: [
        ...words,
        { type: 'image-data', mediaType: 'image/png', data: 'AA==' },
        { type: 'image-url', url: 'https://host/a.png' },
        { type: 'file-data', mediaType: 'text/csv', filename: 'a.csv', data: 'QQ==' },
        { type: 'file-url', mediaType: 'text/csv', url: 'https://host/a.csv' },
      ],
    },
  ]);
});

test('sends settings, output, effort and provider options', async () => {
  const output = { type: 'object', properties: { n: { type: 'number' } } };
  const providerOptions = { acme: { mode: 'x' }, other: { y: 1 } };
  const fields = { output, settings: { reasoning: 'high', seed: 1 }, parallel: false } as const;
  const v4 = handMade([finish]);
  await ask(v4, fields, { providerOptions, headers: { 'x-team': 'a' } });
  expect(v4.seen[0]).toEqual({
    prompt: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
    seed: 1,
    reasoning: 'high',
    responseFormat: { type: 'json', schema: output, name: 'answer' },
    providerOptions,
    headers: { 'x-team': 'a' },
    abortSignal: expect.any(AbortSignal),
  });
  const any = handMade([finish]);
  await ask(any, { output: { type: 'object' }, outputForm: { anyObject: true } });
  expect(any.seen[0]).toMatchObject({ responseFormat: { type: 'json' } });
  expect(any.seen[0]).not.toHaveProperty('responseFormat.schema');
  const v3 = { ...handMade([finish], 'v3'), provider: 'openai.chat' };
  await ask(v3, fields, { providerOptions });
  expect(v3.seen[0]).toEqual({
    prompt: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
    seed: 1,
    responseFormat: { type: 'json', schema: output, name: 'answer' },
    providerOptions: { ...providerOptions, openai: { reasoningEffort: 'high' } },
    abortSignal: expect.any(AbortSignal),
  });
  await ask(v3, fields, { providerOptions: { openai: { reasoningEffort: 'minimal' } } });
  expect(v3.seen[1]!.providerOptions).toEqual({ openai: { reasoningEffort: 'minimal' } });
});

test.each(['auto', 'none', 'required'] as const)('sends the tool choice %s', async (toolChoice) => {
  const f = { name: 'f', description: 'F', parameters: { type: 'object' } };
  const model = handMade([finish]);
  await ask(model, { tools: [f], toolChoice });
  const tools = [{ type: 'function', name: 'f', description: 'F', inputSchema: { type: 'object' } }];
  expect(model.seen[0]).toMatchObject({ tools, toolChoice: { type: toolChoice } });
  await ask(model, { tools: [f], toolChoice, allowedTools: [] });
  expect(model.seen[1]).not.toHaveProperty('tools');
  expect(model.seen[1]).not.toHaveProperty('toolChoice');
  await ask(model, { tools: [f], toolChoice: { tool: 'f' }, allowedTools: [] });
  expect(model.seen[2]).toMatchObject({ tools, toolChoice: { type: 'tool', toolName: 'f' } });
});

test('reports tools that the provider executes as reasoning, not as calls', async () => {
  const { reply, deltas } = await ask(
    handMade([
      { type: 'tool-input-start', id: 's', toolName: 'web_search', providerExecuted: true },
      { type: 'tool-input-delta', id: 's', delta: '{"q":"x"}' },
      { type: 'tool-input-end', id: 's' },
      { type: 'tool-call', toolCallId: 's', toolName: 'web_search', input: '{"q":"x"}', providerExecuted: true },
      { type: 'tool-result', toolCallId: 's', toolName: 'web_search', result: { hits: [] } },
      { type: 'file', mediaType: 'image/png', data: { type: 'data', data: 'AA==' } },
      { type: 'text-delta', id: '1', delta: 'Found.' },
      finish,
    ]),
  );
  const notes = [
    '(The provider executed web_search {"q":"x"})',
    '(The model returned a file of type image/png, which is not stored.)',
  ];
  expect(reply).toMatchObject({
    content: [...notes.map((text) => ({ type: 'reasoning', text })), { type: 'text', text: 'Found.' }],
    finish: 'stop',
  });
  expect(deltas).toEqual([
    ...notes.map((text) => ({ type: 'reasoning-delta', text })),
    { type: 'text-delta', text: 'Found.' },
  ]);
  expect(await ask(handMade([{ type: 'tool-approval-request', approvalId: 'x', toolCallId: 's' }]))).toMatchObject({
    reply: { type: 'failure', error: { code: 'protocol', retryable: false } },
  });
});

test.each([
  [{ unified: 'stop', raw: 'end_turn' }, 'stop', 'end_turn'],
  [{ unified: 'length', raw: 'max_tokens' }, 'length', 'max_tokens'],
  [{ unified: 'content-filter', raw: 'refusal' }, 'content-filter', 'refusal'],
  [{ unified: 'other', raw: 'pause_turn' }, 'stop', 'pause_turn'],
  ['stop', 'stop', 'stop'],
  ['unknown', 'stop', 'unknown'],
])('maps the finish reason %j', async (finishReason, finish, rawFinish) => {
  const { reply } = await ask(handMade([{ type: 'finish', finishReason, usage: {} }]));
  expect(reply).toEqual({
    type: 'reply',
    content: [],
    finish,
    rawFinish,
    usage: { inputTokens: 0, outputTokens: 0 },
    model: 'm',
    attempts,
  });
});

test.each([
  [undefined, 'protocol'],
  [{ unified: 'other', raw: undefined }, 'protocol'],
  [{ unified: 'interrupted', raw: undefined }, 'protocol'],
  [{ unified: 'error', raw: 'x' }, 'overloaded'],
])('finish reason %j is a failure', async (finishReason, code) => {
  const { reply } = await ask(handMade([{ type: 'finish', finishReason, usage: {} }]));
  expect(reply).toMatchObject({ type: 'failure', error: { code, retryable: true } });
});

test.each([
  [{ inputTokens: 10, outputTokens: 7, cachedInputTokens: 5, reasoningTokens: 3 }, { cachedTokens: 5 }],
  [
    {
      inputTokens: { total: undefined, noCache: 3, cacheRead: 5, cacheWrite: 2 },
      outputTokens: { total: undefined, text: 4, reasoning: 3 },
    },
    { cachedTokens: 5, cacheWriteTokens: 2 },
  ],
])('maps the usage %j', async (counts, cache) => {
  const { reply } = await ask(handMade([{ ...finish, usage: counts }]));
  expect(reply).toMatchObject({ usage: { inputTokens: 10, outputTokens: 7, reasoningTokens: 3, ...cache } });
});

test('reports a cost only with a price', async () => {
  const price = { input: 1_000_000, output: 2_000_000, cachedInput: 0, cacheWrite: 0 };
  const free = fromAiSdk(handMade([finish]));
  const paid = fromAiSdk(handMade([finish]), { price });
  expect([free.priced, paid.priced]).toEqual([false, true]);
  expect((await ask(handMade([finish]), {}, { price })).reply).toMatchObject({ usage: { cost: 3 + 14 } });
  expect((await ask(handMade([finish]))).reply).not.toHaveProperty('usage.cost');
  expect(() => fromAiSdk(handMade([]), { price: { input: -1, output: 1 } })).toThrow(/^fromAiSdk: "price"/);
});

describe('failures', () => {
  const throwing = (thrown: unknown): AiSdkModel => ({
    ...handMade([]),
    doStream: () => {
      throw thrown;
    },
  });
  const named = (name: string, fields: object = {}): Error =>
    Object.assign(new Error('sk-abcdefghijklmnop1234 is bad'), { name, ...fields });
  test.each([
    ['AI_LoadAPIKeyError', {}, 'auth', false],
    ['AI_UnsupportedFunctionalityError', {}, 'invalid-request', false],
    ['AI_TypeValidationError', {}, 'protocol', true],
    ['AI_APICallError', { statusCode: 200 }, 'protocol', true],
    ['AI_APICallError', { statusCode: 529, isRetryable: false }, 'overloaded', false],
    ['AI_APICallError', { url: 'https://host/x', cause: named('Error', { code: 'ECONNRESET' }) }, 'network', true],
    ['TypeError', { cause: named('Error', { code: 'ENOTFOUND' }) }, 'network', true],
    ['TimeoutError', {}, 'timeout', true],
    ['AbortError', {}, 'cancelled', false],
    ['Error', {}, 'protocol', false],
  ])('a thrown %s %j is a failure', async (name, fields, code, retryable) => {
    const { reply } = await ask(throwing(named(name, fields)));
    expect(reply).toMatchObject({ type: 'failure', error: { code, retryable } });
    expect(JSON.stringify(reply)).not.toContain('abcdefghijklmnop');
  });
  test('a thrown value that is not an error is a failure', async () => {
    for (const thrown of ['words', undefined, null, 7, {}]) {
      expect(await ask(throwing(thrown))).toMatchObject({ reply: { type: 'failure' } });
    }
  });
  test('an invalid address is a failure', async () => {
    const source = { type: 'url', url: 'nowhere' } as const;
    const messages: Message[] = [{ role: 'user', content: [{ type: 'image', mediaType: 'image/png', source }] }];
    expect(await ask(handMade([finish]), { messages })).toMatchObject({
      reply: { type: 'failure', error: { message: expect.stringContaining('Invalid URL') } },
    });
  });
  test.each([
    ['words', 'protocol'],
    [{ message: 'full', type: 'overloaded_error' }, 'overloaded'],
    [{ type: 'error', error: { type: 'rate_limit_error', message: 'slow' } }, 'rate-limit'],
    [{ message: 'no', statusCode: 401, isRetryable: false, data: {} }, 'auth'],
    [undefined, 'protocol'],
  ])('an error part is a failure: %j', async (error, code) => {
    const { reply } = await ask(
      handMade([{ type: 'text-delta', id: '0', delta: 'Hel' }, { type: 'error', error }, finish]),
    );
    expect(reply).toMatchObject({ type: 'failure', error: { code } });
  });
  test('a stream that breaks is a failure', async () => {
    const broken = new ReadableStream({
      start: (controller) => controller.error(new TypeError('terminated', { cause: named('Error', { code: 'X' }) })),
    });
    const model = { ...handMade([]), doStream: () => Promise.resolve({ stream: broken }) };
    expect(await ask(model)).toMatchObject({ reply: { type: 'failure', error: { code: 'network' } } });
  });
});

test('cancels the stream after an error part', async () => {
  let closed = 0;
  const stream = new ReadableStream({
    start: (controller) => controller.enqueue({ type: 'error', error: 'words' }),
    cancel: () => void closed++,
  });
  await ask({ ...handMade([]), doStream: () => Promise.resolve({ stream }) });
  expect(closed).toBe(1);
});

test('emits no delta after the signal aborts', async () => {
  const controller = new AbortController();
  const deltas: ModelDelta[] = [];
  const parts = ['a', 'b'].map((delta) => ({ type: 'text-delta', id: '0', delta }));
  const reply = await fromAiSdk(handMade([...parts, finish])).reply(
    request(),
    (delta) => {
      deltas.push(delta);
      controller.abort();
    },
    controller.signal,
  );
  await new Promise(setImmediate);
  expect([reply.type, deltas]).toEqual(['failure', [{ type: 'text-delta', text: 'a' }]]);
});

test('converts each message once', async () => {
  const aiSdkModel = handMade([finish]);
  const model = fromAiSdk(aiSdkModel);
  const messages = [userText('hi')];
  for (const more of [[], [userText('ho')]]) {
    messages.push(...more);
    await model.reply(request({ messages }), () => {}, new AbortController().signal);
  }
  expect(aiSdkModel.seen[1]!.prompt).toHaveLength(2);
  expect(aiSdkModel.seen[1]!.prompt[0]).toBe(aiSdkModel.seen[0]!.prompt[0]);
});

test('does not wait for a model that ignores the signal, and cancels its stream', async () => {
  const controller = new AbortController();
  let closed = 0;
  const endless = new ReadableStream({
    start: (stream) => stream.enqueue({ type: 'text-delta', id: '0', delta: 'Hel' }),
    cancel: () => void closed++,
  });
  const { promise, resolve } = Promise.withResolvers<{ stream: ReadableStream }>();
  const model = fromAiSdk({ ...handMade([]), doStream: () => promise });
  const reply = model.reply(request(), () => {}, controller.signal);
  controller.abort();
  expect(await reply).toMatchObject({ type: 'failure', error: { code: 'cancelled' } });
  resolve({ stream: endless });
  await new Promise(setImmediate);
  expect(closed).toBe(1);
});
