import { executeAgent, type Model } from '@treadle/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { modelOf, WAYS } from '../models/protocols.ts';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { historyProblem } from '../provider/rules/messages.ts';
import type { Step } from '../provider/script.ts';
import { even, look, reflecting, summing } from './agents.ts';

/** Uses a provider that answers 400 to a history that real providers reject. */

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

const call = (name: string, input: object = {}): { name: string; arguments: string } => ({
  name,
  arguments: JSON.stringify(input),
});

async function overWay(
  { form, options }: (typeof WAYS)[number],
  steps: readonly Step[],
): Promise<{ readonly script: Script; readonly model: Model }> {
  const script = await provider.script(steps);
  return { script, model: modelOf(form, script, { ...options }) };
}

describe.each(WAYS)('over $name', (way) => {
  test('accepts every request: reflection, helper, unknown tool, rejected submit, second attempt', async () => {
    const { script, model } = await overWay(way, [
      { reasoning: 'Look first.', calls: [call('look', { at: 'a' }), call('answer', { total: 1 }), call('nothing')] },
      { text: 'That is it.', calls: [call('submit'), call('look', { at: 'b' })] },
      { reasoning: 'Even, then.', calls: [call('answer', { total: 'x' })] },
      { calls: [call('answer', { total: 4 }), call('submit')] },
    ]);
    const agent = reflecting({ helpers: [look], validation: { customValidators: [even] } });
    const result = await executeAgent(agent, { input: '1, 2', model });
    expect((await script.requests()).map(({ refused }) => refused)).toEqual(Array(4).fill(undefined));
    expect(result).toMatchObject({ type: 'success', output: { total: 4 }, metadata: { attempts: 2, iterations: 4 } });
    expect(historyProblem(result.messages)).toBeUndefined();
  });

  test('accepts every request: no reflection, several outputs, a reply without a call', async () => {
    const { script, model } = await overWay(way, [
      { text: 'I think it is three.' },
      { calls: [call('answer', { total: 8 }), call('look', { at: 'a' }), call('answer', { total: 3 })] },
      { calls: [call('answer', { total: 6 })] },
    ]);
    const agent = summing({ helpers: [look], validation: { customValidators: [even], textOnly: 'feedback' } });
    const result = await executeAgent(agent, { input: '1, 2', model });
    expect((await script.requests()).map(({ refused }) => refused)).toEqual(Array(3).fill(undefined));
    expect(result).toMatchObject({ type: 'success', output: { total: 6 }, metadata: { attempts: 2, iterations: 3 } });
    expect(historyProblem(result.messages)).toBeUndefined();
  });
});

test('an invalid history is rejected with 400 and reported as API_ERROR', async () => {
  const [way] = WAYS;
  const { model } = await overWay(way!, [{ calls: [call('answer', { total: 4 })] }]);
  const broken: Model = {
    ...model,
    reply: (request, emit, signal) => {
      const messages = [...request.messages, ...request.messages];
      return model.reply({ ...request, messages }, emit, signal);
    },
  };
  const result = await executeAgent(summing(), { input: '1, 2', model: broken });
  expect(result).toMatchObject({ type: 'failure', error: { code: 'API_ERROR', context: { code: 'invalid-request' } } });
});
