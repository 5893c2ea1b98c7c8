import OpenAI, { BadRequestError, NotFoundError } from 'openai';
import { ResponsesToolRunner } from 'openai/helpers/responses-tool-runner';
import { zodResponsesFunction } from 'openai/helpers/zod';
import type {
  Response,
  ResponseCreateParamsStreaming,
  ResponseFunctionToolCall,
  ResponseInput,
  ResponseStreamEvent,
} from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { codexItems, codexRequest } from '../support/codex-request.ts';
import { call, SERVER_TOOLS, useServerFixture } from '../support/fixture.ts';

const fixture = useServerFixture();
const WEATHER = {
  type: 'function',
  name: 'weather',
  description: 'The weather in a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  strict: true,
} as const;
const TIME = {
  type: 'function',
  name: 'time',
  description: 'The time in a city',
  parameters: WEATHER.parameters,
  strict: true,
} as const;

const client = (): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });
const functionCalls = ({ output }: Pick<Response, 'output'>): ResponseFunctionToolCall[] =>
  output.filter((item) => item.type === 'function_call');
const output = ({ call_id }: ResponseFunctionToolCall, text: string) =>
  ({ type: 'function_call_output', call_id, output: text }) as const;

async function allEvents(stream: AsyncIterable<ResponseStreamEvent>): Promise<ResponseStreamEvent[]> {
  const events: ResponseStreamEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

describe('client functions', () => {
  test('are called in parallel and answered with previous_response_id', async () => {
    const script = await fixture.script(
      { text: 'Let me look.', calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Rome' })] },
      { text: 'Rain and sun.' },
      { text: 'You are welcome.' },
    );
    const request = { model: script.model, tools: [WEATHER, TIME] };
    const first = await client().responses.create({ ...request, input: 'Weather?' });
    expect(first.status).toBe('completed');
    const [oslo, rome] = functionCalls(first);
    expect(first.output.map(({ type }) => type)).toEqual(['message', 'function_call', 'function_call']);
    expect([oslo!.arguments, rome!.arguments]).toEqual(['{"city":"Oslo"}', '{"city":"Rome"}']);
    expect(oslo!.call_id).not.toBe(rome!.call_id);
    expect(first).toMatchObject({ pending_call_ids: [oslo!.call_id, rome!.call_id] });

    const second = await client().responses.create({
      ...request,
      previous_response_id: first.id,
      input: [output(rome!, 'sun'), output(oslo!, 'rain')],
    });
    expect(second.output_text).toBe('Rain and sun.');
    expect(second.previous_response_id).toBe(first.id);
    const third = await client().responses.create({ ...request, previous_response_id: second.id, input: 'Thanks' });
    expect(third.output_text).toBe('You are welcome.');
    const all = [
      'user: Weather?',
      'assistant: Let me look. [1] weather {"city":"Oslo"} [2] weather {"city":"Rome"}',
      'tool: [1] rain',
      'tool: [2] sun',
      'assistant: Rain and sun.',
      'user: Thanks',
    ];
    expect(await script.conversations()).toEqual([all.slice(0, 1), all.slice(0, 4), all]);
    const [{ tools } = {}] = await script.bodies();
    expect(tools).toMatchObject([
      { type: 'function', function: { name: 'weather', parameters: WEATHER.parameters } },
      { function: { name: 'time' } },
    ]);
  });

  test('are answered by sending all items back, with store: false', async () => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Let me look.', calls: [call('weather', { city: 'Oslo' })] },
      { calls: [call('time', { city: 'Oslo' }), call('weather', { city: 'Rome' })] },
      { text: 'Done.' },
    );
    const model = script.modelIn('anthropic');
    const input: ResponseInput = [{ role: 'user', content: 'Weather?' }];
    const ask = (): Promise<Response> =>
      client().responses.create({
        model,
        input,
        tools: [WEATHER, TIME],
        store: false,
        include: ['reasoning.encrypted_content'],
        reasoning: { effort: 'low' },
      });
    let response = await ask();
    expect(response).toMatchObject({ store: false });
    expect(response.output[0]).toMatchObject({
      type: 'reasoning',
      summary: [{ text: 'Oslo, then.' }],
      encrypted_content: expect.any(String),
    });
    for (let calls = functionCalls(response); calls.length > 0; calls = functionCalls(response)) {
      input.push(...(response.output as ResponseInput), ...calls.map((made) => output(made, `${made.name} is fine`)));
      response = await ask();
    }
    expect(response.output_text).toBe('Done.');
    // The provider rejects requests whose reasoning lacks its signature.
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
      'assistant: tool_use tool_use',
      'user: tool_result tool_result',
    ]);
    await expect(client().responses.retrieve(response.id)).rejects.toThrow(NotFoundError);
  });

  test('are answered by sending all items back, and the server adds the signed reasoning', async () => {
    const script = await fixture.script(
      { reasoning: 'Oslo, then.', text: 'Look.', calls: [call('weather', { city: 'Oslo' })] },
      // Redacted reasoning.
      { reasoning: '', calls: [call('weather', { city: 'Rome' })] },
      { text: 'Fine.' },
    );
    const input: ResponseInput = [{ role: 'user', content: 'Weather?' }];
    const ask = (): Promise<Response> =>
      client().responses.create({
        model: script.modelIn('anthropic'),
        input,
        tools: [WEATHER],
        reasoning: { effort: 'low' },
      });
    let response = await ask();
    for (let calls = functionCalls(response); calls.length > 0; calls = functionCalls(response)) {
      input.push(...(response.output as ResponseInput), ...calls.map((made) => output(made, 'fine')));
      response = await ask();
    }
    expect(response.output_text).toBe('Fine.');
    expect(await script.contentTypes()).toEqual([
      'user: text',
      'assistant: thinking text tool_use',
      'user: tool_result',
      'assistant: redacted_thinking tool_use',
      'user: tool_result',
    ]);
    // The input items do not list the added reasoning.
    const { data } = await client().responses.inputItems.list(response.id, { order: 'asc' });
    expect(data.map(({ type }) => type)).toEqual([
      'message',
      'reasoning',
      'message',
      'function_call',
      'function_call_output',
      'function_call',
      'function_call_output',
    ]);
  });

  test('are streamed with arguments parsed by zod', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Rain.' });
    const tools = [zodResponsesFunction({ name: 'weather', parameters: z.object({ city: z.string() }) })];
    const stream = client().responses.stream({ model: script.model, input: 'Weather?', tools });
    let snapshot = '';
    stream.on('response.function_call_arguments.delta', (event) => (snapshot = event.snapshot));
    const response = await stream.finalResponse();
    expect(snapshot).toBe('{"city":"Oslo"}');
    const made = response.output.find((item) => item.type === 'function_call');
    expect(made).toMatchObject({ name: 'weather', parsed_arguments: { city: 'Oslo' }, status: 'completed' });
    const next = client().responses.stream({
      model: script.model,
      tools,
      previous_response_id: response.id,
      input: [output(made!, 'rain')],
    });
    expect((await next.finalResponse()).output_text).toBe('Rain.');
    expect((await script.conversations())[1]).toEqual([
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      'tool: [1] rain',
    ]);
  });

  test('that failed are sent to the model as errors', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Oh.' });
    const model = script.modelIn('anthropic');
    const first = await client().responses.create({ model, tools: [WEATHER], input: 'Weather?' });
    const [made] = functionCalls(first);
    await client().responses.create({
      model,
      tools: [WEATHER],
      previous_response_id: first.id,
      input: [{ ...output(made!, 'no such city'), status: 'incomplete' }],
    });
    const { messages } = (await script.requests())[1]!.body as { messages: object[] };
    expect(messages.at(-1)).toMatchObject({ content: [{ type: 'tool_result', is_error: true }] });
  });

  test('can return images', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'I see.' });
    const first = await client().responses.create({ model: script.model, tools: [WEATHER], input: 'Weather?' });
    const [{ call_id: callId } = { call_id: '' }] = functionCalls(first);
    const second = await client().responses.create({
      model: script.model,
      tools: [WEATHER],
      previous_response_id: first.id,
      input: [
        {
          type: 'function_call_output',
          call_id: callId,
          output: [
            { type: 'input_text', text: 'look' },
            { type: 'input_image', image_url: 'data:image/png;base64,AAAA' },
          ],
        },
      ],
    });
    expect(second.output_text).toBe('I see.');
    const [, body] = await script.bodies();
    expect(body!.messages[2]).toMatchObject({ role: 'tool', content: 'look' });
    expect(JSON.stringify(body!.messages[3])).toContain('data:image/png;base64,AAAA');
  });

  test('pause the response as requires_action when the client sets the header', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Rain.' });
    const actionClient = client().withOptions({ defaultHeaders: { 'Treadle-Status': 'requires_action' } });
    const request = { model: script.model, tools: [WEATHER] };
    const first = await actionClient.responses.stream({ ...request, input: 'Weather?' }).finalResponse();
    expect(first.status).toBe('requires_action');
    expect((await actionClient.responses.retrieve(first.id)).status).toBe('requires_action');
    expect((await client().responses.retrieve(first.id)).status).toBe('completed');
    const made = first.output.find((item) => item.type === 'function_call');
    const input = [output(made!, 'rain')];
    const second = await actionClient.responses.create({ ...request, previous_response_id: first.id, input });
    expect([second.status, second.output_text]).toEqual(['completed', 'Rain.']);
  });

  test('need no answer after the response was cancelled', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Never mind.' });
    const first = await client().responses.create({ model: script.model, tools: [WEATHER], input: 'Weather?' });
    expect((await client().responses.cancel(first.id)).status).toBe('cancelled');
    const second = await client().responses.create({
      model: script.model,
      tools: [WEATHER],
      previous_response_id: first.id,
      input: 'Forget it',
    });
    expect(second.output_text).toBe('Never mind.');
    expect((await script.conversations())[1]).toEqual([
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      expect.stringMatching(/^tool: \[1\] Error/),
      'user: Forget it',
    ]);
  });

  test.each([false, true])('are run by ResponsesToolRunner, with stream: %s', async (stream) => {
    const script = await fixture.script(
      { text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { calls: [call('add', { a: 2, b: 2 }), call('weather', { city: 'Rome' })] },
      { text: 'Done.' },
    );
    const runner = new ResponsesToolRunner({
      functions: [{ tool: WEATHER, execute: ({ city }) => `fine in ${String(city)}` }],
    });
    const tools = [{ ...SERVER_TOOLS, server_url: fixture.baseURL, require_approval: 'never' as const }];
    const final = await runner.run(client(), { model: script.model, input: 'Go', tools }, { stream });
    expect(final.output_text).toBe('Done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Go',
      'assistant: Both. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":2}',
      'tool: [1] fine in Oslo',
      'tool: [2] 3',
      'assistant: [3] add {"a":2,"b":2} [4] weather {"city":"Rome"}',
      'tool: [3] 4',
      'tool: [4] fine in Rome',
    ]);
  });

  test.each([
    ['missing', ['0'], /No tool output found for function call call_\w+_1/],
    ['duplicate', ['0', '1', '1'], /call_\w+_1' has an output already/],
    ['unknown', ['0', '1', 'call_x'], /call_id 'call_x'/],
  ])('with %s outputs are rejected, and the error names the call', async (_, answers, message) => {
    const script = await fixture.script({ calls: [call('weather', { city: 'A' }), call('weather', { city: 'B' })] });
    const first = await client().responses.create({ model: script.model, tools: [WEATHER], input: 'Weather?' });
    const ids = functionCalls(first).map(({ call_id }) => call_id);
    const failure = client().responses.create({
      model: script.model,
      tools: [WEATHER],
      previous_response_id: first.id,
      input: answers.map((one) => ({
        type: 'function_call_output' as const,
        call_id: ids[Number(one)] ?? one,
        output: 'ok',
      })),
    });
    await expect(failure).rejects.toThrow(BadRequestError);
    await expect(failure).rejects.toThrow(message);
  });
});

describe('server tools', () => {
  test('are executed, and a failure does not end the response', async () => {
    const script = await fixture.script(
      { calls: [call('add', { a: 2, b: 3 }), call('fail', { why: 'no luck' })] },
      { text: 'Five, and no luck.' },
    );
    const stream = client().responses.stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
    const events = await allEvents(stream);
    expect(events.filter(({ type }) => type === 'error')).toEqual([]);
    expect(events.filter(({ type }) => type === 'response.mcp_call.completed')).toHaveLength(1);
    expect(events.filter(({ type }) => type === 'response.mcp_call.failed')).toHaveLength(1);
    const response = await stream.finalResponse();
    expect(response.output).toMatchObject([
      { type: 'mcp_call', server_label: 'treadle', name: 'add', output: '5', error: null, status: 'completed' },
      {
        type: 'mcp_call',
        name: 'fail',
        output: null,
        error: { content: [{ text: expect.stringContaining('no luck') }] },
        status: 'failed',
      },
      { type: 'message', content: [{ text: 'Five, and no luck.' }] },
    ]);
    expect(response.usage).toMatchObject({ input_tokens: 40, output_tokens: 20 });
    expect((await script.conversations())[1]).toEqual([
      'user: Go',
      'assistant: [1] add {"a":2,"b":3} [2] fail {"why":"no luck"}',
      'tool: [1] 5',
      expect.stringMatching(/^tool: \[2\] Error.*no luck/),
    ]);
  });

  test('in one turn with client functions keep their results until the continuation', async () => {
    const script = await fixture.script(
      {
        text: 'Both.',
        calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 1 }), call('fail', { why: 'broken' })],
      },
      { text: 'All done.' },
    );
    const request = { model: script.model, tools: [WEATHER, { ...SERVER_TOOLS, allowed_tools: ['add', 'fail'] }] };
    const first = await client().responses.create({ ...request, input: 'Go' });
    expect(first.output.map(({ type }) => type)).toEqual(['message', 'function_call', 'mcp_call', 'mcp_call']);
    const [made, ...others] = functionCalls(first);
    expect(others).toEqual([]);
    const second = await client().responses.create({
      ...request,
      previous_response_id: first.id,
      input: [output(made!, 'rain')],
    });
    expect(second.output_text).toBe('All done.');
    expect((await script.conversations())[1]).toEqual([
      'user: Go',
      'assistant: Both. [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1} [3] fail {"why":"broken"}',
      'tool: [1] rain',
      'tool: [2] 2',
      expect.stringMatching(/^tool: \[3\] Error.*broken/),
    ]);
  });

  test('in one turn with client functions keep their results in the items', async () => {
    const script = await fixture.script(
      { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Both.', calls: [call('weather', { city: 'Oslo' }), call('fail', { why: 'broken' })] },
      { text: 'All done.' },
    );
    const request = { model: script.model, tools: [WEATHER, SERVER_TOOLS], store: false };
    const input: ResponseInput = [{ role: 'user', content: 'Go' }];
    const first = await client().responses.create({ ...request, input });
    const [made] = functionCalls(first);
    const second = await client().responses.create({
      ...request,
      input: [...input, ...(first.output as ResponseInput), output(made!, 'rain')],
    });
    expect(second.output_text).toBe('All done.');
    expect((await script.conversations())[2]).toEqual([
      'user: Go',
      'assistant: First. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Both. [2] weather {"city":"Oslo"} [3] fail {"why":"broken"}',
      'tool: [2] rain',
      expect.stringMatching(/^tool: \[3\] Error.*broken/),
    ]);
  });
});

describe('tool_choice', () => {
  const request = { input: 'Go', tools: [WEATHER, TIME, { ...SERVER_TOOLS, allowed_tools: ['add'] }] };

  test.each([
    ['auto' as const, 'auto'],
    ['required' as const, 'required'],
    [{ type: 'function', name: 'weather' } as const, { type: 'function', function: { name: 'weather' } }],
  ])('%j is sent to the model', async (choice, sent) => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] });
    const response = await client().responses.create({ ...request, model: script.model, tool_choice: choice });
    expect(functionCalls(response)).toHaveLength(1);
    expect(response.tool_choice).toEqual(choice);
    const [body] = await script.bodies();
    expect(body!['tool_choice'] ?? 'auto').toEqual(sent);
    expect(body!.tools).toHaveLength(3);
  });

  test('"none" answers calls with an error and does not send them to the client', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Never mind.' });
    const response = await client().responses.create({ ...request, model: script.model, tool_choice: 'none' });
    expect(functionCalls(response)).toEqual([]);
    expect(response.output_text).toBe('Never mind.');
  });

  test('forces a server tool once', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 2 })] }, { text: 'Three.' });
    const response = await client().responses.create({
      ...request,
      model: script.model,
      tool_choice: { type: 'mcp', server_label: 'treadle', name: 'add' },
    });
    expect(response.output_text).toBe('Three.');
    const choices = (await script.bodies()).map((body) => body['tool_choice'] ?? 'auto');
    expect(choices).toEqual([{ type: 'function', function: { name: 'add' } }, 'auto']);
  });

  test('allowed_tools rejects other calls in their position, and the loop continues', async () => {
    const script = await fixture.script(
      { calls: [call('time', { city: 'Oslo' }), call('add', { a: 1, b: 2 })] },
      { calls: [call('weather', { city: 'Oslo' })] },
    );
    const response = await client().responses.create({
      ...request,
      model: script.modelIn('openai-responses'),
      tool_choice: {
        type: 'allowed_tools',
        mode: 'auto',
        tools: [
          { type: 'function', name: 'weather' },
          { type: 'mcp', server_label: 'treadle' },
        ],
      },
    });
    expect(response.output).toMatchObject([
      { type: 'mcp_call', name: 'time', status: 'failed' },
      { type: 'mcp_call', name: 'add', output: '3' },
      { type: 'function_call', name: 'weather' },
    ]);
    // All tools are sent to the model.
    const [first, second] = (await script.bodies()) as unknown as { tools: object[]; input: object[] }[];
    expect(first!.tools).toHaveLength(3);
    expect(second!.input.slice(-2)).toMatchObject([
      { type: 'function_call_output', output: expect.stringMatching(/^Error/) },
      { type: 'function_call_output', output: '3' },
    ]);
  });

  test('does not affect max_tool_calls: further and undeclared calls are rejected', async () => {
    const script = await fixture.script(
      { calls: [call('nothing', {}), call('weather', { city: 'A' }), call('weather', { city: 'B' })] },
      { text: 'Enough.' },
    );
    const response = await client().responses.create({ ...request, model: script.model, max_tool_calls: 2 });
    expect(response.output.map((item) => [item.type, 'name' in item ? item.name : ''])).toContainEqual([
      'mcp_call',
      'nothing',
    ]);
    expect(functionCalls(response).every(({ name }) => name === 'weather')).toBe(true);
  });
});

describe('custom tools', () => {
  const PATCH = {
    type: 'custom',
    name: 'patch',
    description: 'Edits files.',
    format: { type: 'grammar', syntax: 'lark', definition: 'start: /.+/' },
  } as const;
  const text = '*** Begin\n"ü" \\ {}';

  test.each(['openai-chat', 'anthropic', 'openai-responses', 'ollama'] as const)(
    'take and answer a text, with a model of %s',
    async (form) => {
      const script = await fixture.script(
        { calls: [call('patch', { input: text })] },
        { text: 'Done.' },
        { text: 'Bye.' },
      );
      const request = { model: script.modelIn(form), tools: [PATCH] };
      const stream = client().responses.stream({ ...request, input: 'Go' });
      const deltas: string[] = [];
      stream.on('response.custom_tool_call_input.delta', ({ delta }) => deltas.push(delta));
      const { id, output: made } = await stream.finalResponse();
      const [called] = made;
      expect(called).toMatchObject({ type: 'custom_tool_call', name: 'patch', input: text, status: 'completed' });
      if (called?.type !== 'custom_tool_call') throw new Error('There is no call.');
      expect(deltas.join('')).toBe(text);
      const answer = { type: 'custom_tool_call_output', call_id: called.call_id, output: 'patched' } as const;

      const stored = await client().responses.create({ ...request, previous_response_id: id, input: [answer] });
      expect(stored.output_text).toBe('Done.');
      const replayed = await client().responses.create({
        ...request,
        input: [{ role: 'user', content: 'Go' }, called, answer],
      });
      expect(replayed.output_text).toBe('Bye.');
      const [first, second, third] = await script.bodies();
      expect(JSON.stringify([second!['messages'] ?? second!['input']])).toContain('patched');
      if (form !== 'openai-responses') {
        expect(JSON.stringify(first!.tools)).toContain('grammar (lark)');
        expect(third!.messages.length).toBe(second!.messages.length);
        return;
      }
      expect(first!.tools).toEqual([PATCH]);
      for (const { input } of [second!, third!]) {
        expect(input).toMatchObject([
          { role: 'user' },
          { type: 'custom_tool_call', name: 'patch', input: text },
          { type: 'custom_tool_call_output', output: 'patched' },
        ]);
      }
    },
  );

  test.each(['openai-chat', 'anthropic', 'openai-responses'] as const)(
    'have the text so far if the call is cut off, with a model of %s',
    async (form) => {
      const cut = { name: 'patch', arguments: String.raw`{"input":"*** Begin\n\"\u00` };
      const script = await fixture.script({ calls: [cut], finish: 'length' }, { text: 'Again.' });
      const request = { model: script.modelIn(form), tools: [PATCH] };
      const { id, status, output } = await client().responses.create({ ...request, input: 'Go' });
      expect(status).toBe('incomplete');
      expect(output).toMatchObject([{ type: 'custom_tool_call', input: '*** Begin\n"', status: 'incomplete' }]);
      const next = await client().responses.create({ ...request, previous_response_id: id, input: 'Go on' });
      expect(next.output_text).toBe('Again.');
      expect(await script.bodies()).toHaveLength(2);
    },
  );

  test('can be forced', async () => {
    const script = await fixture.script(
      { calls: [call('patch', { input: 'a' })] },
      { calls: [call('patch', { input: 'a' })] },
    );
    const tool_choice = { type: 'custom', name: 'patch' } as const;
    const request = { input: 'Go', tools: [WEATHER, PATCH], tool_choice };
    const native = await client().responses.create({ ...request, model: script.modelIn('openai-responses') });
    const other = await client().responses.create({ ...request, model: script.model });
    expect([native.tool_choice, other.tools]).toMatchObject([tool_choice, [WEATHER, PATCH]]);
    expect(await script.bodies()).toMatchObject([
      { tool_choice },
      { tool_choice: { type: 'function', function: { name: 'patch' } } },
    ]);
    const unknown = client().responses.create({ ...request, model: 'any', tools: [WEATHER] });
    await expect(unknown).rejects.toMatchObject({ status: 400, code: 'unknown_tool' });
  });
});

test('items of tools that the server does not have are not sent to the model', async () => {
  const script = await fixture.script({ text: 'Well.' });
  const input = [
    { role: 'user', content: 'Hi' },
    { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'x' } },
    { type: 'file_search_call', id: 'fs_1', status: 'completed', queries: ['x'], results: null },
    { type: 'code_interpreter_call', id: 'ci_1', status: 'completed', code: '1', container_id: 'c', outputs: null },
    { type: 'image_generation_call', id: 'ig_1', status: 'completed', result: null },
    {
      type: 'computer_call',
      id: 'cu_1',
      call_id: 'c2',
      pending_safety_checks: [],
      status: 'completed',
      action: { type: 'wait' },
    },
    {
      type: 'computer_call_output',
      call_id: 'c2',
      output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,' },
    },
    { role: 'assistant', content: 'Found.' },
    { role: 'user', content: 'And?' },
  ] as unknown as ResponseInput;
  const response = await client().responses.create({ model: script.model, input });
  expect(response.output_text).toBe('Well.');
  expect(await script.conversations()).toEqual([['user: Hi', 'assistant: Found.', 'user: And?']]);
});

test.each(['openai-chat', 'anthropic', 'openai-responses', 'ollama'] as const)(
  'a conversation of Codex works, with a model of %s',
  async (form) => {
    const script = await fixture.script(
      { reasoning: 'Look first.', calls: [call('exec_command', { cmd: 'cat a.txt' })] },
      { reasoning: 'Patch it.', calls: [call('apply_patch', { input: '*** Begin Patch\n*** End Patch\n' })] },
      { text: 'Fixed.' },
    );
    const respond = async (): Promise<Response> => {
      const request = codexRequest(script.modelIn(form), input) as unknown as ResponseCreateParamsStreaming;
      const last = (await allEvents(await client().responses.create(request))).at(-1)!;
      if (last.type !== 'response.completed') throw new Error(`The response ended with ${last.type}.`);
      return last.response;
    };
    const input: object[] = [];
    const outputs = { function_call: 'function_call_output', custom_tool_call: 'custom_tool_call_output' } as const;
    for (const type of ['function_call', 'custom_tool_call'] as const) {
      const response = await respond();
      expect(response.output.map((item) => item.type)).toEqual(['reasoning', type]);
      const { call_id } = response.output.at(-1) as ResponseFunctionToolCall;
      input.push(...codexItems(response.output), { type: outputs[type], call_id, output: `ok ${type}` });
    }
    const response = await respond();
    expect(response.output.at(-1)).toMatchObject({ type: 'message', content: [{ text: 'Fixed.' }] });
    const bodies = await script.bodies();
    expect(bodies).toHaveLength(3);
    expect(JSON.stringify(bodies[0]!.tools)).not.toContain('web_search');
    const last = JSON.stringify(bodies[2]);
    for (const text of ['ok function_call', 'ok custom_tool_call', 'cat a.txt']) expect(last).toContain(text);
  },
);
