import { agentRegistry } from '@treadle/core/named-agents';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { treadleServer } from '@treadle/server';
import type { Store } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { postChat } from './support/chat-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

/* What the model is told: by the server, by the conversation, and by the request. */

let cleanUp: AsyncDisposableStack;
let store: Store;
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  store = cleanUp.adopt(await openTestStore(), (one) => one.close());
});
afterEach(() => cleanUp.disposeAsync());

type Options = Parameters<typeof startInProcess>[1];

async function serve(script: readonly ScriptStep[], options: Options = {}) {
  const model = scriptedModel(script);
  const server = cleanUp.use(await startInProcess(model, { store, ...options }));
  const told = (): (string | undefined)[] => model.requests.map(({ instructions }) => instructions);
  return { server, told };
}

async function say(server: InProcessServer, body: object): Promise<{ readonly id: string; readonly run: string }> {
  const client = await postChat(server.url, body);
  const { conversation_id: id, run_id: run } = await client.event('conversation_meta');
  await client.ended;
  return { id: id as string, run: run as string };
}

test('the text of the server comes first, then that of the conversation, then that of the request', async () => {
  const { server, told } = await serve(['1', '2', '3', '4'], { instructions: 'You work for Acme.' });
  const { id, run } = await say(server, { message: 'a', instructions: 'Answer in French.' });
  await server.post({ model: 'm', input: 'b', instructions: 'Be brief.', conversation: id });
  await server.post({ model: 'm', input: 'c', instructions: 'Be brief.' });
  await server.send('POST', '/v1/chat/completions', {
    model: 'm',
    messages: [
      { role: 'system', content: 'Be kind.' },
      { role: 'user', content: 'd' },
    ],
  });
  expect(told()).toEqual([
    'You work for Acme.\n\nAnswer in French.',
    'You work for Acme.\n\nAnswer in French.\n\nBe brief.',
    'You work for Acme.\n\nBe brief.',
    'You work for Acme.\n\nBe kind.',
  ]);
  const [started] = await store.read(run);
  expect(started!.event).toMatchObject({ type: 'run-started', instructions: told()[0] });
});

test('each model has its own text, and the others that of *', async () => {
  const models = ['a', 'b', 'c'].map((name) => [name, scriptedModel(['.'])] as const);
  const served = { models: { default: 'a', models: new Map(models) } };
  const instructions = { a: 'You are a.', '*': 'You are not a.' };
  const { server } = await serve([], { ...served, instructions });
  for (const [name] of models) await server.post({ model: name, input: 'Hi' });
  expect(models.map(([, model]) => model.requests[0]!.instructions)).toEqual([
    'You are a.',
    'You are not a.',
    'You are not a.',
  ]);
  const unknown = () => treadleServer({ ...served, store, instructions: { d: 'You are d.' } });
  expect(unknown).toThrow('instructions names "d", which is not one of the models: a, b, c. "*" is for the others.');
});

test('an agent has its own text, or that of its model, and a name of neither is refused', async () => {
  const models = ['a', 'b'].map((name) => [name, scriptedModel(['.', '.', '.'])] as const);
  const namedAgents = agentRegistry([
    { name: 'writer', description: 'Writes', instructions: 'Write.', model: 'b' },
    { name: 'reader', description: 'Reads', instructions: 'Read.', model: 'b' },
    { name: 'other', description: 'Other', instructions: 'Other.' },
  ]);
  const served = { models: { default: 'a', models: new Map(models) }, namedAgents };
  const instructions = { b: 'You are b.', 'agent/writer': 'You write for Acme.', '*': 'You work for Acme.' };
  const { server } = await serve([], { ...served, instructions });
  for (const name of ['writer', 'reader', 'other']) await server.post({ model: `agent/${name}`, input: 'Hi' });
  await server.send('POST', '/v1/agents/reader/invoke', { inputs: {}, model: 'a' });
  const told = models.map(([, model]) => model.requests.map((one) => one.instructions!.split('\n', 1)[0]));
  expect(told).toEqual([
    ['You work for Acme.', 'You work for Acme.'],
    ['You write for Acme.', 'You are b.'],
  ]);
  const naming = (name: string, more: object = {}) =>
    treadleServer({ ...served, ...more, store, instructions: { [name]: 'You are it.' } });
  expect(() => naming('agent/writre')).toThrow(
    'instructions names "agent/writre", which is not one of the models: a, b, agent/writer, agent/reader, agent/other.',
  );
  expect(() => naming('agent/x', { agentSettings: { writable: true } })).not.toThrow();
});

test('the instructions of a conversation can be changed and removed, and apply from the next message on', async () => {
  const { server, told } = await serve(['1', '2', '3', '4']);
  const { id } = await say(server, { message: 'a' });
  expect((await server.send('GET', `/v1/chat/${id}`)).body).toMatchObject({ instructions: null });
  const change = (body: object) => server.send('PATCH', `/v1/chat/${id}`, body);
  expect((await change({ instructions: 'Answer in French.' })).body).toMatchObject({
    title: 'a',
    instructions: 'Answer in French.',
  });
  await say(server, { conversation_id: id, message: 'b' });
  expect((await change({ title: 'French', instructions: 'Answer in Latin.' })).body).toMatchObject({ title: 'French' });
  await say(server, { conversation_id: id, message: 'c' });
  expect((await change({ instructions: null })).body).toMatchObject({ title: 'French', instructions: null });
  await say(server, { conversation_id: id, message: 'd' });
  expect(told()).toEqual([undefined, 'Answer in French.', 'Answer in Latin.', undefined]);
  expect((await change({})).status).toBe(400);
  expect((await change({ instructions: 'x'.repeat(100_001) })).status).toBe(400);
  const late = await server.send('POST', '/v1/chat', { conversation_id: id, message: 'e', instructions: 'Never.' });
  expect([late.status, late.body.error.param]).toEqual([400, 'instructions']);
});

test('the Conversations API sets them too, and a branch has those of its original', async () => {
  const { server, told } = await serve(['1', '2', '3']);
  const created = await server.send('POST', '/v1/conversations', { instructions: 'Be brief.', metadata: { a: 'b' } });
  expect(created.body).toMatchObject({ instructions: 'Be brief.', metadata: { a: 'b' } });
  const { id } = created.body as { readonly id: string };
  await say(server, { conversation_id: id, message: 'a' });
  const { body } = await server.send('GET', `/v1/chat/${id}`);
  const branch = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: body.messages[1].id });
  const empty = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: body.messages[0].id });
  expect(empty.body).toMatchObject({ instructions: 'Be brief.', messages: [] });
  const updated = await server.send('POST', `/v1/conversations/${id}`, { instructions: '' });
  expect(updated.body).toEqual({ id, object: 'conversation', created_at: expect.any(Number), metadata: { a: 'b' } });
  await say(server, { conversation_id: id, message: 'b' });
  await say(server, { conversation_id: branch.body.id, message: 'b' });
  expect(told()).toEqual(['Be brief.', undefined, 'Be brief.']);
});

test('a summary is not written by the instructions of the server', async () => {
  const { server, told } = await serve(['Long answer.', 'Summary.', 'Next.'], { instructions: 'You work for Acme.' });
  const first = await server.post({ model: 'm', input: 'a'.repeat(9_000) });
  const { id } = JSON.parse(first.text) as { readonly id: string };
  const compacted = { model: 'm', input: 'b', previous_response_id: id };
  await server.post({ ...compacted, context_management: [{ type: 'compaction', compact_threshold: 1_000 }] });
  expect(told()[0]).toBe('You work for Acme.');
  expect(told()[1]).not.toContain('Acme');
  expect(told().at(-1)).toContain('Acme');
});
