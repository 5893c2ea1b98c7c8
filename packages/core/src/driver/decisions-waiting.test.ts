import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
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

const askPolicy: Policy = {
  judge: (calls) =>
    calls.map(({ name }) => (name === 'look' ? { type: 'allow' } : { type: 'ask', reason: 'It removes.' })),
};
const callRemove = { calls: [{ name: 'remove', arguments: { path: 'a' } }] };

/** Starts a run that pauses, and returns how to resume it. */
async function pausedRun(script: readonly ScriptStep[], policy?: Policy) {
  ran.length = 0;
  const clock = manualClock(1_000);
  const model = scriptedModel(script);
  const environment = { model, tools, journal: memoryJournal(), runId: 'run', clock, ...(policy && { policy }) };
  const first = await runLoop({ ...environment, input: 'Go.' });
  const resume = (answers: readonly Answer[], more: Partial<ContinueOptions> = {}): Promise<LoopResult> =>
    runLoop({ ...environment, answers, ...more });
  return { ...environment, first, resume };
}

function approvalOf(waiting: Waiting | undefined, approved = true): Extract<Answer, { type: 'approval' }> {
  if (waiting?.type !== 'approval') throw new Error(`expected an approval, not ${waiting?.type}`);
  return { type: 'approval', effect: waiting.effect, digest: waiting.digest, approved };
}

// ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────────

test('approval: the run pauses, and waiting has the approval with a digest of the exact arguments', async () => {
  const { first } = await pausedRun([callRemove], askPolicy);
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

test('approval: approved, the call runs and the run continues', async () => {
  const { first, resume } = await pausedRun([callRemove, 'Done.'], askPolicy);
  const result = await resume([{ ...approvalOf(first.waiting[0]), by: 'ada' }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', waiting: [], calls: 1 });
  expect(ran).toEqual([{ path: 'a' }]);
  expect(resultTexts(result)).toEqual(['removed']);
});

test.each([
  ['with a reason', { reason: 'Keep it.' }, 'The call of "remove" was not approved: Keep it.'],
  ['without a reason', {}, 'The call of "remove" was not approved.'],
])('approval: refused %s, the call does not run and gets an error result', async (_, more, text) => {
  const { first, resume } = await pausedRun([callRemove, 'Kept.'], askPolicy);
  const result = await resume([{ ...approvalOf(first.waiting[0], false), ...more }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 0 });
  expect(resultTexts(result)).toEqual([text]);
  expect(ran).toEqual([]);
});

test('approval: rejects an approval of other arguments, and the run does not change', async () => {
  const { first, resume, journal } = await pausedRun([callRemove, 'Done.'], askPolicy);
  const approval = approvalOf(first.waiting[0]);
  const before = await journal.read('run');
  await expect(resume([{ ...approval, digest: 'f00' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message:
      `The approval for "t1.approval.0" is bound to other arguments: its digest is f00, that of the call is ` +
      `${approval.digest}. Show the call as it is in "waiting", and decide again.`,
  });
  expect(await journal.read('run')).toEqual(before);
  expect(ran).toEqual([]);
  expect((await resume([approval])).outcome).toEqual({ type: 'completed' });
});

test('approval: rejects a second approval of the same call', async () => {
  const { first, resume } = await pausedRun([callRemove, callRemove, 'Done.'], askPolicy);
  const approval = approvalOf(first.waiting[0]);
  await expect(resume([approval, approval])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: '"t1.approval.0" is answered twice. Pass one answer for each effect.',
  });
  const second = await resume([approval]);
  expect(second.waiting).toMatchObject([{ effect: 't2.approval.0', digest: approval.digest }]);
  await expect(resume([approval])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: 'Run "run" does not wait for "t1.approval.0". It waits for approval "t2.approval.0" (remove).',
  });
  expect(ran).toHaveLength(1);
});

test.each([
  ['too late', (approval: Answer) => [approval]],
  ['never', () => []],
])('approval: expires; answered %s, the call does not run', async (_, answers) => {
  const policy: Policy = { judge: () => [{ type: 'ask', ttlMs: 5_000 }] };
  const { first, resume, clock } = await pausedRun([callRemove, 'Kept.'], policy);
  expect(first.waiting).toMatchObject([{ expiresAt: 6_000 }]);
  await clock.advance(4_999);
  expect((await resume([])).waiting).toHaveLength(1);
  await clock.advance(1);
  const result = await resume(answers(approvalOf(first.waiting[0])));
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(resultTexts(result)).toEqual(['The call of "remove" was not approved in time, so it was not executed.']);
  expect(ran).toEqual([]);
});

test('approval: several are answered one by one, and each call runs after its own', async () => {
  const two = { calls: [...callRemove.calls, { name: 'remove', arguments: { path: 'b' } }] };
  const { first, resume } = await pausedRun([two, 'Done.'], askPolicy);
  const second = await resume([approvalOf(first.waiting[1])]);
  expect(second.outcome).toBeUndefined();
  expect(second.waiting).toMatchObject([{ effect: 't1.approval.0' }]);
  expect(ran).toEqual([{ path: 'b' }]);
  const result = await resume([approvalOf(second.waiting[0], false)]);
  expect(resultTexts(result)).toEqual([expect.stringContaining('not approved'), 'removed']);
});

test('approval: a call of a client tool waits for the client only after its approval', async () => {
  const { first, resume } = await pausedRun(
    [{ calls: [{ name: 'pick', arguments: { from: [1] } }] }, 'Done.'],
    askPolicy,
  );
  const second = await resume([approvalOf(first.waiting[0])]);
  expect(second.waiting).toMatchObject([{ type: 'client', effect: 't1.client.0' }]);
  expect((await resume([{ type: 'result', effect: 't1.client.0', content: '1' }])).outcome).toEqual({
    type: 'completed',
  });
});

test('approval: the run does not pause if a listener answers at once', async () => {
  ran.length = 0;
  using model = scriptedModel([callRemove, 'Done.']);
  const live = streamLoop({
    model,
    tools,
    policy: askPolicy,
    input: 'Go.',
    onItem: (item) => {
      if (item.type !== 'fact' || item.event.type !== 'calls-judged') return;
      const digest = createHash('sha256').update('remove\n{"path":"a"}').digest('hex');
      void live.answer({ type: 'approval', effect: 't1.approval.0', digest, approved: true });
    },
  });
  expect(await live.result).toMatchObject({ outcome: { type: 'completed' }, waiting: [], calls: 1 });
  expect(ran).toHaveLength(1);
});

test('approval: answering a run object that has paused rejects, and reports how to resume', async () => {
  using model = scriptedModel([callRemove]);
  const live = streamLoop({ model, tools, policy: askPolicy, input: 'Go.', runId: 'run' });
  const { waiting } = await live.result;
  await expect(live.answer(approvalOf(waiting[0]))).rejects.toThrow(
    expect.objectContaining({
      code: 'answer-unfit',
      message: expect.stringMatching(/^Run "run" is not driven here any more\. .*runLoop/),
    }),
  );
});

test('approval: any value of approved except true is a refusal', async () => {
  const journal = memoryJournal();
  let runs = 0;
  const act = tool({ name: 'act', description: 'x', execute: () => `${++runs}` });
  const policy = { judge: () => [{ type: 'ask' as const }] };
  const model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
  const options = { model, tools: [act], policy, journal, runId: 'r' };
  const [wait] = (await runLoop({ ...options, input: 'go' })).waiting;
  if (wait?.type !== 'approval') throw new Error('no approval');
  const { effect, digest } = wait;
  await runLoop({ ...options, answers: [{ type: 'approval', effect, digest, approved: 'no' as never }] });
  expect(runs).toBe(0);
});

// ── client-executed tools ────────────────────────────────────────────────────────────────────────────────────────────

const callPick = { calls: [{ name: 'pick', arguments: { from: ['a', 'b'] } }] };

test('client tool: the run pauses on the call, and continues with its result', async () => {
  const { first, resume, model } = await pausedRun([callPick, 'You picked b.']);
  expect(first.outcome).toBeUndefined();
  expect(first.waiting).toMatchObject([
    { type: 'client', effect: 't1.client.0', call: { name: 'pick', arguments: '{"from":["a","b"]}', client: true } },
  ]);
  const result = await resume([{ type: 'result', effect: 't1.client.0', content: 'b' }]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'You picked b.', turns: 2, calls: 1 });
  expect(result.messages[2]).toEqual({
    role: 'tool',
    content: [
      { type: 'tool-result', callId: 'call_0_0', name: 'pick', content: [{ type: 'text', text: 'b' }], isError: false },
    ],
  });
  model.assertDone();
});

test('client tool: accepts content blocks and errors as result', async () => {
  const { resume } = await pausedRun([callPick, 'Then not.']);
  const content = [{ type: 'error', text: 'The person left.' }] as const;
  const result = await resume([{ type: 'result', effect: 't1.client.0', content, isError: true }]);
  expect(result.messages[2]).toMatchObject({ content: [{ content, isError: true }] });
});

test('client tool: does not wait for the client if the arguments are invalid', async () => {
  const { first } = await pausedRun([{ calls: [{ name: 'pick', arguments: '{"from": ["a"' }] }, 'Sorry.']);
  expect(first).toMatchObject({ outcome: { type: 'completed' }, waiting: [] });
  expect(resultTexts(first)).toEqual([expect.stringContaining('not valid JSON')]);
});

test('client tool: does not wait for the client if the resuming process does not have the tool', async () => {
  const { resume } = await pausedRun([callPick, { calls: [{ name: 'pick', arguments: '{"from": ["a"' }] }, 'Sorry.']);
  const result = await resume([{ type: 'result', effect: 't1.client.0', content: 'b' }], {
    tools: [],
    acceptChangedTools: true,
  });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(resultTexts(result)).toEqual(['b', expect.stringContaining('There is no tool "pick".')]);
});

test('client tool: rejects an answer of the wrong type or for another effect', async () => {
  const { resume } = await pausedRun([callPick]);
  await expect(resume([{ type: 'approval', effect: 't1.client.0', digest: '', approved: true }])).rejects.toMatchObject(
    {
      code: 'answer-unfit',
      message: '"t1.client.0" waits for client "t1.client.0" (pick), which a "approval" does not answer.',
    },
  );
  await expect(resume([{ type: 'result', effect: 't9.client.0', content: '' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: 'Run "run" does not wait for "t9.client.0". It waits for client "t1.client.0" (pick).',
  });
});

test('client tool: rejects an answer to a run that has ended', async () => {
  const { resume } = await pausedRun(['Done.']);
  expect(await resume([])).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  await expect(resume([{ type: 'result', effect: 't1.client.0', content: '' }])).rejects.toMatchObject({
    code: 'answer-unfit',
    message: expect.stringContaining('It waits for nothing.'),
  });
});

test('mixed turn: other calls run before the run pauses, and all results are in call order', async () => {
  const calls = [
    { name: 'look' },
    ...callPick.calls,
    { name: 'remove', arguments: { path: 'x' } },
    { name: 'nothing' },
    { name: 'look' },
  ];
  const items: string[] = [];
  const { first, resume, model } = await pausedRun([{ calls }, 'All done.'], {
    judge: (judged) => judged.map(({ name }) => ({ type: name === 'remove' ? 'ask' : 'allow' })),
  });
  expect(first.waiting.map(({ effect }) => effect)).toEqual(['t1.client.1', 't1.approval.2']);
  expect(model.requests).toHaveLength(1);
  expect(first.messages).toHaveLength(2);
  const second = await resume([{ type: 'result', effect: 't1.client.1', content: 'b' }]);
  expect(second.waiting.map(({ effect }) => effect)).toEqual(['t1.approval.2']);
  const onItem = (item: { readonly type: string }): unknown => items.push(item.type);
  const result = await resume([approvalOf(second.waiting[0])], { onItem });
  expect(resultTexts(result)).toEqual([
    'looked',
    'b',
    'removed',
    expect.stringContaining('no tool "nothing"'),
    'looked',
  ]);
  expect(items.filter((type) => type === 'call-answered')).toHaveLength(1);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 4 });
});

test('mixed turn: accepts an answer while another call runs, and does not pause', async () => {
  const clock = manualClock();
  const gate = Promise.withResolvers<string>();
  const slow = tool({ name: 'slow', description: 'slow', execute: () => gate.promise });
  using model = scriptedModel([{ calls: [...callPick.calls, { name: 'slow' }] }, 'Done.']);
  const live = streamLoop({ model, tools: [slow, pick], input: 'Go.', clock });
  await clock.advance(0);
  const answer = { type: 'result', effect: 't1.client.0', content: 'b' } as const;
  await live.answer(answer);
  await expect(live.answer(answer)).rejects.toThrow(expect.objectContaining({ code: 'answer-unfit' }));
  gate.resolve('slow ran');
  const result = await live.result;
  expect(resultTexts(result)).toEqual(['b', 'slow ran']);
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('mixed turn: input sent before the pause is added after it', async () => {
  const clock = manualClock();
  const gate = Promise.withResolvers<string>();
  const slow = tool({ name: 'slow', description: 'slow', execute: () => gate.promise });
  using model = scriptedModel([{ calls: [{ name: 'slow' }, ...callPick.calls] }, 'Done.']);
  const environment = { model, tools: [slow, pick], journal: memoryJournal(), runId: 'run', clock };
  const live = streamLoop({ ...environment, input: 'Go.' });
  await clock.advance(0);
  expect(await live.send('Hurry.')).toBe(true);
  gate.resolve('slow ran');
  await live.result;
  const answers = [{ type: 'result', effect: 't1.client.1', content: 'b' }] as const;
  const { messages } = await runLoop({ ...environment, answers });
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user', 'assistant']);
});

test('mixed turn: later changes of the input array do not affect the run', async () => {
  ran.length = 0;
  const input = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Go.' }] }];
  using model = scriptedModel([callPick, 'Done.']);
  const environment = { model, tools, journal: memoryJournal(), runId: 'run' };
  await runLoop({ ...environment, input });
  input.push({ role: 'user', content: [{ type: 'text', text: 'Later.' }] });
  const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;
  expect((await runLoop({ ...environment, answers })).messages).toHaveLength(4);
});
