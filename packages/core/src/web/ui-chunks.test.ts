import { expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { approve, deny } from '../driver/make-answer.ts';
import { streamLoop } from '../driver/run.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Journal } from '../journal/port.ts';
import type { Model } from '../model.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Live } from './responses.ts';
import { approvalOf, toUIMessageStreamResponse } from './ui-chunks.ts';

const look = tool({
  name: 'look',
  description: 'Looks',
  execute: (_, { report }) => (report('looking'), 'a bird'),
});
const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });

type Chunk = { readonly type: string } & Readonly<Record<string, unknown>>;

/** The chunks of a whole stream, with the pieces of a text as one. */
async function chunksOf(live: Live): Promise<readonly Chunk[]> {
  const response = toUIMessageStreamResponse(live);
  expect(response.headers.get('x-vercel-ai-ui-message-stream')).toBe('v1');
  const frames = (await response.text()).split('\n\n').filter((frame) => frame.startsWith('data: '));
  expect(frames.at(-1)).toBe('data: [DONE]');
  const chunks: Chunk[] = [];
  for (const frame of frames.slice(0, -1)) {
    const chunk = JSON.parse(frame.slice('data: '.length)) as Chunk;
    const last = chunks.at(-1);
    if (chunk.type.endsWith('-delta') && last?.type === chunk.type && last['id'] === chunk['id']) {
      chunks[chunks.length - 1] = { ...last, delta: `${String(last['delta'])}${String(chunk['delta'])}` };
    } else chunks.push(chunk);
  }
  return chunks;
}

const START = { type: 'start', messageId: 'r_answer', messageMetadata: { runId: 'r' } };
const FINISH = { type: 'finish', finishReason: 'stop', messageMetadata: { usage: expect.any(Object) } };

test('streams text, calls and results, with a step for each turn', async () => {
  const call = { id: 'c1', name: 'look', arguments: { at: 'sky' } };
  const model = scriptedModel([{ text: 'I look.', calls: [call] }, 'A bird.']);
  expect(await chunksOf(streamLoop({ model, tools: [look], input: 'Go.', runId: 'r' }))).toEqual([
    START,
    { type: 'start-step' },
    { type: 'text-start', id: 'r_1_0' },
    { type: 'text-delta', id: 'r_1_0', delta: 'I look.' },
    { type: 'text-end', id: 'r_1_0' },
    { type: 'tool-input-available', toolCallId: 'c1', toolName: 'look', input: { at: 'sky' }, dynamic: true },
    { type: 'data-tool-output', data: { toolCallId: 'c1', delta: 'looking' }, transient: true },
    { type: 'tool-output-available', toolCallId: 'c1', output: 'a bird', dynamic: true },
    { type: 'finish-step' },
    { type: 'start-step' },
    { type: 'text-start', id: 'r_2_0' },
    { type: 'text-delta', id: 'r_2_0', delta: 'A bird.' },
    { type: 'text-end', id: 'r_2_0' },
    { type: 'finish-step' },
    FINISH,
  ]);
});

test('sends the whole text of a model that does not stream, and the rest of one that streams a part', async () => {
  const model = (emitted: string): Model => ({
    id: 'partly',
    async reply(_, emit) {
      if (emitted !== '') void emit({ type: 'text-delta', text: emitted });
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content: [{ type: 'text', text: 'A bird.' }], finish: 'stop', usage, model: 'partly' };
    },
  });
  for (const emitted of ['', 'A ', 'A bird.']) {
    const chunks = await chunksOf(streamLoop({ model: model(emitted), input: 'Go.' }));
    const deltas = chunks.filter(({ type }) => type === 'text-delta').map(({ delta }) => delta);
    expect(deltas.join('')).toBe('A bird.');
    expect(chunks.filter(({ type }) => type === 'text-start')).toHaveLength(1);
  }
  // What it streamed is not what it replied.
  const chunks = await chunksOf(streamLoop({ model: model('A fish'), input: 'Go.' }));
  const after = chunks.slice(chunks.findIndex(({ type }) => type === 'reset-step') + 1);
  expect(after.filter(({ type }) => type === 'text-delta')).toMatchObject([{ delta: 'A bird.' }]);
});

test('ends with the approvals that the run waits for, and goes on after the answers', async () => {
  const journal = memoryJournal();
  const model = scriptedModel([
    {
      calls: [
        { id: 'c1', name: 'pay' },
        { id: 'c2', name: 'pay' },
      ],
    },
    'Done.',
  ]);
  const run = { model, tools: [pay], journal, runId: 'r' };
  const live = streamLoop({ ...run, input: 'Go.' });
  const chunks = await chunksOf(live);
  const { waiting } = await live.result;
  const asked = chunks.filter(({ type }) => type === 'tool-approval-request');
  expect(asked).toMatchObject([{ toolCallId: 'c1' }, { toolCallId: 'c2' }]);
  expect(chunks.at(-1)).toMatchObject({ type: 'finish', finishReason: 'tool-calls' });
  expect(asked.map(({ approvalId }) => approvalOf(String(approvalId)))).toEqual(
    waiting.map((wait) => ({ id: wait.effect, digest: 'digest' in wait && wait.digest })),
  );
  const resumed = await chunksOf(streamLoop({ ...run, answers: [approve(waiting[0]!), deny(waiting[1]!, 'No.')] }));
  expect(resumed).toEqual([
    START,
    expect.anything(),
    expect.anything(),
    { type: 'start-step' },
    { type: 'text-start', id: 'r_2_0' },
    { type: 'text-delta', id: 'r_2_0', delta: 'Done.' },
    { type: 'text-end', id: 'r_2_0' },
    { type: 'finish-step' },
    FINISH,
  ]);
  expect(resumed.slice(1, 3)).toEqual(
    expect.arrayContaining([
      { type: 'tool-output-available', toolCallId: 'c1', output: 'paid', dynamic: true },
      { type: 'tool-output-denied', toolCallId: 'c2' },
    ]),
  );
});

test('asks about a call inside a child run as the call that has it', async () => {
  const model = scriptedModel([{ calls: [{ id: 'inner', name: 'pay' }] }, 'Paid.']);
  const helper = agentTool({ name: 'helper', description: 'Helps', model, tools: [pay] });
  const calls = [
    { id: 'c1', name: 'look' },
    { id: 'c2', name: 'helper', arguments: { task: 'Pay.' } },
  ];
  const run = { tools: [look, helper], journal: memoryJournal(), runId: 'r' };
  const live = streamLoop({ ...run, model: scriptedModel([{ calls }]), input: 'Go.' });
  const asked = (chunks: readonly Chunk[]) => chunks.filter(({ type }) => type === 'tool-approval-request');
  const first = asked(await chunksOf(live));
  expect(first).toMatchObject([{ toolCallId: 'c2' }]);
  const [wait] = (await live.result).waiting;
  expect(approvalOf(String(first[0]!['approvalId'])).id).toBe(wait!.effect);
  // Resumed without an answer, it asks again.
  expect(asked(await chunksOf(streamLoop({ ...run, model: scriptedModel([]) })))).toEqual(first);
});

test.each<[string, () => Live, readonly object[]]>([
  [
    'fails',
    () => {
      const error = { code: 'auth', message: 'The key is wrong.', retryable: false } as const;
      return streamLoop({ model: scriptedModel([{ type: 'failure', error }]), input: 'Go.' });
    },
    [
      { type: 'error', errorText: 'The key is wrong.' },
      { type: 'finish', finishReason: 'error' },
    ],
  ],
  [
    'reaches a limit',
    () =>
      streamLoop({ model: scriptedModel([{ calls: [{ name: 'look' }] }]), tools: [look], input: 'Go.', maxTurns: 1 }),
    [
      { type: 'data-warning', data: { code: 'exhausted' } },
      { type: 'finish', finishReason: 'length' },
    ],
  ],
  [
    'has a journal that fails',
    () => {
      const journal: Journal = { ...memoryJournal(), append: () => Promise.reject(new Error('The disk is full.')) };
      return streamLoop({ model: scriptedModel(['Hi.']), input: 'Go.', journal, runId: 'x' });
    },
    [
      { type: 'error', errorText: expect.stringContaining('The disk is full.') },
      { type: 'finish', finishReason: 'error' },
    ],
  ],
])('says so if the run %s', async (_, live, last) => {
  const chunks = await chunksOf(live());
  expect(chunks[0]).toMatchObject({ type: 'start' });
  expect(chunks.slice(-2)).toMatchObject(last);
});
