import { describe, expect, test } from 'vitest';
import type { Step } from '../provider/script.ts';
import { call, SERVER_TOOLS, stage } from './clients/stage.ts';
import { asking, callsIn, outputFor, textIn, type WireResponse } from './open-responses/asking.ts';
import { eventProblems, problems } from './open-responses/check.ts';

const on = stage();
const { respond, stream, begin, retrieve, cancel, inputItems, refused } = asking(() => on.server.url);

const said = (role: string, content: unknown, more: object = {}): object => ({
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

/** As far as it goes. */
const PDF = `data:application/pdf;base64,${Buffer.from('%PDF-1.1\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF').toString('base64')}`;
const FORMS = ['openai-chat', 'openai-responses', 'anthropic'] as const;

/** The cases of the specification's own suite: what is asked, what the model says, and what must be there. */
describe('the compliance suite', () => {
  test('basic text response', async () => {
    const script = await on.script({ text: 'Hello, my friend!' });
    const response = await respond({ model: script.model, input: [said('user', 'Say hello in exactly 3 words.')] });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Hello, my friend!');
  });

  test('streaming response', async () => {
    const script = await on.script({ text: 'One, two, three, four, five.' });
    const { events, response, headers } = await stream({
      model: script.model,
      input: [said('user', 'Count from 1 to 5.')],
    });
    expect(headers.get('content-type')).toMatch(/^text\/event-stream/);
    expect(response.status).toBe('completed');
    const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
    expect(deltas.length).toBeGreaterThan(1);
    expect(deltas.map(({ delta }) => delta).join('')).toBe('One, two, three, four, five.');
  });

  test('system prompt', async () => {
    const script = await on.script({ text: 'Ahoy!' });
    const response = await respond({
      model: script.model,
      input: [said('system', 'You are a pirate.'), said('user', 'Say hello.')],
    });
    expect(response.status).toBe('completed');
    expect(await script.heard()).toEqual([['system: You are a pirate.', 'user: Say hello.']]);
  });

  test('tool calling', async () => {
    const script = await on.script({ calls: [call('get_weather', { location: 'San Francisco, CA' })] });
    const response = await respond({
      model: script.model,
      input: [said('user', "What's the weather like in San Francisco?")],
      tools: [WEATHER],
    });
    expect(callsIn(response)).toMatchObject([
      { name: 'get_weather', arguments: '{"location":"San Francisco, CA"}', status: 'completed' },
    ]);
    expect(response['tools']).toEqual([{ ...WEATHER, strict: null }]);
  });

  test('tool calling, streamed', async () => {
    const script = await on.script({ calls: [call('get_weather', { location: 'San Francisco, CA' })] });
    const { events } = await stream({
      model: script.model,
      input: [said('user', "What's the weather like in San Francisco?")],
      tools: [WEATHER],
    });
    const told = events.map(({ type, item }) => (item ? `${type} ${item.type}` : type));
    expect([...new Set(told)]).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added function_call',
      'response.function_call_arguments.delta',
      'response.function_call_arguments.done',
      'response.output_item.done function_call',
      'response.completed',
    ]);
  });

  test('image input', async () => {
    const script = await on.script({ text: 'A red dot.' });
    const response = await respond({
      model: script.model,
      input: [
        said('user', [
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

  test('multi-turn conversation', async () => {
    const script = await on.script({ text: 'Your name is Alice.' });
    const response = await respond({
      model: script.model,
      input: [
        said('user', 'My name is Alice.'),
        said('assistant', 'Hello Alice! Nice to meet you.'),
        said('user', 'What is my name?'),
      ],
    });
    expect(response.status).toBe('completed');
    expect(await script.heard()).toEqual([
      ['user: My name is Alice.', 'assistant: Hello Alice! Nice to meet you.', 'user: What is my name?'],
    ]);
  });

  test.each(FORMS)('file input (%s)', async (form) => {
    const script = await on.script({ text: 'An empty page.' }, { text: 'An empty page.' });
    for (const file_data of [PDF, PDF.slice(PDF.indexOf(',') + 1)]) {
      const response = await respond({
        model: script.modelIn(form),
        input: [
          said('user', [
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

  test('previous response id', async () => {
    const script = await on.script({ text: 'OK' }, { text: 'papaya' });
    const asked = { model: script.model };
    const { id } = await respond({ ...asked, input: 'Remember this code word: papaya. Reply with only OK.' });
    const response = await respond({ ...asked, previous_response_id: id, input: 'What code word was it?' });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('papaya');
    expect((await script.heard()).at(-1)).toHaveLength(3);
  });

  /** The second request has no tools of its own. */
  test.each(FORMS)('function call round trip (%s)', async (form) => {
    const script = await on.script(
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

  test('assistant phase', async () => {
    const script = await on.script(
      { text: 'I look it up.', calls: [call('add', { a: 1, b: 2 })] },
      { text: 'Three.' },
      { text: 'Four.' },
    );
    const response = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const messages = response.output.filter(({ type }) => type === 'message');
    expect(messages.map(({ phase }) => phase)).toEqual(['commentary', 'final_answer']);

    const input = [said('user', 'Add'), ...response.output, said('user', 'One more')];
    const again = await respond({ model: script.model, input, tools: [SERVER_TOOLS] });
    expect(textIn(again)).toBe('Four.');
    expect((await script.heard()).at(-1)).toEqual([
      'user: Add',
      'assistant: I look it up. [1] add {"a":1,"b":2}',
      'tool: [1] 3',
      'assistant: Three.',
      'user: One more',
    ]);
    const phases = (await inputItems(again.id, '?order=asc')).data.flatMap(({ phase }) => phase ?? []);
    expect(phases).toEqual(['commentary', 'final_answer']);
  });
});

describe('what a response repeats', () => {
  test('with nothing asked for, every field has its default', async () => {
    const script = await on.script({ text: 'Hello.' });
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

  test('everything that was asked for is there again', async () => {
    const script = await on.script({ text: '{"a":1}' });
    const schema = {
      type: 'object',
      properties: { a: { type: 'number' } },
      required: ['a'],
      additionalProperties: false,
    };
    const asked = {
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
      service_tier: 'flex',
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
    expect(await respond({ ...asked, input: 'Hi' })).toMatchObject(asked);
  });

  test.each(['auto', 'none', 'required', { type: 'function', name: 'get_weather' }])(
    'tool_choice %j',
    async (tool_choice) => {
      const script = await on.script(
        tool_choice === 'auto' || tool_choice === 'none'
          ? { text: 'No.' }
          : { calls: [call('get_weather', { location: 'Oslo' })] },
      );
      const response = await respond({ model: script.model, input: 'Hi', tools: [WEATHER], tool_choice });
      expect(response['tool_choice']).toEqual(tool_choice);
      expect(response['tools']).toEqual([{ ...WEATHER, strict: null }]);
    },
  );

  test('a function that says little is echoed in full', async () => {
    const script = await on.script({ text: 'Hello.' });
    const { tools } = await respond({ model: script.model, input: 'Hi', tools: [{ type: 'function', name: 'f' }] });
    expect(tools).toEqual([{ type: 'function', name: 'f', description: null, parameters: null, strict: null }]);
  });
});

/** Forms of a request that the specification allows and few clients use. */
describe('a request', () => {
  test('with everything null that may be null', async () => {
    const script = await on.script({ text: 'Hello.' });
    const nothing = Object.fromEntries(
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
    const response = await respond({ ...nothing, model: script.model, input: 'Hi' });
    expect(anonymous(response)).toEqual(anonymous(plain));
    await script.add({ text: 'Hello.' });
    const inner = { text: { format: null }, reasoning: { effort: null, summary: null }, include: [] };
    expect(await respond({ ...inner, model: script.model, input: 'Hi' })).toMatchObject({
      text: { format: { type: 'text' } },
      reasoning: { effort: null, summary: null },
    });
  });

  test('with items that are all there is to say of them', async () => {
    const script = await on.script({ text: 'Hello.' }, { text: 'Hello again.' });
    const first = await respond({ model: script.model, input: 'Hi' });
    const input = [
      said('developer', [{ type: 'input_text', text: 'Be kind.' }], { id: null, status: null }),
      said('user', 'Hi', { status: 'completed', id: 'msg_1' }),
      { type: 'reasoning', summary: [], content: null, encrypted_content: null },
      { id: first.output[0]!.id },
      said('user', [
        { type: 'input_text', text: 'Look.' },
        { type: 'input_image', image_url: IMAGE, detail: null },
        { type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain;base64,SGVsbG8=', file_url: null },
      ]),
      said('assistant', [{ type: 'refusal', refusal: 'I will not look.' }], { phase: 'final_answer' }),
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
  ])('that allows some tools in the mode %s', async (mode, echoed) => {
    const script = await on.script(
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

/** Runs of every kind, with the status that they end in. Each answer is held against the specification. */
const RUNS: Readonly<Record<string, { steps: readonly Step[]; asked?: object; ends: string }>> = {
  'words only': { steps: [{ text: 'Hello.' }], ends: 'completed' },
  'thoughts and words': { steps: [{ reasoning: 'Hm, well.', text: 'Hello.' }], ends: 'completed' },
  'no words at first': {
    steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { text: '' }, { text: 'Three.' }],
    ends: 'completed',
  },
  'no words at all': { steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { text: '' }, { text: '' }], ends: 'failed' },
  'calls of the server in two turns': {
    steps: [
      { reasoning: 'Two of them.', text: 'I add.', calls: [call('add', { a: 1, b: 2 }), call('add', { a: 3, b: 4 })] },
      { calls: [call('add', { a: 3, b: 7 })] },
      { text: 'Ten.' },
    ],
    ends: 'completed',
  },
  'a call of the server that fails': {
    steps: [{ calls: [call('fail', { why: 'no reason' })] }, { text: 'It failed.' }],
    ends: 'completed',
  },
  'a call of a tool that is not there': {
    steps: [{ calls: [call('nowhere', {})] }, { text: 'I see.' }],
    ends: 'completed',
  },
  'a call with arguments that are no JSON': {
    steps: [{ calls: [{ name: 'add', arguments: '{"a":' }] }, { text: 'I see.' }],
    ends: 'completed',
  },
  'a mixed turn': {
    steps: [{ text: 'Both.', calls: [call('add', { a: 1, b: 2 }), call('get_weather', { location: 'Oslo' })] }],
    ends: 'requires_action',
  },
  'two calls of the client': {
    steps: [{ calls: [call('get_weather', { location: 'Oslo' }), call('get_weather', { location: 'Rome' })] }],
    ends: 'requires_action',
  },
  'too long a reply': { steps: [{ text: 'And so on', finish: 'length' }], ends: 'incomplete' },
  'a reply that is filtered': { steps: [{ text: 'This is', finish: 'content-filter' }], ends: 'incomplete' },
  'a call too many': {
    steps: [{ calls: [call('add', { a: 1, b: 2 })] }, { calls: [call('add', { a: 1, b: 3 })] }, { text: 'Stop.' }],
    asked: { max_tool_calls: 1 },
    ends: 'completed',
  },
  'a model that does not stop calling': {
    steps: [1, 2, 3].map((b) => ({ calls: [call('add', { a: 1, b })] })),
    asked: { max_tool_calls: 1 },
    ends: 'incomplete',
  },
  'a failure after a turn': {
    steps: [
      { text: 'I add.', calls: [call('add', { a: 1, b: 2 })] },
      { fault: 'status', status: 500 },
    ],
    ends: 'failed',
  },
  'a failure in the middle of words': { steps: [{ fault: 'error-in-stream' }], ends: 'failed' },
};

describe.each(FORMS)('by way of %s', (form) => {
  test.each(Object.entries(RUNS))('%s, streamed, fetched and not streamed', async (_, { steps, asked, ends }) => {
    const body = { input: 'Go on.', tools: [WEATHER, SERVER_TOOLS], ...asked };
    const one = await on.script(...steps);
    const two = await on.script(...steps);
    const headers = { 'Treadle-Status': 'requires_action' };

    const streamed = await stream({ ...body, model: one.modelIn(form) }, headers);
    expect(streamed.response.status).toBe(ends);
    const { id } = streamed.response;
    expect(await retrieve(id, headers)).toEqual(streamed.response);
    expect((await retrieve(id)).status).toBe(ends === 'requires_action' ? 'completed' : ends);
    expect((await inputItems(id)).data).toHaveLength(1);

    const whole = await respond({ ...body, model: two.modelIn(form) }, headers);
    expect(anonymous(whole)).toEqual(anonymous(streamed.response));
  });
});

/** Without what differs between two runs of the same. */
function anonymous(response: WireResponse): unknown {
  const { id, model, created_at: _created, completed_at: _completed, ...rest } = response;
  const text = JSON.stringify(rest).replaceAll(id.slice('resp_'.length), '…');
  return JSON.parse(text.replaceAll(String(model), '…')) as unknown;
}

describe('a response that is cancelled', () => {
  test('in the middle of a call', async () => {
    const script = await on.script(
      { text: 'I wait.', calls: [call('hold', { tag: 'cancelled' })] },
      { text: 'Never.' },
    );
    const { id, ended } = await begin({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await on.server.held('cancelled');
    const standing = await retrieve(id);
    expect(standing).toMatchObject({
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

  test('while it waits for its client', async () => {
    const script = await on.script({ calls: [call('get_weather', { location: 'Oslo' })] }, { text: 'Never.' });
    const waiting = await respond({ model: script.model, input: 'Hi', tools: [WEATHER] });
    expect(waiting.pending_call_ids).toEqual(callsIn(waiting).map(({ call_id: id }) => id));
    expect(await cancel(waiting.id)).toMatchObject({ status: 'cancelled', output: [{ type: 'function_call' }] });
    const { body, status } = await refused({
      model: script.model,
      previous_response_id: waiting.id,
      input: [outputFor(callsIn(waiting)[0]!, 'Rain')],
    });
    expect(status).toBe(400);
    expect(body.error.message).toContain(callsIn(waiting)[0]!.call_id);
  });
});

describe('the check itself', () => {
  test('finds what is missing and what is wrong', async () => {
    const script = await on.script({ text: 'Hello.' });
    const { events, response } = await stream({ model: script.model, input: 'Hi' });
    expect(problems('Response', response)).toEqual([]);
    const { usage: _, ...without } = response;
    expect(problems('Response', without)).toEqual(['Response.usage is absent and not Usage|null.']);
    expect(problems('Response', { ...response, output: [{ type: 'message' }] })).toHaveLength(4);
    expect(problems('Response', { ...response, output: [{ type: 'strange' }] })).toHaveLength(1);
    expect(problems('Response', { ...response, tool_choice: 'maybe', top_p: '1', top_logprobs: 0.5 })).toHaveLength(3);
    expect(eventProblems({ ...events[0], sequence_number: undefined })).toHaveLength(1);
    expect(eventProblems({ type: 'response.done', sequence_number: 1 })).toHaveLength(1);
  });
});
