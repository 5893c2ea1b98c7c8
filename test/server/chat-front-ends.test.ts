import { streamLoop, tool, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { toAgUiResponse, toUIMessageStreamResponse } from '@treadle/server';
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatState,
  type ChatStatus,
  type UIMessage,
} from 'ai';
import { describe, expect, test } from 'vitest';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { frameReader } from './support/sse-frames.ts';

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

const withTools = (...tools: Tool[]): { tools: Tool[]; defaultTools: string[] } => ({
  tools,
  defaultTools: tools.map(({ name }) => name),
});

class MemoryState implements ChatState<UIMessage> {
  status: ChatStatus = 'ready';
  error: Error | undefined = undefined;
  messages: UIMessage[] = [];
  pushMessage = (message: UIMessage): void => void this.messages.push(message);
  popMessage = (): void => void this.messages.pop();
  replaceMessage = (index: number, message: UIMessage): void => {
    this.messages[index] = structuredClone(message);
  };
  snapshot = <T>(value: T): T => structuredClone(value);
}

/** The chat that `useChat` uses, without React. */
class TestChat extends AbstractChat<UIMessage> {
  /** `headers`: with them, `Accept` names the protocol, and not the path. */
  constructor(server: InProcessServer, id: string, body: object = {}, headers?: Record<string, string>) {
    const api = `${server.url}/v1/chat${headers ? '' : '/ui'}`;
    super({
      id,
      state: new MemoryState(),
      transport: new DefaultChatTransport({ api, body, ...(headers && { headers }) }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
  }
  /** The parts of the last message, without what only the client needs. */
  shown(): object[] {
    return this.lastMessage!.parts.map(({ ...part }) => {
      for (const name of ['id', 'providerMetadata', 'callProviderMetadata', 'approval']) delete (part as never)[name];
      return JSON.parse(JSON.stringify(part)) as object;
    });
  }
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
    const started = Promise.withResolvers<void>();
    const held: ScriptStep = async (_, signal) => {
      started.resolve();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return 'never';
    };
    using model = scriptedModel([held]);
    await using server = await startInProcess(model);
    const chat = new TestChat(server, 'c');
    const sent = chat.sendMessage({ text: 'Go' });
    await started.promise;
    await chat.stop();
    await sent;
    const { id } = (await server.send('GET', '/v1/chat')).body.data[0];
    let status = 'in_progress';
    while (status === 'in_progress') ({ status } = (await server.send('GET', `/v1/chat/${id}`)).body.messages[1]);
    expect(status).toBe('cancelled');
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

type Frame = Record<string, unknown> & { readonly type: string };

function framesIn(text: string): Frame[] {
  const frames: Frame[] = [];
  frameReader((frame) => void frames.push(JSON.parse(frame.slice('data: '.length)) as Frame))(text);
  return frames;
}

/** What the official client requires of a sequence of events. */
function checkAgUi(frames: readonly Frame[]): void {
  const open = new Set<string>();
  const calls = new Set<string>();
  expect(frames[0]!.type).toBe('RUN_STARTED');
  expect(['RUN_FINISHED', 'RUN_ERROR']).toContain(frames.at(-1)!.type);
  for (const [index, frame] of frames.entries()) {
    const { type } = frame;
    const key = `${type.replace(/_(START|CONTENT|ARGS|END)$/, '')} ${String(frame['messageId'] ?? frame['toolCallId'])}`;
    if (index > 0) expect(type).not.toBe('RUN_STARTED');
    if (type.endsWith('_START')) {
      expect(open.has(key)).toBe(false);
      open.add(key);
      if (type === 'TOOL_CALL_START') calls.add(String(frame['toolCallId']));
    } else if (/_(CONTENT|ARGS)$/.test(type)) {
      expect(open.has(key)).toBe(true);
      expect(frame['delta']).not.toBe('');
    } else if (type.endsWith('_END')) expect(open.delete(key)).toBe(true);
  }
  expect([...open]).toEqual([]);
}

interface AgUiPlace {
  readonly path?: string;
  readonly accept?: string;
}

async function postAgUi(
  server: InProcessServer,
  body: object,
  { path = '/v1/chat/ag-ui', accept = 'text/event-stream' }: AgUiPlace = {},
): Promise<Frame[]> {
  const answer = await fetch(server.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept },
    body: JSON.stringify({
      threadId: 't',
      state: {},
      messages: [],
      tools: [],
      context: [],
      forwardedProps: {},
      ...body,
    }),
  });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`status ${answer.status}: ${text}`);
  const frames = framesIn(text);
  checkAgUi(frames);
  return frames;
}

const user = (content: unknown): object => ({ id: 'u', role: 'user', content });

describe('an agent of AG-UI', () => {
  test('gets messages, reasoning and calls that are opened and closed in order', async () => {
    using model = scriptedModel([THINKING, 'It is noon.']);
    await using server = await startInProcess(model, withTools(time));
    const frames = await postAgUi(server, { runId: 'r1', messages: [user([{ type: 'text', text: 'Time?' }])] });
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
    expect(frames[0]).toMatchObject({ threadId: 't', runId: 'r1' });
    expect(frames.at(-1)).toMatchObject({ threadId: 't', runId: 'r1', outcome: { type: 'success' } });
  });

  test('is also chosen by Accept, and a protocol that is not known is a 406', async () => {
    await using server = await startInProcess(scriptedModel(['Hello.']), {});
    const place = { path: '/v1/chat', accept: 'text/html, text/event-stream;protocol="ag-ui"' };
    const frames = await postAgUi(server, { runId: 'r1', messages: [user('Hi')] }, place);
    expect(frames.at(-1)).toMatchObject({ type: 'RUN_FINISHED', runId: 'r1' });
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
    const first = await postAgUi(server, { runId: 'r1', messages: [user('Go')] });
    const interruptsIn = (frames: readonly Frame[]) =>
      (frames.at(-1)!['outcome'] as { interrupts: { id: string; reason: string; metadata: { digest: string } }[] })
        .interrupts;
    const [approval, question] = interruptsIn(first).toSorted((a, b) => (a.reason < b.reason ? 1 : -1));
    expect([approval!.reason, question!.reason]).toEqual(['tool_call', 'input_required']);
    const { digest } = approval!.metadata;
    const second = await postAgUi(server, {
      runId: 'r2',
      resume: [
        { interruptId: approval!.id, status: 'resolved', payload: { approved: true, digest } },
        { interruptId: question!.id, status: 'resolved', payload: 'L' },
      ],
    });
    expect(second.flatMap(({ type, content }) => (type === 'TOOL_CALL_RESULT' ? content : []))).toEqual(
      expect.arrayContaining(['paid', 'ordered L']),
    );
    const [again] = interruptsIn(second);
    const third = await postAgUi(server, { runId: 'r3', resume: [{ interruptId: again!.id, status: 'cancelled' }] });
    expect(third[0]).toMatchObject({ type: 'RUN_STARTED', runId: 'r3' });
    expect(third.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } });
    const stale = { runId: 'r4', resume: [{ interruptId: again!.id, status: 'cancelled' }] };
    await expect(postAgUi(server, stale)).rejects.toThrow('409');
  });

  test('gets a failure as RUN_ERROR, and 400 for what is not supported', async () => {
    const error = { code: 'invalid-request', message: 'No.', retryable: false } as const;
    await using server = await startInProcess(scriptedModel([{ type: 'failure', error }]));
    const frames = await postAgUi(server, { runId: 'r', messages: [user('Go')] });
    expect(frames.at(-1)).toMatchObject({ type: 'RUN_ERROR', message: expect.any(String) });
    for (const body of [
      { runId: 'r', messages: [] },
      { runId: 'r', messages: [user('Go')], tools: [{ name: 'x' }] },
      { runId: 'r', messages: [user([{ type: 'binary' }])] },
      { messages: [user('Go')] },
    ]) {
      await expect(postAgUi(server, body)).rejects.toThrow('400');
    }
  });
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
    const frames = framesIn(await toAgUiResponse(live, { threadId: 't' }).text());
    checkAgUi(frames);
    expect(frames.at(-1)).toMatchObject({ threadId: 't', outcome: { interrupts: [{ reason: 'tool_call' }] } });
  });
});
