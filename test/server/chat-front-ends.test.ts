import {
  buildResumeArray,
  HttpAgent,
  runHttpRequest,
  transformHttpEventStream,
  type BaseEvent,
  type ContentPart,
  type Message,
  type RunAgentInput,
  type RunAgentParameters,
} from '@ag-ui/client';
import { streamLoop, tool, type Policy } from '@treadle/core';
import { scriptedModel, type ScriptedModel, type ScriptStep } from '@treadle/core/testing';
import { toAgUiResponse, toUIMessageStreamResponse } from '@treadle/core/web';
import { hashKey } from '@treadle/server';
import { todoWriteTool } from '@treadle/tools';
import { DefaultChatTransport } from 'ai';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { PDF, PNG } from './support/fixture.ts';
import { heldStep, TestChat, withTools } from './support/front-ends.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { frameReader } from './support/sse-frames.ts';
import { openTestStore } from './support/test-store.ts';

const time = tool({ name: 'time', description: '', effect: 'pure', execute: () => '12:00' });
const pay = tool({ name: 'pay', description: '', needsApproval: true, touches: () => [], execute: () => 'paid' });
const PAY = { text: 'I pay. ', calls: [{ name: 'pay', arguments: { amount: 5 } }] };
const THINKING: ScriptStep = {
  type: 'reply',
  content: [
    { type: 'reasoning', text: 'Let me think.' },
    { type: 'text', text: 'One moment. ' },
    { type: 'tool-call', id: 'c', name: 'time', arguments: '{}' },
  ],
  finish: 'tool-calls',
  usage: { inputTokens: 1, outputTokens: 1 },
  model: 'm',
};

/** As `treadle serve` without keys: calls are denied unless a person answers. */
const ASKING = {
  policy: { judge: (calls) => calls.map(() => ({ type: 'deny', reason: 'Nobody can be asked.' })) },
  askingPolicy: { judge: (calls) => calls.map(() => ({ type: 'ask' })) },
} as const satisfies Record<string, Policy>;

/** The status of the answer of the only conversation, once it has ended. */
async function endedStatus(server: InProcessServer): Promise<string> {
  const { id } = (await server.send('GET', '/v1/chat')).body.data[0];
  let status = 'in_progress';
  while (status === 'in_progress') ({ status } = (await server.send('GET', `/v1/chat/${id}`)).body.messages[1]);
  return status;
}

describe('a chat of the AI SDK', () => {
  test('shows reasoning, text and calls as they are stored', async () => {
    using model = scriptedModel([THINKING, 'It is noon.', 'Bye.']);
    await using server = await startInProcess(model, withTools(time));
    const chat = new TestChat(server, 'my-chat');
    await chat.sendMessage({ text: 'What time is it?' });
    expect(chat.error).toBeUndefined();
    expect(chat.shown()).toEqual([
      { type: 'step-start' },
      { type: 'reasoning', text: 'Let me think.', state: 'done' },
      { type: 'text', text: 'One moment. ', state: 'done' },
      expect.objectContaining({ type: 'dynamic-tool', toolName: 'time', state: 'output-available', output: '12:00' }),
      { type: 'step-start' },
      { type: 'text', text: 'It is noon.', state: 'done' },
    ]);
    const { conversation_id: id } = chat.lastMessage!.metadata as { conversation_id: string };
    const { body } = await server.send('GET', `/v1/chat/${id}`);
    expect(body.messages[1]).toMatchObject({ id: chat.lastMessage!.id, status: 'completed' });
    const url = 'data:text/plain;base64,bm90ZXM=';
    await chat.sendMessage({
      text: 'Thanks',
      files: [{ type: 'file', mediaType: 'text/plain', filename: 'a.txt', url }],
    });
    expect(chat.shown()).toContainEqual({ type: 'text', text: 'Bye.', state: 'done' });
    expect((await server.send('GET', `/v1/chat/${id}`)).body.messages).toHaveLength(4);
    expect(model.requests[2]!.messages).toHaveLength(5);
    expect(model.requests[2]!.messages[4]!.content[1]).toEqual({
      type: 'text',
      text: '\n\nAttachment "a.txt":\nnotes',
    });
  });

  test.for([
    { approved: true, state: 'output-available' },
    { approved: false, state: 'output-denied' },
  ])('continues the same message after an approval ($approved)', async ({ approved, state }) => {
    using model = scriptedModel([PAY, 'As you like.']);
    await using server = await startInProcess(model, withTools(pay));
    const chat = new TestChat(server, 'c');
    await chat.sendMessage({ text: 'Pay' });
    const { id } = chat.lastMessage!;
    const asked = chat.lastMessage!.parts.at(-1) as unknown as { state: string; approval: { id: string } };
    expect(asked.state).toBe('approval-requested');
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved });
    while (chat.status !== 'ready') await new Promise(setImmediate);
    expect(chat.error).toBeUndefined();
    expect(chat.messages).toHaveLength(2);
    expect(chat.lastMessage!.id).toBe(id);
    expect(chat.shown()).toEqual([
      { type: 'step-start' },
      { type: 'text', text: 'I pay. ', state: 'done' },
      expect.objectContaining({ type: 'dynamic-tool', toolName: 'pay', state }),
      { type: 'step-start' },
      { type: 'text', text: 'As you like.', state: 'done' },
    ]);
  });

  test('is asked about approvals without a setting, unless the server has keys', async () => {
    const call = { calls: [{ name: 'time' }] };
    using model = scriptedModel([call, 'It is noon.', call, 'I may not.']);
    {
      await using server = await startInProcess(model, { ...withTools(time), ...ASKING });
      const chat = new TestChat(server, 'c');
      await chat.sendMessage({ text: 'Time?' });
      const asked = chat.lastMessage!.parts.at(-1) as unknown as { approval: { id: string } };
      await chat.addToolApprovalResponse({ id: asked.approval.id, approved: true });
      while (chat.status !== 'ready') await new Promise(setImmediate);
      expect(chat.shown()).toContainEqual(expect.objectContaining({ type: 'dynamic-tool', output: '12:00' }));
    }
    const keys = [{ name: 'ann', hash: hashKey('right'), scopes: ['chat:write', 'tools:execute'] as const }];
    await using server = await startInProcess(model, { ...withTools(time), ...ASKING, keys });
    const headers = { authorization: 'Bearer right', accept: 'text/event-stream; protocol=ui-message-stream' };
    const chat = new TestChat(server, 'c', {}, headers);
    await chat.sendMessage({ text: 'Time?' });
    expect(chat.shown()).toContainEqual(expect.objectContaining({ type: 'dynamic-tool', state: 'output-error' }));
  });

  test.each([
    ['its path', undefined],
    ['Accept', { Accept: 'text/event-stream; protocol=ui-message-stream' }],
  ])('chosen by %s is resumed after its page was reloaded, and not when nothing is in progress', async (_, headers) => {
    const started = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const last: ScriptStep = async () => {
      started.resolve();
      await released.promise;
      return 'It is noon.';
    };
    using model = scriptedModel([THINKING, last]);
    await using server = await startInProcess(model, withTools(time));
    const chat = new TestChat(server, 'c', { on_disconnect: 'continue' }, headers);
    const sent = chat.sendMessage({ text: 'Time?' });
    await started.promise;
    await chat.stop();
    await sent;
    const reloaded = new TestChat(server, 'c', {}, headers);
    const resumed = reloaded.resumeStream();
    while (reloaded.messages.length === 0) await new Promise(setImmediate);
    released.resolve();
    await resumed;
    expect(reloaded.error).toBeUndefined();
    expect(reloaded.shown()).toHaveLength(6);
    expect(reloaded.shown().at(-1)).toEqual({ type: 'text', text: 'It is noon.', state: 'done' });
    const idle = new TestChat(server, 'c', {}, headers);
    await idle.resumeStream();
    expect(idle.messages).toEqual([]);
  });

  test('that is stopped cancels the answer', async () => {
    const { started, step } = heldStep();
    using model = scriptedModel([step]);
    await using server = await startInProcess(model);
    const chat = new TestChat(server, 'c');
    const sent = chat.sendMessage({ text: 'Go' });
    await started;
    await chat.stop();
    await sent;
    expect(await endedStatus(server)).toBe('cancelled');
  });

  test('shows a warning for a file that the model does not take', async () => {
    using model = scriptedModel(['I cannot see it.']);
    await using server = await startInProcess({ ...model, accepts: { images: false } });
    const chat = new TestChat(server, 'c');
    const url = 'data:image/png;base64,iVBORw==';
    await chat.sendMessage({ text: 'Look', files: [{ type: 'file', mediaType: 'image/png', filename: 'a.png', url }] });
    expect(chat.error).toBeUndefined();
    expect(chat.shown()).toMatchObject([
      { type: 'data-warning', data: { code: 'attachment_not_shown' } },
      { type: 'step-start' },
      { type: 'text', text: 'I cannot see it.', state: 'done' },
    ]);
  });

  test('shows a failure as an error', async () => {
    const error = { code: 'invalid-request', message: 'No.', retryable: false } as const;
    await using server = await startInProcess(scriptedModel([{ type: 'failure', error }]));
    const chat = new TestChat(server, 'c');
    await chat.sendMessage({ text: 'Go' });
    expect([chat.status, chat.error?.message]).toEqual(['error', expect.any(String)]);
  });
});

type Frame = BaseEvent & Readonly<Record<string, unknown>>;

interface AgentRun {
  readonly frames: readonly Frame[];
  readonly newMessages: readonly Message[];
}

/**
 * Runs the official client. It checks every event and their order (`verifyEvents`), and throws if one is wrong. `frames` are the
 * events as they were sent: the client removes fields that the protocol does not have.
 */
async function runAgent(agent: HttpAgent, parameters: RunAgentParameters = {}): Promise<AgentRun> {
  const frames: Frame[] = [];
  const unchecked = agent.fetch;
  agent.fetch = async (url, init) => {
    const answer = await unchecked(url, init);
    const text = await answer.text();
    if (answer.ok) {
      frameReader((frame) => void frames.push(JSON.parse(frame.slice('data: '.length)) as Frame))(text);
    }
    return new Response(text, answer);
  };
  const seen: string[] = [];
  try {
    const { newMessages } = await agent.runAgent(parameters, { onEvent: ({ event }) => void seen.push(event.type) });
    expect(seen).toEqual(frames.map(({ type }) => type));
    return { frames, newMessages };
  } finally {
    agent.fetch = unchecked;
  }
}

const newAgent = ({ url }: InProcessServer): HttpAgent =>
  new HttpAgent({ url: `${url}/v1/chat/ag-ui`, threadId: 'my-thread' });

/** An agent to which the user has sent a message. */
function agentWith(server: InProcessServer, content: string | ContentPart[]): HttpAgent {
  const agent = newAgent(server);
  agent.addMessage({ id: 'u1', role: 'user', content });
  return agent;
}

describe('an agent of AG-UI', () => {
  beforeEach(() => {
    // The client reports what it had to correct as a warning.
    const warned = vi.spyOn(console, 'warn');
    onTestFinished(() => {
      expect(warned.mock.calls).toEqual([]);
      warned.mockRestore();
    });
  });

  test('gets messages, reasoning and calls that are opened and closed in order', async () => {
    using model = scriptedModel([THINKING, 'It is noon.', 'Bye.']);
    await using server = await startInProcess(model, withTools(time));
    const agent = agentWith(server, [{ type: 'text', text: 'Time?' }]);
    const { frames, newMessages } = await runAgent(agent, { runId: 'r1' });
    expect(frames.map(({ type }) => type)).toEqual([
      'RUN_STARTED',
      'CUSTOM',
      'REASONING_START',
      'REASONING_MESSAGE_START',
      'REASONING_MESSAGE_CONTENT',
      'REASONING_MESSAGE_CONTENT',
      'REASONING_MESSAGE_CONTENT',
      'REASONING_MESSAGE_END',
      'REASONING_END',
      'TEXT_MESSAGE_START',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_END',
      'TOOL_CALL_START',
      'TOOL_CALL_ARGS',
      'TOOL_CALL_END',
      'TOOL_CALL_RESULT',
      'TEXT_MESSAGE_START',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_END',
      'RUN_FINISHED',
    ]);
    expect(frames[0]).toMatchObject({ threadId: 'my-thread', runId: 'r1' });
    expect(frames.at(-1)).toMatchObject({ threadId: 'my-thread', runId: 'r1', outcome: { type: 'success' } });
    const call = frames.find(({ type }) => type === 'TOOL_CALL_START')!['toolCallId'];
    expect(newMessages).toMatchObject([
      { role: 'reasoning', content: 'Let me think.' },
      { role: 'assistant', content: 'One moment. ' },
      { role: 'assistant', toolCalls: [{ id: call, function: { name: 'time', arguments: '{}' } }] },
      { role: 'tool', toolCallId: call, content: '12:00' },
      { role: 'assistant', content: 'It is noon.' },
    ]);
    agent.addMessage({ id: 'u2', role: 'user', content: 'Thanks' });
    expect((await runAgent(agent)).newMessages).toMatchObject([{ role: 'assistant', content: 'Bye.' }]);
    expect(model.requests[2]!.messages).toHaveLength(5);
  });

  test('is also chosen by Accept, and a protocol that is not known is a 406', async () => {
    await using server = await startInProcess(scriptedModel(['Hello.']), {});
    const lists = { state: {}, tools: [], context: [], forwardedProps: {} };
    const messages = [{ id: 'u', role: 'user', content: 'Hi' }];
    const named = await fetch(`${server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/html, text/event-stream;protocol="ag-ui"' },
      body: JSON.stringify({ threadId: 't', runId: 'r1', messages, ...lists }),
    });
    expect(await named.text()).toMatch(/"RUN_STARTED"[^]*"RUN_FINISHED"/);
    const other = { accept: 'text/event-stream; protocol=other' };
    const answer = await server.send('POST', '/v1/chat', { message: 'Hi' }, other);
    expect([answer.status, answer.body.error.code]).toEqual([406, 'unsupported_protocol']);
  });

  test('is interrupted by approvals and questions, and resumes with the answers', async () => {
    const order = tool({
      name: 'order',
      description: '',
      execute: async (_, { ask }) => `ordered ${String(await ask({ prompt: 'Which size?' }))}`,
    });
    using model = scriptedModel([
      { calls: [{ name: 'pay' }, { name: 'order' }] },
      { calls: [{ name: 'pay', arguments: { more: 1 } }] },
      'Done.',
    ]);
    await using server = await startInProcess(model, withTools(pay, order));
    const agent = agentWith(server, 'Go');
    await runAgent(agent);
    const [approval, question] = agent.pendingInterrupts.toSorted((a, b) => (a.reason < b.reason ? 1 : -1));
    expect([approval!.reason, question!.reason]).toEqual(['tool_call', 'input_required']);
    const { digest } = approval!.metadata as { digest: string };
    const second = await runAgent(agent, {
      resume: buildResumeArray(agent.pendingInterrupts, {
        [approval!.id]: { status: 'resolved', payload: { approved: true, digest } },
        [question!.id]: { status: 'resolved', payload: 'L' },
      }),
    });
    const results = second.newMessages.flatMap((message) =>
      message.role === 'tool' ? (message.content as string) : [],
    );
    expect(results.toSorted()).toEqual(['ordered L', 'paid']);
    const [again] = agent.pendingInterrupts;
    const denial = { resume: [{ interruptId: again!.id, status: 'cancelled' as const }] };
    const third = await runAgent(agent, { runId: 'r3', ...denial });
    expect(third.frames[0]).toMatchObject({ type: 'RUN_STARTED', runId: 'r3' });
    expect(third.newMessages).toMatchObject([
      { role: 'tool', content: 'The call of "pay" was not approved.' },
      { role: 'assistant', content: 'Done.' },
    ]);
    expect(agent.pendingInterrupts).toEqual([]);
    await expect(runQuietly(agent, denial)).rejects.toThrow('409');
  });

  test('goes on after an interrupt that has expired was cancelled, with or without a message', async () => {
    using model = scriptedModel([PAY, 'It was not paid.', 'Hello.']);
    const store = await openTestStore();
    onTestFinished(() => store.close());
    const agent = await (async () => {
      await using server = await startInProcess(model, { ...withTools(pay), store });
      const interrupted = agentWith(server, 'Pay');
      await runAgent(interrupted);
      return interrupted;
    })();
    const [{ id, expiresAt } = { id: '', expiresAt: '' }] = agent.pendingInterrupts;
    vi.setSystemTime(Date.parse(expiresAt!) + 1);
    onTestFinished(() => void vi.useRealTimers());
    await using server = await startInProcess(model, { ...withTools(pay), store });
    agent.url = `${server.url}/v1/chat/ag-ui`;
    const other = agent.clone();
    const resume = [{ interruptId: id, status: 'cancelled' as const }];
    expect((await runAgent(agent, { resume })).newMessages).toMatchObject([
      { role: 'tool', content: expect.any(String) },
      { role: 'assistant', content: 'It was not paid.' },
    ]);
    expect(agent.pendingInterrupts).toEqual([]);
    other.addMessage({ id: 'u2', role: 'user', content: 'Hello' });
    expect((await runAgent(other, { resume })).newMessages).toMatchObject([{ role: 'assistant', content: 'Hello.' }]);
  });

  test('that is aborted cancels the answer', async () => {
    const { started, step } = heldStep();
    using model = scriptedModel([step]);
    await using server = await startInProcess(model);
    const agent = agentWith(server, 'Go');
    const run = agent.runAgent();
    await started;
    agent.abortRun();
    await run;
    expect(await endedStatus(server)).toBe('cancelled');
  });

  test('gets a failure as RUN_ERROR, and 400 for what is not supported', async () => {
    const error = { code: 'invalid-request', message: 'No.', retryable: false } as const;
    await using server = await startInProcess(scriptedModel([{ type: 'failure', error }]));
    const { frames } = await runAgent(agentWith(server, 'Go'));
    expect(frames.at(-1)).toMatchObject({ type: 'RUN_ERROR', message: expect.any(String) });
    const image = { type: 'image' as const, source: { type: 'url' as const, value: 'http://127.0.0.1/a.png' } };
    const sound = { type: 'audio' as const, source: { type: 'data' as const, value: 'AAAA', mimeType: 'audio/mpeg' } };
    const twice = [PICK, PICK];
    for (const [agent, tools] of [
      [newAgent(server), []],
      [agentWith(server, 'Go'), twice],
      [agentWith(server, [image]), []],
      [agentWith(server, [sound]), []],
    ] as const) {
      await expect(runQuietly(agent, { tools: [...tools] })).rejects.toThrow('400');
    }
    const large = agentWith(server, 'Go');
    large.state = { text: 'x'.repeat(300_000) };
    await expect(runQuietly(large, {})).rejects.toThrow('400');
    const noRun = { threadId: 't', messages: [{ id: 'u', role: 'user', content: 'Go' }] };
    expect((await server.send('POST', '/v1/chat/ag-ui', noRun)).status).toBe(400);
    const noText = { id: 'u', role: 'user', parts: [{ type: 'text' }], content: [{ type: 'text' }] };
    for (const path of ['ui', 'ag-ui']) {
      const body = { id: 'c', threadId: 't', runId: 'r', messages: [noText] };
      const answer = await server.send('POST', `/v1/chat/${path}`, body);
      expect([answer.status, answer.body.error.param]).toEqual([400, 'messages']);
    }
  });
});

/** A tool of the front end. */
const PICK = {
  name: 'pick',
  description: 'Lets the user pick a colour',
  parameters: { type: 'object', properties: { of: { type: 'array', items: { type: 'string' } } } },
};

/** What the model got in its last request, in short. */
function lastGot({ requests }: ScriptedModel): readonly string[] {
  return requests.at(-1)!.messages.flatMap(({ role, content }) =>
    content.map((part) => {
      if (part.type === 'tool-call') return `call: ${part.name}`;
      if (part.type !== 'tool-result') return `${role}: ${'text' in part ? part.text : part.type}`;
      const texts = part.content.map((block) => ('text' in block ? block.text : block.type));
      return `${part.isError ? 'error' : 'result'}: ${texts.join(' ')}`;
    }),
  );
}

describe('tools of the front end', () => {
  const picks = { calls: [{ name: 'pick', arguments: { of: ['red', 'blue'] } }] };
  const result = (agent: HttpAgent, content: string | ContentPart[], error?: string): void => {
    const call = agent.messages.flatMap((message) => (message.role === 'assistant' ? (message.toolCalls ?? []) : []));
    const id = call.at(-1)!.id;
    agent.addMessage({ id: `${id}_r`, role: 'tool', toolCallId: id, content, ...(error && { error }) });
  };

  test('run in the client, and the run goes on with their results', async () => {
    using model = scriptedModel([
      { text: 'I ask. ', calls: [...picks.calls, { name: 'time' }] },
      picks,
      'It is blue.',
      'Bye.',
    ]);
    await using server = await startInProcess(model, withTools(time));
    const agent = agentWith(server, 'Which colour?');
    const first = await runAgent(agent, { tools: [PICK] });
    const [pick] = first.newMessages.flatMap((message) =>
      message.role === 'assistant' ? (message.toolCalls ?? []) : [],
    );
    expect(pick).toMatchObject({ function: { name: 'pick', arguments: '{"of":["red","blue"]}' } });
    const outcome = { type: 'success', pendingToolCallIds: [pick!.id] };
    expect(first.frames.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome });
    expect(model.requests[0]!.tools.map(({ name, description }) => [name, description])).toContainEqual([
      'pick',
      'Lets the user pick a colour',
    ]);
    // The call is before that of the server.
    agent.addMessage({ id: 'r1', role: 'tool', toolCallId: pick!.id, content: 'red' });
    const second = await runAgent(agent, { tools: [PICK], runId: 'r2' });
    expect(second.frames[0]).toMatchObject({ type: 'RUN_STARTED', runId: 'r2' });
    expect(second.frames.map(({ type }) => type)).not.toContain('TOOL_CALL_RESULT');
    expect(lastGot(model)).toEqual([
      'user: Which colour?',
      'assistant: I ask. ',
      'call: pick',
      'call: time',
      'result: red',
      'result: 12:00',
    ]);
    const shot = { type: 'data' as const, value: 'iVBORw==', mimeType: 'image/png' };
    result(agent, [
      { type: 'text', text: 'this one' },
      { type: 'image', source: shot },
    ]);
    const third = await runAgent(agent, { tools: [PICK] });
    expect(third.newMessages).toMatchObject([{ role: 'assistant', content: 'It is blue.' }]);
    expect(lastGot(model).at(-1)).toBe('result: this one image');
    agent.addMessage({ id: 'u2', role: 'user', content: 'Thanks' });
    await runAgent(agent, { tools: [PICK] });
    expect(lastGot(model).slice(-2)).toEqual(['assistant: It is blue.', 'user: Thanks']);
    const { data } = (await server.send('GET', '/v1/chat')).body;
    expect(data).toHaveLength(1);
    const { messages } = (await server.send('GET', `/v1/chat/${data[0].id}`)).body;
    expect(messages[1].parts.map(({ name }: { name?: string }) => name ?? 'text')).toEqual([
      'text',
      'pick',
      'time',
      'pick',
      'text',
    ]);
  });

  test('that fail are errors for the model, also after a restart of the server', async () => {
    using model = scriptedModel([picks, 'Never mind.']);
    const store = await openTestStore();
    onTestFinished(() => store.close());
    const agent = await (async () => {
      await using server = await startInProcess(model, { store });
      const one = agentWith(server, 'Which colour?');
      await runAgent(one, { tools: [PICK] });
      return one;
    })();
    await using server = await startInProcess(model, { store });
    agent.url = `${server.url}/v1/chat/ag-ui`;
    const { id } = (await server.send('GET', '/v1/chat')).body.data[0];
    expect((await server.send('GET', `/v1/chat/${id}`)).body.messages[1]).toMatchObject({
      status: 'waiting',
      waiting: [],
    });
    result(agent, '', 'The user has left.');
    await runAgent(agent, { tools: [PICK] });
    expect(lastGot(model).at(-1)).toBe('error: The user has left.');
  });

  test('wait together with approvals', async () => {
    using model = scriptedModel([{ calls: [{ name: 'pay' }, ...picks.calls] }, 'Done.']);
    await using server = await startInProcess(model, withTools(pay));
    const agent = agentWith(server, 'Go');
    await runAgent(agent, { tools: [PICK] });
    const [interrupt] = agent.pendingInterrupts;
    const { digest } = interrupt!.metadata as { digest: string };
    result(agent, 'red');
    const payload = { approved: true, digest };
    const { newMessages } = await runAgent(agent, {
      tools: [PICK],
      resume: [{ interruptId: interrupt!.id, status: 'resolved', payload }],
    });
    expect(newMessages).toMatchObject([
      { role: 'tool', content: 'paid' },
      { role: 'assistant', content: 'Done.' },
    ]);
    expect(lastGot(model).slice(-2)).toEqual(['result: paid', 'result: red']);
  });

  test.each([
    ['with the result', true],
    ['without one', false],
  ])('are followed by a message of the user %s', async (_, hasResult) => {
    using model = scriptedModel([picks, 'As you like.', 'Bye.']);
    await using server = await startInProcess(model);
    const agent = agentWith(server, 'Which colour?');
    await runAgent(agent, { tools: [PICK] });
    if (hasResult) result(agent, 'red');
    agent.addMessage({ id: 'u2', role: 'user', content: 'Forget it' });
    const { newMessages } = await runAgent(agent, { tools: [PICK] });
    expect(newMessages.at(-1)).toMatchObject({ role: 'assistant', content: 'As you like.' });
    const said = hasResult ? 'result: red' : 'error: The client did not execute the call.';
    expect(lastGot(model)).toEqual(['user: Which colour?', 'call: pick', said, 'user: Forget it']);
    agent.addMessage({ id: 'u3', role: 'user', content: 'Bye' });
    await runAgent(agent, { tools: [PICK] });
    expect(lastGot(model).slice(-3)).toEqual(['user: Forget it', 'assistant: As you like.', 'user: Bye']);
    expect((await server.send('GET', '/v1/chat')).body.data).toHaveLength(1);
  });

  test('that the client does not know any more end with its next message', async () => {
    using model = scriptedModel([picks, 'Hello.']);
    await using server = await startInProcess(model);
    await runAgent(agentWith(server, 'Which colour?'), { tools: [PICK] });
    const { newMessages } = await runAgent(agentWith(server, 'Hello'), { tools: [PICK] });
    expect(newMessages).toMatchObject([{ role: 'assistant', content: 'Hello.' }]);
    expect(lastGot(model)).toEqual(['user: Hello']);
  });
});

describe('the state of an agent of AG-UI', () => {
  test('is what tools remember: a snapshot, and then changes', async () => {
    const count = tool({
      name: 'count',
      description: '',
      remembers: ['a/b', 'n', 'old', 'notes:1'],
      execute: (_, { memory }) => {
        memory!['n'] = Number(memory!['n'] ?? 0) + 1;
        memory!['a/b'] = { n: memory!['n'] };
        memory!['notes:1'] = 'of the tool';
        delete memory!['old'];
        return 'counted';
      },
    });
    const todo = (task: string) => ({ calls: [{ name: 'todowrite', arguments: { task } }] });
    using model = scriptedModel([
      { calls: [{ name: 'count' }] },
      todo('Walk'),
      todo('Talk'),
      'Done.',
      todo('Sing'),
      'Bye.',
    ]);
    await using server = await startInProcess(model, withTools(count, todoWriteTool()));
    const agent = agentWith(server, 'Go');
    // What the user has changed counts.
    agent.state = { n: 40, old: true, 'notes:1': 'not of the client' };
    const { frames } = await runAgent(agent);
    const changes = frames.filter(({ type }) => type.startsWith('STATE_'));
    expect(changes.slice(0, 2)).toEqual([
      { type: 'STATE_SNAPSHOT', snapshot: { n: 40, old: true } },
      {
        type: 'STATE_DELTA',
        delta: expect.arrayContaining([
          { op: 'add', path: '/n', value: 41 },
          { op: 'add', path: '/a~1b', value: { n: 41 } },
          { op: 'remove', path: '/old' },
        ]),
      },
    ]);
    const walk = { id: 1, task: 'Walk', priority: 'medium', status: 'pending' };
    const talk = { ...walk, id: 2, task: 'Talk' };
    const kept = { n: 41, 'a/b': { n: 41 }, todos: { nextId: 3, todos: [walk, talk] } };
    expect(agent.state).toEqual(kept);
    // The next run begins with it, and with what the user has changed.
    const done = { ...walk, status: 'completed' };
    agent.state = { ...kept, todos: { nextId: 3, todos: [done, talk] } };
    agent.addMessage({ id: 'u2', role: 'user', content: 'More' });
    const next = await runAgent(agent);
    expect(next.frames.filter(({ type }) => type === 'STATE_SNAPSHOT')).toHaveLength(1);
    const sing = { ...walk, id: 3, task: 'Sing' };
    expect(agent.state).toMatchObject({ n: 41, todos: { todos: [done, talk, sing] } });
  });

  test('goes on after an interrupt', async () => {
    const asked = tool({
      name: 'asked',
      description: '',
      needsApproval: true,
      touches: () => [],
      remembers: ['n'],
      execute: (_, { memory }) => ((memory!['n'] = 2), 'done'),
    });
    using model = scriptedModel([{ calls: [{ name: 'asked' }] }, 'Done.']);
    await using server = await startInProcess(model, withTools(asked));
    const agent = agentWith(server, 'Go');
    agent.state = { n: 1 };
    await runAgent(agent);
    const [interrupt] = agent.pendingInterrupts;
    const { digest } = interrupt!.metadata as { digest: string };
    const payload = { approved: true, digest };
    const { frames } = await runAgent(agent, {
      resume: [{ interruptId: interrupt!.id, status: 'resolved', payload }],
    });
    expect(frames).toContainEqual({ type: 'STATE_DELTA', delta: [{ op: 'add', path: '/n', value: 2 }] });
    expect(agent.state).toEqual({ n: 2 });
  });
});

test('an agent of AG-UI sends images and documents', async () => {
  using model = scriptedModel(['I see.', 'Still.']);
  await using server = await startInProcess(model);
  const source = { type: 'data' as const, value: PNG, mimeType: 'image/png' };
  const agent = agentWith(server, [
    { type: 'text', text: 'Look' },
    { type: 'image', source },
    {
      type: 'document',
      source: { type: 'data', value: PDF, mimeType: 'application/pdf' },
      metadata: { filename: 'a.pdf' },
    },
    { type: 'document', source: { type: 'url', value: 'data:text/plain;base64,bm90ZXM=' } },
  ]);
  await runAgent(agent);
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } };
  expect(model.requests[0]!.messages[0]!.content).toMatchObject([
    { type: 'text', text: 'Look' },
    image,
    { type: 'file', mediaType: 'application/pdf', name: 'a.pdf' },
    { type: 'text', text: '\n\nAttachment:\nnotes' },
  ]);
  agent.addMessage({ id: 'u2', role: 'user', content: [{ type: 'image', source }] });
  await runAgent(agent);
  expect(model.requests[1]!.messages.at(-1)!.content).toMatchObject([image]);
  // A server that does not have the conversation takes them from the request.
  using other = scriptedModel(['Hm.']);
  await using elsewhere = await startInProcess(other);
  agent.url = `${elsewhere.url}/v1/chat/ag-ui`;
  agent.addMessage({ id: 'u3', role: 'user', content: 'And now?' });
  await runAgent(agent);
  expect(other.requests[0]!.messages[0]!.content).toMatchObject([{ text: 'Look' }, image, { type: 'file' }, {}]);
});

test('an agent of AG-UI continues its last answer when it has nothing new', async () => {
  using model = scriptedModel(['One, ', 'two.', 'Three.']);
  await using server = await startInProcess(model);
  const agent = agentWith(server, 'Count');
  await runAgent(agent);
  expect((await runAgent(agent)).newMessages).toMatchObject([{ role: 'assistant', content: 'two.' }]);
  agent.addMessage({ id: 'u2', role: 'user', content: 'On' });
  await runAgent(agent);
  expect(lastGot(model)).toEqual(['user: Count', 'assistant: One, ', 'user: Continue.', 'assistant: two.', 'user: On']);
});

/** Runs an agent that fails, which the client writes to the console too. */
async function runQuietly(agent: HttpAgent, parameters: RunAgentParameters): Promise<AgentRun> {
  using _ = vi.spyOn(console, 'error').mockReturnValue();
  return await runAgent(agent, parameters);
}

test('a stream that the server cannot continue ends with an error in the protocol of the client', async () => {
  const model = scriptedModel([PAY, PAY, 'Paid.', 'Paid.']);
  const store = await openTestStore();
  onTestFinished(() => store.close());
  await using server = await startInProcess(model, { ...withTools(pay), store });
  const chat = new TestChat(server, 'c');
  await chat.sendMessage({ text: 'Pay' });
  const agent = agentWith(server, 'Pay');
  await runAgent(agent);
  vi.spyOn(store.streams, 'watch').mockImplementation(() => {
    throw new Error('The disk is full.');
  });
  const { approval } = chat.lastMessage!.parts.at(-1) as unknown as { approval: { id: string } };
  await chat.addToolApprovalResponse({ id: approval.id, approved: true });
  while (chat.status !== 'error') await new Promise(setImmediate);
  expect(chat.error!.message).toMatch(/^The server failed to process this request/);
  const [interrupt] = agent.pendingInterrupts;
  const { frames } = await runAgent(agent, { resume: [{ interruptId: interrupt!.id, status: 'cancelled' }] });
  expect(frames).toEqual([
    expect.objectContaining({ type: 'RUN_STARTED' }),
    { type: 'RUN_ERROR', message: expect.stringMatching(/^The server failed/), code: 'internal_error' },
  ]);
});

/** An agent that can continue to read a run, as a program would write it. */
class ConnectingAgent extends HttpAgent {
  protected override connect({ threadId }: RunAgentInput): ReturnType<HttpAgent['run']> {
    const stream = `${this.url}/${encodeURIComponent(threadId)}/stream`;
    return transformHttpEventStream(runHttpRequest(() => fetch(stream)));
  }
}

test('a stream that ends because the server shuts down says so, and is resumed after the restart', async () => {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  const [one, two] = [heldStep(), heldStep()];
  const steps: ScriptStep[] = [{ text: 'Let me look. ', calls: [{ name: 'time' }] }];
  const model = scriptedModel([...steps, one.step, ...steps, two.step]);
  const first = await startInProcess(model, { ...withTools(time), store });
  const agent = agentWith(first, 'Time?');
  const agentRun = runAgent(agent);
  await one.started;
  const chat = new TestChat(first, 'c');
  const sent = chat.sendMessage({ text: 'Time?' });
  await two.started;
  await first[Symbol.asyncDispose]();
  const { frames } = await agentRun;
  expect(frames.at(-1)).toMatchObject({ type: 'RUN_ERROR', code: 'server_stopping' });
  await sent;
  expect([chat.status, chat.error!.message]).toEqual(['error', expect.stringMatching(/^The server is shutting down/)]);

  const last = heldStep('It is noon.');
  await using second = await startInProcess(scriptedModel([last.step, last.step]), { ...withTools(time), store });
  expect(second.recovered).toBe(2);
  const other = new ConnectingAgent({ url: `${second.url}/v1/chat/ag-ui`, threadId: 'my-thread' });
  other.setMessages(agent.messages.filter(({ role }) => role === 'user'));
  const seen: BaseEvent[] = [];
  const connected = other.connectAgent({}, { onEvent: ({ event }) => void seen.push(event) });
  while (!seen.some(({ type }) => type === 'TOOL_CALL_RESULT')) await new Promise(setImmediate);
  last.release();
  const { newMessages } = await connected;
  expect(newMessages.map(({ role, content }) => [role, content])).toEqual([
    ['assistant', 'Let me look. '],
    // The call.
    ['assistant', undefined],
    ['tool', '12:00'],
    ['assistant', 'It is noon.'],
  ]);
  expect(seen.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } });
  // Nothing is in progress.
  for (const accept of ['text/event-stream', 'text/event-stream; protocol=ag-ui']) {
    const path = accept.includes('ag-ui') ? '/v1/chat/my-thread/stream' : '/v1/chat/ag-ui/my-thread/stream';
    expect((await fetch(second.url + path, { headers: { accept } })).status).toBe(204);
  }
});

describe('a run of a program', () => {
  test('is streamed to the AI SDK', async () => {
    const live = streamLoop({ model: scriptedModel([THINKING, 'It is noon.']), tools: [time], input: 'Time?' });
    const answer = toUIMessageStreamResponse(live);
    expect(answer.headers.get('x-vercel-ai-ui-message-stream')).toBe('v1');
    const chat = new TestChat({ url: 'http://127.0.0.1:1' } as InProcessServer, 'c');
    (chat as unknown as { transport: object }).transport = new DefaultChatTransport({ fetch: async () => answer });
    await chat.sendMessage({ text: 'Time?' });
    expect(chat.error).toBeUndefined();
    expect(chat.shown().at(-1)).toEqual({ type: 'text', text: 'It is noon.', state: 'done' });
  });

  test('is streamed as AG-UI, and ends with an interrupt if it waits', async () => {
    const live = streamLoop({ model: scriptedModel([PAY]), tools: [pay], input: 'Pay' });
    const fetch = async (): Promise<Response> => toAgUiResponse(live, { threadId: 't' });
    const agent = new HttpAgent({ url: 'http://127.0.0.1:1', threadId: 't', fetch });
    const { frames } = await runAgent(agent);
    expect(frames.at(-1)).toMatchObject({ threadId: 't', outcome: { type: 'interrupt' } });
    expect(agent.pendingInterrupts).toMatchObject([{ reason: 'tool_call' }]);
  });
});
