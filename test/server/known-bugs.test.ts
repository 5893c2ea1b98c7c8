import { describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, stage } from './clients/stage.ts';
import { asking, callsIn, outputFor, textIn } from './open-responses/asking.ts';

/** What other servers of this kind have done wrong, each once. */

const on = stage();
// Every stream is held against the rules of `open-responses/stream-rules.ts`, so what is said below is said twice.
const { respond, stream, retrieve, refused } = asking(() => on.server.url);

const fn = (name: string): object => ({
  type: 'function',
  name,
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
});
const WEATHER = fn('weather');
const TIME = fn('time');

test('two life cycles or restarting indices across tool rounds', async () => {
  const script = await on.script(
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

test('events before created', async () => {
  const script = await on.script({ fault: 'status', status: 500 });
  const { events } = await stream({ model: script.model, input: 'Hi' });
  expect(events.map(({ type }) => type)).toEqual([
    'response.created',
    'response.in_progress',
    'error',
    'response.failed',
  ]);
});

test('a message item that was never opened', async () => {
  const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { reasoning: 'I see.', text: 'Two.' });
  for (const how of ['stream', 'whole'] as const) {
    const model = how === 'stream' ? script.model : `${(await on.script({ text: 'Two.' })).model}/whole`;
    const { events } = await stream({ model, input: 'Add', tools: [SERVER_TOOLS] });
    const ofMessage = events.filter(({ item_id: id, item }) => (id ?? item?.id)?.startsWith('msg_'));
    expect([...new Set(ofMessage.map(({ type }) => type))]).toEqual([
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
    ]);
  }
});

describe('continuation after a tool turn', () => {
  test('of the server', async () => {
    const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' }, { text: 'Four.' });
    const { id } = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const next = await respond({ model: script.model, previous_response_id: id, input: 'And twice that?' });
    expect(textIn(next)).toBe('Four.');
    expect((await script.heard()).at(-1)).toEqual([
      'user: Add',
      'assistant: [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Two.',
      'user: And twice that?',
    ]);
  });

  test('of the client', async () => {
    const script = await on.script(
      { calls: [call('weather', { city: 'Oslo' })] },
      { text: 'Rain.' },
      { text: 'Take one.' },
    );
    const asked = { model: script.model, tools: [WEATHER] };
    const first = await respond({ ...asked, input: 'Weather?' });
    const second = await respond({
      ...asked,
      previous_response_id: first.id,
      input: [outputFor(callsIn(first)[0]!, 'rain')],
    });
    expect(second['previous_response_id']).toBe(first.id);
    const third = await respond({ ...asked, previous_response_id: second.id, input: 'An umbrella?' });
    expect(textIn(third)).toBe('Take one.');
    expect((await script.heard()).at(-1)).toEqual([
      'user: Weather?',
      'assistant: [1] weather {"city":"Oslo"}',
      'tool: [1] rain',
      'assistant: Rain.',
      'user: An umbrella?',
    ]);
  });
});

test('prior calls dropped with previous_response_id', async () => {
  const script = await on.script(
    { calls: [call('add', { a: 1, b: 1 })] },
    { calls: [call('weather', { city: 'Oslo' })] },
    { calls: [call('weather', { city: 'Rome' })] },
    { text: 'Both wet.' },
  );
  const asked = { model: script.model, tools: [WEATHER, SERVER_TOOLS] };
  const first = await respond({ ...asked, input: 'Go' });
  const answered = (id: string, response: typeof first): Promise<typeof first> =>
    respond({ ...asked, previous_response_id: id, input: [outputFor(callsIn(response)[0]!, 'wet')] });
  const second = await answered(first.id, first);
  await answered(second.id, second);
  expect((await script.heard()).at(-1)).toEqual([
    'user: Go',
    'assistant: [1] add {"a":1,"b":1}',
    'tool: [1] 2',
    'assistant: [2] weather {"city":"Oslo"}',
    'tool: [2] wet',
    'assistant: [3] weather {"city":"Rome"}',
    'tool: [3] wet',
  ]);
});

describe('parallel calls rebuilt as separate messages', () => {
  const heard = [
    'user: Go',
    'assistant: [1] weather {"city":"Oslo"} [2] time {"city":"Oslo"}',
    'tool: [1] wet',
    'tool: [2] noon',
  ];
  const calls = [call('weather', { city: 'Oslo' }), call('time', { city: 'Oslo' })];

  test('with previous_response_id, and the outputs in any order', async () => {
    const script = await on.script({ calls }, { text: 'Done.' });
    const asked = { model: script.model, tools: [WEATHER, TIME] };
    const first = await respond({ ...asked, input: 'Go' });
    const [weather, time] = callsIn(first);
    await respond({
      ...asked,
      previous_response_id: first.id,
      input: [outputFor(time!, 'noon'), outputFor(weather!, 'wet')],
    });
    expect((await script.heard()).at(-1)).toEqual(heard);
  });

  test('with the items sent back', async () => {
    const script = await on.script({ calls }, { text: 'Done.' });
    const asked = { model: script.model, tools: [WEATHER, TIME], store: false };
    const first = await respond({ ...asked, input: 'Go' });
    const [weather, time] = callsIn(first);
    const input = [
      { role: 'user', content: 'Go' },
      ...first.output,
      outputFor(weather!, 'wet'),
      outputFor(time!, 'noon'),
    ];
    await respond({ ...asked, input });
    expect((await script.heard()).at(-1)).toEqual(heard);
  });

  test('with items of another server sent back', async () => {
    const script = await on.script({ text: 'Done.' });
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
    expect((await script.heard()).at(-1)).toEqual(heard);
  });
});

test('text beside calls dropped', async () => {
  const script = await on.script(
    { text: 'I look it up.', calls: [call('weather', { city: 'Oslo' })] },
    { text: 'Wet.' },
    { text: 'Wet again.' },
  );
  const asked = { model: script.model, tools: [WEATHER] };
  const { response: first } = await stream({ ...asked, input: 'Go' });
  expect(textIn(first)).toBe('I look it up.');
  const outputs = callsIn(first).map((one) => outputFor(one, 'wet'));
  await respond({ ...asked, previous_response_id: first.id, input: outputs });
  await respond({ ...asked, input: [{ role: 'user', content: 'Go' }, ...first.output, ...outputs] });
  const said = ['user: Go', 'assistant: I look it up. [1] weather {"city":"Oslo"}', 'tool: [1] wet'];
  expect((await script.heard()).slice(1)).toEqual([said, said]);
});

describe('forced tool_choice looping for ever', () => {
  test.each(['required', { type: 'mcp', server_label: 'treadle', name: 'add' }])('%j', async (tool_choice) => {
    const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' });
    const response = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS], tool_choice });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Two.');
    const [forced, free] = (await script.bodies()).map((body) => body['tool_choice']);
    expect(forced).not.toBe('auto');
    expect(free === undefined || free === 'auto').toBe(true);
  });

  test('of a function of the client, which is asked once and not again after its output', async () => {
    const script = await on.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Wet.' });
    const asked = { model: script.model, tools: [WEATHER], tool_choice: { type: 'function', name: 'weather' } };
    const first = await respond({ ...asked, input: 'Go' });
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

describe('the error mark of a result lost', () => {
  /** The results of the last request, in a form that has such a mark. */
  const marks = async (script: Awaited<ReturnType<typeof on.script>>): Promise<readonly unknown[]> => {
    const { messages } = (await script.requests()).at(-1)!.body as {
      messages: readonly { content: string | readonly { type: string; is_error?: boolean }[] }[];
    };
    const blocks = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content));
    return blocks.flatMap((block) => (block.type === 'tool_result' ? (block.is_error ?? false) : []));
  };

  test('of a tool of the server, with the next turn and with the next response', async () => {
    const script = await on.script(
      { calls: [call('fail', { why: 'closed' }), call('add', { a: 1, b: 1 })] },
      { text: 'One failed.' },
      { text: 'As I said.' },
      { text: 'As I said.' },
    );
    const model = script.modelIn('anthropic');
    const asked = { model, tools: [SERVER_TOOLS] };
    const first = await respond({ ...asked, input: 'Go' });
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
    expect(await marks(script)).toEqual([true, false]);
    await respond({ ...asked, previous_response_id: first.id, input: 'Well?' });
    expect(await marks(script)).toEqual([true, false]);
    const input = [{ role: 'user', content: 'Go' }, ...first.output, { role: 'user', content: 'Well?' }];
    await respond({ ...asked, input });
    expect(await marks(script)).toEqual([true, false]);
  });

  test('of an output of the client', async () => {
    const calls = [
      call('weather', { city: 'Oslo' }),
      call('weather', { city: 'Rome' }),
      call('time', { city: 'Rome' }),
    ];
    const script = await on.script({ calls }, { text: 'Hm.' }, { text: 'Well.' });
    const asked = { model: script.modelIn('anthropic'), tools: [WEATHER, TIME] };
    const first = await respond({ ...asked, input: 'Go' });
    const [oslo, rome, time] = callsIn(first);
    const input = [
      outputFor(oslo!, 'no answer', { is_error: true }),
      outputFor(rome!, 'dry'),
      outputFor(time!, 'timed out', { status: 'incomplete' }),
    ];
    const second = await respond({ ...asked, previous_response_id: first.id, input });
    expect(await marks(script)).toEqual([true, false, true]);
    await respond({ ...asked, previous_response_id: second.id, input: 'And?' });
    expect(await marks(script)).toEqual([true, false, true]);
  });
});

describe('unanswered calls after a mixed turn', () => {
  const calls = [
    call('weather', { city: 'Oslo' }),
    call('add', { a: 1, b: 1 }),
    call('time', { city: 'Oslo' }),
    call('fail', { why: 'closed' }),
  ];

  test('the results of both are there, in the order of the calls', async () => {
    const script = await on.script({ calls }, { text: 'Done.' });
    const asked = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS] };
    const { response: first } = await stream({ ...asked, input: 'Go' });
    expect(first.output.map(({ type, name, status }) => [type, name, status])).toEqual([
      ['function_call', 'weather', 'completed'],
      ['mcp_call', 'add', 'completed'],
      ['function_call', 'time', 'completed'],
      ['mcp_call', 'fail', 'failed'],
    ]);
    const [weather, time] = callsIn(first);
    expect(first.pending_call_ids).toEqual([weather!.call_id, time!.call_id]);
    const next = await respond({
      ...asked,
      previous_response_id: first.id,
      input: [outputFor(time!, 'noon'), outputFor(weather!, 'wet')],
    });
    expect(next.pending_call_ids).toBeUndefined();
    expect((await script.heard()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1} [3] time {"city":"Oslo"} [4] fail {"why":"closed"}',
      'tool: [1] wet',
      'tool: [2] 2',
      'tool: [3] noon',
      expect.stringMatching(/^tool: \[4\] .*closed/),
    ]);
  });

  test('also when the client keeps the conversation itself', async () => {
    const script = await on.script({ calls }, { text: 'Done.' });
    const asked = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS], store: false };
    const first = await respond({ ...asked, input: 'Go' });
    const outputs = callsIn(first).map((one) => outputFor(one, `of ${one.name}`));
    await respond({ ...asked, input: [{ role: 'user', content: 'Go' }, ...first.output, ...outputs] });
    expect((await script.heard()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {"city":"Oslo"} [2] add {"a":1,"b":1} [3] time {"city":"Oslo"} [4] fail {"why":"closed"}',
      'tool: [1] of weather',
      'tool: [2] 2',
      'tool: [3] of time',
      expect.stringMatching(/^tool: \[4\] .*closed/),
    ]);
  });

  test('the calls of the server are not the client’s to answer', async () => {
    const script = await on.script({ calls });
    const asked = { model: script.model, tools: [WEATHER, TIME, SERVER_TOOLS] };
    const first = await respond({ ...asked, input: 'Go' });
    const added = first.output[1]!.id;
    const outputs = callsIn(first).map((one) => outputFor(one, 'well'));
    const { status, body } = await refused({
      ...asked,
      previous_response_id: first.id,
      input: [...outputs, outputFor(added, '3')],
    });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param: 'input[2].call_id' });
    expect(body.error.message).toContain(added);
  });
});

describe('a disallowed client tool asked of the client', () => {
  test('the call is answered with an error, in its place, and the loop goes on', async () => {
    const script = await on.script(
      { calls: [call('weather', { city: 'Oslo' }), call('time', { city: 'Oslo' })] },
      { text: 'Never.' },
    );
    const asked = {
      model: script.model,
      tools: [WEATHER, TIME],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    };
    const { response: first } = await stream({ ...asked, input: 'Go' });
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
    await respond({ ...asked, previous_response_id: first.id, input: [outputFor(callsIn(first)[0]!, 'wet')] });
    expect((await script.heard())[1]!.slice(2)).toEqual([
      'tool: [1] wet',
      expect.stringMatching(/^tool: \[2\] .*time/),
    ]);
  });

  test.each(['anthropic', 'openai-responses'] as const)('the model hears of all tools (%s)', async (form) => {
    const script = await on.script({ text: 'I see.' });
    await respond({
      model: script.modelIn(form),
      input: 'Go',
      tools: [WEATHER, TIME],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    });
    const [{ tools }] = (await script.bodies()) as unknown as [{ tools: readonly { name: string }[] }];
    expect(tools.map(({ name }) => name)).toEqual(['weather', 'time']);
  });

  test('alone in its turn the client is not asked at all', async () => {
    const script = await on.script({ calls: [call('time', { city: 'Oslo' })] }, { text: 'I may not.' });
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

  test('a server tool outside allowed_tools is not run', async () => {
    const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'I may not.' });
    const response = await respond({
      model: script.model,
      input: 'Go',
      tools: [WEATHER, SERVER_TOOLS],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
    });
    expect(response.output[0]).toMatchObject({ type: 'mcp_call', name: 'add', status: 'failed', output: null });
  });

  test('an undeclared tool is not handed to the client', async () => {
    const script = await on.script({ calls: [call('delete_all', {})] }, { text: 'There is none.' });
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

  test('with tool_choice none', async () => {
    const script = await on.script({ calls: [call('weather', { city: 'Oslo' })] }, { text: 'Without.' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER], tool_choice: 'none' });
    expect(callsIn(response)).toEqual([]);
    expect(textIn(response)).toBe('Without.');
  });

  test('with a limit on calls', async () => {
    const script = await on.script(
      { calls: [call('weather', { city: 'Oslo' }), call('weather', { city: 'Rome' })] },
      { text: 'Wet.' },
    );
    const asked = { model: script.model, tools: [WEATHER], max_tool_calls: 1 };
    const { response: first } = await stream({ ...asked, input: 'Go' });
    expect(callsIn(first).map((one) => one.arguments)).toEqual(['{"city":"Oslo"}']);
    expect(first.output.filter(({ type }) => type === 'mcp_call')).toMatchObject([{ status: 'failed' }]);
    await respond({ ...asked, previous_response_id: first.id, input: [outputFor(callsIn(first)[0]!, 'wet')] });
    expect((await script.heard()).at(-1)!.slice(1)).toEqual([
      'assistant: [1] weather {"city":"Oslo"} [2] weather {"city":"Rome"}',
      'tool: [1] wet',
      expect.stringMatching(/^tool: \[2\] ./),
    ]);
  });
});

test('max turns reported as max_output_tokens', async () => {
  const turns = Array.from({ length: 12 }, (_, index) => ({ calls: [call('add', { a: index, b: 1 })] }));
  const script = await on.script(...turns);
  const { response, events } = await stream({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
  expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' }, error: null });
  expect(events.at(-1)!.type).toBe('response.incomplete');
  expect(response.output).toHaveLength(10);
  expect(await retrieve(response.id)).toEqual(response);
  expect(await script.bodies()).toHaveLength(10);
});
