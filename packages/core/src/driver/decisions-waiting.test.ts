import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { textOf } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';
import type { Waiting } from '../machine/state.ts';

const ran: unknown[] = [];
const remove = tool({
  name: 'remove',
  description: 'Removes a file',
  input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  execute: (input) => (ran.push(input), 'removed'),
});
const look = tool({ name: 'look', description: 'Looks', execute: () => 'looked' });
const pick = tool({
  name: 'pick',
  description: 'The person picks one',
  input: { type: 'object', properties: { from: { type: 'array' } }, required: ['from'] },
});
const tools = [remove, look, pick];

const asking: Policy = {
  judge: (calls) =>
    calls.map(({ name }) => (name === 'look' ? { type: 'allow' } : { type: 'ask', reason: 'It removes.' })),
};
const removal = { calls: [{ name: 'remove', arguments: { path: 'a' } }] };

/** A run that stops where it waits, and how to go on with it. */
async function paused(script: readonly ScriptStep[], policy?: Policy) {
  ran.length = 0;
  const clock = manualClock(1_000);
  const model = scriptedModel(script);
  const surroundings = { model, tools, journal: memoryJournal(), runId: 'run', clock, ...(policy && { policy }) };
  const first = await runLoop({ ...surroundings, input: 'Go.' });
  const goOn = (answers: readonly Answer[], more: Partial<ContinueOptions> = {}): Promise<LoopResult> =>
    runLoop({ ...surroundings, answers, ...more });
  return { ...surroundings, first, goOn };
}

function approvalOf(waiting: Waiting | undefined, approved = true): Extract<Answer, { type: 'approval' }> {
  if (waiting?.type !== 'approval') throw new Error(`no approval, but ${waiting?.type}`);
  return { type: 'approval', effect: waiting.effect, digest: waiting.digest, approved };
}

const wordsOf = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));

// ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────────

test('approval: the run pauses and says what it waits for, bound to the exact arguments', async () => {
  const { first } = await paused([removal], asking);
  expect(first).not.toHaveProperty('outcome');
  expect(first.waiting).toEqual([
    {
      type: 'approval',
      effect: 't1.approval.0',
      call: {
        turn: 1,
        index: 0,
        id: 'call_0_0',
        name: 'remove',
        arguments: '{"path":"a"}',
        resources: [],
        effect: 'once',
        exclusive: false,
        client: false,
        verifiable: false,
      },
      digest: createHash('sha256').update('remove\n{"path":"a"}').digest('hex'),
      expiresAt: 1_000 + 86_400_000,
      reason: 'It removes.',
    },
  ]);
  expect(ran).toEqual([]);
});

test('approval: given, the call runs and the run goes on', async () => {
  const { first, goOn } = await paused([removal, 'Done.'], asking);
  const result = await goOn([{ ...approvalOf(first.waiting[0]), by: 'ada' }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', waiting: [], calls: 1 });
  expect(ran).toEqual([{ path: 'a' }]);
  expect(wordsOf(result)).toEqual(['removed']);
});

test.each([
  ['with a reason', { reason: 'Keep it.' }, 'The call of "remove" was not approved: Keep it.'],
  ['without one', {}, 'The call of "remove" was not approved.'],
])('approval: denied %s, the call does not run and the model is told', async (_, more, words) => {
  const { first, goOn } = await paused([removal, 'Kept.'], asking);
  const result = await goOn([{ ...approvalOf(first.waiting[0], false), ...more }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 0 });
  expect(wordsOf(result)).toEqual([words]);
  expect(ran).toEqual([]);
});

test('approval: of other arguments it does not fit, and that changes nothing', async () => {
  const { first, goOn, journal } = await paused([removal, 'Done.'], asking);
  const approval = approvalOf(first.waiting[0]);
  const before = await journal.read('run');
  await expect(goOn([{ ...approval, digest: 'f00' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message:
      `The approval for "t1.approval.0" is bound to other arguments: its digest is f00, that of the call is ` +
      `${approval.digest}. Show the call as it is in "waiting", and decide again.`,
  });
  expect(await journal.read('run')).toEqual(before);
  expect(ran).toEqual([]);
  expect((await goOn([approval])).outcome).toEqual({ type: 'completed' });
});

test('approval: usable once', async () => {
  const { first, goOn } = await paused([removal, removal, 'Done.'], asking);
  const approval = approvalOf(first.waiting[0]);
  await expect(goOn([approval, approval])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: '"t1.approval.0" is answered twice. Pass one answer for each effect.',
  });
  const second = await goOn([approval]);
  expect(second.waiting).toMatchObject([{ effect: 't2.approval.0', digest: approval.digest }]);
  await expect(goOn([approval])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: 'Run "run" does not wait for "t1.approval.0". It waits for approval "t2.approval.0" (remove).',
  });
  expect(ran).toHaveLength(1);
});

test.each([
  ['too late', (approval: Answer) => [approval]],
  ['never', () => []],
])('approval: expires; given %s it is a denial', async (_, answers) => {
  const policy: Policy = { judge: () => [{ type: 'ask', ttlMs: 5_000 }] };
  const { first, goOn, clock } = await paused([removal, 'Kept.'], policy);
  expect(first.waiting).toMatchObject([{ expiresAt: 6_000 }]);
  await clock.advance(4_999);
  expect((await goOn([])).waiting).toHaveLength(1);
  await clock.advance(1);
  const result = await goOn(answers(approvalOf(first.waiting[0])));
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(wordsOf(result)).toEqual(['The call of "remove" was not approved in time, so it was not executed.']);
  expect(ran).toEqual([]);
});

test('approval: several are given one by one, and each call runs when its own is there', async () => {
  const two = { calls: [...removal.calls, { name: 'remove', arguments: { path: 'b' } }] };
  const { first, goOn } = await paused([two, 'Done.'], asking);
  const second = await goOn([approvalOf(first.waiting[1])]);
  expect(second.outcome).toBeUndefined();
  expect(second.waiting).toMatchObject([{ effect: 't1.approval.0' }]);
  expect(ran).toEqual([{ path: 'b' }]);
  const result = await goOn([approvalOf(second.waiting[0], false)]);
  expect(wordsOf(result)).toEqual([expect.stringContaining('not approved'), 'removed']);
});

test('approval: of a client’s tool comes before the client is asked', async () => {
  const { first, goOn } = await paused([{ calls: [{ name: 'pick', arguments: { from: [1] } }] }, 'Done.'], asking);
  const second = await goOn([approvalOf(first.waiting[0])]);
  expect(second.waiting).toMatchObject([{ type: 'client', effect: 't1.client.0' }]);
  expect((await goOn([{ type: 'client-result', effect: 't1.client.0', content: '1' }])).outcome).toEqual({
    type: 'completed',
  });
});

test('approval: a listener can give it while the run is there, and so it never pauses', async () => {
  ran.length = 0;
  using model = scriptedModel([removal, 'Done.']);
  const live = streamLoop({
    model,
    tools,
    policy: asking,
    input: 'Go.',
    onItem: (item) => {
      if (item.type !== 'fact' || item.event.type !== 'calls-judged') return;
      const digest = createHash('sha256').update('remove\n{"path":"a"}').digest('hex');
      live.answer({ type: 'approval', effect: 't1.approval.0', digest, approved: true });
    },
  });
  expect(await live.result).toMatchObject({ outcome: { type: 'completed' }, waiting: [], calls: 1 });
  expect(ran).toHaveLength(1);
});

test('approval: given to a live run that has paused already, it throws and says how to go on', async () => {
  using model = scriptedModel([removal]);
  const live = streamLoop({ model, tools, policy: asking, input: 'Go.', runId: 'run' });
  const { waiting } = await live.result;
  expect(() => live.answer(approvalOf(waiting[0]))).toThrow(
    expect.objectContaining({
      code: 'answer-unfit',
      message: expect.stringMatching(/^Run "run" is paused\. .*runLoop/),
    }),
  );
});

// ── client-executed tools ────────────────────────────────────────────────────────────────────────────────────────────

const picking = { calls: [{ name: 'pick', arguments: { from: ['a', 'b'] } }] };

test('client tool: the run pauses on it and goes on with its result', async () => {
  const { first, goOn, model } = await paused([picking, 'You picked b.']);
  expect(first.outcome).toBeUndefined();
  expect(first.waiting).toMatchObject([
    { type: 'client', effect: 't1.client.0', call: { name: 'pick', arguments: '{"from":["a","b"]}', client: true } },
  ]);
  const result = await goOn([{ type: 'client-result', effect: 't1.client.0', content: 'b' }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'You picked b.', turns: 2, calls: 1 });
  expect(result.messages[2]).toEqual({
    role: 'tool',
    content: [
      { type: 'tool-result', callId: 'call_0_0', name: 'pick', content: [{ type: 'text', text: 'b' }], isError: false },
    ],
  });
  model.assertDone();
});

test('client tool: its result can be blocks, and an error', async () => {
  const { goOn } = await paused([picking, 'Then not.']);
  const content = [{ type: 'error', text: 'The person went away.' }] as const;
  const result = await goOn([{ type: 'client-result', effect: 't1.client.0', content, isError: true }]);
  expect(result.messages[2]).toMatchObject({ content: [{ content, isError: true }] });
});

test('client tool: bad arguments never reach the client', async () => {
  const { first } = await paused([{ calls: [{ name: 'pick', arguments: '{"from": ["a"' }] }, 'Sorry.']);
  expect(first).toMatchObject({ outcome: { type: 'completed' }, waiting: [] });
  expect(wordsOf(first)).toEqual([expect.stringContaining('not valid JSON')]);
});

test('client tool: bad arguments never reach the client, also if a process goes on without knowing the tool', async () => {
  const { goOn } = await paused([picking, { calls: [{ name: 'pick', arguments: '{"from": ["a"' }] }, 'Sorry.']);
  const result = await goOn([{ type: 'client-result', effect: 't1.client.0', content: 'b' }], {
    tools: [],
    acceptChangedTools: true,
  });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(wordsOf(result)).toEqual(['b', expect.stringContaining('There is no tool "pick".')]);
});

test('client tool: an answer of the wrong kind, or to nothing, does not fit', async () => {
  const { goOn } = await paused([picking]);
  await expect(goOn([{ type: 'approval', effect: 't1.client.0', digest: '', approved: true }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: '"t1.client.0" waits for client "t1.client.0" (pick), which a "approval" does not answer.',
  });
  await expect(goOn([{ type: 'client-result', effect: 't9.client.0', content: '' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: 'Run "run" does not wait for "t9.client.0". It waits for client "t1.client.0" (pick).',
  });
});

test('client tool: an ended run waits for nothing', async () => {
  const { goOn } = await paused(['Done.']);
  expect(await goOn([])).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  await expect(goOn([{ type: 'client-result', effect: 't1.client.0', content: '' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: expect.stringContaining('It waits for nothing.'),
  });
});

test('mixed turn: what the server executes is done when the run pauses; all results come in call order', async () => {
  const calls = [
    { name: 'look' },
    ...picking.calls,
    { name: 'remove', arguments: { path: 'x' } },
    { name: 'nothing' },
    { name: 'look' },
  ];
  const items: string[] = [];
  const { first, goOn, model } = await paused([{ calls }, 'All done.'], {
    judge: (judged) => judged.map(({ name }) => ({ type: name === 'remove' ? 'ask' : 'allow' })),
  });
  expect(first.waiting.map(({ effect }) => effect)).toEqual(['t1.client.1', 't1.approval.2']);
  expect(model.requests).toHaveLength(1);
  expect(first.messages).toHaveLength(2);
  const second = await goOn([{ type: 'client-result', effect: 't1.client.1', content: 'b' }]);
  expect(second.waiting.map(({ effect }) => effect)).toEqual(['t1.approval.2']);
  const onItem = (item: { readonly type: string }): unknown => items.push(item.type);
  const result = await goOn([approvalOf(second.waiting[0])], { onItem });
  expect(wordsOf(result)).toEqual(['looked', 'b', 'removed', expect.stringContaining('no tool "nothing"'), 'looked']);
  expect(items.filter((type) => type === 'call-answered')).toHaveLength(1);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 4 });
});

test('mixed turn: an answer that comes while the server still works is taken, and the run never pauses', async () => {
  const clock = manualClock();
  const gate = Promise.withResolvers<string>();
  const slow = tool({ name: 'slow', description: 'slow', execute: () => gate.promise });
  using model = scriptedModel([{ calls: [...picking.calls, { name: 'slow' }] }, 'Done.']);
  const live = streamLoop({ model, tools: [slow, pick], input: 'Go.', clock });
  await clock.advance(0);
  const answer = { type: 'client-result', effect: 't1.client.0', content: 'b' } as const;
  live.answer(answer);
  expect(() => live.answer(answer)).toThrow(expect.objectContaining({ code: 'answer-unfit' }));
  gate.resolve('slow ran');
  const result = await live.result;
  expect(wordsOf(result)).toEqual(['b', 'slow ran']);
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('mixed turn: input sent while it works is kept over the pause', async () => {
  const clock = manualClock();
  const gate = Promise.withResolvers<string>();
  const slow = tool({ name: 'slow', description: 'slow', execute: () => gate.promise });
  using model = scriptedModel([{ calls: [{ name: 'slow' }, ...picking.calls] }, 'Done.']);
  const surroundings = { model, tools: [slow, pick], journal: memoryJournal(), runId: 'run', clock };
  const live = streamLoop({ ...surroundings, input: 'Go.' });
  await clock.advance(0);
  expect(live.send('Hurry.')).toBe(true);
  gate.resolve('slow ran');
  await live.result;
  const answers = [{ type: 'client-result', effect: 't1.client.1', content: 'b' }] as const;
  const { messages } = await runLoop({ ...surroundings, answers });
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user', 'assistant']);
});

test('mixed turn: the caller may go on using the list that was the input', async () => {
  ran.length = 0;
  const input = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Go.' }] }];
  using model = scriptedModel([picking, 'Done.']);
  const surroundings = { model, tools, journal: memoryJournal(), runId: 'run' };
  await runLoop({ ...surroundings, input });
  input.push({ role: 'user', content: [{ type: 'text', text: 'Mine.' }] });
  const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'b' }] as const;
  expect((await runLoop({ ...surroundings, answers })).messages).toHaveLength(4);
});
