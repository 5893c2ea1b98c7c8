import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, useServerFixture, WEATHER } from './support/fixture.ts';
import { responsesClient, callsIn, outputFor, textIn } from './support/responses-client.ts';
import { storedBytes } from './support/test-store.ts';

const folder = await mkdtemp(join(tmpdir(), 'treadle-server-'));
const file = join(folder, 'runs.db');
const fixture = useServerFixture({ store: file });
afterAll(() => rm(folder, { recursive: true }));
const { respond, stream, startStream, retrieve, retrieveEnded, cancel, expectError, inputItems, send } =
  responsesClient(() => fixture.server.url);

const message = (content: string, role = 'user'): object => ({ role, content });

describe('a conversation', () => {
  test('continues over several responses by previous_response_id', async () => {
    const script = await fixture.script({ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' });
    const ids: string[] = [];
    for (const input of ['1', '2', '3']) {
      const previous = ids.at(-1);
      const response = await respond({
        model: script.model,
        input,
        ...(previous !== undefined && { previous_response_id: previous }),
      });
      expect(response['previous_response_id']).toBe(previous ?? null);
      expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 10, total_tokens: 30 });
      ids.push(response.id);
    }
    expect((await script.conversations()).at(-1)).toEqual([
      'user: 1',
      'assistant: One.',
      'user: 2',
      'assistant: Two.',
      'user: 3',
    ]);
    expect((await inputItems(ids[2]!)).data).toMatchObject([{ role: 'user', content: [{ text: '3' }] }]);
  });

  test('branches when two responses continue the same one', async () => {
    const script = await fixture.script(
      { text: 'Tea or coffee?' },
      { text: 'Tea.' },
      { text: 'Coffee.' },
      { text: 'Milk?' },
    );
    const { id } = await respond({ model: script.model, input: 'A drink' });
    const tea = await respond({ model: script.model, input: 'tea', previous_response_id: id });
    const coffee = await respond({ model: script.model, input: 'coffee', previous_response_id: id });
    await respond({ model: script.model, input: 'yes', previous_response_id: tea.id });
    expect((await script.conversations()).slice(2)).toEqual([
      ['user: A drink', 'assistant: Tea or coffee?', 'user: coffee'],
      ['user: A drink', 'assistant: Tea or coffee?', 'user: tea', 'assistant: Tea.', 'user: yes'],
    ]);
    expect(textIn(coffee)).toBe('Coffee.');
  });

  test('inherits system messages, but not instructions and tools', async () => {
    const script = await fixture.script({ text: 'Hello.' }, { text: 'Bye.' });
    const { id } = await respond({
      model: script.model,
      instructions: 'Be brief.',
      tools: [WEATHER],
      input: [message('You are a pirate.', 'system'), message('Hi')],
    });
    const next = await respond({
      model: script.model,
      instructions: 'Be long.',
      input: [message('The ship is sinking.', 'developer'), message('Bye')],
      previous_response_id: id,
    });
    expect(next).toMatchObject({ instructions: 'Be long.', tools: [] });
    const [first, second] = await script.conversations();
    expect(first![0]).toBe('system: Be brief.\n\nYou are a pirate.');
    expect(second).toEqual([
      'system: Be long.\n\nYou are a pirate.\n\nThe ship is sinking.',
      'user: Hi',
      'assistant: Hello.',
      'user: Bye',
    ]);
    expect((await script.bodies())[1]!.tools).toBeUndefined();
  });

  test('continues with another model', async () => {
    const one = await fixture.script(
      { reasoning: 'Hm.', text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Two.' },
    );
    const other = await fixture.script({ text: 'As it said.' }, { text: 'As it said.' });
    const { id } = await respond({ model: one.modelIn('anthropic'), input: 'Add', tools: [SERVER_TOOLS] });
    for (const form of ['openai-chat', 'openai-responses'] as const) {
      const request = { model: other.modelIn(form), input: 'Sure?', tools: [SERVER_TOOLS], previous_response_id: id };
      expect(textIn(await respond(request))).toBe('As it said.');
    }
  });

  test.each(['openai-chat', 'openai-responses', 'anthropic'] as const)(
    'is stored by the client, with encrypted reasoning (%s)',
    async (form) => {
      const script = await fixture.script(
        { reasoning: 'I have to add.', calls: [call('weather', {}), call('add', { a: 1, b: 1 })] },
        { reasoning: 'It rains.', text: 'Rain, and two.' },
        { text: 'Goodbye.' },
      );
      const request = {
        model: script.modelIn(form),
        store: false,
        include: ['reasoning.encrypted_content'],
        tools: [WEATHER, SERVER_TOOLS],
        reasoning: { effort: 'low' },
      };
      const input: object[] = [message('Go')];
      const first = await respond({ ...request, input });
      input.push(...first.output, ...callsIn(first).map((one) => outputFor(one, 'rain')));
      const second = await respond({ ...request, input });
      input.push(...second.output, message('Bye'));
      expect(textIn(await respond({ ...request, input }))).toBe('Goodbye.');
      // The provider rejects requests in which its signed content was changed.
      for (const { refused: why } of await script.requests()) expect(why).toBeUndefined();
    },
  );

  test('can reference items of earlier responses', async () => {
    const script = await fixture.script(
      { text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Two.' },
      { text: 'Yes.' },
    );
    const { output } = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const references = output.map(({ id }) => ({ type: 'item_reference', id }));
    await respond({
      model: script.model,
      tools: [SERVER_TOOLS],
      input: [message('Add'), ...references, message('Sure?')],
    });
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Add',
      'assistant: I add. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Two.',
      'user: Sure?',
    ]);
  });

  test('can be continued as soon as GET reports that the response has ended', async () => {
    const continueOne = async (): Promise<void> => {
      const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' }, { text: 'Yes.' });
      const { id, ended } = await startStream({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
      let seen = await retrieve(id);
      for (let items = 0; seen.status === 'in_progress'; seen = await retrieve(id)) {
        // Items are only ever added.
        expect(seen.output.length).toBeGreaterThanOrEqual(items);
        items = seen.output.length;
      }
      expect(textIn(await respond({ model: script.model, previous_response_id: id, input: 'Sure?' }))).toBe('Yes.');
      expect((await ended).response).toEqual(seen);
    };
    await Promise.all(Array.from({ length: 12 }, continueOne));
  });

  test('continues with empty input', async () => {
    const script = await fixture.script({ text: 'One', finish: 'length' }, { text: ' and two.' });
    const { id } = await respond({ model: script.model, input: 'Count' });
    const next = await respond({ model: script.model, previous_response_id: id, input: [] });
    expect(textIn(next)).toBe(' and two.');
  });
});

describe('a conversation continues after a response', () => {
  test('that was cancelled while a tool ran', async () => {
    const script = await fixture.script({ calls: [call('hold', { tag: 'left' })] }, { text: 'So be it.' });
    const { id, ended } = await startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await fixture.server.held('left');
    await cancel(id);
    await ended;
    const next = await respond({ model: script.model, input: 'Never mind', previous_response_id: id });
    expect(textIn(next)).toBe('So be it.');
    const [, conversation] = await script.conversations();
    expect(conversation!.map((line) => line.split(' ')[0])).toEqual(['user:', 'assistant:', 'tool:', 'user:']);
  });

  test('whose client disconnected while a tool ran', async () => {
    const script = await fixture.script({ calls: [call('hold', { tag: 'gone' })] }, { text: 'Welcome back.' });
    const { id, ended, disconnect } = await startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await fixture.server.held('gone');
    disconnect();
    await expect(ended).rejects.toThrow('aborted');
    expect((await retrieveEnded(id)).status).toBe('cancelled');
    const next = await respond({ model: script.model, input: 'Here again', previous_response_id: id });
    expect(textIn(next)).toBe('Welcome back.');
  });

  test('whose client disconnected while the model streamed, which aborts the model request', async () => {
    const script = await fixture.script({ fault: 'stall' }, { text: 'Welcome back.' });
    const { id, ended, disconnect } = await startStream({ model: script.model, input: 'Speak' });
    while ((await retrieve(id)).output.length === 0);
    disconnect();
    await expect(ended).rejects.toThrow('aborted');
    await fixture.provider.quiet();
    expect(await retrieveEnded(id)).toMatchObject({
      status: 'cancelled',
      output: [{ type: 'message', status: 'incomplete' }],
    });
    const next = await respond({ model: script.model, input: 'Here again', previous_response_id: id });
    expect(textIn(next)).toBe('Welcome back.');
  });

  test('that reached the turn limit, or was filtered', async () => {
    const turns = Array.from({ length: 10 }, (_, a) => ({ calls: [call('add', { a, b: 1 })] }));
    const script = await fixture.script(...turns, { text: 'Ten.' });
    const { id } = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(textIn(await respond({ model: script.model, input: 'And?', previous_response_id: id }))).toBe('Ten.');
    const filtered = await fixture.script({ text: 'This', finish: 'content-filter' }, { text: 'Something else.' });
    const first = await respond({ model: filtered.model, input: 'Go' });
    const next = await respond({ model: filtered.model, input: 'Else?', previous_response_id: first.id });
    expect(textIn(next)).toBe('Something else.');
  });
});

describe('requires_action', () => {
  const headers = { 'treadle-status': 'requires_action' };

  test('is the status only for clients that request it by header', async () => {
    const script = await fixture.script({ calls: [call('weather', {})] }, { calls: [call('weather', {})] });
    const request = { model: script.model, input: 'Go', tools: [WEATHER] };
    const plain = await respond(request);
    expect(plain.status).toBe('completed');
    const { response, events } = await stream(request, headers);
    expect(response.status).toBe('requires_action');
    expect(events.at(-1)!.type).toBe('response.completed');
    for (const { id, pending_call_ids: pending } of [plain, response]) {
      expect(pending).toHaveLength(1);
      expect(await retrieve(id)).toMatchObject({ status: 'completed', pending_call_ids: pending });
      expect(await retrieve(id, headers)).toMatchObject({ status: 'requires_action', pending_call_ids: pending });
    }
  });

  test('accepts outputs with a message, and again after a failed response', async () => {
    const script = await fixture.script(
      { calls: [call('weather', {})] },
      { fault: 'status', status: 500 },
      { text: 'Take an umbrella.' },
    );
    const request = { model: script.model, tools: [WEATHER] };
    const first = await respond({ ...request, input: 'Go' });
    const input = [outputFor(callsIn(first)[0]!, 'rain'), message('So?')];
    const answer = { ...request, previous_response_id: first.id, input };
    expect((await expectError(answer)).status).toBe(503);
    expect(textIn(await respond(answer))).toBe('Take an umbrella.');
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {}',
      'tool: [1] rain',
      'user: So?',
    ]);
  });

  test('accepts outputs with text and image parts', async () => {
    const script = await fixture.script({ calls: [call('weather', {})] }, { text: 'Wet.' });
    const request = { model: script.modelIn('anthropic'), tools: [WEATHER] };
    const first = await respond({ ...request, input: 'Go' });
    const image_url = 'data:image/png;base64,iVBORw0KGgo=';
    const output = [
      { type: 'input_text', text: 'rain' },
      { type: 'input_image', image_url },
    ];
    const input = [{ type: 'function_call_output', call_id: callsIn(first)[0]!.call_id, output }];
    const next = await respond({ ...request, previous_response_id: first.id, input });
    expect(textIn(next)).toBe('Wet.');
    expect(JSON.stringify((await script.requests())[1]!.body)).toContain('iVBORw0KGgo=');
    expect((await inputItems(next.id)).data).toMatchObject([{ type: 'function_call_output', output }]);
  });
});

describe('the store', () => {
  test('contains nothing of a response with store: false', async () => {
    const script = await fixture.script({ text: 'Zanzibar.' }, { text: 'Zanzibar.' }, { text: 'Never.' });
    const request = { model: script.model, input: 'Timbuktu', instructions: 'Samarkand', store: false };
    const whole = await respond(request);
    expect(whole['store']).toBe(false);
    const { response } = await stream(request);
    for (const { id } of [whole, response]) {
      expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
      expect((await send('GET', `/v1/responses/${id}/input_items`)).status).toBe(404);
      expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(404);
      const { body } = await expectError({ model: script.model, input: 'And?', previous_response_id: id });
      expect(body.error.code).toBe('previous_response_not_found');
    }
    const bytes = await storedBytes(file);
    const control = await fixture.script({ text: 'Novosibirsk.' });
    await respond({ model: control.model, input: 'Hi' });
    expect(await storedBytes(file)).toContain('Novosibirsk');
    for (const word of ['Zanzibar', 'Timbuktu', 'Samarkand', whole.id, response.id]) expect(bytes).not.toContain(word);
  });

  test('deletes a response without affecting its continuations', async () => {
    const script = await fixture.script({ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' });
    const first = await respond({ model: script.model, input: 'Hi' });
    const second = await respond({ model: script.model, input: 'On', previous_response_id: first.id });
    const { status, body } = await send('DELETE', `/v1/responses/${first.id}`);
    expect([status, body]).toEqual([200, { id: first.id, object: 'response', deleted: true }]);
    expect((await send('GET', `/v1/responses/${first.id}`)).status).toBe(404);
    expect((await send('DELETE', `/v1/responses/${first.id}`)).status).toBe(404);
    expect(textIn(await retrieve(second.id))).toBe('Two.');
    const third = await respond({ model: script.model, input: 'And on', previous_response_id: second.id });
    expect(textIn(third)).toBe('Three.');
    expect((await script.conversations()).at(-1)).toHaveLength(5);
  });

  test('deletes a running response after cancelling it', async () => {
    const script = await fixture.script({ calls: [call('hold', { tag: 'deleted' })] }, { text: 'Never.' });
    const { id, ended } = await startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await fixture.server.held('deleted');
    expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(200);
    expect((await ended).response.status).toBe('cancelled');
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
    expect(await script.bodies()).toHaveLength(1);
  });

  test('contains no secrets of tools', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    const tool = { ...SERVER_TOOLS, authorization: 'Bearer hush-1', headers: { 'x-key': 'hush-2' } };
    const response = await respond({ model: script.model, input: 'Hi', tools: [tool] });
    expect(response['tools']).toEqual([SERVER_TOOLS]);
    expect(await storedBytes(file)).not.toContain('hush-');
  });
});

test('lists input items in pages, and rejects invalid paging parameters', async () => {
  const script = await fixture.script({ text: 'Hello.' });
  const input = Array.from({ length: 25 }, (_, n) => message(String(n), n % 2 === 0 ? 'user' : 'assistant'));
  const { id } = await respond({ model: script.model, input });
  const texts = async (query: string): Promise<string[]> =>
    (await inputItems(id, query)).data.map(({ content }) => content![0]!.text);
  expect((await texts('?order=asc&limit=100')).map(Number)).toEqual([...input.keys()]);
  const page = await inputItems(id);
  expect(page).toMatchObject({ object: 'list', has_more: true });
  expect(page.data).toHaveLength(20);
  const rest = await inputItems(id, `?after=${page.data.at(-1)!.id}`);
  expect(rest.data.map(({ content }) => content![0]!.text)).toEqual(['4', '3', '2', '1', '0']);
  expect(rest.has_more).toBe(false);
  for (const query of ['?limit=0', '?limit=101', '?limit=x', '?order=up', '?after=nobody']) {
    expect((await send('GET', `/v1/responses/${id}/input_items${query}`)).status).toBe(400);
  }
});
