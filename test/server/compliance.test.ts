import { describe, expect, test } from 'vitest';
import type { Step } from '../provider/script.ts';
import { call, SERVER_TOOLS, useServerFixture } from './support/fixture.ts';
import { responsesClient, callsIn, outputFor, textIn, type WireResponse } from './support/responses-client.ts';
import { eventProblems, schemaProblems } from './support/schema-check.ts';

const fixture = useServerFixture();
const { respond, stream, startStream, retrieve, cancel, inputItems, expectError } = responsesClient(
  () => fixture.server.url,
);

const message = (role: string, content: unknown, more: object = {}): object => ({
  type: 'message',
  role,
  content,
  ...more,
});
const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'Get the current weather for a location',
  parameters: { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] },
} as const;
/** A red dot of one pixel. */
const IMAGE =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';

/** A minimal PDF. */
const PDF = `data:application/pdf;base64,${Buffer.from('%PDF-1.1\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF').toString('base64')}`;
const FORMS = ['openai-chat', 'openai-responses', 'anthropic', 'google'] as const;

/** The cases of the compliance suite of Open Responses. */
describe('Open Responses compliance', () => {
  test('returns a text response', async () => {
    const script = await fixture.script({ text: 'Hello, my friend!' });
    const response = await respond({ model: script.model, input: [message('user', 'Say hello in exactly 3 words.')] });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Hello, my friend!');
  });

  test('streams a text response in several deltas', async () => {
    const script = await fixture.script({ text: 'One, two, three, four, five.' });
    const { events, response, headers } = await stream({
      model: script.model,
      input: [message('user', 'Count from 1 to 5.')],
    });
    expect(headers.get('content-type')).toMatch(/^text\/event-stream/);
    expect(response.status).toBe('completed');
    const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
    expect(deltas.length).toBeGreaterThan(1);
    expect(deltas.map(({ delta }) => delta).join('')).toBe('One, two, three, four, five.');
  });

  test('sends a system message to the model', async () => {
    const script = await fixture.script({ text: 'Ahoy!' });
    const response = await respond({
      model: script.model,
      input: [message('system', 'You are a pirate.'), message('user', 'Say hello.')],
    });
    expect(response.status).toBe('completed');
    expect(await script.conversations()).toEqual([['system: You are a pirate.', 'user: Say hello.']]);
  });

  test('returns a function call', async () => {
    const script = await fixture.script({ calls: [call('get_weather', { location: 'San Francisco, CA' })] });
    const response = await respond({
      model: script.model,
      input: [message('user', "What's the weather like in San Francisco?")],
      tools: [WEATHER],
    });
    expect(callsIn(response)).toMatchObject([
      { name: 'get_weather', arguments: '{"location":"San Francisco, CA"}', status: 'completed' },
    ]);
    expect(response['tools']).toEqual([{ ...WEATHER, strict: null }]);
  });

  test('streams the events of a function call in order', async () => {
    const script = await fixture.script({ calls: [call('get_weather', { location: 'San Francisco, CA' })] });
    const { events } = await stream({
      model: script.model,
      input: [message('user', "What's the weather like in San Francisco?")],
      tools: [WEATHER],
    });
    const types = events.map(({ type, item }) => (item ? `${type} ${item.type}` : type));
    expect([...new Set(types)]).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added function_call',
      'response.function_call_arguments.delta',
      'response.function_call_arguments.done',
      'response.output_item.done function_call',
      'response.completed',
    ]);
  });

  test('sends an input image to the model', async () => {
    const script = await fixture.script({ text: 'A red dot.' });
    const response = await respond({
      model: script.model,
      input: [
        message('user', [
          { type: 'input_text', text: 'What do you see in this image?' },
          { type: 'input_image', image_url: IMAGE },
        ]),
      ],
    });
    expect(response.status).toBe('completed');
    expect(JSON.stringify((await script.bodies())[0]!.messages)).toContain(IMAGE);
    expect((await inputItems(response.id)).data).toMatchObject([
      { role: 'user', content: [{ type: 'input_text' }, { type: 'input_image', image_url: IMAGE, detail: 'auto' }] },
    ]);
  });

  test('sends earlier messages to the model', async () => {
    const script = await fixture.script({ text: 'Your name is Alice.' });
    const response = await respond({
      model: script.model,
      input: [
        message('user', 'My name is Alice.'),
        message('assistant', 'Hello Alice! Nice to meet you.'),
        message('user', 'What is my name?'),
      ],
    });
    expect(response.status).toBe('completed');
    expect(await script.conversations()).toEqual([
      ['user: My name is Alice.', 'assistant: Hello Alice! Nice to meet you.', 'user: What is my name?'],
    ]);
  });

  test.each(FORMS)('sends an input file to the model (%s)', async (form) => {
    const script = await fixture.script({ text: 'An empty page.' }, { text: 'An empty page.' });
    for (const file_data of [PDF, PDF.slice(PDF.indexOf(',') + 1)]) {
      const response = await respond({
        model: script.modelIn(form),
        input: [
          message('user', [
            { type: 'input_text', text: 'Read the attached file and answer with its title only.' },
            { type: 'input_file', filename: 'fixture.pdf', file_data },
          ]),
        ],
      });
      expect(response.status).toBe('completed');
    }
    for (const { body, refused: why } of await script.requests()) {
      expect(why).toBeUndefined();
      expect(JSON.stringify(body)).toContain(PDF.slice(PDF.indexOf(',') + 1));
    }
  });

  test('continues a conversation by previous_response_id', async () => {
    const script = await fixture.script({ text: 'OK' }, { text: 'papaya' });
    const request = { model: script.model };
    const { id } = await respond({ ...request, input: 'Remember this code word: papaya. Reply with only OK.' });
    const response = await respond({ ...request, previous_response_id: id, input: 'What code word was it?' });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('papaya');
    expect((await script.conversations()).at(-1)).toHaveLength(3);
  });

  // The second request has no tools.
  test.each(FORMS)('continues after a function call output (%s)', async (form) => {
    const script = await fixture.script(
      { calls: [call('get_weather', { location: 'San Francisco, CA' })] },
      { text: '64 degrees.' },
    );
    const model = script.modelIn(form);
    const first = await respond({
      model,
      input: 'Use the weather tool to get the temperature in San Francisco.',
      tools: [WEATHER],
      tool_choice: { type: 'function', name: 'get_weather' },
    });
    const input = callsIn(first).map((one) => outputFor(one, '64 degrees and clear'));
    expect(input).toHaveLength(1);
    const response = await respond({ model, previous_response_id: first.id, input });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('64 degrees.');
    for (const { refused: why } of await script.requests()) expect(why).toBeUndefined();
  });

  test('marks messages as commentary or final answer, and accepts the phase in input', async () => {
    const script = await fixture.script(
      { text: 'I look it up.', calls: [call('add', { a: 1, b: 2 })] },
      { text: 'Three.' },
      { text: 'Four.' },
    );
    const response = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const messages = response.output.filter(({ type }) => type === 'message');
    expect(messages.map(({ phase }) => phase)).toEqual(['commentary', 'final_answer']);

    const input = [message('user', 'Add'), ...response.output, message('user', 'One more')];
    const next = await respond({ model: script.model, input, tools: [SERVER_TOOLS] });
    expect(textIn(next)).toBe('Four.');
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Add',
      'assistant: I look it up. [1] add {"a":1,"b":2}',
      'tool: [1] 3',
      'assistant: Three.',
      'user: One more',
    ]);
    const phases = (await inputItems(next.id, '?order=asc')).data.flatMap(({ phase }) => phase ?? []);
    expect(phases).toEqual(['commentary', 'final_answer']);
  });
});

describe('echoed fields', () => {
  test('have defaults when the request does not set them', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    const response = await respond({ model: script.model, input: 'Hi' });
    expect(response).toEqual({
      id: expect.stringMatching(/^resp_[0-9a-f]{32}$/),
      object: 'response',
      created_at: expect.any(Number),
      completed_at: expect.any(Number),
      status: 'completed',
      incomplete_details: null,
      model: script.model,
      previous_response_id: null,
      instructions: null,
      output: [
        {
          type: 'message',
          id: expect.stringMatching(/^msg_/),
          status: 'completed',
          role: 'assistant',
          phase: 'final_answer',
          content: [{ type: 'output_text', text: 'Hello.', annotations: [], logprobs: [] }],
        },
      ],
      error: null,
      tools: [],
      tool_choice: 'auto',
      truncation: 'disabled',
      parallel_tool_calls: true,
      text: { format: { type: 'text' } },
      top_p: 1,
      presence_penalty: 0,
      frequency_penalty: 0,
      top_logprobs: 0,
      temperature: 1,
      reasoning: null,
      usage: {
        input_tokens: 20,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 10,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 30,
      },
      max_output_tokens: null,
      max_tool_calls: null,
      store: true,
      background: false,
      service_tier: 'default',
      metadata: {},
      safety_identifier: null,
      prompt_cache_key: null,
    });
    const now = Date.now() / 1000;
    const { created_at: created, completed_at: completed } = response as WireResponse & Record<string, number>;
    expect(created).toBeGreaterThan(now - 600);
    expect(completed).toBeGreaterThanOrEqual(created!);
    expect(completed).toBeLessThanOrEqual(now + 1);
  });

  test('repeat the values of the request', async () => {
    const script = await fixture.script({ text: '{"a":1}' });
    const schema = {
      type: 'object',
      properties: { a: { type: 'number' } },
      required: ['a'],
      additionalProperties: false,
    };
    const request = {
      model: script.model,
      instructions: 'Be brief.',
      metadata: { who: 'me' },
      max_output_tokens: 500,
      max_tool_calls: 5,
      parallel_tool_calls: false,
      temperature: 0.25,
      top_p: 0.5,
      presence_penalty: 0.5,
      frequency_penalty: -0.5,
      top_logprobs: 2,
      truncation: 'auto',
      service_tier: 'default',
      store: false,
      safety_identifier: 'somebody',
      prompt_cache_key: 'here',
      user: 'u1',
      reasoning: { effort: 'low', summary: 'auto' },
      text: {
        format: { type: 'json_schema', name: 'answer', description: 'An answer', schema, strict: true },
        verbosity: 'low',
      },
      tools: [{ ...WEATHER, strict: true }, SERVER_TOOLS],
      tool_choice: {
        type: 'allowed_tools',
        mode: 'auto',
        tools: [
          { type: 'function', name: 'get_weather' },
          { type: 'mcp', server_label: 'treadle' },
        ],
      },
    };
    expect(await respond({ ...request, input: 'Hi' })).toMatchObject(request);
  });

  test.each(['auto', 'none', 'required', { type: 'function', name: 'get_weather' }])(
    'repeat tool_choice %j',
    async (tool_choice) => {
      const script = await fixture.script(
        tool_choice === 'auto' || tool_choice === 'none'
          ? { text: 'No.' }
          : { calls: [call('get_weather', { location: 'Oslo' })] },
      );
      const response = await respond({ model: script.model, input: 'Hi', tools: [WEATHER], tool_choice });
      expect(response['tool_choice']).toEqual(tool_choice);
      expect(response['tools']).toEqual([{ ...WEATHER, strict: null }]);
    },
  );

  test('fill in the optional fields of a function with null', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    const { tools } = await respond({ model: script.model, input: 'Hi', tools: [{ type: 'function', name: 'f' }] });
    expect(tools).toEqual([{ type: 'function', name: 'f', description: null, parameters: null, strict: null }]);
  });
});

/** Requests that the specification allows but few clients send. */
describe('unusual requests', () => {
  test('null in every nullable field means the default', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    const nulls = Object.fromEntries(
      [
        'previous_response_id',
        'tools',
        'tool_choice',
        'metadata',
        'text',
        'temperature',
        'top_p',
        'presence_penalty',
        'frequency_penalty',
        'parallel_tool_calls',
        'stream_options',
        'max_output_tokens',
        'max_tool_calls',
        'reasoning',
        'safety_identifier',
        'prompt_cache_key',
        'instructions',
        'top_logprobs',
      ].map((field) => [field, null]),
    );
    const plain = await respond({ model: script.model, input: 'Hi' });
    await script.add({ text: 'Hello.' });
    const response = await respond({ ...nulls, model: script.model, input: 'Hi' });
    expect(comparable(response)).toEqual(comparable(plain));
    await script.add({ text: 'Hello.' });
    const nestedNulls = { text: { format: null }, reasoning: { effort: null, summary: null }, include: [] };
    expect(await respond({ ...nestedNulls, model: script.model, input: 'Hi' })).toMatchObject({
      text: { format: { type: 'text' } },
      reasoning: { effort: null, summary: null },
    });
  });

  test('items of every type are accepted, with all optional fields or none', async () => {
    const script = await fixture.script({ text: 'Hello.' }, { text: 'Hello again.' });
    const first = await respond({ model: script.model, input: 'Hi' });
    const input = [
      message('developer', [{ type: 'input_text', text: 'Be kind.' }], { id: null, status: null }),
      message('user', 'Hi', { status: 'completed', id: 'msg_1' }),
      { type: 'reasoning', summary: [], content: null, encrypted_content: null },
      { id: first.output[0]!.id },
      message('user', [
        { type: 'input_text', text: 'Look.' },
        { type: 'input_image', image_url: IMAGE, detail: null },
        { type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain;base64,SGVsbG8=', file_url: null },
      ]),
      message('assistant', [{ type: 'refusal', refusal: 'I will not look.' }], { phase: 'final_answer' }),
      { type: 'message', role: 'user', content: 'Go on.' },
      { type: 'function_call', id: null, call_id: 'c1', name: 'get_weather', arguments: '{}', status: null },
      {
        type: 'function_call_output',
        id: null,
        call_id: 'c1',
        output: [{ type: 'input_text', text: 'rain' }],
        status: null,
      },
    ];
    const response = await respond({ model: script.modelIn('anthropic'), input, tools: [WEATHER] });
    expect(textIn(response)).toBe('Hello again.');
    for (const { refused: why } of await script.requests()) expect(why).toBeUndefined();
    const { data } = await inputItems(response.id, '?order=asc');
    expect(data.map(({ type }) => type)).toEqual([
      'message',
      'message',
      'reasoning',
      'message',
      'message',
      'message',
      'message',
      'function_call',
      'function_call_output',
    ]);
    expect(new Set(data.map(({ id }) => id)).size).toBe(data.length);
  });

  test.each([
    [undefined, 'auto'],
    ['auto', 'auto'],
    ['required', 'required'],
    ['none', 'none'],
  ])('allowed_tools with the mode %s is accepted', async (mode, echoed) => {
    const script = await fixture.script(
      mode === 'required' ? { calls: [call('get_weather', { location: 'Oslo' })] } : { text: 'No.' },
    );
    const tools = [{ type: 'function', name: 'get_weather' }];
    const response = await respond({
      model: script.model,
      input: 'Hi',
      tools: [WEATHER],
      tool_choice: { type: 'allowed_tools', tools, ...(mode !== undefined && { mode }) },
    });
    expect(response['tool_choice']).toEqual({ type: 'allowed_tools', mode: echoed, tools });
  });
});

/** Runs of every kind with their final status. The client validates each response against the specification. */
const RUNS: Readonly<Record<string, { steps: readonly Step[]; fields?: object; status: string }>> = {
  'text only': { steps: [{ text: 'Hello.' }], status: 'completed' },
  'reasoning and text': { steps: [{ reasoning: 'Hm, well.', text: 'Hello.' }], status: 'completed' },
  'an empty reply, then text': {
    steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { text: '' }, { text: 'Three.' }],
    status: 'completed',
  },
  'only empty replies': {
    steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { text: '' }, { text: '' }],
    status: 'failed',
  },
  'server calls in two turns': {
    steps: [
      { reasoning: 'Two of them.', text: 'I add.', calls: [call('add', { a: 1, b: 2 }), call('add', { a: 3, b: 4 })] },
      { calls: [call('add', { a: 3, b: 7 })] },
      { text: 'Ten.' },
    ],
    status: 'completed',
  },
  'a failing server call': {
    steps: [{ calls: [call('fail', { why: 'no reason' })] }, { text: 'It failed.' }],
    status: 'completed',
  },
  'a call of an unknown tool': {
    steps: [{ calls: [call('nowhere', {})] }, { text: 'I see.' }],
    status: 'completed',
  },
  'a call whose arguments are not JSON': {
    steps: [{ calls: [{ name: 'add', arguments: '{"a":' }] }, { text: 'I see.' }],
    status: 'completed',
  },
  'a mixed turn': {
    steps: [{ text: 'Both.', calls: [call('add', { a: 1, b: 2 }), call('get_weather', { location: 'Oslo' })] }],
    status: 'requires_action',
  },
  'two client calls': {
    steps: [{ calls: [call('get_weather', { location: 'Oslo' }), call('get_weather', { location: 'Rome' })] }],
    status: 'requires_action',
  },
  'a truncated reply': { steps: [{ text: 'And so on', finish: 'length' }], status: 'incomplete' },
  'a filtered reply': { steps: [{ text: 'This is', finish: 'content-filter' }], status: 'incomplete' },
  'one call over max_tool_calls': {
    steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { calls: [call('add', { a: 1, b: 3 })] }, { text: 'Stop.' }],
    fields: { max_tool_calls: 1 },
    status: 'completed',
  },
  'a model that ignores max_tool_calls': {
    steps: [1, 2, 3].map((b) => ({ calls: [call('add', { a: 1, b })] })),
    fields: { max_tool_calls: 1 },
    status: 'incomplete',
  },
  'a failure after a complete turn': {
    steps: [
      { text: 'I add.', calls: [call('add', { a: 1, b: 2 })] },
      { fault: 'status', status: 500 },
    ],
    status: 'failed',
  },
  'a failure in the middle of a text': { steps: [{ fault: 'error-in-stream' }], status: 'failed' },
};

/** Gemini sends arguments as an object, so they are always JSON. */
const GOOGLE_RUNS = Object.entries(RUNS).filter(([name]) => name !== 'a call whose arguments are not JSON');

describe.each(FORMS)('with a model of the form %s', (form) => {
  test.each(form === 'google' ? GOOGLE_RUNS : Object.entries(RUNS))(
    '%s: same response streamed, fetched and not streamed',
    async (_, run) => {
      const { steps, fields, status } = run;
      const body = { input: 'Go on.', tools: [WEATHER, SERVER_TOOLS], ...fields };
      const one = await fixture.script(...steps);
      const two = await fixture.script(...steps);
      const headers = { 'Treadle-Status': 'requires_action' };

      const streamed = await stream({ ...body, model: one.modelIn(form) }, headers);
      expect(streamed.response.status).toBe(status);
      const { id } = streamed.response;
      expect(await retrieve(id, headers)).toEqual(streamed.response);
      expect((await retrieve(id)).status).toBe(status === 'requires_action' ? 'completed' : status);
      expect((await inputItems(id)).data).toHaveLength(1);

      const whole = await respond({ ...body, model: two.modelIn(form) }, headers);
      expect(comparable(whole)).toEqual(comparable(streamed.response));
    },
  );
});

/** The response without the parts that differ between two equal runs. */
function comparable(response: WireResponse): unknown {
  const { id, model, created_at: _created, completed_at: _completed, ...rest } = response;
  const text = JSON.stringify(rest).replaceAll(id.slice('resp_'.length), '…');
  return JSON.parse(text.replaceAll(String(model), '…')) as unknown;
}

describe('cancelling a response', () => {
  test('while a tool runs ends the stream with response.incomplete', async () => {
    const script = await fixture.script(
      { text: 'I wait.', calls: [call('hold', { tag: 'cancelled' })] },
      { text: 'Never.' },
    );
    const { id, ended } = await startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await fixture.server.held('cancelled');
    const running = await retrieve(id);
    expect(running).toMatchObject({
      status: 'in_progress',
      completed_at: null,
      usage: null,
      output: [{ type: 'message' }, { type: 'mcp_call', status: 'in_progress' }],
    });
    const cancelled = await cancel(id);
    expect(cancelled).toMatchObject({ status: 'cancelled', error: null, incomplete_details: null });
    const { response, events } = await ended;
    expect(response).toEqual(cancelled);
    expect(events.at(-1)!.type).toBe('response.incomplete');
    expect(await retrieve(id)).toEqual(cancelled);
    expect(await cancel(id)).toEqual(cancelled);
    expect(await script.bodies()).toHaveLength(1);
  });

  test('while it waits for the client closes its calls', async () => {
    const script = await fixture.script({ calls: [call('get_weather', { location: 'Oslo' })] }, { text: 'Never.' });
    const waiting = await respond({ model: script.model, input: 'Hi', tools: [WEATHER] });
    expect(waiting.pending_call_ids).toEqual(callsIn(waiting).map(({ call_id: id }) => id));
    expect(await cancel(waiting.id)).toMatchObject({ status: 'cancelled', output: [{ type: 'function_call' }] });
    const { body, status } = await expectError({
      model: script.model,
      previous_response_id: waiting.id,
      input: [outputFor(callsIn(waiting)[0]!, 'Rain')],
    });
    expect(status).toBe(400);
    expect(body.error.message).toContain(callsIn(waiting)[0]!.call_id);
  });
});

describe('the schema check', () => {
  test('finds missing and wrong fields', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    const { events, response } = await stream({ model: script.model, input: 'Hi' });
    expect(schemaProblems('Response', response)).toEqual([]);
    const { usage: _, ...without } = response;
    expect(schemaProblems('Response', without)).toEqual(['Response.usage is absent and not Usage|null.']);
    expect(schemaProblems('Response', { ...response, output: [{ type: 'message' }] })).toHaveLength(4);
    expect(schemaProblems('Response', { ...response, output: [{ type: 'strange' }] })).toHaveLength(1);
    expect(
      schemaProblems('Response', { ...response, tool_choice: 'maybe', top_p: '1', top_logprobs: 0.5 }),
    ).toHaveLength(3);
    expect(eventProblems({ ...events[0], sequence_number: undefined })).toHaveLength(1);
    expect(eventProblems({ type: 'response.done', sequence_number: 1 })).toHaveLength(1);
  });
});
