import {
  Agent,
  handoff,
  hostedMcpTool,
  MemorySession,
  OpenAIConversationsSession,
  OpenAIProvider,
  Runner,
  tool,
  user,
  type AgentInputItem,
} from '@openai/agents';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { call, LOOK_MESSAGE, PDF, type FixtureScript, PNG, useServerFixture } from '../support/fixture.ts';

// Chat Completions has no hosted tools, so clients of that API get server tools as default tools.
const fixture = useServerFixture({ defaultTools: ['add', 'fail'] });
const APIS = ['responses', 'chat'] as const;

function provider(api: (typeof APIS)[number]): OpenAIProvider {
  const openAIClient = new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });
  return new OpenAIProvider({ openAIClient, useResponses: api === 'responses' });
}

function runner(api: (typeof APIS)[number] = 'responses'): Runner {
  return new Runner({ modelProvider: provider(api), tracingDisabled: true });
}

const SERVER_TOOLS = hostedMcpTool({ serverLabel: 'treadle' });

test.each(APIS)('a function without parameters is called when the model sends no arguments, %s', async (api) => {
  const script = await fixture.script({ calls: [{ name: 'now', arguments: '' }] }, { text: 'Noon.' });
  let called = 0;
  const now = tool({ name: 'now', description: 'The time', parameters: z.object({}), execute: () => `${++called}` });
  const agent = new Agent({ name: 'clock', model: script.model, tools: [now] });
  expect((await runner(api).run(agent, 'Time?')).finalOutput).toBe('Noon.');
  expect(called).toBe(1);
});

function weather(cities: string[] = []) {
  return tool({
    name: 'weather',
    description: 'The weather in a city',
    parameters: z.object({ city: z.string() }),
    execute: ({ city }) => {
      cities.push(city);
      if (city === 'Nowhere') throw new Error('no such city');
      return `fine in ${city}`;
    },
  });
}

function agentOf(
  { model }: FixtureScript,
  options: Partial<ConstructorParameters<typeof Agent<unknown, 'text'>>[0]> = {},
) {
  return new Agent<unknown, 'text'>({ name: 'Helper', instructions: 'Help.', model, ...options });
}

describe.each(APIS)('over %s', (api) => {
  test('returns a text with its usage', async () => {
    const script = await fixture.script({ text: 'Hello there.' });
    const result = await runner(api).run(agentOf(script), 'Hi');
    expect(result.finalOutput).toBe('Hello there.');
    expect(result.runContext.usage).toMatchObject({ inputTokens: 20, outputTokens: 10, requests: 1 });
    expect(await script.conversations()).toEqual([['system: Help.', 'user: Hi']]);
  });

  test('streams a run with a function', async () => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { text: 'It is fine in Oslo.' },
    );
    const agent = agentOf(script, { tools: [weather()] });
    const result = await runner(api).run(agent, 'Weather?', { stream: true });
    const items: string[] = [];
    let text = '';
    for await (const event of result) {
      if (event.type === 'run_item_stream_event') items.push(event.name);
      if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') text += event.data.delta;
    }
    await result.completed;
    expect(text).toBe('Look.It is fine in Oslo.');
    expect(items).toEqual(['message_output_created', 'tool_called', 'tool_output', 'message_output_created']);
    expect(result.finalOutput).toBe('It is fine in Oslo.');
    expect((await script.conversations())[1]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"}',
      'tool: [1] fine in Oslo',
    ]);
  });

  test('runs parallel functions, one of which fails', async () => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Nowhere' })] },
      { calls: [call('weather', { city: 'Rome' })] },
      { text: 'Done.' },
    );
    const cities: string[] = [];
    const result = await runner(api).run(agentOf(script, { tools: [weather(cities)] }), 'Weather?');
    expect(result.finalOutput).toBe('Done.');
    expect(cities).toEqual(['Oslo', 'Nowhere', 'Rome']);
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] weather {"city":"Nowhere"}',
      'tool: [1] fine in Oslo',
      expect.stringMatching(/^tool: \[2\] An error occurred/),
      'assistant: [3] weather {"city":"Rome"}',
      'tool: [3] fine in Rome',
    ]);
  });

  test('runs server tools and functions in one turn', async () => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 2 })] },
      { text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('fail', { why: 'broken' })] },
      { text: 'Done.' },
    );
    const tools = api === 'responses' ? [weather(), SERVER_TOOLS] : [weather()];
    const result = await runner(api).run(agentOf(script, { tools }), 'Go');
    expect(result.finalOutput).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Go',
      'assistant: First. [1] add {"a":1,"b":2}',
      'tool: [1] 3',
      'assistant: Both. [2] weather {"city":"Oslo"} [3] fail {"why":"broken"}',
      'tool: [2] fine in Oslo',
      expect.stringMatching(/^tool: \[3\] Error.*broken/),
    ]);
  });

  test('forces a tool without parallel calls', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Done.' });
    const modelSettings = { toolChoice: 'weather', parallelToolCalls: false, temperature: 0.1, maxTokens: 100 };
    const result = await runner(api).run(agentOf(script, { tools: [weather()], modelSettings }), 'Go');
    expect(result.finalOutput).toBe('Done.');
    const [first, second] = await script.bodies();
    expect(first).toMatchObject({
      tool_choice: { type: 'function', function: { name: 'weather' } },
      parallel_tool_calls: false,
      temperature: 0.1,
      max_tokens: 100,
    });
    expect(second!['tool_choice'] ?? 'auto').toBe('auto');
  });

  test('uses an agent as a tool', async () => {
    const expertScript = await fixture.script({ text: 'Forty-two.' });
    const script = await fixture.script(
      { calls: [call('ask_expert', { input: 'The answer?' })] },
      { text: 'It is 42.' },
    );
    const expert = agentOf(expertScript, { name: 'Expert', instructions: 'Know all.' });
    const tools = [
      expert.asTool({ toolName: 'ask_expert', toolDescription: 'Knows', runConfig: { modelProvider: provider(api) } }),
    ];
    const result = await runner(api).run(agentOf(script, { tools }), 'What?');
    expect(result.finalOutput).toBe('It is 42.');
    expect(await expertScript.conversations()).toEqual([['system: Know all.', 'user: The answer?']]);
    expect((await script.conversations())[1]!.at(-1)).toBe('tool: [1] Forty-two.');
  });

  test('hands off to another agent', async () => {
    const script = await fixture.script({ calls: [call('transfer_to_Expert', {})] }, { text: 'The expert speaks.' });
    const expert = agentOf(script, { name: 'Expert', instructions: 'Know all.' });
    const result = await runner(api).run(agentOf(script, { handoffs: [handoff(expert)] }), 'Who knows?');
    expect(result.finalOutput).toBe('The expert speaks.');
    expect(result.lastAgent?.name).toBe('Expert');
    const [, second] = await script.conversations();
    expect(second!.slice(0, 3)).toEqual([
      'system: Know all.',
      'user: Who knows?',
      'assistant: [1] transfer_to_Expert {}',
    ]);
    expect(second![3]).toMatch(/^tool: \[1\] .*Expert/);
  });

  test('parses structured output', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 30, b: 6 })] }, { text: '{"name":"Ada","age":36}' });
    const outputType = z.object({ name: z.string(), age: z.number() });
    const tools = api === 'responses' ? [SERVER_TOOLS] : [];
    const agent = new Agent({ name: 'Helper', instructions: 'Help.', model: script.model, tools, outputType });
    const { finalOutput } = await runner(api).run(agent, 'Who?');
    expect(finalOutput).toEqual({ name: 'Ada', age: 36 });
    expect((await script.bodies())[0]!['response_format']).toMatchObject({ type: 'json_schema' });
  });

  test('continues with the whole history as input', async () => {
    const script = await fixture.script(
      { text: 'Look.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { text: 'Fine, and three.' },
      { text: 'Still fine.' },
    );
    const tools = api === 'responses' ? [weather(), SERVER_TOOLS] : [weather()];
    const agent = agentOf(script, { tools });
    const first = await runner(api).run(agent, 'Weather?');
    const history: AgentInputItem[] = [...first.history, user('And now?')];
    const second = await runner(api).run(agent, history);
    expect(second.finalOutput).toBe('Still fine.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":2}',
      'tool: [1] fine in Oslo',
      'tool: [2] 3',
      'assistant: Fine, and three.',
      'user: And now?',
    ]);
  });

  test('accepts images and files', async () => {
    const script = await fixture.script({ text: 'Seen.' });
    const input: AgentInputItem = {
      role: 'user',
      content: [
        { type: 'input_text', text: 'Look' },
        { type: 'input_image', image: `data:image/png;base64,${PNG}` },
        { type: 'input_file', file: `data:application/pdf;base64,${PDF}`, filename: 'a.pdf' },
      ],
    };
    expect((await runner(api).run(agentOf(script), [input])).finalOutput).toBe('Seen.');
    expect((await script.bodies())[0]!.messages[1]).toEqual(LOOK_MESSAGE);
  });

  test('continues a session', async () => {
    const script = await fixture.script(
      { calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Fine.' },
      { text: 'Still fine.' },
    );
    const session = new MemorySession();
    const agent = agentOf(script, { tools: [weather()] });
    await runner(api).run(agent, 'Weather?', { session });
    const { finalOutput } = await runner(api)
      .run(agent, 'And now?', { session, stream: true })
      .then(async (stream) => {
        await stream.completed;
        return stream;
      });
    expect(finalOutput).toBe('Still fine.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      'tool: [1] fine in Oslo',
      'assistant: Fine.',
      'user: And now?',
    ]);
  });

  test.each([false, true])('throws when the model fails, with stream: %s', async (stream) => {
    const script = await fixture.script(
      { calls: [call('add', { a: 1, b: 2 })] },
      { fault: 'error-in-stream', reply: { text: 'A long story that has no end.' } },
    );
    const agent = agentOf(script);
    const run = async (): Promise<unknown> => {
      if (!stream) return runner(api).run(agent, 'Hi');
      const result = await runner(api).run(agent, 'Hi', { stream: true });
      for await (const _ of result);
      return result.completed;
    };
    await expect(run()).rejects.toThrow(/error|unsuccessful terminal state/);
  });

  test('throws for an unknown model', async () => {
    const agent = new Agent({ name: 'Helper', model: 'none' });
    await expect(runner(api).run(agent, 'Hi')).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
  });
});

test('a hosted MCP tool selects server tools by label, and an unknown label is rejected', async () => {
  const script = await fixture.script({ calls: [call('big', { length: 5 })] }, { text: 'Five.' });
  const tools = [hostedMcpTool({ serverLabel: 'treadle', allowedTools: ['big'], requireApproval: 'never' })];
  const result = await runner().run(agentOf(script, { tools }), 'Go');
  expect(result.newItems.map(({ rawItem }) => rawItem)).toMatchObject([
    { type: 'hosted_tool_call', name: 'mcp_call', status: 'completed', output: 'xxxxx', providerData: { name: 'big' } },
    { type: 'message', content: [{ text: 'Five.' }] },
  ]);
  const other = agentOf(script, { tools: [hostedMcpTool({ serverLabel: 'elsewhere' })] });
  await expect(runner().run(other, 'Go')).rejects.toMatchObject({ status: 400, code: 'unsupported_tool' });
});

test('the signed reasoning of the model is kept between requests', async () => {
  const script = await fixture.script(
    { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
    { reasoning: 'And Rome.', calls: [call('weather', { city: 'Rome' })] },
    { text: 'Fine.' },
  );
  const agent = agentOf(script, {
    model: script.modelIn('anthropic'),
    tools: [weather()],
    modelSettings: { reasoning: { effort: 'low' } },
  });
  expect((await runner().run(agent, 'Weather?')).finalOutput).toBe('Fine.');
  expect(await script.contentTypes()).toEqual([
    'user: text',
    'assistant: thinking text tool_use',
    'user: tool_result',
    'assistant: thinking tool_use',
    'user: tool_result',
  ]);
});

test('a tool can return an image', async () => {
  const script = await fixture.script({ calls: [call('shot', {})] }, { text: 'Seen.' });
  const shot = tool({
    name: 'shot',
    description: 'Takes a picture',
    parameters: z.object({}),
    execute: () => ({ type: 'image' as const, image: { data: PNG, mediaType: 'image/png' } }),
  });
  expect((await runner().run(agentOf(script, { tools: [shot] }), 'Go')).finalOutput).toBe('Seen.');
  expect((await script.bodies())[1]!.messages.at(-1)!.content).toContainEqual(LOOK_MESSAGE.content[1]);
});

describe('with previousResponseId', () => {
  test('sends only new items and keeps the conversation', async () => {
    const script = await fixture.script(
      { reasoning: 'Hm.', text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { text: 'Fine, and three.' },
      { text: 'Still fine.' },
    );
    const agent = agentOf(script, { tools: [weather(), SERVER_TOOLS] });
    const first = await runner().run(agent, 'Weather?');
    const second = await runner().run(agent, 'And now?', { previousResponseId: first.lastResponseId! });
    expect(second.finalOutput).toBe('Still fine.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Both. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":2}',
      'tool: [1] fine in Oslo',
      'tool: [2] 3',
      'assistant: Fine, and three.',
      'user: And now?',
    ]);
  });

  test('keeps the conversation through all turns of a run', async () => {
    const script = await fixture.script(
      { calls: [call('weather', { city: 'Oslo' })] },
      { calls: [call('weather', { city: 'Rome' }), call('add', { a: 1, b: 2 })] },
      { text: 'Done.' },
      { text: 'Begun.' },
    );
    const agent = agentOf(script, { tools: [weather(), SERVER_TOOLS] });
    const greeting = await fixture.script({ text: 'Hello.' });
    const { lastResponseId } = await runner().run(agentOf(greeting), 'Hi');
    const result = await runner().run(agent, 'Weather?', { previousResponseId: lastResponseId! });
    expect(result.finalOutput).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Hi',
      'assistant: Hello.',
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      'tool: [1] fine in Oslo',
      'assistant: [2] weather {"city":"Rome"} [3] add {"a":1,"b":2}',
      'tool: [2] fine in Rome',
      'tool: [3] 3',
    ]);
  });
});

describe('with conversations', () => {
  const client = (): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });

  test.each([false, true])('conversationId: sends only new items, WebSocket %s', async (useResponsesWebSocket) => {
    const script = await fixture.script(
      { text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { text: 'Fine, and three.' },
      { text: 'Still fine.' },
    );
    const openAIClient = client();
    const { id: conversationId } = await openAIClient.conversations.create();
    await using modelProvider = closing(
      new OpenAIProvider({ openAIClient, useResponses: true, useResponsesWebSocket }),
    );
    const own = new Runner({ modelProvider, tracingDisabled: true });
    const agent = agentOf(script, { tools: [weather(), SERVER_TOOLS] });
    await own.run(agent, 'Weather?', { conversationId });
    const result = await own.run(agent, 'And now?', { conversationId, stream: true });
    await result.completed;
    expect(result.finalOutput).toBe('Still fine.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Both. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":2}',
      'tool: [1] fine in Oslo',
      'tool: [2] 3',
      'assistant: Fine, and three.',
      'user: And now?',
    ]);
    const types: string[] = [];
    for await (const { type } of openAIClient.conversations.items.list(conversationId, { order: 'asc' }))
      types.push(type);
    expect(types).toEqual([
      'message',
      'message',
      'function_call',
      'mcp_call',
      'function_call_output',
      'message',
      'message',
      'message',
    ]);
  });

  test('OpenAIConversationsSession keeps the items of runs, and removes the last one', async () => {
    const script = await fixture.script(
      { reasoning: 'Hm.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Fine.' },
      { text: 'Still fine.' },
    );
    const session = new OpenAIConversationsSession({ client: client() });
    const agent = agentOf(script, { tools: [weather()] });
    await runner().run(agent, 'Weather?', { session });
    expect((await runner().run(agent, 'And now?', { session })).finalOutput).toBe('Still fine.');
    expect((await script.conversations())[2]).toEqual([
      'system: Help.',
      'user: Weather?',
      'assistant: Look. [1] weather {"city":"Oslo"}',
      'tool: [1] fine in Oslo',
      'assistant: Fine.',
      'user: And now?',
    ]);
    const before = await session.getItems();
    expect(await session.popItem()).toEqual(before.at(-1));
    expect(await session.getItems()).toEqual(before.slice(0, -1));
    const id = session.sessionId!;
    await session.clearSession();
    await expect(client().conversations.retrieve(id)).rejects.toMatchObject({ status: 404 });
  });
});

function closing(provider: OpenAIProvider): OpenAIProvider & AsyncDisposable {
  return Object.assign(provider, { [Symbol.asyncDispose]: () => provider.close() });
}
