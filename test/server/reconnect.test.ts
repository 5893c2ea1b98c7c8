import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { tool, type AssistantPart, type Model, type Tool } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { followBackground, postBackground } from './support/background-events.ts';
import { followChat, partsSeen, postChat, type ChatEvent, type EventsClient } from './support/chat-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import type { StreamEvent } from './support/responses-client.ts';
import { validateStream } from './support/stream-rules.ts';
import { openTestStore } from './support/test-store.ts';

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

/** The stream with this loss is read again after each of its events. */
const CUT_EVERYWHERE = 'turn 2 before word 2';

/** An API whose streams can be continued. */
interface Api<T> {
  readonly name: string;
  start(url: string): Promise<EventsClient<T>>;
  /** The number of an event, from 1. */
  numberOf(event: T): number;
  isWord(event: T): boolean;
  idsIn(events: readonly T[]): { readonly id: string; readonly runId: string };
  /** Reads the events after a number of them. */
  follow(url: string, id: string, after: number): Promise<readonly T[]>;
  /** Checks the whole stream, and what is stored. */
  check(server: InProcessServer, id: string, whole: readonly T[]): Promise<void>;
}

const CHAT: Api<ChatEvent> = {
  name: 'conversation',
  start: (url) => postChat(url, { message: 'Time?', on_disconnect: 'continue' }),
  numberOf: ({ seq }) => seq,
  isWord: ({ type }) => type === 'token_delta',
  idsIn: ([first]) => ({ id: first!['conversation_id'], runId: first!['run_id'] }),
  follow: async (url, id, after) => (await followChat(url, id, { after })).ended,
  async check(server, id, whole) {
    expect(whole.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
    for (const type of ['conversation_meta', 'tool_call_start', 'tool_call_result', 'usage', 'done']) {
      expect(whole.filter((event) => event.type === type)).toHaveLength(1);
    }
    const { body } = await server.send('GET', `/v1/chat/${id}`);
    expect(partsSeen(whole)).toEqual(body.messages[1].parts);
    expect(body.messages[1].parts).toHaveLength(5);
  },
};

const BACKGROUND: Api<StreamEvent> = {
  name: 'background response',
  start: (url) => postBackground(url, { input: 'Time?' }),
  numberOf: ({ sequence_number: number }) => number + 1,
  isWord: ({ type }) => type === 'response.output_text.delta',
  idsIn([first]) {
    const { id } = first!['response'] as { readonly id: string };
    return { id, runId: id };
  },
  async follow(url, id, after) {
    const client = await followBackground(url, id, { after: after === 0 ? undefined : after - 1 });
    const events = await client.ended;
    expect(client.hasEndMark).toBe(true);
    return events;
  },
  async check(server, id, whole) {
    const response = validateStream(whole, { wasResumed: true });
    expect(response).toMatchObject({ status: 'completed', background: true });
    expect(response).toEqual(await server.get(id));
    const { output } = response;
    const texts = output.filter(({ type, status }) => type === 'message' && status === 'completed');
    expect(texts.map(({ content }) => content![0]!.text)).toEqual(['Let me look. ', 'It is noon.']);
    expect(output.filter(({ type }) => type === 'mcp_call')).toMatchObject([{ status: 'completed', output: '12:00' }]);
  },
};

describe.each<Api<never>>([CHAT as Api<never>, BACKGROUND as Api<never>])('a client of a $name', (api) => {
  test.for(POINTS)('gets every event once, if the process is lost: $lost', async ({ lost, words }) => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-reconnect-'));
    await using cleanUp = new AsyncDisposableStack();
    cleanUp.defer(() => rm(folder, { recursive: true }));
    const openStore = async () =>
      cleanUp.adopt(await openTestStore(path.join(folder, 'runs.db')), (store) => store.close());
    const [first, second] = [await openStore(), await openStore()];
    const died = Promise.withResolvers<void>();
    const reach: Reach = async (point) => {
      if (point !== lost) return;
      died.resolve();
      await new Promise(() => {});
    };
    const options = { tools: [timeTool(reach)], defaultTools: ['time'] };
    const server = cleanUp.use(await startInProcess(stepwiseModel(reach), { store: first, ...options }));
    const client = await api.start(server.url);
    await died.promise;
    while (client.events.length === 0 || client.events.filter(api.isWord).length < words) await setImmediate();
    client.disconnect();
    const seen = await client.ended;
    const { id, runId } = api.idsIn(seen);

    // The lease of the lost process is released by force, as its expiry would: it cannot write any more.
    await second.releaseRun(runId, { force: true });
    const nowhere: Reach = async () => {};
    const other = cleanUp.use(
      await startInProcess(stepwiseModel(nowhere), {
        store: second,
        tools: [timeTool(nowhere)],
        defaultTools: ['time'],
      }),
    );
    expect(other.recovered).toBe(1);
    const whole = await api.follow(other.url, id, 0);
    expect(whole.map(api.numberOf)).toEqual(whole.map((_, index) => index + 1));
    expect(whole.slice(0, seen.length)).toEqual(seen);
    await api.check(other, id, whole);
    if (lost !== CUT_EVERYWHERE) return;
    for (let after = 0; after <= whole.length; after++) {
      expect(await api.follow(other.url, id, after)).toEqual(whole.slice(after));
    }
  });
});

test('a client that reconnects to another server does not wait until that one looks for lost answers', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-reconnect-'));
  await using cleanUp = new AsyncDisposableStack();
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const openStore = async () =>
    cleanUp.adopt(await openTestStore(path.join(folder, 'runs.db')), (store) => store.close());
  const [first, second] = [await openStore(), await openStore()];
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

test('an answer whose process was lost keeps its text if it is stopped at another server', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-reconnect-'));
  await using cleanUp = new AsyncDisposableStack();
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const openStore = async () =>
    cleanUp.adopt(await openTestStore(path.join(folder, 'runs.db')), (store) => store.close());
  const [first, second] = [await openStore(), await openStore()];
  const lost: Reach = (point) => (point.endsWith('word 2') ? new Promise(() => {}) : Promise.resolve());
  const server = cleanUp.use(await startInProcess(stepwiseModel(lost), { store: first }));
  const other = cleanUp.use(await startInProcess(stepwiseModel(lost), { store: second }));
  const client = await postChat(server.url, { message: 'Time?', on_disconnect: 'continue' });
  await client.event(({ delta }) => delta === 'me ');
  const { conversation_id: id, run_id: runId } = await client.event('conversation_meta');
  client.disconnect();
  await second.releaseRun(runId, { force: true });
  const { body } = await other.send('POST', `/v1/chat/${id}/cancel`, {});
  expect(body.messages[1]).toMatchObject({
    status: 'cancelled',
    parts: [
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'Let me ', stopped: true },
    ],
  });
  const events = await (await followChat(other.url, id)).ended;
  expect(partsSeen(events)).toEqual(body.messages[1].parts);
});
