import { expect, test } from 'vitest';
import { answer, approve } from '../driver/make-answer.ts';
import { streamLoop } from '../driver/run.ts';
import { memoryJournal } from '../journal/memory.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { toAgUiResponse } from './ag-ui.ts';
import type { Live } from './responses.ts';

/* `test/server/chat-front-ends.test.ts` reads such streams with the official client. */

const count = tool({
  name: 'count',
  description: 'Counts',
  remembers: ['n', 'notes:a'],
  execute: (_, { memory, report }) => {
    report('counting');
    memory!['n'] = Number(memory!['n'] ?? 0) + 1;
    memory!['notes:a'] = 1;
    return 'counted';
  },
});
const pick = tool({ name: 'pick', description: 'Picks' });
const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });

type Frame = { readonly type: string } & Readonly<Record<string, unknown>>;

async function framesOf(live: Live): Promise<readonly Frame[]> {
  const response = toAgUiResponse(live, { threadId: 't', status: 201 });
  expect([response.status, response.headers.get('content-type')]).toEqual([201, 'text/event-stream; charset=utf-8']);
  const lines = (await response.text()).split('\n\n').filter((line) => line.startsWith('data: '));
  const frames = lines.map((line) => JSON.parse(line.slice('data: '.length)) as Frame);
  // The pieces of a text are of no interest here.
  return frames.filter(({ type }, index) => type !== frames[index - 1]?.type);
}

test('streams texts, calls, progress, results and what tools remember', async () => {
  const model = scriptedModel([{ text: 'One.', calls: [{ id: 'c1', name: 'count' }] }, 'Done.']);
  const live = streamLoop({ model, tools: [count], input: 'Go.', runId: 'r', memory: { n: 1 } });
  expect(await framesOf(live)).toEqual([
    { type: 'RUN_STARTED', threadId: 't', runId: 'r' },
    { type: 'CUSTOM', name: 'conversation_meta', value: { runId: 'r' } },
    { type: 'STATE_SNAPSHOT', snapshot: { n: 1 } },
    { type: 'TEXT_MESSAGE_START', messageId: 'r_1_0', role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'r_1_0', delta: 'One.' },
    { type: 'TEXT_MESSAGE_END', messageId: 'r_1_0' },
    { type: 'TOOL_CALL_START', toolCallId: 'c1', toolCallName: 'count' },
    { type: 'TOOL_CALL_ARGS', toolCallId: 'c1', delta: '{}' },
    { type: 'TOOL_CALL_END', toolCallId: 'c1' },
    { type: 'CUSTOM', name: 'tool_call_output', value: { toolCallId: 'c1', delta: 'counting' } },
    { type: 'STATE_DELTA', delta: [{ op: 'add', path: '/n', value: 2 }] },
    { type: 'TOOL_CALL_RESULT', messageId: 'c1_result', toolCallId: 'c1', content: 'counted', role: 'tool' },
    { type: 'TEXT_MESSAGE_START', messageId: 'r_2_0', role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'r_2_0', delta: 'Done.' },
    { type: 'TEXT_MESSAGE_END', messageId: 'r_2_0' },
    {
      type: 'RUN_FINISHED',
      threadId: 't',
      runId: 'r',
      outcome: { type: 'success' },
      usage: [expect.objectContaining({ inputTokens: 20, outputTokens: 10, totalTokens: 30 })],
    },
  ]);
});

test('ends with the calls of the client, and with interrupts', async () => {
  const calls = [
    { id: 'c1', name: 'pick' },
    { id: 'c2', name: 'pay' },
  ];
  const model = scriptedModel([{ calls: calls.slice(0, 1) }, { calls: calls.slice(1) }, 'Done.']);
  const run = { model, tools: [pick, pay], journal: memoryJournal(), runId: 'r' };
  const first = streamLoop({ ...run, input: 'Go.' });
  expect((await framesOf(first)).at(-1)).toMatchObject({ outcome: { type: 'success', pendingToolCallIds: ['c1'] } });
  const [client] = (await first.result).waiting;
  const second = streamLoop({ ...run, answers: [answer(client!, 'red')] });
  const interrupts = [{ id: 't2.approval.0', reason: 'tool_call', toolCallId: 'c2' }];
  expect((await framesOf(second)).at(-1)).toMatchObject({ outcome: { type: 'interrupt', interrupts } });
  const [approval] = (await second.result).waiting;
  const last = await framesOf(streamLoop({ ...run, answers: [approve(approval!)] }));
  expect(last.find(({ type }) => type === 'TOOL_CALL_RESULT')).toMatchObject({ toolCallId: 'c2', content: 'paid' });
});

test('says why a run has failed, or ended early', async () => {
  const error = { code: 'auth', message: 'The key is wrong.', retryable: false } as const;
  const failed = streamLoop({ model: scriptedModel([{ type: 'failure', error }]), input: 'Go.' });
  expect((await framesOf(failed)).at(-1)).toEqual({ type: 'RUN_ERROR', code: 'auth', message: error.message });
  const model = scriptedModel([{ calls: [{ name: 'count' }] }]);
  const limited = await framesOf(streamLoop({ model, tools: [count], input: 'Go.', maxTurns: 1 }));
  expect(limited.at(-2)).toMatchObject({ type: 'CUSTOM', name: 'warning', value: { code: expect.any(String) } });
  expect(limited.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } });
});
