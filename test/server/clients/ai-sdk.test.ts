import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import {
  APICallError,
  generateText,
  isStepCount,
  Output,
  streamText,
  tool,
  type LanguageModel,
  type ModelMessage,
} from 'ai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { call, LOOK_MESSAGE, PDF, PNG, useServerFixture } from '../support/fixture.ts';

// Only one of the providers supports tools of type mcp, so the server offers default tools.
const fixture = useServerFixture({ defaultTools: ['add', 'fail'] });
const openai = () => createOpenAI({ baseURL: fixture.baseURL, apiKey: 'any' });

const PROVIDERS: readonly (readonly [string, (model: string) => LanguageModel])[] = [
  ['openai.responses', (model) => openai().responses(model)],
  ['openai.chat', (model) => openai().chat(model)],
  ['open-responses', (model) => createOpenResponses({ name: 'treadle', url: `${fixture.baseURL}/responses` })(model)],
];

function weather(cities: string[] = []) {
  return tool({
    description: 'The weather in a city',
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      cities.push(city);
      if (city === 'Nowhere') throw new Error('no such city');
      return `fine in ${city}`;
    },
  });
}

test.each(['generated', 'streamed'])(
  'results of the server reach the next request with store: false, %s',
  async (mode) => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
      { calls: [call('fail', { why: 'broken' }), call('weather', { city: 'Oslo' })] },
      { text: 'Done.' },
      { text: 'As I said.' },
    );
    const model = openai().responses(script.model);
    const request = {
      model,
      tools: { weather: weather() },
      stopWhen: isStepCount(5),
      maxRetries: 0,
      providerOptions: { openai: { store: false } },
    };
    const first = { ...request, prompt: 'Go' };
    const result = mode === 'generated' ? await generateText(first) : streamText(first);
    expect(await result.text).toBe('Done.');
    const turns = [
      'user: Go',
      'assistant: First. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: [2] fail {"why":"broken"} [3] weather {"city":"Oslo"}',
      expect.stringMatching(/^tool: \[2\] Error.*broken/),
      'tool: [3] fine in Oslo',
    ];
    expect((await script.conversations())[2]).toEqual(turns);
    const messages: ModelMessage[] = [
      { role: 'user', content: 'Go' },
      ...(await result.steps).flatMap(({ response }) => response.messages),
      { role: 'user', content: 'Sure?' },
    ];
    await generateText({ ...request, messages });
    expect((await script.conversations())[3]).toEqual([...turns, 'assistant: Done.', 'user: Sure?']);
  },
);

describe.each(PROVIDERS)('%s', (provider, modelOf) => {
  test('returns a text with its usage', async () => {
    const script = await fixture.script({ text: 'Hello there.', usage: { input: 7, output: 3 } });
    const { text, usage, finishReason } = await generateText({
      model: modelOf(script.model),
      system: 'Be brief.',
      prompt: 'Hi',
      temperature: 0.3,
      maxRetries: 0,
    });
    expect([text, finishReason]).toEqual(['Hello there.', 'stop']);
    expect(usage).toMatchObject({ inputTokens: 7, outputTokens: 3, totalTokens: 10 });
    expect(await script.conversations()).toEqual([['system: Be brief.', 'user: Hi']]);
    expect((await script.bodies())[0]).toMatchObject({ temperature: 0.3 });
  });

  test('streams text and reasoning', async () => {
    const script = await fixture.script({ reasoning: 'I greet.', text: 'Hello there, and welcome.' });
    // This provider of the AI SDK shows summaries of reasoning only, as Anthropic sends them.
    const model = provider === 'openai.responses' ? script.modelIn('anthropic') : script.model;
    const result = streamText({ model: modelOf(model), prompt: 'Hi', maxRetries: 0 });
    const deltas: string[] = [];
    for await (const delta of result.textStream) deltas.push(delta);
    expect(deltas.join('')).toBe('Hello there, and welcome.');
    expect(deltas.length).toBeGreaterThan(2);
    expect(await result.finishReason).toBe('stop');
    expect(await result.usage).toMatchObject({ inputTokens: 20, outputTokens: 10 });
    if (provider !== 'openai.chat') expect(await result.reasoningText).toBe('I greet.');
  });

  test.each(['generated', 'streamed'])('runs client tools in several steps, %s', async (mode) => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Nowhere' })] },
      { calls: [call('weather', { city: 'Rome' })] },
      { text: 'Done.' },
    );
    const cities: string[] = [];
    const request = {
      model: modelOf(script.model),
      prompt: 'Weather?',
      tools: { weather: weather(cities) },
      stopWhen: isStepCount(5),
      maxRetries: 0,
    };
    const result = mode === 'generated' ? await generateText(request) : streamText(request);
    expect(await result.text).toBe('Done.');
    expect((await result.steps).map((step) => step.finishReason)).toEqual(['tool-calls', 'tool-calls', 'stop']);
    expect(cities).toEqual(['Oslo', 'Nowhere', 'Rome']);
    expect((await script.conversations())[2]).toEqual([
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] weather {"city":"Nowhere"}',
      'tool: [1] fine in Oslo',
      expect.stringMatching(/^tool: \[2\] .*no such city/),
      'assistant: [3] weather {"city":"Rome"}',
      'tool: [3] fine in Rome',
    ]);
  });

  test.each(['generated', 'streamed'])('runs server tools, one of which fails, %s', async (mode) => {
    const script = await fixture.script(
      { calls: [call('add', { a: 2, b: 3 }), call('fail', { why: 'no luck' })] },
      { text: 'Five, and no luck.' },
      { text: 'As I said.' },
    );
    const model = modelOf(script.model);
    const request = { model, prompt: 'Go', maxRetries: 0, stopWhen: isStepCount(5) };
    const result = mode === 'generated' ? await generateText(request) : streamText(request);
    expect(await result.text).toBe('Five, and no luck.');
    expect(await result.steps).toHaveLength(1);
    expect(await result.finishReason).toBe('stop');
    expect((await script.conversations())[1]).toEqual([
      'user: Go',
      'assistant: [1] add {"a":2,"b":3} [2] fail {"why":"no luck"}',
      'tool: [1] 5',
      expect.stringMatching(/^tool: \[2\] Error.*no luck/),
    ]);
    const messages: ModelMessage[] = [
      { role: 'user', content: 'Go' },
      ...(await result.response).messages,
      { role: 'user', content: 'Sure?' },
    ];
    expect((await generateText({ model, messages, maxRetries: 0 })).text).toBe('As I said.');
    const last = (await script.conversations())[2]!;
    expect(last.slice(-2)).toEqual(['assistant: Five, and no luck.', 'user: Sure?']);
    // Chat Completions does not show the calls of the server.
    if (provider !== 'openai.chat') expect(last.slice(0, 4)).toEqual((await script.conversations())[1]);
  });

  test.each(['generated', 'streamed'])('continues a turn with server and client calls, %s', async (mode) => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Both.', calls: [call('fail', { why: 'broken' }), call('weather', { city: 'Oslo' })] },
      { text: 'Done.' },
    );
    const request = {
      model: modelOf(script.model),
      prompt: 'Go',
      tools: { weather: weather() },
      stopWhen: isStepCount(5),
      maxRetries: 0,
    };
    const result = mode === 'generated' ? await generateText(request) : streamText(request);
    expect(await result.text).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Go',
      'assistant: First. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Both. [2] fail {"why":"broken"} [3] weather {"city":"Oslo"}',
      expect.stringMatching(/^tool: \[2\] Error.*broken/),
      'tool: [3] fine in Oslo',
    ]);
  });

  test.each(['generated', 'streamed'])('parses structured output, %s', async (mode) => {
    const script = await fixture.script({ calls: [call('add', { a: 30, b: 6 })] }, { text: '{"name":"Ada","age":36}' });
    const request = {
      model: modelOf(script.model),
      prompt: 'Who?',
      output: Output.object({ schema: z.object({ name: z.string(), age: z.number() }) }),
      maxRetries: 0,
    };
    const result = mode === 'generated' ? await generateText(request) : streamText(request);
    expect(await result.output).toEqual({ name: 'Ada', age: 36 });
    expect((await script.bodies())[0]!['response_format']).toMatchObject({
      type: 'json_schema',
      json_schema: { schema: { required: ['name', 'age'] } },
    });
  });

  test('accepts images and files, also from tools', async () => {
    const script = await fixture.script({ calls: [call('shot', {})] }, { text: 'Seen.' });
    const picture = { type: 'file', mediaType: 'image/png', data: { type: 'data', data: PNG } } as const;
    const shot = tool({
      inputSchema: z.object({}),
      execute: () => 'shot',
      toModelOutput: () => ({ type: 'content', value: [{ type: 'text', text: 'A shot' }, picture] }),
    });
    const { text } = await generateText({
      model: modelOf(script.model),
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'file', mediaType: 'image/png', data: PNG },
            { type: 'file', mediaType: 'application/pdf', data: PDF, filename: 'a.pdf' },
          ],
        },
      ],
      tools: { shot },
      stopWhen: isStepCount(3),
      maxRetries: 0,
    });
    expect(text).toBe('Seen.');
    const [, { messages } = { messages: [] }] = await script.bodies();
    expect(messages[0]).toEqual(LOOK_MESSAGE);
    // With Chat Completions the AI SDK sends such a result as JSON.
    if (provider !== 'openai.chat') {
      expect(messages[2]).toMatchObject({ role: 'tool', content: 'A shot' });
      expect(messages[3]!.content).toContainEqual(LOOK_MESSAGE.content[1]);
    }
  });

  test('throws an APICallError, and retries a rate limit', async () => {
    const script = await fixture.script({ fault: 'status', status: 429, retryAfter: 0 }, { text: 'Now.' });
    const unknown = generateText({ model: modelOf('none'), prompt: 'Hi', maxRetries: 0 });
    await expect(unknown.catch(APICallError.isInstance)).resolves.toBe(true);
    await expect(unknown).rejects.toMatchObject({ statusCode: 404, message: expect.stringContaining('"none"') });
    const { text } = await generateText({ model: modelOf(script.model), prompt: 'Hi', maxRetries: 1 });
    expect(text).toBe('Now.');
  });

  test('reports an error in the middle of a stream', async () => {
    const script = await fixture.script({ fault: 'error-in-stream', reply: { text: 'A long story that has no end.' } });
    const errors: unknown[] = [];
    const result = streamText({
      model: modelOf(script.model),
      prompt: 'Hi',
      maxRetries: 0,
      onError: ({ error }) => void errors.push(error),
    });
    let text = '';
    for await (const part of result.fullStream) if (part.type === 'text-delta') text += part.text;
    expect(text).toMatch(/^A long/);
    expect(errors.length).toBeGreaterThan(0);
    expect(await result.finishReason).toBe('error');
  });

  test('cancels the run when the client aborts', async () => {
    const script = await fixture.script({ fault: 'stall', reply: { text: 'Once upon a time there was a queen.' } });
    const abort = new AbortController();
    const result = streamText({
      model: modelOf(script.model),
      prompt: 'Tell',
      maxRetries: 0,
      abortSignal: abort.signal,
    });
    const seen: string[] = [];
    for await (const part of result.fullStream) {
      seen.push(part.type);
      if (part.type === 'text-delta') abort.abort();
    }
    expect(seen.at(-1)).toBe('abort');
    await fixture.provider.quiet();
  });
});

test.each(PROVIDERS)('%s: sends the tool choice to the model', async (_, modelOf) => {
  const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'No.' });
  const request = { model: modelOf(script.model), prompt: 'Go', tools: { weather: weather() }, maxRetries: 0 };
  const forced = await generateText({ ...request, toolChoice: { type: 'tool', toolName: 'weather' } });
  expect(forced.toolCalls).toMatchObject([{ toolName: 'weather', input: { city: 'Oslo' } }]);
  expect((await generateText({ ...request, toolChoice: 'none' })).text).toBe('No.');
  const [first, second] = await script.bodies();
  expect(first!['tool_choice']).toEqual({ type: 'function', function: { name: 'weather' } });
  expect(second!['tool_choice'] ?? 'none').toBe('none');
});

test.each(PROVIDERS.filter(([name]) => name !== 'openai.chat'))(
  '%s: keeps the signed reasoning of the model between requests',
  async (_, modelOf) => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { reasoning: 'And Rome.', calls: [call('weather', { city: 'Rome' })] },
      { text: 'Fine.' },
    );
    const { text } = await generateText({
      model: modelOf(script.modelIn('anthropic')),
      prompt: 'Weather?',
      tools: { weather: weather() },
      stopWhen: isStepCount(5),
      maxRetries: 0,
      providerOptions: {
        openai: { forceReasoning: true, reasoningEffort: 'low' },
        treadle: { reasoningEffort: 'low' },
      },
    });
    expect(text).toBe('Fine.');
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
      'assistant: thinking tool_use',
      'user: tool_result',
    ]);
  },
);

describe('openai.responses', () => {
  test('selects server tools by openai.tools.mcp', async () => {
    const script = await fixture.script({ calls: [call('big', { length: 4 })] }, { text: 'Four.' });
    // The AI SDK requires a URL. The server uses only the label.
    const own = openai().tools.mcp({ serverLabel: 'treadle', serverUrl: fixture.baseURL, allowedTools: ['big'] });
    const result = await generateText({
      model: openai().responses(script.model),
      prompt: 'Go',
      tools: { own },
      stopWhen: isStepCount(3),
      maxRetries: 0,
    });
    expect(result.text).toBe('Four.');
    expect(result.content).toMatchObject([
      { type: 'tool-call', toolName: 'mcp.big', providerExecuted: true },
      { type: 'tool-result', output: { serverLabel: 'treadle', name: 'big', output: 'xxxx' } },
      { type: 'text', text: 'Four.' },
    ]);
  });

  test('continues a conversation by previousResponseId', async () => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 1 })] },
      { text: 'Fine.' },
      { text: 'Still.' },
    );
    const model = openai().responses(script.model);
    const tools = { weather: tool({ inputSchema: z.object({ city: z.string() }), outputSchema: z.string() }) };
    const first = await generateText({ model, prompt: 'Weather?', tools, maxRetries: 0 });
    const made = first.toolCalls.find(({ toolName }) => toolName === 'weather');
    const continueFrom = (previous: typeof first, messages: ModelMessage[]) =>
      generateText({
        model,
        tools,
        messages,
        maxRetries: 0,
        providerOptions: { openai: { previousResponseId: previous.response.id } },
      });
    const second = await continueFrom(first, [
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: made!.toolCallId,
            toolName: 'weather',
            output: { type: 'text', value: 'rain' },
          },
        ],
      },
    ]);
    expect(second.text).toBe('Fine.');
    const third = await continueFrom(second, [{ role: 'user', content: 'And now?' }]);
    expect(third.text).toBe('Still.');
    expect((await script.conversations())[2]).toEqual([
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1}',
      'tool: [1] rain',
      'tool: [2] 2',
      'assistant: Fine.',
      'user: And now?',
    ]);
  });

  test.each([true, false])('approves a call of the server, store: %s', async (store) => {
    const script = await fixture.script(
      { text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Two.' },
      { text: 'Still.' },
    );
    const own = openai().tools.mcp({
      serverLabel: 'treadle',
      serverUrl: fixture.baseURL,
      allowedTools: ['add'],
      requireApproval: 'always',
    });
    const model = openai().responses(script.model);
    const request = { model, tools: { own }, maxRetries: 0, providerOptions: { openai: { store } } };
    const first = await generateText({ ...request, prompt: 'Go' });
    const { approvalId } = first.content.find((part) => part.type === 'tool-approval-request')!;
    const messages: ModelMessage[] = [
      { role: 'user', content: 'Go' },
      ...first.response.messages,
      {
        role: 'tool',
        content: [{ type: 'tool-approval-response', approvalId, approved: true, providerExecuted: true }],
      },
    ];
    const approved = generateText({ ...request, messages });
    // Without a stored response nobody has the call: the AI SDK sends the decision alone.
    if (!store) return expect(approved).rejects.toThrow(/with 'store: true' it sends a reference/);
    const { text, response } = await approved;
    expect(text).toBe('Two.');
    await generateText({
      ...request,
      messages: [...messages, ...response.messages, { role: 'user', content: 'Sure?' }],
    });
    expect((await script.conversations())[2]).toEqual([
      'user: Go',
      'assistant: I add. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Two.',
      'user: Sure?',
    ]);
  });

  test.each([
    ['streamed', true],
    ['generated', true],
    ['streamed', false],
  ])('shows the reasoning of a model without summaries, if it asks for them (%s, store: %s)', async (mode, store) => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { reasoning: 'Rain.', text: 'It rains.' },
    );
    const request = {
      model: openai().responses(script.model),
      prompt: 'Weather?',
      tools: { weather: weather() },
      stopWhen: isStepCount(3),
      maxRetries: 0,
      providerOptions: {
        openai: { store, forceReasoning: true, reasoningSummary: 'auto', include: ['reasoning.encrypted_content'] },
      },
    } satisfies Parameters<typeof generateText>[0];
    const result = mode === 'generated' ? await generateText(request) : streamText(request);
    expect((await result.steps).map(({ reasoningText }) => reasoningText)).toEqual(['Oslo, then.', 'Rain.']);
    expect(await result.text).toBe('It rains.');
  });

  test('keeps the signed reasoning with store: false', async () => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Fine.' },
    );
    const { text } = await generateText({
      model: openai().responses(script.modelIn('anthropic')),
      prompt: 'Weather?',
      tools: { weather: weather() },
      stopWhen: isStepCount(3),
      maxRetries: 0,
      providerOptions: {
        openai: {
          store: false,
          include: ['reasoning.encrypted_content'],
          forceReasoning: true,
          reasoningEffort: 'low',
        },
      },
    });
    expect(text).toBe('Fine.');
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
    ]);
  });
});
