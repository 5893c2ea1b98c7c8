import { memoryJournal, type Policy } from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { EdgeLink, EdgePrompt } from '@treadle/edge';
import { expect, test } from 'vitest';
import { promptAnswers, type PromptOptions } from './prompts.ts';

const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'allow' })) };
/** Devices of which nothing has been heard. */
const link = (whenReady = async (): Promise<boolean> => false): EdgeLink =>
  ({ device: () => ({ status: 'unknown', tenant: 'default' }), whenReady }) as unknown as EdgeLink;

type Options = Partial<ReturnType<PromptOptions['options']>>;
type Reply = Parameters<EdgePrompt['reply']>[0];

/** Asks with one id, as often as there are answers to wait for. */
function asking(
  script: readonly ScriptStep[],
  options: Options = {},
  { durable = () => {}, whenReady }: Partial<PromptOptions['store']> & Partial<Pick<EdgeLink, 'whenReady'>> = {},
) {
  const given = {
    model: scriptedModel(script),
    policy,
    config: { orchestrator: { tool_loop_enabled: false } },
    hooks: {},
    ...options,
  };
  const answers = promptAnswers(link(whenReady as () => Promise<boolean>), {
    options: () => given,
    store: { ...memoryJournal(), durable },
  });
  return (): Promise<Reply> =>
    new Promise((resolve) => {
      const reply = async (report: Reply): Promise<void> => resolve(report);
      answers.answer({ device: 'pi', requestId: 'r', text: 'Hi', conversation: undefined, reply });
    });
}

test('an answer that a guardrail has stopped is not sent, also not when the message is delivered again', async () => {
  const hooks = { guardrails: { output: [() => 'It is secret.'] } };
  const ask = asking(['The secret.'], { hooks });
  const error = { status: 'error', error: 'It is secret.', error_type: 'execution_failed' };
  expect(await ask()).toEqual(error);
  // Until then it is dropped, because its run goes on.
  await new Promise(setImmediate);
  expect(await ask()).toEqual(error);
});

test('messages draw on the budgets of the server', async () => {
  const ledger = memoryBudgets({ all: { tokens: 0 } }).ledger(['all']);
  const ask = asking(['Hello.'], { ledger: ({ tenant }) => (tenant === 'default' ? ledger : undefined) });
  expect(await ask()).toMatchObject({ status: 'error' });
});

test('an answer is sent when what it tells is durable: another server may have written it', async () => {
  const synced = Promise.withResolvers<void>();
  const order: string[] = [];
  const durable = async (): Promise<void> => {
    order.push('waits');
    await synced.promise;
    order.push('synced');
  };
  const ask = asking(['Hello.'], {}, { durable });
  const answered = ask().then(() => order.push('sent'));
  while (order.length === 0) await new Promise(setImmediate);
  synced.resolve();
  await answered;
  expect(order).toEqual(['waits', 'synced', 'sent']);
});

test('a message that comes before its device was heard waits for it', async () => {
  const model = scriptedModel(['Hello.']);
  const before: number[] = [];
  const whenReady = async (): Promise<boolean> => {
    await new Promise(setImmediate);
    before.push(model.requests.length);
    return true;
  };
  expect(await asking([], { model }, { whenReady })()).toMatchObject({ result: 'Hello.' });
  expect([before, model.requests.length]).toEqual([[0], 1]);
});
