import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { tool, type Event, type Policy, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import { backgroundTools, bashTool, local, todoReadTool, todoWriteTool, withBackground } from '@treadle/tools';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { postChat, type ChatEvent } from './support/chat-events.ts';
import { TestChat } from './support/front-ends.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket } from './support/socket-client.ts';
import { openTestStore, queryStored } from './support/test-store.ts';

/* What a message finds of those before it: memory, grants and narrowing. */

let cleanUp: AsyncDisposableStack;
let store: Store;
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  store = cleanUp.adopt(await openTestStore(), (one) => one.close());
});
afterEach(() => cleanUp.disposeAsync());

const write = tool({
  name: 'write',
  description: 'Writes a file',
  touches: ({ path: file }) => [{ type: 'write', path: String(file) }],
  execute: () => 'written',
});
const plan = tool({
  name: 'plan',
  description: 'Only plans from now on',
  touches: () => [],
  execute: () => ({ content: 'narrowed', narrow: { tools: ['todoread', 'todowrite'] } }),
});
const TOOLS: readonly Tool[] = [todoWriteTool(), todoReadTool(), write, plan];
const SCOPES = ['agents:invoke', 'tools:execute', 'chat:read', 'chat:write', 'runs:read', 'runs:write'] as const;
const KEYS = [
  { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: SCOPES },
  { name: 'abe', hash: hashKey('tk_abe'), tenant: 'acme', scopes: SCOPES },
  { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: SCOPES },
];
const as = (key: string): Readonly<Record<string, string>> => ({ authorization: `Bearer tk_${key}` });
/** Asks about each write. */
const policy: Policy = { judge: (calls) => calls.map(({ name }) => ({ type: name === 'write' ? 'ask' : 'allow' })) };

const call = (name: string, args: object = {}): ScriptStep => ({ calls: [{ name, arguments: args }] });
const ADD = call('todowrite', { task: 'Buy tea' });
const MILK = call('todowrite', { task: 'Buy milk' });
const READ = call('todoread');
const WRITE = call('write', { path: 'a' });

async function serve(script: readonly ScriptStep[], options: Parameters<typeof startInProcess>[1] = {}) {
  const defaultTools = TOOLS.map(({ name }) => name);
  const given = { store, tools: TOOLS, defaultTools, requiresAction: true, ...options };
  return cleanUp.use(await startInProcess(scriptedModel(script), given));
}

/** Sends a message, and approves what its run asks about, for the rest of the run. */
async function say(server: InProcessServer, body: object, headers = {}) {
  const asks: string[] = [];
  const client = await postChat(server.url, body, {
    headers,
    onEvent(event) {
      if (event.type === 'approval_request') asks.push(event['id'] as string);
    },
  });
  const { conversation_id: id, run_id: run } = await client.event('conversation_meta');
  let answered = 0;
  for (;;) {
    const next = await client.event(
      ({ type, id: ask }) => type === 'done' || (type === 'approval_request' && asks.indexOf(ask) >= answered),
    );
    if (next.type === 'done') break;
    answered = asks.length;
    await approveForRun(server, run as string, headers);
  }
  const events = await client.ended;
  return { id: id as string, run: run as string, events, asks: asks.length, results: resultsIn(events) };
}

async function approveForRun(server: InProcessServer, run: string, headers: object): Promise<void> {
  const { body } = await server.send('GET', `/v1/runs/${run}`, undefined, headers as never);
  const answers = body.waiting.map(({ effect, digest }: { effect: string; digest: string }) => {
    return { type: 'approval', effect, digest, approved: true, for_run: true };
  });
  const { status } = await server.send('POST', `/v1/runs/${run}/answers`, { answers }, headers as never);
  if (status !== 200 && status !== 202) throw new Error(`The answer was rejected with ${status}.`);
}

const resultsIn = (events: readonly ChatEvent[]): string[] =>
  events.flatMap(({ type, content }) => (type === 'tool_call_result' ? String(content ?? '') : []));
const startOf = async (run: string): Promise<Extract<Event, { type: 'run-started' }>> =>
  (await store.read(run))[0]!.event as never;

describe('a message', () => {
  test('finds the todos of the message before it, also after a restart', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-carried-'));
    cleanUp.defer(() => rm(folder, { recursive: true }));
    const file = path.join(folder, 'runs.db');
    store = await openTestStore(file);
    const first = await serve([ADD, 'Added.'], { store });
    const { id } = await say(first, { message: 'Remember tea' });
    await first[Symbol.asyncDispose]();
    await store.close();
    store = cleanUp.adopt(await openTestStore(file), (one) => one.close());
    const second = await serve([READ, 'Tea.'], { store });
    const { results, run } = await say(second, { conversation_id: id, message: 'What is there to do?' });
    expect(results[0]).toContain('Buy tea');
    expect((await startOf(run)).memory).toHaveProperty('todos');
  });

  test('that is edited finds what was there at its place', async () => {
    const steps = [ADD, 'Added.', MILK, 'Added.', READ, 'Tea.', READ, 'Nothing.'];
    const server = await serve(steps);
    const chat = new TestChat(server, 'c');
    const results = (): string => JSON.stringify(chat.lastMessage!.parts);
    await chat.sendMessage({ text: 'Remember tea' });
    await chat.sendMessage({ text: 'And milk' });
    await chat.sendMessage({ text: 'What?', messageId: chat.messages[2]!.id });
    expect([results().includes('tea'), results().includes('milk')]).toEqual([true, false]);
    await chat.sendMessage({ text: 'What?', messageId: chat.messages[0]!.id });
    expect([results().includes('tea'), results().includes('milk')]).toEqual([false, false]);
  });

  test('is not asked about what a person has allowed before with the same key', async () => {
    const server = await serve([WRITE, 'Done.', WRITE, 'Done.', WRITE, 'Done.', WRITE, 'Done.'], {
      policy,
      keys: KEYS,
    });
    const first = await say(server, { message: 'Write' }, as('ann'));
    expect(first.asks).toBe(1);
    const { id } = first;
    const second = await say(server, { conversation_id: id, message: 'Again' }, as('ann'));
    expect(second.asks).toBe(0);
    expect(second.results).toEqual(['written']);
    const other = await say(server, { conversation_id: id, message: 'Again' }, as('abe'));
    expect(other.asks).toBe(1);
    expect(other.results).toEqual(['written']);
    const foreign = await server.send('POST', '/v1/chat', { conversation_id: id, message: 'Again' }, as('bob'));
    expect(foreign.status).toBe(404);
  });

  test('is not asked about what a person has allowed for the rest of the conversation in the chat', async () => {
    const server = await serve([WRITE, 'Done.', WRITE, 'Done.'], { policy });
    const client = await postChat(server.url, { message: 'Write' });
    const { conversation_id: id } = await client.event('conversation_meta');
    const { id: ask, digest } = await client.event('approval_request');
    const given = { id: ask, digest, approved: true, for_run: true };
    expect((await server.send('POST', `/v1/chat/${String(id)}/answers`, given)).status).toBe(200);
    await client.ended;
    const second = await say(server, { conversation_id: id, message: 'Again' });
    expect([second.asks, second.results]).toEqual([0, ['written']]);
  });

  test('stays within what the conversation was narrowed to', async () => {
    const server = await serve([call('plan'), 'Planned.', WRITE, 'Not written.', WRITE, 'Not written.']);
    const { id } = await say(server, { message: 'Plan' });
    for (const message of ['Write', 'Write now']) {
      const { results, run } = await say(server, { conversation_id: id, message });
      expect(results[0]).toContain('write');
      expect(results[0]).not.toBe('written');
      expect((await startOf(run)).narrow).toEqual([{ tools: ['todoread', 'todowrite'] }]);
    }
  });
});

describe('a response', () => {
  const respond = async (server: InProcessServer, body: object) => {
    const { status, text } = await server.post({ model: 'm', ...body });
    if (status !== 200) throw new Error(text);
    return JSON.parse(text) as { readonly id: string; readonly output: readonly { type: string; output?: string }[] };
  };
  const outputs = ({ output }: { readonly output: readonly { type: string; output?: string }[] }): string[] =>
    output.flatMap((item) => (item.type === 'mcp_call' ? (item.output ?? '') : []));

  test('finds the todos of the response that it continues, and each branch those of its point', async () => {
    const server = await serve([ADD, 'Added.', MILK, 'Added.', READ, 'Both.', READ, 'Tea.']);
    const first = await respond(server, { input: 'Remember tea' });
    const second = await respond(server, { input: 'And milk', previous_response_id: first.id });
    const [both] = outputs(await respond(server, { input: 'What?', previous_response_id: second.id }));
    expect([both!.includes('tea'), both!.includes('milk')]).toEqual([true, true]);
    const [one] = outputs(await respond(server, { input: 'What?', previous_response_id: first.id }));
    expect([one!.includes('tea'), one!.includes('milk')]).toEqual([true, false]);
  });

  test('does not need the response before the one that it continues', async () => {
    const server = await serve([ADD, 'Added.', MILK, 'Added.', READ, 'Both.']);
    const first = await respond(server, { input: 'Remember tea' });
    const second = await respond(server, { input: 'And milk', previous_response_id: first.id });
    expect((await server.send('DELETE', `/v1/responses/${first.id}`)).status).toBe(200);
    const [both] = outputs(await respond(server, { input: 'What?', previous_response_id: second.id }));
    expect(both).toMatch(/tea[^]*milk/);
  });

  test('shares what a conversation remembers with its messages', async () => {
    const server = await serve([ADD, 'Added.', MILK, 'Added.', READ, 'Both.']);
    const { id } = await say(server, { message: 'Remember tea' });
    await respond(server, { input: 'And milk', conversation: id });
    const { results } = await say(server, { conversation_id: id, message: 'What?' });
    expect(results[0]).toMatch(/tea[^]*milk/);
  });

  test('that is not stored passes its memory on within a socket', async () => {
    const server = await serve([ADD, 'Added.', READ, 'Tea.']);
    using socket = await openSocket(server.url);
    const first = await socket.create({ model: 'm', store: false, input: 'Remember tea' });
    const previous_response_id = first.response!.id;
    const second = await socket.create({ model: 'm', store: false, input: 'What?', previous_response_id });
    expect(outputs(second.response!)[0]).toContain('tea');
  });
});

describe.runIf(process.platform === 'linux')('shells and jobs', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'treadle-shells-'));
    cleanUp.defer(() => rm(folder, { recursive: true }));
  });
  const bash = (command: string, more: object = {}): ScriptStep => call('bash', { command, ...more });
  const inShell = (command: string): ScriptStep => bash(command, { session: 's' });
  const NEW_SHELL = '[session s: a new shell in the working folder]\n';
  const shellTools = () => {
    const tools = [withBackground(bashTool(local(folder))), ...backgroundTools()];
    return { tools, defaultTools: tools.map(({ name }) => name) };
  };
  const isAlive = (pid: number): boolean => {
    try {
      // A zombie has ended.
      return !/\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    } catch {
      return false;
    }
  };

  test('pass to the next message of the newest end, and end with the conversation', async () => {
    const steps = [
      [inShell('X=tea; echo $$'), bash('echo $$; sleep 1000', { background: true })],
      [inShell('echo $X'), call('background_list')],
      [inShell('echo $X'), bash('sleep 1000', { background: true })],
    ];
    const server = await serve(
      steps.flatMap((some) => [...some, 'Done.']),
      shellTools(),
    );
    const first = await say(server, { message: 'Open' });
    const { id } = first;
    const shell = Number(first.results[0]!.slice(NEW_SHELL.length));
    const second = await say(server, { conversation_id: id, message: 'Use' });
    expect(second.results).toEqual(['tea\n', expect.stringContaining('bash-t2.0: running for')]);
    expect((await startOf(second.run)).resources).toMatchObject([
      { runId: second.run, name: 'bash session s' },
      { runId: second.run, name: 'bash programs' },
    ]);
    // An earlier point has none of them, and does not take them away.
    const { body } = await server.send('GET', `/v1/chat/${id}`);
    const branch = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: body.messages[1].id });
    const third = await say(server, { conversation_id: branch.body.id, message: 'Use' });
    expect(third.results[0]).toBe(`${NEW_SHELL}\n`);
    expect(isAlive(shell)).toBe(true);
    await server.send('DELETE', `/v1/chat/${id}`);
    expect(isAlive(shell)).toBe(false);
  });

  test('are there again when a message that waits for an approval continues', async () => {
    const asking: Policy = {
      judge: (calls) => calls.map(({ input }) => ({ type: JSON.stringify(input).includes('ask') ? 'ask' : 'allow' })),
    };
    const steps = [inShell('X=tea; echo $$'), inShell('echo $X; : ask'), 'Done.', inShell('echo $X'), 'Done.'];
    const server = await serve(steps, { ...shellTools(), policy: asking });
    const { id, asks, results } = await say(server, { message: 'Open' });
    expect([asks, results[1]]).toEqual([1, 'tea\n']);
    const next = await say(server, { conversation_id: id, message: 'Use' });
    expect(next.results).toEqual(['tea\n']);
  });

  test('two jobs of one conversation have different handles', async () => {
    const job = bash('sleep 1000', { background: true });
    const server = await serve([job, 'Done.', job, 'Done.'], shellTools());
    const { id, results } = await say(server, { message: 'a' });
    const next = await say(server, { conversation_id: id, message: 'b' });
    const handleIn = (text: string): string => /background as (\S+)\./.exec(text)![1]!;
    expect([results, next.results].map(([text]) => handleIn(text!))).toEqual(['bash-t1.0', 'bash-t1.0-2']);
  });

  test('end with the server, and the next message is told so', async () => {
    const file = path.join(folder, 'runs.db');
    store = await openTestStore(file);
    const first = await serve([inShell('X=tea; echo $$'), 'Done.'], { ...shellTools(), store });
    const { id, results } = await say(first, { message: 'Open' });
    const shell = Number(results[0]!.slice(NEW_SHELL.length));
    expect(isAlive(shell)).toBe(true);
    await first[Symbol.asyncDispose]();
    expect(isAlive(shell)).toBe(false);
    await store.close();
    store = cleanUp.adopt(await openTestStore(file), (one) => one.close());
    const second = await serve([inShell('echo "X=$X"'), 'Done.'], { ...shellTools(), store });
    const next = await say(second, { conversation_id: id, message: 'Use' });
    expect(next.results).toEqual([`${NEW_SHELL}X=\n`]);
  });

  test.each(['at its start', 'before it answers the next message'])(
    'of a server that was killed are killed by another one %s',
    async (when) => {
      const file = path.join(folder, 'runs.db');
      store = cleanUp.adopt(await openTestStore(file), (one) => one.close());
      const first = await serve([bash('echo $$; exec sleep 1000', { background: true }), 'Done.'], {
        ...shellTools(),
        store,
      });
      const early = when === 'at its start' ? undefined : await second();
      const { id, run, results } = await say(first, { message: 'Open' });
      const shown = /^(\d+)$/m.exec(results[0]!);
      const pid = Number(shown ? shown[1] : await pidOf(run));
      expect(isAlive(pid)).toBe(true);
      // As if it had been another process, which has died.
      await queryStored(file, `UPDATE kept_processes SET keeper = replace(keeper, '${process.pid}', '4194305')`);
      const other = early ?? (await second());
      if (!early) expect(isAlive(pid)).toBe(false);
      const next = await say(other, { conversation_id: id, message: 'Use' });
      expect(isAlive(pid)).toBe(false);
      expect(next.results[0]).toContain('There is no job "bash-t1.0" in the background.');

      async function second() {
        const own = cleanUp.adopt(await openTestStore(file), (one) => one.close());
        return serve([call('background_read', { handle: 'bash-t1.0' }), 'Done.'], { ...shellTools(), store: own });
      }
    },
  );

  /** The process that the run has recorded. */
  async function pidOf(run: string): Promise<number | undefined> {
    const events = (await store.read(run)).map(({ event }) => event);
    return events.flatMap((event) => (event.type === 'resource-opened' ? (event.process.pid ?? []) : [])).at(-1);
  }

  test('pass to the response that continues another one', async () => {
    const server = await serve([inShell('X=tea'), 'Done.', inShell('echo $X'), 'Done.'], shellTools());
    const first = JSON.parse((await server.post({ model: 'm', input: 'a' })).text) as { readonly id: string };
    const { text } = await server.post({ model: 'm', input: 'b', previous_response_id: first.id });
    expect(text).toContain('"output":"tea\\n"');
  });
});
