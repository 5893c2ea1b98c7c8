import { textOf, tool, type Message, type Model, type ModelRequest, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import fc from 'fast-check';
import OpenAI from 'openai';
import type { ConversationItem } from 'openai/resources/conversations/items';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { followBackground } from './support/background-events.ts';
import { postChat } from './support/chat-events.ts';
import { WEATHER } from './support/fixture.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket } from './support/socket-client.ts';
import { openTestStore } from './support/test-store.ts';

let cleanUp: AsyncDisposableStack;
let store: Store;
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  store = cleanUp.adopt(await openTestStore(), (one) => one.close());
});
afterEach(() => cleanUp.disposeAsync());

type Script = Parameters<typeof scriptedModel>[0];

interface Served extends InProcessServer {
  readonly client: OpenAI;
  readonly requests: readonly ModelRequest[];
}

async function serve(script: Script, options: Parameters<typeof startInProcess>[1] = {}): Promise<Served> {
  const model = scriptedModel(script);
  const server = cleanUp.use(await startInProcess(model, { store, ...options }));
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  return { ...server, client, requests: model.requests };
}

const lines = ({ messages }: ModelRequest): string[] =>
  messages.map(({ role, content }: Message) =>
    role === 'tool' ? 'tool' : `${role}: ${textOf(content as Parameters<typeof textOf>[0])}`,
  );
const shown = (item: ConversationItem): string => {
  if (item.type !== 'message') return item.type;
  const texts = item.content.map((part) => ('text' in part ? part.text : part.type));
  return `${item.role}: ${texts.join()}`;
};
async function itemsOf(client: OpenAI, id: string, order: 'asc' | 'desc' = 'asc'): Promise<string[]> {
  const found: string[] = [];
  for await (const item of client.conversations.items.list(id, { order, limit: 2 })) found.push(shown(item));
  return found;
}
const chatOf = async (server: Pick<InProcessServer, 'send'>, id: string): Promise<string[]> => {
  interface ChatMessage {
    readonly role: string;
    readonly content?: string;
    readonly parts?: readonly { readonly type: string; readonly text?: string; readonly name?: string }[];
  }
  const { messages } = (await server.send('GET', `/v1/chat/${id}`)).body as {
    readonly messages: readonly ChatMessage[];
  };
  return messages.map(({ role, content, parts = [] }) =>
    [`${role}:`, content ?? parts.map(({ text, name }) => text ?? name).join(', ')].join(' '),
  );
};
const failure = (promise: PromiseLike<unknown>): Promise<{ status?: number; code?: string; param?: string }> =>
  Promise.resolve(promise).then(
    () => {
      throw new Error('It did not fail.');
    },
    (error: unknown) => error as { status?: number; code?: string; param?: string },
  );

describe('the Conversations API', () => {
  test('creates, reads, updates and deletes a conversation', async () => {
    const { client } = await serve([]);
    const created = await client.conversations.create({ metadata: { topic: 'tea' } });
    expect(created).toMatchObject({ object: 'conversation', metadata: { topic: 'tea' } });
    expect(Math.abs(created.created_at - Date.now() / 1000)).toBeLessThan(60);
    expect(await client.conversations.retrieve(created.id)).toEqual(created);
    const updated = await client.conversations.update(created.id, { metadata: { owner: 'ann' } });
    expect(updated).toEqual({ ...created, metadata: { owner: 'ann' } });
    expect(await client.conversations.delete(created.id)).toEqual({
      id: created.id,
      object: 'conversation.deleted',
      deleted: true,
    });
    expect(await failure(client.conversations.retrieve(created.id))).toMatchObject({
      status: 404,
      code: 'conversation_not_found',
    });
  });

  test('adds, lists, reads and deletes items, each with an id of its own', async () => {
    const { client } = await serve([]);
    const { id } = await client.conversations.create({ items: [{ role: 'user', content: 'Same.' }] });
    const same = { role: 'user' as const, content: 'Same.' };
    const { data, has_more: hasMore } = await client.conversations.items.create(id, {
      items: [same, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'Other.' }],
    });
    expect([data.map(shown), hasMore]).toEqual([['user: Same.', 'assistant: Yes.', 'user: Other.'], false]);
    expect(await itemsOf(client, id)).toEqual(['user: Same.', 'user: Same.', 'assistant: Yes.', 'user: Other.']);
    expect(await itemsOf(client, id, 'desc')).toEqual([
      'user: Other.',
      'assistant: Yes.',
      'user: Same.',
      'user: Same.',
    ]);
    const [, middle] = data;
    const inConversation = { conversation_id: id };
    expect(await client.conversations.items.retrieve(middle!.id!, inConversation)).toEqual(middle);
    expect(await client.conversations.items.delete(middle!.id!, inConversation)).toMatchObject({ id });
    expect(await itemsOf(client, id)).toEqual(['user: Same.', 'user: Same.', 'user: Other.']);
    const absent = await failure(client.conversations.items.retrieve(middle!.id!, inConversation));
    expect(absent).toMatchObject({ status: 404, code: 'item_not_found' });
    const wrong = await failure(client.conversations.items.list(id, { after: 'msg_none' }));
    expect(wrong).toMatchObject({ status: 400, param: 'after' });
  });

  test('refuses an id that the conversation has, and what it cannot read', async () => {
    const { client, send } = await serve([]);
    const item = { type: 'message' as const, id: 'msg_mine', role: 'user' as const, content: 'Hi' };
    const { id } = await client.conversations.create({ items: [item as never] });
    const cases = [
      [{ items: [item] }, { param: 'items', code: 'duplicate_item' }],
      [
        {
          items: [
            { ...item, id: 'a' },
            { ...item, id: 'a' },
          ],
        },
        { param: 'items', code: 'duplicate_item' },
      ],
      [{ items: [] }, { param: 'items', code: 'empty_items' }],
      [{}, { param: 'items' }],
      [{ items: [{ type: 'item_reference', id: 'msg_none' }] }, { code: 'item_not_found' }],
      [{ items: [{ type: 'reasoning', summary: [], encrypted_content: 'x' }] }, { code: 'invalid_encrypted_content' }],
    ] as const;
    for (const [body, error] of cases) {
      expect(await send('POST', `/v1/conversations/${id}/items`, body)).toMatchObject({ status: 400, body: { error } });
    }
    const list = await send('GET', `/v1/conversations/${id}/items?include[]=nothing`);
    expect(list).toMatchObject({ status: 400, body: { error: { param: 'include' } } });
    expect(await itemsOf(client, id)).toEqual(['user: Hi']);
  });
});

describe('a response with a conversation', () => {
  test('reads its items, and adds its input and output to them', async () => {
    const { client, requests } = await serve(['Noted.', 'Copper.', 'Again copper.']);
    const { id: conversation } = await client.conversations.create({
      items: [
        { role: 'developer', content: 'Be brief.' },
        { role: 'user', content: 'The word is copper.' },
      ],
    });
    const first = await client.responses.create({ conversation, input: 'Note it.' });
    expect([first.output_text, first.conversation]).toEqual(['Noted.', { id: conversation }]);
    await client.conversations.items.create(conversation, { items: [{ role: 'user', content: 'Well.' }] });
    const stream = client.responses.stream({ conversation: { id: conversation }, input: 'Which word?' });
    expect((await stream.finalResponse()).conversation).toEqual({ id: conversation });
    await client.responses.create({ conversation, input: 'Which word?' });
    expect(requests.map(({ instructions }) => instructions)).toEqual(['Be brief.', 'Be brief.', 'Be brief.']);
    expect(lines(requests[2]!)).toEqual([
      'user: The word is copper.\n\nNote it.',
      'assistant: Noted.',
      'user: Well.\n\nWhich word?',
      'assistant: Copper.',
      'user: Which word?',
    ]);
    expect(await itemsOf(client, conversation)).toEqual([
      'developer: Be brief.',
      'user: The word is copper.',
      'user: Note it.',
      'assistant: Noted.',
      'user: Well.',
      'user: Which word?',
      'assistant: Copper.',
      'user: Which word?',
      'assistant: Again copper.',
    ]);
    expect(await client.responses.retrieve(first.id)).toMatchObject({ conversation: { id: conversation } });
    const tokens = async (more: object): Promise<number> =>
      (await client.responses.inputTokens.count({ model: 'm', input: 'x', ...more })).input_tokens;
    expect(await tokens({ conversation })).toBeGreaterThan(await tokens({}));
    const inputs = await client.responses.inputItems.list(first.id);
    expect(inputs.data.map((item) => shown(item as ConversationItem))).toEqual(['user: Note it.']);
  });

  test('is continued with the outputs of functions, which may be added before', async () => {
    const call = { calls: [{ name: 'weather' }] };
    const { client, requests } = await serve([call, 'Sunny.', call, 'Rainy.']);
    const { id: conversation } = await client.conversations.create();
    const request = { conversation, tools: [WEATHER as never] };
    const callIn = ({ output }: OpenAI.Responses.Response): string =>
      output.flatMap((item) => (item.type === 'function_call' ? item.call_id : []))[0]!;
    const outputFor = (call_id: string, output: string) => ({ type: 'function_call_output' as const, call_id, output });
    const first = await client.responses.create({ ...request, input: 'Weather?' });
    const sunny = await client.responses.create({ ...request, input: [outputFor(callIn(first), 'sun')] });
    const second = await client.responses.create({ ...request, input: 'And now?' });
    const early = await failure(client.responses.create({ ...request, input: 'Hello?' }));
    expect(early).toMatchObject({ status: 400, code: 'missing_output' });
    await client.conversations.items.create(conversation, { items: [outputFor(callIn(second), 'rain')] });
    const rainy = await client.responses.create(request);
    expect([sunny.output_text, rainy.output_text]).toEqual(['Sunny.', 'Rainy.']);
    expect(lines(requests[3]!).filter((line) => line === 'tool')).toHaveLength(2);
  });

  test('names the item of its own input in an error, and refuses what does not fit', async () => {
    const { client } = await serve(['Hello.']);
    const { id: conversation } = await client.conversations.create({ items: [{ role: 'user', content: 'Hi' }] });
    const output = { type: 'function_call_output' as const, call_id: 'call_none', output: '' };
    const cases: [object, object][] = [
      [{ input: [output] }, { status: 400, param: 'input[0].call_id', code: 'unknown_call' }],
      [
        { input: 'x', previous_response_id: 'resp_1' },
        { status: 400, code: 'mutually_exclusive_parameters' },
      ],
      [
        { input: 'x', store: false },
        { status: 400, param: 'store' },
      ],
      [
        { input: 'x', conversation: 'conv_none' },
        { status: 404, param: 'conversation', code: 'conversation_not_found' },
      ],
      [
        { input: 'x', prompt: { id: 'pmpt_1' } },
        { status: 400, param: 'prompt', code: 'unsupported_parameter' },
      ],
    ];
    for (const [request, error] of cases) {
      expect(await failure(client.responses.create({ conversation, ...request } as never))).toMatchObject(error);
    }
    const sent = { type: 'message' as const, id: 'msg_sent', role: 'user' as const, content: 'Hello.' };
    await client.responses.create({ conversation, input: [sent] as never });
    const other = { ...sent, id: 'msg_other' };
    for (const input of [[sent], [other, other]]) {
      const again = await failure(client.responses.create({ conversation, input: input as never }));
      expect(again).toMatchObject({ status: 400, param: 'input', code: 'duplicate_item' });
    }
  });

  test('has one response at a time, and only what no run has read can be deleted', async () => {
    const held = Promise.withResolvers<string>();
    const { client, requests, send } = await serve([() => held.promise]);
    const { id: conversation } = await client.conversations.create({ items: [{ role: 'user', content: 'Hi' }] });
    const busy = { status: 409, code: 'conversation_busy' };
    const both = [1, 2].map(async () => client.responses.create({ conversation, input: 'Wait.' }));
    expect(await Promise.race(both.map(failure))).toMatchObject(busy);
    while (requests.length === 0) await new Promise(setImmediate);
    expect(await failure(client.responses.create({ conversation, input: 'Me too.' }))).toMatchObject(busy);
    const more = { items: [{ role: 'user' as const, content: 'More.' }] };
    expect(await failure(client.conversations.items.create(conversation, more))).toMatchObject(busy);
    expect((await send('POST', '/v1/chat', { conversation_id: conversation, message: 'Hi' })).body.error.code).toBe(
      'conversation_busy',
    );
    expect(await itemsOf(client, conversation)).toEqual(['user: Hi', 'user: Wait.']);
    expect(await chatOf({ send }, conversation)).toEqual(['user: Hi', 'user: Wait.', 'assistant: ']);
    held.resolve('Done.');
    const { id: response } = await Promise.any(both);
    const [item] = (await client.conversations.items.list(conversation)).data;
    const used = await failure(client.conversations.items.delete(item!.id!, { conversation_id: conversation }));
    expect(used).toMatchObject({ status: 409, code: 'item_in_use' });
    const kept = await failure(client.responses.delete(response));
    expect(kept).toMatchObject({ status: 409, code: 'response_in_conversation' });
    await client.conversations.delete(conversation);
    expect(await failure(client.responses.retrieve(response))).toMatchObject({ status: 404 });
  });

  test.each([
    { first: 'resp_', second: 'the response that has read it', left: ['user: Read.', 'assistant: Done.'] },
    { first: 'items_', second: 'the deletion', left: ['user: Hi', 'user: Read.', 'assistant: Done.'] },
  ])('while an item is deleted: $second gets a 409', async ({ first, left }) => {
    let meanwhile: (() => Promise<unknown>) | undefined;
    // Called when what comes second has read the conversation.
    const acquire: Store['acquire'] = async (run, ...more) => {
      const act = run.startsWith(first) ? meanwhile : undefined;
      if (act) meanwhile = undefined;
      await act?.();
      return store.acquire(run, ...more);
    };
    const { client, requests } = await serve(['Done.'], { store: { ...store, acquire } });
    const { id: conversation } = await client.conversations.create({ items: [{ role: 'user', content: 'Hi' }] });
    const [item] = (await client.conversations.items.list(conversation)).data;
    const remove = () => client.conversations.items.delete(item!.id!, { conversation_id: conversation });
    const read = () => client.responses.create({ conversation, input: 'Read.' });
    const [one, other] = first === 'resp_' ? [read, remove] : [remove, read];
    meanwhile = other;
    expect(await failure(one())).toMatchObject({ status: 409, code: 'conversation_busy' });
    if (first === 'resp_') await read();
    expect(await itemsOf(client, conversation)).toEqual(left);
    expect(requests.map(lines)).toEqual([[`user: ${left[0] === 'user: Hi' ? 'Hi\n\n' : ''}Read.`]]);
  });

  test('runs in the background, and its stream is deleted with the conversation', async () => {
    const { client, url } = await serve(['Done.']);
    const { id: conversation } = await client.conversations.create();
    const { id } = await client.responses.create({ conversation, input: 'Go.', background: true });
    const events = await (await followBackground(url, id)).ended;
    expect(events.at(-1)!.response).toMatchObject({ status: 'completed', conversation: { id: conversation } });
    expect(await itemsOf(client, conversation)).toEqual(['user: Go.', 'assistant: Done.']);
    expect(await store.streams.last(`events_${id}`)).toBeGreaterThan(0);
    await client.conversations.delete(conversation);
    expect(await store.streams.last(`events_${id}`)).toBe(0);
  });

  test('works over WebSocket', async () => {
    const { client, url, requests } = await serve(['One.', 'Two.']);
    const { id: conversation } = await client.conversations.create();
    using socket = await openSocket(url);
    await socket.create({ conversation, input: 'First' });
    const { response } = await socket.create({ conversation, input: 'Second' });
    expect(response).toMatchObject({ conversation: { id: conversation } });
    expect(lines(requests[1]!)).toEqual(['user: First', 'assistant: One.', 'user: Second']);
  });

  test('with an Idempotency-Key is added once', async () => {
    const { client, requests } = await serve(['One.']);
    const { id: conversation } = await client.conversations.create();
    const headers = { 'Idempotency-Key': 'k' };
    // One of them comes while the other is in progress.
    const send = () => client.responses.create({ conversation, input: 'Hi' }, { headers });
    const [one, other] = await Promise.all([send(), send()]);
    expect([other.id, (await send()).id, requests.length]).toEqual([one.id, one.id, 1]);
    expect(await itemsOf(client, conversation)).toEqual(['user: Hi', 'assistant: One.']);
  });

  test('that had not started when its process died is resumed with the conversation before it', async () => {
    const { client } = await serve(['Before.']);
    const { id: conversation } = await client.conversations.create();
    const { id: first } = await client.responses.create({ conversation, input: 'First' });
    await client.conversations.items.create(conversation, { items: [{ role: 'user', content: 'Added' }] });
    // What such a process leaves.
    const { head } = (await store.conversations.get('default', conversation))!;
    const { response: _, ...record } = (await store.requests.get('default', first))!;
    const id = `resp_${'a'.repeat(32)}`;
    await store.conversations.extend(conversation, { response: id, head: head!, text: '', at: Date.now() });
    await store.requests.create({ ...record, id, runId: id, status: 'in_progress', previous: head! });
    const other = await serve(['Resumed.']);
    expect([other.recovered, (await other.getEnded(id))['status']]).toEqual([1, 'completed']);
    expect(lines(other.requests[0]!)).toEqual(['user: First', 'assistant: Before.', 'user: Added\n\nFirst']);
    expect((await itemsOf(client, conversation)).at(-1)).toBe('assistant: Resumed.');
  });
});

test('a response that its server left is resumed by another one, and its conversation is busy until its end', async () => {
  const never = new Promise<string>(() => {});
  const first = await startInProcess(scriptedModel([() => never]), { store });
  const other = await serve(['Next.', 'Resumed.']);
  const { client, send } = other;
  const { id: conversation } = await client.conversations.create({ items: [{ role: 'user', content: 'Hi' }] });
  const { body } = await first.send('POST', '/v1/responses', { conversation, input: 'Wait.', background: true });
  const busy = { status: 409, code: 'conversation_busy' };
  expect(await failure(client.responses.create({ conversation, input: 'Me too.' }))).toMatchObject(busy);
  await first[Symbol.asyncDispose]();
  expect(await failure(client.responses.create({ conversation, input: 'Me too.' }))).toMatchObject(busy);
  // Its reader does not have to wait until the server looks for such responses.
  const events = await (await followBackground(other.url, body.id)).ended;
  expect(events.at(-1)!.response).toMatchObject({ status: 'completed', conversation: { id: conversation } });
  await client.responses.create({ conversation, input: 'Me too.' });
  const all = ['user: Hi', 'user: Wait.', 'assistant: Next.', 'user: Me too.', 'assistant: Resumed.'];
  expect(await itemsOf(client, conversation)).toEqual(all);
  const { body: exported } = await send('GET', `/v1/chat/${conversation}/export`);
  expect(exported.messages).toHaveLength(5);
});

type Step = 'respond' | 'chat' | 'add' | 'delete' | 'branch';

test('the model gets what both APIs list, whatever has been done before', async () => {
  const steps = fc.constantFrom<Step>('respond', 'chat', 'add', 'delete', 'branch');
  const count = { value: 0 };
  const model: Model = {
    id: 'm',
    reply: async (request) => {
      seen = lines(request);
      const text = `answer ${++count.value}`;
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content: [{ type: 'text', text }], finish: 'stop', usage, model: 'm' };
    },
  };
  let seen: string[] = [];
  const server = cleanUp.use(await startInProcess(model, { store }));
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const property = fc.asyncProperty(fc.array(steps, { maxLength: 8 }), async (some) => {
    let { id } = await client.conversations.create();
    /** What no run has read yet. */
    let added: string[] = [];
    let expected: string[] = [];
    const said = async (text: string): Promise<void> => {
      expected.push(`user: ${text}`);
      expect(seen).toEqual(merged(expected));
      expected.push(`assistant: answer ${count.value}`);
      added = [];
    };
    for (const [index, step] of [...some, 'respond' as const].entries()) {
      if (step === 'respond') {
        await client.responses.create({ conversation: id, input: `input ${index}` });
        await said(`input ${index}`);
      } else if (step === 'chat') {
        await (
          await postChat(server.url, { conversation_id: id, message: `message ${index}` })
        ).ended;
        await said(`message ${index}`);
      } else if (step === 'add') {
        const items = [0, 1].map((n) => ({ role: 'user' as const, content: `item ${index}.${n}` }));
        const { data } = await client.conversations.items.create(id, { items });
        for (const item of data) added.push(item.id!);
        expected.push(...data.map(shown));
      } else if (step === 'delete') {
        const [item] = added.splice(0, 1);
        if (item === undefined) continue;
        expected.splice(-1 - added.length, 1);
        await client.conversations.items.delete(item, { conversation_id: id });
      } else {
        const { messages } = (await server.send('GET', `/v1/chat/${id}`)).body;
        const answer = messages.findLast((one: { run_id?: string }) => one.run_id)?.id;
        if (answer === undefined) continue;
        id = (await server.send('POST', `/v1/chat/${id}/branch`, { message_id: answer })).body.id;
        expected = expected.slice(0, expected.length - added.length);
        added = [];
      }
      expect(await itemsOf(client, id)).toEqual(expected);
      expect(await chatOf(server, id)).toEqual(expected);
    }
  });
  await fc.assert(property, { numRuns: 5, seed: 24 });
});

/** Models get the messages of one role that follow each other as one. */
function merged(all: readonly string[]): string[] {
  const result: string[] = [];
  for (const line of all) {
    const last = result.at(-1);
    if (last?.startsWith('user: ') && line.startsWith('user: '))
      result[result.length - 1] = `${last}\n\n${line.slice('user: '.length)}`;
    else result.push(line);
  }
  return result;
}

describe('a conversation of /v1/chat', () => {
  const time: Tool = tool({ name: 'time', description: 'The time', effect: 'pure', execute: () => '12:00' });

  test('is read and continued by the other API, in both directions', async () => {
    const call = { calls: [{ name: 'time' }] };
    const served = await serve([call, 'Noon.', 'It was noon.', 'As I said.'], {
      tools: [time],
      defaultTools: ['time'],
    });
    const { client, url, requests } = served;
    const chat = await postChat(url, { message: 'Time?' });
    const { conversation_id: conversation } = (await chat.ended)[0]!;
    expect(await client.conversations.retrieve(conversation)).toMatchObject({ metadata: {} });
    expect(await itemsOf(client, conversation)).toEqual(['user: Time?', 'mcp_call', 'assistant: Noon.']);
    await client.responses.create({
      conversation,
      input: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'When?' },
      ],
    });
    await client.conversations.items.create(conversation, { items: [{ role: 'user', content: 'Hm.' }] });
    await (
      await postChat(url, { conversation_id: conversation, message: 'Again?' })
    ).ended;
    expect(lines(requests[3]!)).toEqual([
      'user: Time?',
      'assistant: ',
      'tool',
      'assistant: Noon.',
      'user: When?',
      'assistant: It was noon.',
      'user: Hm.\n\nAgain?',
    ]);
    expect(requests[3]!.instructions).toBe('Be brief.');
    expect(await chatOf(served, conversation)).toEqual([
      'user: Time?',
      'assistant: time, Noon.',
      'user: When?',
      'assistant: It was noon.',
      'user: Hm.',
      'user: Again?',
      'assistant: As I said.',
    ]);
    const found = await served.send('GET', '/v1/chat?search=noon');
    expect(found.body.data).toMatchObject([{ id: conversation }]);
  });

  test('that waits for functions takes no message, and shows their results when it has them', async () => {
    const served = await serve([{ calls: [{ name: 'weather' }] }, 'Sunny.', 'Bye.']);
    const { client, send, url } = served;
    const { id: conversation } = await client.conversations.create();
    const tools = [WEATHER as never];
    const { output } = await client.responses.create({ conversation, tools, input: 'Weather?' });
    const refused = await send('POST', '/v1/chat', { conversation_id: conversation, message: 'Hello?' });
    expect(refused).toMatchObject({ status: 409, body: { error: { code: 'conversation_waits' } } });
    const lone = { type: 'function_call' as const, call_id: 'c', name: 'weather', arguments: '{}' };
    const other = await client.conversations.create({ items: [lone] });
    const unfit = await send('POST', '/v1/chat', { conversation_id: other.id, message: 'Hello?' });
    expect(unfit).toMatchObject({ status: 409, body: { error: { code: 'missing_output', param: 'conversation_id' } } });
    const last = async (): Promise<object> => (await send('GET', `/v1/chat/${conversation}`)).body.messages.at(1);
    expect(await last()).toMatchObject({ status: 'waiting', parts: [{ type: 'tool_call', result: null }] });
    const [call] = output;
    if (call?.type !== 'function_call') throw new Error('It made no call.');
    const input = [{ type: 'function_call_output' as const, call_id: call.call_id, output: 'sun' }];
    await client.responses.create({ conversation, tools, input });
    expect(await last()).toMatchObject({
      status: 'completed',
      parts: [{ result: { content: 'sun', is_error: false } }],
    });
    await (
      await postChat(url, { conversation_id: conversation, message: 'Thanks.' })
    ).ended;
    expect((await chatOf(served, conversation)).slice(2)).toEqual([
      'assistant: Sunny.',
      'user: Thanks.',
      'assistant: Bye.',
    ]);
  });

  test('a fork of a response is not a part of its conversation', async () => {
    const { client, send, getEnded } = await serve(['One.', 'Other.']);
    const { id: conversation } = await client.conversations.create();
    const { id } = await client.responses.create({ conversation, input: 'Hi' });
    const { body } = await send('POST', `/v1/runs/${id}/fork`, { at: 0 });
    const forked = await getEnded(body.id ?? body.run_id);
    expect(forked['conversation']).toBeUndefined();
    expect(await itemsOf(client, conversation)).toEqual(['user: Hi', 'assistant: One.']);
  });
});

test('a conversation belongs to its tenant, and needs the scopes of chats', async () => {
  const key = (name: string, tenant: string, scopes: readonly string[]) => ({
    name,
    hash: hashKey(`tk_${name}`),
    tenant,
    scopes: scopes as never,
  });
  const all = ['agents:invoke', 'chat:read', 'chat:write'];
  const keys = [
    key('ann', 'acme', all),
    key('bob', 'bolt', all),
    key('plain', 'acme', ['agents:invoke']),
    key('reader', 'acme', ['chat:read']),
  ];
  const { url, send } = await serve(['Mine.'], { keys });
  const as = (name: string): OpenAI => new OpenAI({ baseURL: `${url}/v1`, apiKey: `tk_${name}`, maxRetries: 0 });
  const ann = as('ann');
  const { id } = await ann.conversations.create();
  await ann.responses.create({ conversation: id, input: 'Hi' });
  const item = (await ann.conversations.items.list(id)).data[0]!.id!;
  const never = `conv_${'f'.repeat(32)}`;
  const routes = (conversation: string): [string, string, object?][] => [
    ['GET', `/v1/conversations/${conversation}`],
    ['POST', `/v1/conversations/${conversation}`, { metadata: {} }],
    ['DELETE', `/v1/conversations/${conversation}`],
    ['GET', `/v1/conversations/${conversation}/items`],
    ['POST', `/v1/conversations/${conversation}/items`, { items: [{ role: 'user', content: 'x' }] }],
    ['GET', `/v1/conversations/${conversation}/items/${item}`],
    ['DELETE', `/v1/conversations/${conversation}/items/${item}`],
    ['POST', '/v1/responses', { conversation, input: 'Hi' }],
  ];
  const authorization = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });
  for (const [index, [method, path, body]] of routes(id).entries()) {
    const foreign = await send(method, path, body, authorization('bob'));
    const [, unknownPath, unknownBody] = routes(never)[index]!;
    const unknown = await send(method, unknownPath, unknownBody, authorization('bob'));
    expect([foreign.status, JSON.stringify(foreign.body).replaceAll(id, never)]).toEqual([
      404,
      JSON.stringify(unknown.body),
    ]);
    const { status } = await send(method, path, body, authorization('plain'));
    expect([method, path, status]).toEqual([method, path, 403]);
  }
  expect((await as('reader').conversations.items.list(id)).data).toHaveLength(2);
  expect(await failure(as('reader').conversations.create())).toMatchObject({ status: 403 });
});

describe('with an Idempotency-Key', () => {
  const headers = { 'Idempotency-Key': 'k' };

  test.each([
    ['without items', {}],
    ['with items', { items: [{ role: 'user' as const, content: 'Hi' }], metadata: { a: 'b' } }],
  ])('a conversation %s is created once', async (_, body) => {
    const { client, requests } = await serve(['One.']);
    const create = (): Promise<{ readonly id: string }> => client.conversations.create(body, { headers });
    const [one, other] = await Promise.all([create(), create()]);
    expect([other, await create()]).toEqual([one, one]);
    expect(await store.conversations.list({ tenant: 'default', limit: 9 })).toHaveLength(1);
    const other409 = await failure(client.conversations.create({ metadata: { c: 'd' } }, { headers }));
    expect(other409).toMatchObject({ status: 409, code: 'idempotency_key_reused' });
    await client.responses.create({ conversation: one.id, input: 'Go.' });
    expect(lines(requests[0]!)).toEqual(['items' in body ? 'user: Hi\n\nGo.' : 'user: Go.']);
    await client.conversations.delete(one.id);
    expect(await failure(create())).toMatchObject({ status: 409, code: 'response_deleted' });
  });

  test('items are added once', async () => {
    const { client } = await serve([]);
    const { id } = await client.conversations.create();
    const items = [{ role: 'user' as const, content: 'Hi' }];
    const add = () => client.conversations.items.create(id, { items }, { headers });
    const [one, other] = await Promise.all([add(), add()]);
    expect([other.data, (await add()).data]).toEqual([one.data, one.data]);
    expect(await itemsOf(client, id)).toEqual(['user: Hi']);
  });

  test.each(['/v1/chat', '/v1/chat/ui', '/v1/chat/ag-ui', '/v1/chat/conv_1/branch', '/v1/runs/run_1/input'])(
    'POST %s is refused',
    async (path) => {
      const { send } = await serve([]);
      const { status, body } = await send('POST', path, { message: 'Hi' }, { 'idempotency-key': 'k' });
      expect([status, body.error.code]).toEqual([400, 'unsupported_parameter']);
    },
  );
});
