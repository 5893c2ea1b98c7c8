import { expect, test } from 'vitest';
import { memoryJournal } from '../journal/memory.ts';
import type { Waiting } from '../machine/state.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import type { ContinueOptions, LoopOptions, StartedRun } from './options.ts';
import { startLoop } from './run.ts';

/** A run whose tools hold a resource, need approval, and ask. `log`: what happened. */
function open(beforePause: (waits: readonly Waiting[], run: StartedRun) => unknown): StartedRun & { log: string[] } {
  const log: string[] = [];
  const hold = tool({
    name: 'hold',
    description: '',
    needsApproval: true,
    async execute(_, context) {
      const { isNew } = await context.hold(
        'shell',
        () => log.push('open'),
        () => log.push('close'),
      );
      return isNew ? 'new' : 'the same';
    },
  });
  const ask = tool({
    name: 'ask',
    description: '',
    async execute(_, context) {
      log.push('ask');
      return context.ask('Which?');
    },
  });
  const options: LoopOptions = {
    model: scriptedModel([{ calls: [{ name: 'hold' }] }, { calls: [{ name: 'hold' }, { name: 'ask' }] }, 'Done.']),
    tools: [hold, ask],
    journal: memoryJournal(),
    input: 'go',
    beforePause(waits) {
      log.push(`waits for ${waits.map(({ effect }) => effect).join(', ')}`);
      return beforePause(waits, run);
    },
  };
  const run = startLoop(options);
  return { ...run, log };
}

const answerTo = (wait: Waiting): Parameters<StartedRun['answer']>[0] =>
  wait.type === 'approval'
    ? { type: 'approval', effect: wait.effect, digest: wait.digest, approved: true }
    : { type: 'answer', effect: wait.effect, value: 'that one' };

test('a run that is answered before it pauses goes on, with its resources and the tools that ask', async () => {
  const { result, log } = open(async (waits, run) => {
    for (const wait of waits) await run.answer(answerTo(wait));
  });
  const { outcome, messages } = await result;
  expect(outcome).toEqual({ type: 'completed' });
  expect(log).toEqual(['waits for t1.approval.0', 'open', 'ask', 'waits for t2.approval.0, t2.question.1.0', 'close']);
  expect(JSON.stringify(messages)).toContain('the same');
  expect(JSON.stringify(messages)).toContain('that one');
});

test.each([
  ['gives no answer', () => {}],
  ['throws', () => Promise.reject(new Error('no'))],
  ['has detached the run', (_: unknown, run: StartedRun) => void run.detach()],
])('a run pauses if the program %s, and is asked about once', async (_, beforePause) => {
  const { result, log } = open(beforePause);
  const paused = await result;
  expect([paused.outcome, paused.detached]).toEqual([undefined, undefined]);
  expect(paused.waiting).toMatchObject([{ effect: 't1.approval.0' }]);
  expect(log).toEqual(['waits for t1.approval.0']);
});

test('what is left is asked about again when the run has changed', async () => {
  const { result, log } = open(async ([wait], run) => {
    if (wait!.type === 'approval') await run.answer(answerTo(wait!));
  });
  expect((await result).waiting).toMatchObject([{ effect: 't2.question.1.0' }]);
  expect(log).toEqual([
    'waits for t1.approval.0',
    'open',
    'ask',
    'waits for t2.approval.0, t2.question.1.0',
    'waits for t2.question.1.0',
    'close',
  ]);
});

test('a run that is resumed is asked about only when what it waits for is durable', async () => {
  const journal = memoryJournal();
  const hold = tool({ name: 'hold', description: '', needsApproval: true, execute: () => 'held' });
  const options: ContinueOptions = {
    model: scriptedModel([{ calls: [{ name: 'hold' }] }, 'Done.']),
    tools: [hold],
    journal,
    runId: 'r',
  };
  await startLoop({ ...options, input: 'go' }).result;
  const log: string[] = [];
  const resumed = startLoop({
    ...options,
    journal: {
      ...journal,
      async append(...given) {
        await journal.append(...given);
        await Promise.resolve();
        log.push('durable');
      },
    },
    beforePause: () => void log.push('asked'),
  });
  expect((await resumed.result).waiting).toMatchObject([{ effect: 't1.approval.0' }]);
  expect(log).toEqual(['durable', 'asked']);
});

test('a run that is cancelled while it is asked about ends', async () => {
  const { result, cancel } = open(() => new Promise(() => {}));
  setImmediate(cancel);
  expect(await result).toMatchObject({ outcome: { type: 'cancelled', phase: 'approval' } });
});
