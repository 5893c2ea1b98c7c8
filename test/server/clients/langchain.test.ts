import {
  AIMessage,
  HumanMessage,
  SystemMessage,
  ToolMessage,
  type AIMessageChunk,
  type BaseMessage,
} from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { call, LOOK_MESSAGE, PDF, PNG, SERVER_TOOLS, useServerFixture } from '../support/fixture.ts';

const fixture = useServerFixture({ defaultTools: ['add', 'fail'] });

const weather = tool(({ city }: { city: string }) => `fine in ${city}`, {
  name: 'weather',
  description: 'The weather in a city',
  schema: z.object({ city: z.string() }),
});

describe.each([true, false])('useResponsesApi: %s', (useResponsesApi) => {
  const modelOf = (model: string, options: Partial<ConstructorParameters<typeof ChatOpenAI>[0] & object> = {}) =>
    new ChatOpenAI({
      model,
      useResponsesApi,
      apiKey: 'any',
      maxRetries: 0,
      configuration: { baseURL: fixture.baseURL },
      ...options,
    });

  async function joinChunks(stream: AsyncIterable<AIMessageChunk>): Promise<AIMessageChunk> {
    let sum: AIMessageChunk | undefined;
    for await (const chunk of stream) sum = sum ? sum.concat(chunk) : chunk;
    return sum!;
  }

  const ask = async (
    model: {
      invoke(m: BaseMessage[]): Promise<AIMessageChunk>;
      stream(m: BaseMessage[]): Promise<AsyncIterable<AIMessageChunk>>;
    },
    messages: BaseMessage[],
    how: string,
  ): Promise<AIMessageChunk> => (how === 'invoked' ? model.invoke(messages) : joinChunks(await model.stream(messages)));

  test('returns a text with its usage', async () => {
    const script = await fixture.script({ text: 'Hello there.', usage: { input: 7, output: 3 } });
    const answer = await modelOf(script.model, { temperature: 0.3 }).invoke([
      new SystemMessage('Be brief.'),
      new HumanMessage('Hi'),
    ]);
    expect(answer.text).toBe('Hello there.');
    expect(answer.usage_metadata).toMatchObject({ input_tokens: 7, output_tokens: 3, total_tokens: 10 });
    expect(await script.conversations()).toEqual([['system: Be brief.', 'user: Hi']]);
    expect((await script.bodies())[0]).toMatchObject({ temperature: 0.3 });
  });

  test('streams a text with its usage', async () => {
    const script = await fixture.script({ text: 'Hello there, and welcome.' });
    const pieces: string[] = [];
    let usage: unknown;
    for await (const chunk of await modelOf(script.model).stream('Hi')) {
      if (chunk.text !== '') pieces.push(chunk.text);
      usage = chunk.usage_metadata ?? usage;
    }
    expect(pieces.join('')).toBe('Hello there, and welcome.');
    expect(pieces.length).toBeGreaterThan(2);
    expect(usage).toMatchObject({ input_tokens: 20, output_tokens: 10 });
  });

  test.each(['invoked', 'streamed'])('runs client tools, %s', async (how) => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Rome' })] },
      { calls: [call('weather', { city: 'Bonn' })] },
      { text: 'Done.' },
    );
    const model = modelOf(script.model).bindTools([weather]);
    const messages: BaseMessage[] = [new HumanMessage('Weather?')];
    let answer = await ask(model, messages, how);
    for (; answer.tool_calls!.length > 0; answer = await ask(model, messages, how)) {
      messages.push(answer);
      for (const made of answer.tool_calls!) messages.push((await weather.invoke(made)) as ToolMessage);
    }
    expect(answer.text).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] weather {"city":"Rome"}',
      'tool: [1] fine in Oslo',
      'tool: [2] fine in Rome',
      'assistant: [3] weather {"city":"Bonn"}',
      'tool: [3] fine in Bonn',
    ]);
  });

  test.each(['invoked', 'streamed'])('runs server tools, one of which fails, %s', async (how) => {
    const script = await fixture.script(
      { calls: [call('add', { a: 2, b: 3 }), call('fail', { why: 'no luck' })] },
      { text: 'Five, and no luck.' },
      { text: 'As I said.' },
    );
    const model = modelOf(script.model);
    const first = await ask(model, [new HumanMessage('Go')], how);
    expect(first.text).toBe('Five, and no luck.');
    expect(first.tool_calls).toEqual([]);
    expect((await script.conversations())[1]).toEqual([
      'user: Go',
      'assistant: [1] add {"a":2,"b":3} [2] fail {"why":"no luck"}',
      'tool: [1] 5',
      expect.stringMatching(/^tool: \[2\] Error.*no luck/),
    ]);
    const second = await ask(model, [new HumanMessage('Go'), first, new HumanMessage('Sure?')], how);
    expect(second.text).toBe('As I said.');
    expect((await script.conversations())[2]!.slice(-2)).toEqual(['assistant: Five, and no luck.', 'user: Sure?']);
  });

  test.each(['invoked', 'streamed'])('continues a turn with server and client calls, %s', async (how) => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Both.', calls: [call('fail', { why: 'broken' }), call('weather', { city: 'Oslo' })] },
      { text: 'Done.' },
    );
    const model = modelOf(script.model).bindTools(useResponsesApi ? [weather, SERVER_TOOLS] : [weather]);
    const messages: BaseMessage[] = [new HumanMessage('Go')];
    const first = await ask(model, messages, how);
    expect(first.tool_calls).toMatchObject([{ name: 'weather', args: { city: 'Oslo' } }]);
    messages.push(first, (await weather.invoke(first.tool_calls![0]!)) as ToolMessage);
    expect((await ask(model, messages, how)).text).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Go',
      'assistant: First. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Both. [2] fail {"why":"broken"} [3] weather {"city":"Oslo"}',
      expect.stringMatching(/^tool: \[2\] Error.*broken/),
      'tool: [3] fine in Oslo',
    ]);
  });

  test('sends tool_choice to the model', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'No.' });
    const forced = modelOf(script.model).bindTools([weather], { tool_choice: 'weather', parallel_tool_calls: false });
    expect((await forced.invoke('Go')).tool_calls).toMatchObject([{ name: 'weather' }]);
    // With the Responses API LangChain does not send 'none'.
    const none = modelOf(script.model).bindTools([weather], { tool_choice: 'none' });
    expect((await none.invoke('Go')).text).toBe('No.');
    const [first, second] = await script.bodies();
    expect(first).toMatchObject({
      tool_choice: { type: 'function', function: { name: 'weather' } },
      parallel_tool_calls: false,
    });
    if (!useResponsesApi) expect(second).toMatchObject({ tool_choice: 'none' });
  });

  test('sends the message of a failed tool to the model', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Oh.' });
    const model = modelOf(script.model).bindTools([weather]);
    const first = await model.invoke('Weather?');
    const failed = new ToolMessage({
      tool_call_id: first.tool_calls![0]!.id!,
      content: 'no such city',
      status: 'error',
    });
    expect((await model.invoke([new HumanMessage('Weather?'), first, failed])).text).toBe('Oh.');
    expect((await script.conversations())[1]!.at(-1)).toMatch(/^tool: \[1\] .*no such city/);
  });

  const Person = z.object({ name: z.string(), age: z.number() });

  test('parses structured output by JSON schema, after a server tool', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 30, b: 6 })] }, { text: '{"name":"Ada","age":36}' });
    const model = modelOf(script.model).withStructuredOutput(Person, { name: 'person', method: 'jsonSchema' });
    expect(await model.invoke('Who?')).toEqual({ name: 'Ada', age: 36 });
    expect((await script.bodies())[0]!['response_format']).toMatchObject({ type: 'json_schema' });
  });

  test('parses structured output by a forced tool', async () => {
    const script = await fixture.script({ calls: [call('person', { name: 'Ada', age: 36 })] });
    const model = modelOf(script.model).withStructuredOutput(Person, { name: 'person', method: 'functionCalling' });
    expect(await model.invoke('Who?')).toEqual({ name: 'Ada', age: 36 });
    expect((await script.bodies())[0]!['tool_choice']).toEqual({ type: 'function', function: { name: 'person' } });
  });

  test('accepts images and files', async () => {
    const script = await fixture.script({ text: 'Seen.' });
    const message = new HumanMessage({
      content: [
        { type: 'text', text: 'Look' },
        { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
        {
          type: 'file',
          source_type: 'base64',
          mime_type: 'application/pdf',
          data: PDF,
          metadata: { filename: 'a.pdf' },
        },
      ],
    });
    expect((await modelOf(script.model).invoke([message])).text).toBe('Seen.');
    expect((await script.bodies())[0]!.messages[0]).toEqual(LOOK_MESSAGE);
  });

  test('throws with the HTTP status of an error', async () => {
    const script = await fixture.script({ fault: 'status', status: 429, retryAfter: 0 });
    await expect(modelOf('none').invoke('Hi')).rejects.toMatchObject({ status: 404 });
    await expect(modelOf(script.model).invoke('Hi')).rejects.toMatchObject({ status: 429 });
    const broken = await fixture.script({ fault: 'error-in-stream', reply: { text: 'A long story that has no end.' } });
    await expect(modelOf(broken.model).stream('Hi').then(joinChunks)).rejects.toThrow(/error/);
  });
});

describe('with the Responses API', () => {
  const modelOf = (model: string, options: object = {}) =>
    new ChatOpenAI({
      model,
      useResponsesApi: true,
      apiKey: 'any',
      maxRetries: 0,
      configuration: { baseURL: fixture.baseURL },
      ...options,
    });

  test('continues a conversation by previous_response_id', async () => {
    const script = await fixture.script(
      { text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 1 })] },
      { text: 'Fine.' },
    );
    const model = modelOf(script.model).bindTools([weather]);
    const first = await model.invoke('Weather?');
    const result = (await weather.invoke(first.tool_calls![0]!)) as ToolMessage;
    const second = await model.invoke([result], { previous_response_id: first.response_metadata['id'] as string });
    expect(second.text).toBe('Fine.');
    expect((await script.conversations())[1]).toEqual([
      'user: Weather?',
      'assistant: Both. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1}',
      'tool: [1] fine in Oslo',
      'tool: [2] 2',
    ]);
  });

  test.each([{ zdrEnabled: true }, {}])('keeps the signed reasoning of the model, with %j', async (options) => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Fine.' },
    );
    const model = modelOf(script.modelIn('anthropic'), { ...options, reasoning: { effort: 'low' } }).bindTools(
      [weather],
      options.zdrEnabled ? { include: ['reasoning.encrypted_content'] } : {},
    );
    const question = new HumanMessage('Weather?');
    const first = await model.invoke([question]);
    const result = (await weather.invoke(first.tool_calls![0]!)) as ToolMessage;
    expect((await model.invoke([question, first, result])).text).toBe('Fine.');
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
    ]);
  });

  test('accepts a history that no server has created', async () => {
    const script = await fixture.script({ text: 'Well.' });
    const messages = [
      new HumanMessage('Weather?'),
      new AIMessage({
        content: 'Look.',
        tool_calls: [
          { id: 'call_a', name: 'weather', args: { city: 'Oslo' } },
          { id: 'call_b', name: 'weather', args: { city: 'Rome' } },
        ],
      }),
      new ToolMessage({ tool_call_id: 'call_a', content: 'rain' }),
      new ToolMessage({ tool_call_id: 'call_b', content: 'sun' }),
      new AIMessage('Rain and sun.'),
      new HumanMessage('Thanks'),
    ];
    expect((await modelOf(script.model).invoke(messages)).text).toBe('Well.');
    expect(await script.conversations()).toEqual([
      [
        'user: Weather?',
        'assistant: Look. [1] weather {"city":"Oslo"} [2] weather {"city":"Rome"}',
        'tool: [1] rain',
        'tool: [2] sun',
        'assistant: Rain and sun.',
        'user: Thanks',
      ],
    ]);
  });
});
