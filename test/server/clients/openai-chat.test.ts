import OpenAI, { APIError, BadRequestError, NotFoundError, RateLimitError } from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionMessageParam,
  ChatCompletionTool,
} from 'openai/resources/chat/completions';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { call, useServerFixture } from '../support/fixture.ts';

// Clients of this API get server tools as default tools.
const fixture = useServerFixture({ defaultTools: ['add', 'fail'] });
const client = (): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });
const WEATHER: ChatCompletionTool = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'The weather in a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const hello: ChatCompletionMessageParam[] = [{ role: 'user', content: 'Hi' }];

test('returns a text with its usage', async () => {
  const script = await fixture.script({ text: 'Hello there.', usage: { input: 7, output: 3 } });
  const completion = await client().chat.completions.create({
    model: script.model,
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
      { role: 'assistant', content: 'Yes?' },
      { role: 'user', content: 'Hi, I said' },
    ],
    temperature: 0.2,
    max_completion_tokens: 50,
    stop: ['END'],
  });
  expect(completion).toMatchObject({
    object: 'chat.completion',
    model: script.model,
    choices: [{ message: { role: 'assistant', content: 'Hello there.' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
  });
  expect(await script.conversations()).toEqual([
    ['system: Be brief.', 'user: Hi', 'assistant: Yes?', 'user: Hi, I said'],
  ]);
  expect((await script.bodies())[0]).toMatchObject({ temperature: 0.2, max_tokens: 50, stop: ['END'] });
});

test('streams a text with its usage', async () => {
  const script = await fixture.script({ text: 'Hello there, and welcome.' });
  const stream = client().chat.completions.stream({
    model: script.model,
    messages: hello,
    stream_options: { include_usage: true },
  });
  const deltas: string[] = [];
  stream.on('content', (delta) => deltas.push(delta));
  const completion = await stream.finalChatCompletion();
  expect(deltas.join('')).toBe('Hello there, and welcome.');
  expect(deltas.length).toBeGreaterThan(2);
  expect(completion.choices[0]!.finish_reason).toBe('stop');
  expect(completion.usage).toMatchObject({ prompt_tokens: 20, completion_tokens: 10 });
});

test('has a refusal in its own field, streamed or not, also for structured output', async () => {
  const script = await fixture.script({ refusal: 'I cannot.' }, { refusal: 'I cannot.' });
  const completion = await client().chat.completions.create({ model: script.model, messages: hello });
  expect(completion.choices[0]!.message).toMatchObject({ content: null, refusal: 'I cannot.' });
  const format = zodResponseFormat(z.object({ n: z.number() }), 'answer');
  const streamed = client().chat.completions.stream({ model: script.model, messages: hello, response_format: format });
  const { choices } = await streamed.finalChatCompletion();
  expect(choices[0]!.message).toMatchObject({ refusal: 'I cannot.', parsed: null });
});

test('validates a strict answer, and repairs it once if it is not streamed', async () => {
  const response_format = zodResponseFormat(z.object({ n: z.number() }), 'answer');
  const request = { messages: hello, response_format };
  const repaired = await fixture.script({ text: '{"n":"1"}' }, { text: '{"n":1}' });
  const { choices } = await client().chat.completions.parse({ ...request, model: repaired.model });
  expect(choices[0]!.message).toMatchObject({ content: '{"n":1}', parsed: { n: 1 } });
  const script = await fixture.script({ text: '{"n":"1"}' }, { text: '{}' }, { text: '{}' });
  const failed = client().chat.completions.create({ ...request, model: script.model });
  await expect(failed).rejects.toMatchObject({ status: 502, code: 'output_invalid' });
  const stream = client().chat.completions.stream({ ...request, model: script.model });
  await expect(stream.finalChatCompletion()).rejects.toMatchObject({ code: 'output_invalid' });
  expect(await script.bodies()).toHaveLength(3);
});

test.each(['whole', 'streamed'])('custom tools take and answer a text, %s', async (mode) => {
  const script = await fixture.script({ calls: [call('patch', { input: '*** "Begin"\n' })] }, { text: 'Done.' });
  const grammar = { syntax: 'lark', definition: 'start: /.+/' } as const;
  const patch: ChatCompletionTool = {
    type: 'custom',
    custom: { name: 'patch', description: 'Edits.', format: { type: 'grammar', grammar } },
  };
  const request = { model: script.model, tools: [patch] };
  const { choices } =
    mode === 'whole'
      ? await client().chat.completions.create({ ...request, messages: hello })
      : await streamedChoices(await client().chat.completions.create({ ...request, messages: hello, stream: true }));
  const { message, finish_reason } = choices[0]!;
  const [made] = message.tool_calls!;
  expect(finish_reason).toBe('tool_calls');
  expect(made).toMatchObject({ type: 'custom', custom: { name: 'patch', input: '*** "Begin"\n' } });
  const answer = { role: 'tool', tool_call_id: made!.id, content: 'patched' } as const;
  const second = await client().chat.completions.create({ ...request, messages: [...hello, message, answer] });
  expect(second.choices[0]!.message.content).toBe('Done.');
  const [first] = await script.bodies();
  expect(JSON.stringify(first!.tools)).toContain('grammar (lark)');
  expect((await script.conversations())[1]!.slice(1)).toEqual([
    `assistant: [1] patch ${JSON.stringify({ input: '*** "Begin"\n' })}`,
    'tool: [1] patched',
  ]);
});

/** The official client does not accumulate calls of custom tools: each is one delta. */
async function streamedChoices(chunks: AsyncIterable<ChatCompletionChunk>): Promise<Pick<ChatCompletion, 'choices'>> {
  const tool_calls: object[] = [];
  let finish_reason: unknown;
  for await (const { choices } of chunks) {
    for (const { index: _, ...made } of choices[0]?.delta.tool_calls ?? []) tool_calls.push(made);
    finish_reason = choices[0]?.finish_reason ?? finish_reason;
  }
  const message = { role: 'assistant', content: null, tool_calls };
  return { choices: [{ message, finish_reason }] } as unknown as ChatCompletion;
}

describe('client functions', () => {
  test('are called in parallel and answered by tool messages', async () => {
    const script = await fixture.script(
      { text: 'Let me look.', calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Rome' })] },
      { text: 'Rain and sun.' },
    );
    const request = { model: script.model, tools: [WEATHER] };
    const first = await client().chat.completions.create({ ...request, messages: hello });
    const { message, finish_reason: finish } = first.choices[0]!;
    expect([finish, message.content, message.tool_calls?.length]).toEqual(['tool_calls', 'Let me look.', 2]);
    const [oslo, rome] = message.tool_calls!;
    const second = await client().chat.completions.create({
      ...request,
      messages: [
        ...hello,
        message,
        { role: 'tool', tool_call_id: rome!.id, content: 'sun' },
        { role: 'tool', tool_call_id: oslo!.id, content: 'rain' },
      ],
    });
    expect(second.choices[0]!.message.content).toBe('Rain and sun.');
    expect((await script.conversations())[1]).toEqual([
      'user: Hi',
      'assistant: Let me look. [1] weather {"city":"Oslo"} [2] weather {"city":"Rome"}',
      'tool: [1] rain',
      'tool: [2] sun',
    ]);
  });

  test.each([false, true])('are run by runTools, with stream: %s', async (stream) => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { calls: [call('weather', { city: 'Rome' }), call('weather', { city: 'Bonn' })] },
      { text: 'All is fine.' },
    );
    const cities: string[] = [];
    const tools = [
      zodFunction({
        name: 'weather',
        parameters: z.object({ city: z.string() }),
        function: ({ city }) => {
          cities.push(city);
          return `fine in ${city}`;
        },
      }),
    ];
    const request = { model: script.model, messages: hello, tools };
    const runner = stream
      ? client().chat.completions.runTools({ ...request, stream: true })
      : client().chat.completions.runTools(request);
    expect(await runner.finalContent()).toBe('All is fine.');
    expect(cities).toEqual(['Oslo', 'Rome', 'Bonn']);
    expect((await script.conversations())[2]).toEqual([
      'user: Hi',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":2}',
      'tool: [1] fine in Oslo',
      'tool: [2] 3',
      'assistant: [3] weather {"city":"Rome"} [4] weather {"city":"Bonn"}',
      'tool: [3] fine in Rome',
      'tool: [4] fine in Bonn',
    ]);
  });

  test('keep the signed reasoning of the model between requests', async () => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { reasoning: '', calls: [call('weather', { city: 'Rome' })] },
      { text: 'Fine.' },
    );
    const weather = zodFunction({
      name: 'weather',
      parameters: z.object({ city: z.string() }),
      function: () => 'fine',
    });
    const runner = client().chat.completions.runTools({
      model: script.modelIn('anthropic'),
      messages: hello,
      tools: [weather],
      reasoning_effort: 'low',
    });
    expect(await runner.finalContent()).toBe('Fine.');
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
      'assistant: redacted_thinking tool_use',
      'user: tool_result',
    ]);
  });

  test('are streamed with arguments parsed by zod', async () => {
    const script = await fixture.script({
      calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Rome' })],
    });
    const stream = client().chat.completions.stream({
      model: script.model,
      messages: hello,
      tools: [zodFunction({ name: 'weather', parameters: z.object({ city: z.string() }) })],
    });
    const done: unknown[] = [];
    stream.on('tool_calls.function.arguments.done', ({ index, parsed_arguments: parsed }) =>
      done.push([index, parsed]),
    );
    const completion = await stream.finalChatCompletion();
    expect(done).toEqual([
      [0, { city: 'Oslo' }],
      [1, { city: 'Rome' }],
    ]);
    expect(completion.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: { tool_calls: [{ function: { parsed_arguments: { city: 'Oslo' } } }, {}] },
    });
  });

  test('can be forced by tool_choice', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] });
    await client().chat.completions.create({
      model: script.model,
      messages: hello,
      tools: [WEATHER],
      tool_choice: { type: 'function', function: { name: 'weather' } },
      parallel_tool_calls: false,
    });
    expect((await script.bodies())[0]).toMatchObject({
      tool_choice: { type: 'function', function: { name: 'weather' } },
      parallel_tool_calls: false,
    });
  });
});

describe('server tools', () => {
  test('are not shown to the client, and failures are sent to the model', async () => {
    const script = await fixture.script(
      { calls: [call('add', { a: 2, b: 3 }), call('fail', { why: 'no luck' })] },
      { text: 'Five, and no luck.' },
    );
    const { choices, usage } = await client().chat.completions.create({ model: script.model, messages: hello });
    expect(choices[0]).toMatchObject({ finish_reason: 'stop', message: { content: 'Five, and no luck.' } });
    expect(choices[0]!.message.tool_calls).toBeUndefined();
    expect(usage).toMatchObject({ prompt_tokens: 40, completion_tokens: 20 });
    expect((await script.conversations())[1]!.slice(2)).toEqual([
      'tool: [1] 5',
      expect.stringMatching(/^tool: \[2\] Error.*no luck/),
    ]);
  });

  test('continue a streamed turn with server and client calls', async () => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Both.', calls: [call('fail', { why: 'broken' }), call('weather', { city: 'Oslo' })] },
      { text: 'Done.' },
    );
    const request = { model: script.model, tools: [WEATHER] };
    const first = await client()
      .chat.completions.stream({ ...request, messages: hello })
      .finalChatCompletion();
    const { message } = first.choices[0]!;
    expect(message).toMatchObject({ content: 'First.\n\nBoth.', tool_calls: [{ function: { name: 'weather' } }] });
    const second = await client()
      .chat.completions.stream({
        ...request,
        messages: [...hello, message, { role: 'tool', tool_call_id: message.tool_calls![0]!.id, content: 'rain' }],
      })
      .finalContent();
    expect(second).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Hi',
      'assistant: First. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Both. [2] fail {"why":"broken"} [3] weather {"city":"Oslo"}',
      expect.stringMatching(/^tool: \[2\] Error.*broken/),
      'tool: [3] rain',
    ]);
  });
});

test.each([false, true])('parses structured output, with stream: %s', async (stream) => {
  const script = await fixture.script(
    { text: 'I have to add.', calls: [call('add', { a: 30, b: 6 })] },
    { text: '{"name":"Ada","age":36}' },
  );
  const request = {
    model: script.model,
    messages: hello,
    response_format: zodResponseFormat(z.object({ name: z.string(), age: z.number() }), 'person'),
  };
  const completion = stream
    ? await client().chat.completions.stream(request).finalChatCompletion()
    : await client().chat.completions.parse(request);
  expect(completion.choices[0]!.message.parsed).toEqual({ name: 'Ada', age: 36 });
  expect((await script.bodies())[0]!['response_format']).toMatchObject({ type: 'json_schema' });
});

describe('errors and aborts', () => {
  test('errors are exceptions of the matching class', async () => {
    const script = await fixture.script(
      { fault: 'status', status: 429, retryAfter: 4 },
      { fault: 'status', status: 429, retryAfter: 0 },
      { text: 'Now.' },
    );
    const ask = (model: string, messages: ChatCompletionMessageParam[] = hello, maxRetries = 0) =>
      client().chat.completions.create({ model, messages }, { maxRetries });
    await expect(ask('none')).rejects.toThrow(NotFoundError);
    await expect(ask(script.model, [])).rejects.toThrow(BadRequestError);
    await expect(ask(script.model, [{ role: 'tool', tool_call_id: 'call_x', content: '' }])).rejects.toThrow(/call_x/);
    await expect(ask(script.model)).rejects.toThrow(RateLimitError);
    expect((await ask(script.model, hello, 1)).choices[0]!.message.content).toBe('Now.');
  });

  test('errors in the middle of a stream are exceptions', async () => {
    const script = await fixture.script({ fault: 'error-in-stream', reply: { text: 'A long story that has no end.' } });
    const stream = client().chat.completions.stream({ model: script.model, messages: hello });
    await expect(stream.finalChatCompletion()).rejects.toThrow(APIError);
  });

  test('a client that aborts cancels the run', async () => {
    const script = await fixture.script({ fault: 'stall', reply: { text: 'Once upon a time there was a queen.' } });
    const stream = client().chat.completions.stream({ model: script.model, messages: hello });
    await stream.emitted('content');
    stream.abort();
    await expect(stream.done()).rejects.toThrow('aborted');
    await fixture.provider.quiet();
  });
});
