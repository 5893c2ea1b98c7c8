import { memoryJournal, runLoop, textOf, type LoopOptions, type LoopResult, type ToolResult } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { questionTool, type QuestionToolOptions } from './question.ts';

type Asking = Required<Pick<LoopOptions, 'model' | 'tools' | 'journal' | 'runId'>>;

function asking(input: unknown, options?: QuestionToolOptions): Asking {
  const model = scriptedModel([{ calls: [{ name: 'question', arguments: input }] }, 'Done.']);
  return { model, tools: [questionTool(options)], journal: memoryJournal(), runId: 'r' };
}

function resultIn({ messages }: LoopResult): ToolResult & { readonly text: string } {
  const [result] = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return { ...result!, text: textOf(result!.content) };
}

const SEATS = { prompt: 'Which seat?', choices: ['aisle', 'window'] };

test('the run waits for the answer, which has to be one of the choices', async () => {
  const run = asking(SEATS);
  const paused = await runLoop({ ...run, input: 'go' });
  expect(paused.waiting).toMatchObject([{ type: 'question', effect: 't1.question.0.0', question: SEATS }]);
  const answer = (value: unknown) => [{ type: 'answer', effect: 't1.question.0.0', value }] as const;
  await expect(runLoop({ ...run, answers: answer('roof') })).rejects.toMatchObject({ code: 'answer-unfit' });
  const done = await runLoop({ ...run, answers: answer('aisle') });
  expect(resultIn(done)).toMatchObject({ isError: false, text: 'aisle' });
});

test.each([
  ['a text', 'blue'],
  ['an empty text', '', '(an empty answer)'],
])('without choices the answer is %s', async (_, value, text = value) => {
  const run = asking({ prompt: 'Which colour?' });
  await runLoop({ ...run, input: 'go' });
  const done = await runLoop({ ...run, answers: [{ type: 'answer', effect: 't1.question.0.0', value }] });
  expect(resultIn(done)).toMatchObject({ isError: false, text });
});

test.each([
  ['the tool', { ...asking(SEATS, { canAnswer: false }) }],
  ['the run', { ...asking(SEATS), canAnswer: false }],
])('if %s says that nobody can answer, the model is told at once to decide itself', async (_, run) => {
  const done = await runLoop({ ...run, input: 'go' });
  expect(resultIn(done)).toMatchObject({
    isError: false,
    text: 'Nobody can answer questions in this run. Decide yourself: choose what is easy to undo, and say in your answer what you assumed.',
  });
});

test('a question that nobody answers in time fails with the type timeout', async () => {
  const clock = manualClock();
  const run = { ...asking(SEATS, { ttlMs: 1_000 }), clock };
  const paused = await runLoop({ ...run, input: 'go' });
  expect(paused.wakeAt).toBe(1_000);
  await clock.advance(1_000);
  expect(resultIn(await runLoop(run))).toMatchObject({
    errorType: 'timeout',
    text: expect.stringContaining('Nobody answered in time. Decide yourself'),
  });
});

test.each([
  ['no prompt', { choices: ['a', 'b'] }, 'Required: prompt. Optional: choices.'],
  ['a single choice', { prompt: 'a', choices: ['a'] }, 'choices: '],
  ['10,000 choices', { prompt: 'a', choices: Array.from({ length: 10_000 }, (_, index) => `${index}`) }, 'choices: '],
  ['10,000 choices that are not texts', { prompt: 'a', choices: Array(10_000).fill(1) }, 'more. Required'],
  ['choices that are not texts', { prompt: 'a', choices: [1, null] }, 'choices'],
  ['a huge prompt', { prompt: 'x'.repeat(1_000_000) }, 'prompt: String is too long'],
])('%s is refused', async (_, input, text) => {
  const result = resultIn(await runLoop({ ...asking(input), input: 'go' }));
  expect(result).toMatchObject({ errorType: 'invalid_params', text: expect.stringContaining(text) });
  expect(result.text.length).toBeLessThan(1_000);
});

test('a choice that is given twice is shown once', async () => {
  const paused = await runLoop({ ...asking({ prompt: 'Which?', choices: ['a', 'b', 'a'] }), input: 'go' });
  expect(paused.waiting).toMatchObject([{ question: { choices: ['a', 'b'] } }]);
});

test('a prompt with control characters is asked as it is', async () => {
  const prompt = 'a\u0000b\u001b[2J\ud800?';
  const paused = await runLoop({ ...asking({ prompt }), input: 'go' });
  expect(paused.waiting).toMatchObject([{ type: 'question', question: { prompt } }]);
});
