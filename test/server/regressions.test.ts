import { describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, useServerFixture } from './support/fixture.ts';
import { responsesClient, callsIn, outputFor, textIn } from './support/responses-client.ts';

/** Bugs that other servers of this API have had. */

const fixture = useServerFixture();
// The client also validates every stream against support/stream-rules.ts.
const { respond, stream, retrieve, expectError } = responsesClient(() => fixture.server.url);

const fn = (name: string): object => ({
  type: 'function',
  name,
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
});
const WEATHER = fn('weather');
const TIME = fn('time');

test('several tool turns are one response with one lifecycle and continuous indices', async () => {
  const script = await fixture.script(
    { text: 'First.', calls: [call('add', { a: 1, b: 1 })] },
    { text: 'Second.', calls: [call('add', { a: 2, b: 2 }), call('add', { a: 3, b: 3 })] },
    { text: 'Third.' },
  );
  const { events } = await stream({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
  const count = (type: string): number => events.filter((event) => event.type === type).length;
  expect([count('response.created'), count('response.in_progress'), count('response.completed')]).toEqual([1, 1, 1]);
  expect(events.map(({ sequence_number: number }) => number)).toEqual([...events.keys()]);
  const opened = events.filter(({ type }) => type === 'response.output_item.added');
  expect(opened.map(({ output_index: index }) => index)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(new Set(opened.map(({ item }) => item!.id)).size).toBe(6);
});

test('response.created is the first event, also when the model fails at once', async () => {
  const script = await fixture.script({ fault: 'status', status: 500 });
  const { events } = await stream({ model: script.model, input: 'Hi' });
  expect(events.map(({ type }) => type)).toEqual([
    'response.created',
    'response.in_progress',
    'error',
    'response.failed',
  ]);
});

test('a message item is opened before its text, also after a tool turn and without provider streaming', async () => {
  const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { reasoning: 'I see.', text: 'Two.' });
  for (const mode of ['stream', 'whole'] as const) {
    const model = mode === 'stream' ? script.model : `${(await fixture.script({ text: 'Two.' })).model}/whole`;
    const { events } = await stream({ model, input: 'Add', tools: [SERVER_TOOLS] });
    const messageEvents = events.filter(({ item_id: id, item }) => (id ?? item?.id)?.startsWith('msg_'));
    expect([...new Set(messageEvents.map(({ type }) => type))]).toEqual([
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
    ]);
  }
});

describe('a conversation continues after a turn with', () => {
  test('server tools', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' }, { text: 'Four.' });
    const { id } = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const next = await respond({ model: script.model, previous_response_id: id, input: 'And twice that?' });
    expect(textIn(next)).toBe('Four.');
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Add',
      'assistant: [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Two.',
      'user: And twice that?',
    ]);
  });

  test('client functions', async () => {
    const script = await fixture.script(
      { calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Rain.' },
      { text: 'Take one.' },
    );
    const request = { model: script.model, tools: [WEATHER] };
    const first = await respond({ ...request, input: 'Weather?' });
    const second = await respond({
      ...request,
      previous_response_id: first.id,
      input: [outputFor(callsIn(first)[0]!, 'rain')],
    });
    expect(second['previous_response_id']).toBe(first.id);
    const third = await respond({ ...request, previous_response_id: second.id, input: 'An umbrella?' });
    expect(textIn(third)).toBe('Take one.');
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      'tool: [1] rain',
      'assistant: Rain.',
      'user: An umbrella?',
    ]);
  });
});

test('previous_response_id keeps the calls of all earlier turns', async () => {
  const script = await fixture.script(
    { calls: [call('add', { a: 1, b: 1 })] },
    { calls: [call('weather', { city: 'Oslo' })] },
    { calls: [call('weather', { city: 'Rome' })] },
    { text: 'Both wet.' },
  );
  const request = { model: script.model, tools: [WEATHER, SERVER_TOOLS] };
  const first = await respond({ ...request, input: 'Go' });
  const answered = (id: string, response: typeof first): Promise<typeof first> =>
    respond({ ...request, previous_response_id: id, input: [outputFor(callsIn(response)[0]!, 'wet')] });
  const second = await answered(first.id, first);
  await answered(second.id, second);
  expect((await script.conversations()).at(-1)).toEqual([
    'user: Go',
    'assistant: [1] add {"a":1,"b":1}',
    'tool: [1] 2',
    'assistant: [2] weather {"city":"Oslo"}',
    'tool: [2] wet',
    'assistant: [3] weather {"city":"Rome"}',
    'tool: [3] wet',
  ]);
});

describe('parallel calls stay in one assistant message', () => {
  const conversation = [
    'user: Go',
    'assistant: [1] weather {"city":"Oslo"} [2] time {"city":"Oslo"}',
    'tool: [1] wet',
    'tool: [2] noon',
  ];
  const calls = [call('weather', { city: 'Oslo' }), call('time', { city: 'Oslo' })];

  test('with previous_response_id and the outputs in any order', async () => {
    const script = await fixture.script({ calls }, { text: 'Done.' });
    const request = { model: script.model, tools: [WEATHER, TIME] };
    const first = await respond({ ...request, input: 'Go' });
    const [weather, time] = callsIn(first);
    await respond({
      ...request,
      previous_response_id: first.id,
      input: [outputFor(time!, 'noon'), outputFor(weather!, 'wet')],
    });
    expect((await script.conversations()).at(-1)).toEqual(conversation);
  });

  test('with the output items sent back', async () => {
    const script = await fixture.script({ calls }, { text: 'Done.' });
    const request = { model: script.model, tools: [WEATHER, TIME], store: false };
    const first = await respond({ ...request, input: 'Go' });
    const [weather, time] = callsIn(first);
    const input = [
      { role: 'user', content: 'Go' },
      ...first.output,
      outputFor(weather!, 'wet'),
      outputFor(time!, 'noon'),
    ];
    await respond({ ...request, input });
    expect((await script.conversations()).at(-1)).toEqual(conversation);
  });

  test('with items of another server sent back', async () => {
    const script = await fixture.script({ text: 'Done.' });
    const item = (call_id: string, name: string): object => ({
      type: 'function_call',
      call_id,
      name,
      arguments: '{"city":"Oslo"}',
    });
    const input = [
      { role: 'user', content: 'Go' },
      item('a', 'weather'),
      item('b', 'time'),
      outputFor('b', 'noon'),
      outputFor('a', 'wet'),
    ];
    await respond({ model: script.model, tools: [WEATHER, TIME], input });
    expect((await script.conversations()).at(-1)).toEqual(conversation);
  });
});

test('text in the same turn as calls is kept', async () => {
  const script = await fixture.script(
    { text: 'I look it up.', calls: [call('weather', { city: 'Oslo' })] },
    { text: 'Wet.' },
    { text: 'Wet again.' },
  );
  const request = { model: script.model, tools: [WEATHER] };
  const { response: first } = await stream({ ...request, input: 'Go' });
  expect(textIn(first)).toBe('I look it up.');
  const outputs = callsIn(first).map((one) => outputFor(one, 'wet'));
  await respond({ ...request, previous_response_id: first.id, input: outputs });
  await respond({ ...request, input: [{ role: 'user', content: 'Go' }, ...first.output, ...outputs] });
  const conversation = ['user: Go', 'assistant: I look it up. [1] weather {"city":"Oslo"}', 'tool: [1] wet'];
  expect((await script.conversations()).slice(1)).toEqual([conversation, conversation]);
});

describe('a forced tool_choice applies to one turn only', () => {
  test.each(['required', { type: 'mcp', server_label: 'treadle', name: 'add' }])('%j', async (tool_choice) => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' });
    const response = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS], tool_choice });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Two.');
    const [forced, free] = (await script.bodies()).map((body) => body['tool_choice']);
    expect(forced).not.toBe('auto');
    expect(free === undefined || free === 'auto').toBe(true);
  });

  test('a forced client function is called once, and not again after its output', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Wet.' });
    const request = { model: script.model, tools: [WEATHER], tool_choice: { type: 'function', name: 'weather' } };
    const first = await respond({ ...request, input: 'Go' });
    expect(first.output).toHaveLength(1);
    const next = await respond({
      model: script.model,
      tools: [WEATHER],
      previous_response_id: first.id,
      input: [outputFor(callsIn(first)[0]!, 'wet')],
    });
    expect(textIn(next)).toBe('Wet.');
  });
});

describe('is_error of a tool result is kept', () => {
  /** `is_error` of each result in the last request, which must be in Anthropic's form. */
  const errorFlags = async (script: Awaited<ReturnType<typeof fixture.script>>): Promise<readonly unknown[]> => {
    const { messages } = (await script.requests()).at(-1)!.body as {
      messages: readonly { content: string | readonly { type: string; is_error?: boolean }[] }[];
    };
    const blocks = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content));
    return blocks.flatMap((block) => (block.type === 'tool_result' ? (block.is_error ?? false) : []));
  };

  test('for a server tool, in the next turn and in the next response', async () => {
    const script = await fixture.script(
      { calls: [call('fail', { why: 'closed' }), call('add', { a: 1, b: 1 })] },
      { text: 'One failed.' },
      { text: 'As I said.' },
      { text: 'As I said.' },
    );
    const model = script.modelIn('anthropic');
    const request = { model, tools: [SERVER_TOOLS] };
    const first = await respond({ ...request, input: 'Go' });
    expect(first.output).toMatchObject([
      {
        type: 'mcp_call',
        name: 'fail',
        status: 'failed',
        output: null,
        error: { message: expect.stringContaining('closed') },
      },
      { type: 'mcp_call', name: 'add', status: 'completed', output: '2', error: null },
      { type: 'message' },
    ]);
    expect(await errorFlags(script)).toEqual([true, false]);
    await respond({ ...request, previous_response_id: first.id, input: 'Well?' });
    expect(await errorFlags(script)).toEqual([true, false]);
    const input = [{ role: 'user', content: 'Go' }, ...first.output, { role: 'user', content: 'Well?' }];
    await respond({ ...request, input });
    expect(await errorFlags(script)).toEqual([true, false]);
  });

  test('for an output of the client', async () => {
    const calls = [
      call('weather', { city: 'Oslo' }),
      call('weather', { city: 'Rome' }),
      call('time', { city: 'Rome' }),
    ];
    const script = await fixture.script({ calls }, { text: 'Hm.' }, { text: 'Well.' });
    const request = { model: script.modelIn('anthropic'), tools: [WEATHER, TIME] };
    const first = await respond({ ...request, input: 'Go' });
    const [oslo, rome, time] = callsIn(first);
    const input = [
      outputFor(oslo!, 'no answer', { is_error: true }),
      outputFor(rome!, 'dry'),
      outputFor(time!, 'timed out', { status: 'incomplete' }),
    ];
    const second = await respond({ ...request, previous_response_id: first.id, input });
    expect(await errorFlags(script)).toEqual([true, false, true]);
    await respond({ ...request, previous_response_id: second.id, input: 'And?' });
    expect(await errorFlags(script)).toEqual([true, false, true]);
  });
});

describe('a turn with server and client calls', () => {
  const calls = [
    call('weather', { city: 'Oslo' }),
    call('add', { a: 1, b: 1 }),
    call('time', { city: 'Oslo' }),
    call('fail', { why: 'closed' }),
  ];

  test('sends the results of both to the model in call order', async () => {
    const script = await fixture.script({ calls }, { text: 'Done.' });
    const request = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS] };
    const { response: first } = await stream({ ...request, input: 'Go' });
    expect(first.output.map(({ type, name, status }) => [type, name, status])).toEqual([
      ['function_call', 'weather', 'completed'],
      ['mcp_call', 'add', 'completed'],
      ['function_call', 'time', 'completed'],
      ['mcp_call', 'fail', 'failed'],
    ]);
    const [weather, time] = callsIn(first);
    expect(first.pending_call_ids).toEqual([weather!.call_id, time!.call_id]);
    const next = await respond({
      ...request,
      previous_response_id: first.id,
      input: [outputFor(time!, 'noon'), outputFor(weather!, 'wet')],
    });
    expect(next.pending_call_ids).toBeUndefined();
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1} [3] time {"city":"Oslo"} [4] fail {"why":"closed"}',
      'tool: [1] wet',
      'tool: [2] 2',
      'tool: [3] noon',
      expect.stringMatching(/^tool: \[4\] .*closed/),
    ]);
  });

  test('does so when the client sends all items back', async () => {
    const script = await fixture.script({ calls }, { text: 'Done.' });
    const request = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS], store: false };
    const first = await respond({ ...request, input: 'Go' });
    const outputs = callsIn(first).map((one) => outputFor(one, `of ${one.name}`));
    await respond({ ...request, input: [{ role: 'user', content: 'Go' }, ...first.output, ...outputs] });
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1} [3] time {"city":"Oslo"} [4] fail {"why":"closed"}',
      'tool: [1] of weather',
      'tool: [2] 2',
      'tool: [3] of time',
      expect.stringMatching(/^tool: \[4\] .*closed/),
    ]);
  });

  test('rejects an output of the client for a server call', async () => {
    const script = await fixture.script({ calls });
    const request = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS] };
    const first = await respond({ ...request, input: 'Go' });
    const added = first.output[1]!.id;
    const outputs = callsIn(first).map((one) => outputFor(one, 'well'));
    const { status, body } = await expectError({
      ...request,
      previous_response_id: first.id,
      input: [...outputs, outputFor(added, '3')],
    });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param: 'input[2].call_id' });
    expect(body.error.message).toContain(added);
  });
});

describe('a call that is not allowed', () => {
  test('gets an error result in its position, and is not sent to the client', async () => {
    const script = await fixture.script(
      { calls: [call('weather', { city: 'Oslo' }), call('time', { city: 'Oslo' })] },
      { text: 'Never.' },
    );
    const request = {
      model: script.model,
      tools: [WEATHER, TIME],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    };
    const { response: first } = await stream({ ...request, input: 'Go' });
    expect(first.output).toMatchObject([
      { type: 'function_call', name: 'weather' },
      {
        type: 'mcp_call',
        name: 'time',
        server_label: 'treadle',
        status: 'failed',
        error: { message: expect.any(String) },
      },
    ]);
    expect(first.pending_call_ids).toHaveLength(1);
    await respond({ ...request, previous_response_id: first.id, input: [outputFor(callsIn(first)[0]!, 'wet')] });
    expect((await script.conversations())[1]!.slice(2)).toEqual([
      'tool: [1] wet',
      expect.stringMatching(/^tool: \[2\] .*time/),
    ]);
  });

  test.each(['anthropic', 'openai-responses'] as const)(
    'does not remove the tool from the request to the model (%s)',
    async (form) => {
      const script = await fixture.script({ text: 'I see.' });
      await respond({
        model: script.modelIn(form),
        input: 'Go',
        tools: [WEATHER, TIME],
        tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
      });
      const [{ tools }] = (await script.bodies()) as unknown as [{ tools: readonly { name: string }[] }];
      expect(tools.map(({ name }) => name)).toEqual(['weather', 'time']);
    },
  );

  test('as the only call of the turn lets the loop continue without the client', async () => {
    const script = await fixture.script({ calls: [call('time', { city: 'Oslo' })] }, { text: 'I may not.' });
    const { response } = await stream({
      model: script.model,
      input: 'Go',
      tools: [WEATHER, TIME],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    });
    expect(callsIn(response)).toEqual([]);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('I may not.');
  });

  test('of a server tool outside allowed_tools is not executed', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'I may not.' });
    const response = await respond({
      model: script.model,
      input: 'Go',
      tools: [WEATHER, SERVER_TOOLS],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    });
    expect(response.output[0]).toMatchObject({ type: 'mcp_call', name: 'add', status: 'failed', output: null });
  });

  test('of an undeclared tool is not sent to the client', async () => {
    const script = await fixture.script({ calls: [call('delete_all', {})] }, { text: 'There is none.' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER] });
    expect(response.output).toMatchObject([
      {
        type: 'mcp_call',
        name: 'delete_all',
        status: 'failed',
        error: { message: expect.stringContaining('delete_all') },
      },
      { type: 'message' },
    ]);
    expect(response.status).toBe('completed');
  });

  test('because of tool_choice "none" is not sent to the client', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Without.' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER], tool_choice: 'none' });
    expect(callsIn(response)).toEqual([]);
    expect(textIn(response)).toBe('Without.');
  });
});

test('max_tool_calls counts the calls of the server, and items come in the order in which they began', async () => {
  const script = await fixture.script(
    { calls: [call('weather', { city: 'Oslo' }), call('add', { a: 1, b: 1 }), call('weather', { city: 'Rome' })] },
    { calls: [call('add', { a: 2, b: 2 })] },
    { text: 'Wet.' },
  );
  const request = { model: script.model, tools: [WEATHER, SERVER_TOOLS], max_tool_calls: 1 };
  const { response: first } = await stream({ ...request, input: 'Go' });
  expect(first.output.map(({ type }) => type)).toEqual(['function_call', 'mcp_call', 'function_call']);
  const outputs = callsIn(first).map((one) => outputFor(one, 'wet'));
  const second = await respond({ ...request, previous_response_id: first.id, input: outputs });
  expect(second.output).toMatchObject([{ type: 'mcp_call', status: 'completed' }, { type: 'message' }]);
});

test('a user message before the outputs of the previous response is accepted', async () => {
  const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Wet.' });
  const first = await respond({ model: script.model, tools: [WEATHER], input: 'Go' });
  const input = [{ role: 'user', content: 'Quick!' }, outputFor(callsIn(first)[0]!, 'wet')];
  expect(textIn(await respond({ model: script.model, tools: [WEATHER], previous_response_id: first.id, input }))).toBe(
    'Wet.',
  );
  expect((await script.conversations()).at(-1)!.slice(-2)).toEqual(['tool: [1] wet', 'user: Quick!']);
});

test('two empty replies are a failure of the provider', async () => {
  const script = await fixture.script({ text: '' }, { text: '' });
  const { status, body } = await expectError({ model: script.model, input: 'Hi' });
  expect([status, body.error.code]).toEqual([502, 'model_protocol']);
});

test('unknown paths below a response are 404', async () => {
  for (const path of ['responses/resp_1/nothing', 'responses/resp_1/cancel/nothing', 'responses/nothing/cancel']) {
    const answer = await fetch(`${fixture.baseURL}/${path}`, { method: 'POST', body: '{}', headers: JSON_BODY });
    expect([path, answer.status]).toEqual([path, 404]);
  }
});

const JSON_BODY = { 'content-type': 'application/json' };

test('a call that the token limit cut off is sent back as valid JSON', async () => {
  const cut = { calls: [{ name: 'weather', arguments: '{"city":"Os' }], finish: 'length' } as const;
  const script = await fixture.script(cut, { text: 'Again?' });
  const first = await respond({ model: script.model, tools: [WEATHER], input: 'Go' });
  expect(first.status).toBe('incomplete');
  await respond({ model: script.model, tools: [WEATHER], previous_response_id: first.id, input: 'Go on' });
  const [call_] = (await script.bodies()).at(-1)!.messages.flatMap(({ tool_calls }) => tool_calls ?? []);
  expect(JSON.parse(call_!.function.arguments)).toEqual({ invalid_json: '{"city":"Os' });
});

test('the turn limit is reported as max_turns, not as max_output_tokens', async () => {
  const turns = Array.from({ length: 12 }, (_, index) => ({ calls: [call('add', { a: index, b: 1 })] }));
  const script = await fixture.script(...turns);
  const { response, events } = await stream({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
  expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' }, error: null });
  expect(events.at(-1)!.type).toBe('response.incomplete');
  expect(response.output).toHaveLength(10);
  expect(await retrieve(response.id)).toEqual(response);
  expect(await script.bodies()).toHaveLength(10);
});
