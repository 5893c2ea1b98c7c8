import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, stage, WEATHER } from './clients/stage.ts';
import { asking, callsIn, outputFor, textIn } from './open-responses/asking.ts';

const place = await mkdtemp(join(tmpdir(), 'treadle-server-'));
const on = stage({ store: join(place, 'runs.db') });
afterAll(() => rm(place, { recursive: true }));
const { respond, stream, begin, retrieve, cancel, refused, inputItems, send } = asking(() => on.server.url);

const said = (content: string, role = 'user'): object => ({ role, content });

/** All that the store has written, to look for what must not be in it. */
async function stored(): Promise<string> {
  const files = await readdir(place);
  return (await Promise.all(files.map((file) => readFile(join(place, file), 'latin1')))).join('');
}

describe('a conversation', () => {
  test('is long, and each response knows the one before it', async () => {
    const script = await on.script({ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' });
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
    expect((await script.heard()).at(-1)).toEqual([
      'user: 1',
      'assistant: One.',
      'user: 2',
      'assistant: Two.',
      'user: 3',
    ]);
    expect((await inputItems(ids[2]!)).data).toMatchObject([{ role: 'user', content: [{ text: '3' }] }]);
  });

  test('branches: two responses go on from the same one', async () => {
    const script = await on.script(
      { text: 'Tea or coffee?' },
      { text: 'Tea.' },
      { text: 'Coffee.' },
      { text: 'Milk?' },
    );
    const { id } = await respond({ model: script.model, input: 'A drink' });
    const tea = await respond({ model: script.model, input: 'tea', previous_response_id: id });
    const coffee = await respond({ model: script.model, input: 'coffee', previous_response_id: id });
    await respond({ model: script.model, input: 'yes', previous_response_id: tea.id });
    expect((await script.heard()).slice(2)).toEqual([
      ['user: A drink', 'assistant: Tea or coffee?', 'user: coffee'],
      ['user: A drink', 'assistant: Tea or coffee?', 'user: tea', 'assistant: Tea.', 'user: yes'],
    ]);
    expect(textIn(coffee)).toBe('Coffee.');
  });

  test('instructions and tools are of each request, system messages of the conversation', async () => {
    const script = await on.script({ text: 'Hello.' }, { text: 'Bye.' });
    const { id } = await respond({
      model: script.model,
      instructions: 'Be brief.',
      tools: [WEATHER],
      input: [said('You are a pirate.', 'system'), said('Hi')],
    });
    const next = await respond({
      model: script.model,
      instructions: 'Be long.',
      input: [said('The ship is sinking.', 'developer'), said('Bye')],
      previous_response_id: id,
    });
    expect(next).toMatchObject({ instructions: 'Be long.', tools: [] });
    const [first, second] = await script.heard();
    expect(first![0]).toBe('system: Be brief.\n\nYou are a pirate.');
    expect(second).toEqual([
      'system: Be long.\n\nYou are a pirate.\n\nThe ship is sinking.',
      'user: Hi',
      'assistant: Hello.',
      'user: Bye',
    ]);
    expect((await script.bodies())[1]!.tools).toBeUndefined();
  });

  test('goes on with another model', async () => {
    const one = await on.script(
      { reasoning: 'Hm.', text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Two.' },
    );
    const other = await on.script({ text: 'As it said.' }, { text: 'As it said.' });
    const { id } = await respond({ model: one.modelIn('anthropic'), input: 'Add', tools: [SERVER_TOOLS] });
    for (const form of ['openai-chat', 'openai-responses'] as const) {
      const asked = { model: other.modelIn(form), input: 'Sure?', tools: [SERVER_TOOLS], previous_response_id: id };
      expect(textIn(await respond(asked))).toBe('As it said.');
    }
  });

  test.each(['openai-chat', 'openai-responses', 'anthropic'] as const)(
    'that the client keeps itself, with encrypted reasoning (%s)',
    async (form) => {
      const script = await on.script(
        { reasoning: 'I have to add.', calls: [call('weather', {}), call('add', { a: 1, b: 1 })] },
        { reasoning: 'It rains.', text: 'Rain, and two.' },
        { text: 'Goodbye.' },
      );
      const asked = {
        model: script.modelIn(form),
        store: false,
        include: ['reasoning.encrypted_content'],
        tools: [WEATHER, SERVER_TOOLS],
        reasoning: { effort: 'low' },
      };
      const input: object[] = [said('Go')];
      const first = await respond({ ...asked, input });
      input.push(...first.output, ...callsIn(first).map((one) => outputFor(one, 'rain')));
      const second = await respond({ ...asked, input });
      input.push(...second.output, said('Bye'));
      expect(textIn(await respond({ ...asked, input }))).toBe('Goodbye.');
      // Nothing was refused: the provider checks that what it has signed comes back unchanged.
      for (const { refused: why } of await script.requests()) expect(why).toBeUndefined();
    },
  );

  test('refers to items of earlier responses', async () => {
    const script = await on.script(
      { text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Two.' },
      { text: 'Yes.' },
    );
    const { output } = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const references = output.map(({ id }) => ({ type: 'item_reference', id }));
    await respond({ model: script.model, tools: [SERVER_TOOLS], input: [said('Add'), ...references, said('Sure?')] });
    expect((await script.heard()).at(-1)).toEqual([
      'user: Add',
      'assistant: I add. [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'assistant: Two.',
      'user: Sure?',
    ]);
  });

  test('can be gone on from as soon as anybody sees that it has ended', async () => {
    const one = async (): Promise<void> => {
      const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' }, { text: 'Yes.' });
      const { id, ended } = await begin({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
      let seen = await retrieve(id);
      for (let items = 0; seen.status === 'in_progress'; seen = await retrieve(id)) {
        // It only grows.
        expect(seen.output.length).toBeGreaterThanOrEqual(items);
        items = seen.output.length;
      }
      expect(textIn(await respond({ model: script.model, previous_response_id: id, input: 'Sure?' }))).toBe('Yes.');
      expect((await ended).response).toEqual(seen);
    };
    await Promise.all(Array.from({ length: 12 }, one));
  });

  test('goes on with no new words', async () => {
    const script = await on.script({ text: 'One', finish: 'length' }, { text: ' and two.' });
    const { id } = await respond({ model: script.model, input: 'Count' });
    const asked = { model: script.model, previous_response_id: id, input: [] };
    const next = await respond(asked);
    expect(textIn(next)).toBe(' and two.');
  });
});

describe('a response that did not end well can be gone on from', () => {
  test('cancelled in the middle of a call', async () => {
    const script = await on.script({ calls: [call('hold', { tag: 'left' })] }, { text: 'So be it.' });
    const { id, ended } = await begin({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await on.server.held('left');
    await cancel(id);
    await ended;
    const next = await respond({ model: script.model, input: 'Never mind', previous_response_id: id });
    expect(textIn(next)).toBe('So be it.');
    const [, heard] = await script.heard();
    expect(heard!.map((line) => line.split(' ')[0])).toEqual(['user:', 'assistant:', 'tool:', 'user:']);
  });

  test('whose client went away', async () => {
    const script = await on.script({ calls: [call('hold', { tag: 'gone' })] }, { text: 'Welcome back.' });
    const { id, ended, leave } = await begin({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await on.server.held('gone');
    leave();
    await expect(ended).rejects.toThrow('aborted');
    let standing = await retrieve(id);
    while (standing.status === 'in_progress') standing = await retrieve(id);
    expect(standing.status).toBe('cancelled');
    const next = await respond({ model: script.model, input: 'Here again', previous_response_id: id });
    expect(textIn(next)).toBe('Welcome back.');
  });

  test('whose client went away while the model spoke, which then does not speak on', async () => {
    const script = await on.script({ fault: 'stall' }, { text: 'Welcome back.' });
    const { id, ended, leave } = await begin({ model: script.model, input: 'Speak' });
    while ((await retrieve(id)).output.length === 0);
    leave();
    await expect(ended).rejects.toThrow('aborted');
    await on.provider.quiet();
    let standing = await retrieve(id);
    while (standing.status === 'in_progress') standing = await retrieve(id);
    expect(standing).toMatchObject({ status: 'cancelled', output: [{ type: 'message', status: 'incomplete' }] });
    const next = await respond({ model: script.model, input: 'Here again', previous_response_id: id });
    expect(textIn(next)).toBe('Welcome back.');
  });

  test('too many turns, and a filter', async () => {
    const turns = Array.from({ length: 10 }, (_, a) => ({ calls: [call('add', { a, b: 1 })] }));
    const script = await on.script(...turns, { text: 'Ten.' });
    const { id } = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(textIn(await respond({ model: script.model, input: 'And?', previous_response_id: id }))).toBe('Ten.');
    const filtered = await on.script({ text: 'This', finish: 'content-filter' }, { text: 'Something else.' });
    const first = await respond({ model: filtered.model, input: 'Go' });
    const next = await respond({ model: filtered.model, input: 'Else?', previous_response_id: first.id });
    expect(textIn(next)).toBe('Something else.');
  });
});

describe('requires_action', () => {
  const headers = { 'treadle-status': 'requires_action' };

  test('is told to those who ask for it, and kept as such', async () => {
    const script = await on.script({ calls: [call('weather', {})] }, { calls: [call('weather', {})] });
    const asked = { model: script.model, input: 'Go', tools: [WEATHER] };
    const plain = await respond(asked);
    expect(plain.status).toBe('completed');
    const { response, events } = await stream(asked, headers);
    expect(response.status).toBe('requires_action');
    expect(events.at(-1)!.type).toBe('response.completed');
    for (const { id, pending_call_ids: pending } of [plain, response]) {
      expect(pending).toHaveLength(1);
      expect(await retrieve(id)).toMatchObject({ status: 'completed', pending_call_ids: pending });
      expect(await retrieve(id, headers)).toMatchObject({ status: 'requires_action', pending_call_ids: pending });
    }
  });

  test('the outputs may come with more words, and the calls are answered again after a failure', async () => {
    const script = await on.script(
      { calls: [call('weather', {})] },
      { fault: 'status', status: 500 },
      { text: 'Take an umbrella.' },
    );
    const asked = { model: script.model, tools: [WEATHER] };
    const first = await respond({ ...asked, input: 'Go' });
    const input = [outputFor(callsIn(first)[0]!, 'rain'), said('So?')];
    const answer = { ...asked, previous_response_id: first.id, input };
    expect((await refused(answer)).status).toBe(503);
    expect(textIn(await respond(answer))).toBe('Take an umbrella.');
    expect((await script.heard()).at(-1)).toEqual([
      'user: Go',
      'assistant: [1] weather {}',
      'tool: [1] rain',
      'user: So?',
    ]);
  });

  test('outputs in parts, with an image', async () => {
    const script = await on.script({ calls: [call('weather', {})] }, { text: 'Wet.' });
    const asked = { model: script.modelIn('anthropic'), tools: [WEATHER] };
    const first = await respond({ ...asked, input: 'Go' });
    const image_url = 'data:image/png;base64,iVBORw0KGgo=';
    const output = [
      { type: 'input_text', text: 'rain' },
      { type: 'input_image', image_url },
    ];
    const input = [{ type: 'function_call_output', call_id: callsIn(first)[0]!.call_id, output }];
    const next = await respond({ ...asked, previous_response_id: first.id, input });
    expect(textIn(next)).toBe('Wet.');
    expect(JSON.stringify((await script.requests())[1]!.body)).toContain('iVBORw0KGgo=');
    expect((await inputItems(next.id)).data).toMatchObject([{ type: 'function_call_output', output }]);
  });
});

describe('what is kept', () => {
  test('nothing with store: false', async () => {
    const script = await on.script({ text: 'Zanzibar.' }, { text: 'Zanzibar.' }, { text: 'Never.' });
    const asked = { model: script.model, input: 'Timbuktu', instructions: 'Samarkand', store: false };
    const whole = await respond(asked);
    expect(whole['store']).toBe(false);
    const { response } = await stream(asked);
    for (const { id } of [whole, response]) {
      expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
      expect((await send('GET', `/v1/responses/${id}/input_items`)).status).toBe(404);
      expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(404);
      const { body } = await refused({ model: script.model, input: 'And?', previous_response_id: id });
      expect(body.error.code).toBe('previous_response_not_found');
    }
    const kept = await stored();
    const control = await on.script({ text: 'Novosibirsk.' });
    await respond({ model: control.model, input: 'Hi' });
    expect(await stored()).toContain('Novosibirsk');
    for (const word of ['Zanzibar', 'Timbuktu', 'Samarkand', whole.id, response.id]) expect(kept).not.toContain(word);
  });

  test('nothing after it was deleted', async () => {
    const script = await on.script({ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' });
    const first = await respond({ model: script.model, input: 'Hi' });
    const second = await respond({ model: script.model, input: 'On', previous_response_id: first.id });
    const { status, body } = await send('DELETE', `/v1/responses/${first.id}`);
    expect([status, body]).toEqual([200, { id: first.id, object: 'response', deleted: true }]);
    expect((await send('GET', `/v1/responses/${first.id}`)).status).toBe(404);
    expect((await send('DELETE', `/v1/responses/${first.id}`)).status).toBe(404);
    // What went on from it has all it needs.
    expect(textIn(await retrieve(second.id))).toBe('Two.');
    const third = await respond({ model: script.model, input: 'And on', previous_response_id: second.id });
    expect(textIn(third)).toBe('Three.');
    expect((await script.heard()).at(-1)).toHaveLength(5);
  });

  test('one that runs is stopped before it is deleted', async () => {
    const script = await on.script({ calls: [call('hold', { tag: 'deleted' })] }, { text: 'Never.' });
    const { id, ended } = await begin({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await on.server.held('deleted');
    expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(200);
    expect((await ended).response.status).toBe('cancelled');
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
    expect(await script.bodies()).toHaveLength(1);
  });

  test('no secret of a tool', async () => {
    const script = await on.script({ text: 'Hello.' });
    const tool = { ...SERVER_TOOLS, authorization: 'Bearer hush-1', headers: { 'x-key': 'hush-2' } };
    const response = await respond({ model: script.model, input: 'Hi', tools: [tool] });
    expect(response['tools']).toEqual([SERVER_TOOLS]);
    expect(await stored()).not.toContain('hush-');
  });
});

test('input items are paged through', async () => {
  const script = await on.script({ text: 'Hello.' });
  const input = Array.from({ length: 25 }, (_, n) => said(String(n), n % 2 === 0 ? 'user' : 'assistant'));
  const { id } = await respond({ model: script.model, input });
  const words = async (query: string): Promise<string[]> =>
    (await inputItems(id, query)).data.map(({ content }) => content![0]!.text);
  expect((await words('?order=asc&limit=100')).map(Number)).toEqual([...input.keys()]);
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
