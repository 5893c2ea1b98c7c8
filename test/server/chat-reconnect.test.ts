import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { tool, type AssistantPart, type Model, type Tool } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { followChat, partsSeen, postChat } from './support/chat-events.ts';
import { startInProcess } from './support/in-process.ts';

/** Called at each point of a run where its process may die. Never resolves at the point where it does. */
type Reach = (point: string) => Promise<void>;

/** A model with one call and then an answer, which emits its reply word by word. */
function stepwiseModel(reach: Reach): Model {
  return {
    id: 'stepwise',
    async reply({ messages }, emit) {
      const turn = messages.filter(({ role }) => role === 'tool').length + 1;
      const text = turn === 1 ? 'Let me look. ' : 'It is noon.';
      const content: AssistantPart[] = [
        { type: 'reasoning', text: 'Hm.' },
        { type: 'text', text },
        ...(turn === 1 ? [{ type: 'tool-call', id: 'c', name: 'time', arguments: '{}' } as const] : []),
      ];
      emit({ type: 'reasoning-delta', text: 'Hm.' });
      for (const [index, word] of text.match(/\S+\s*/g)!.entries()) {
        await reach(`turn ${turn} before word ${index}`);
        emit({ type: 'text-delta', text: word });
      }
      await reach(`turn ${turn} before its end`);
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content, finish: turn === 1 ? 'tool-calls' : 'stop', usage, model: 'stepwise' };
    },
  };
}

function timeTool(reach: Reach): Tool {
  const execute = async (): Promise<string> => {
    await reach('in the tool');
    return '12:00';
  };
  return tool({ name: 'time', description: '', effect: 'pure', execute });
}

/** Where the process is lost, and how many pieces of text were sent before. */
const POINTS = [
  { lost: 'turn 1 before word 0', words: 0 },
  { lost: 'turn 1 before word 1', words: 1 },
  { lost: 'turn 1 before word 2', words: 2 },
  { lost: 'turn 1 before its end', words: 3 },
  { lost: 'in the tool', words: 3 },
  { lost: 'turn 2 before word 0', words: 3 },
  { lost: 'turn 2 before word 2', words: 5 },
  { lost: 'turn 2 before its end', words: 6 },
];

test.for(POINTS)('a client gets every event once, if the process is lost: $lost', async ({ lost, words }) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-reconnect-'));
  await using cleanUp = new AsyncDisposableStack();
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const openStore = () => cleanUp.adopt(sqliteStore(path.join(folder, 'runs.db')), (store) => store.close());
  const [first, second] = [openStore(), openStore()];
  const died = Promise.withResolvers<void>();
  const reach: Reach = async (point) => {
    if (point !== lost) return;
    died.resolve();
    await new Promise(() => {});
  };
  const options = { tools: [timeTool(reach)], defaultTools: ['time'] };
  const server = cleanUp.use(await startInProcess(stepwiseModel(reach), { store: first, ...options }));
  const client = await postChat(server.url, { message: 'Time?', on_disconnect: 'continue' });
  await died.promise;
  const { conversation_id: id, run_id: runId } = await client.event('conversation_meta');
  while (client.events.filter(({ type }) => type === 'token_delta').length < words) await setImmediate();
  client.disconnect();
  const seen = await client.ended;

  // The lease of the lost process is released by force, as its expiry would: it cannot write any more.
  await second.releaseRun(runId, { force: true });
  const nowhere: Reach = async () => {};
  const other = cleanUp.use(
    await startInProcess(stepwiseModel(nowhere), { store: second, tools: [timeTool(nowhere)], defaultTools: ['time'] }),
  );
  expect(other.recovered).toBe(1);
  const whole = await (await followChat(other.url, id)).ended;
  expect(whole.map(({ seq }) => seq)).toEqual(whole.map((_, index) => index + 1));
  expect(whole.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  expect(whole.slice(0, seen.length)).toEqual(seen);
  for (const type of ['conversation_meta', 'tool_call_start', 'tool_call_result', 'usage', 'done']) {
    expect(whole.filter((event) => event.type === type)).toHaveLength(1);
  }
  const { body } = await other.send('GET', `/v1/chat/${id}`);
  expect(partsSeen(whole)).toEqual(body.messages[1].parts);
  expect(body.messages[1].parts).toHaveLength(5);
  // Cut at any event.
  for (let after = 0; after <= whole.length; after++) {
    expect(await (await followChat(other.url, id, { after })).ended).toEqual(whole.slice(after));
  }
});

test('a client that reconnects to another server does not wait until that one looks for lost answers', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-reconnect-'));
  await using cleanUp = new AsyncDisposableStack();
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const openStore = () => cleanUp.adopt(sqliteStore(path.join(folder, 'runs.db')), (store) => store.close());
  const [first, second] = [openStore(), openStore()];
  const started = Promise.withResolvers<void>();
  const lost: Reach = async () => {
    started.resolve();
    await new Promise(() => {});
  };
  const withTime = (reach: Reach) => ({ tools: [timeTool(reach)], defaultTools: ['time'] });
  const server = cleanUp.use(await startInProcess(stepwiseModel(lost), { store: first, ...withTime(lost) }));
  const nowhere: Reach = async () => {};
  // It has looked for lost answers when it started, and does so again after 30 seconds.
  const options = { store: second, ...withTime(nowhere) };
  const other = cleanUp.use(await startInProcess(stepwiseModel(nowhere), options));
  const client = await postChat(server.url, { message: 'Time?', on_disconnect: 'continue' });
  await started.promise;
  const { conversation_id: id, run_id: runId } = await client.event('conversation_meta');
  client.disconnect();
  const seen = await client.ended;
  await second.releaseRun(runId, { force: true });
  const rest = await (await followChat(other.url, id, { after: seen.at(-1)!.seq })).ended;
  expect([...seen, ...rest].map(({ seq }) => seq)).toEqual([...seen, ...rest].map((_, index) => index + 1));
  expect(rest.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
});
