import { runLoop, tool, type Message } from '@treadle/core';
import { router } from '@treadle/models';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { modelOf, WAYS } from './protocols.ts';

/** Two hosts of one protocol: each rejects the signatures of the other. */

let firstHost: Provider;
let secondHost: Provider;
beforeAll(async () => {
  [firstHost, secondHost] = await Promise.all([startProvider(), startProvider()]);
});
afterAll(() => Promise.all([firstHost[Symbol.asyncDispose](), secondHost[Symbol.asyncDispose]()]));

const add = tool({
  name: 'add',
  description: 'The sum of two numbers',
  input: { type: 'object' },
  effect: 'pure',
  execute: () => '3',
});
const call = { name: 'add', arguments: '{"a":1,"b":2}' };

const refusals = async (script: Script): Promise<unknown[]> =>
  (await script.requests()).flatMap(({ refused }) => refused ?? []);

test.each(WAYS)('$name: falls back from one host to another, and back again', async ({ form, options }) => {
  const overloaded = { fault: 'status', status: 529 } as const;
  const first = await firstHost.script([
    { reasoning: 'I add.', calls: [call] },
    overloaded,
    { reasoning: 'Once more.', calls: [call] },
    { text: 'Three, as I thought.' },
  ]);
  const second = await secondHost.script([{ reasoning: 'I take over.', calls: [call] }]);
  const model = router({
    models: { a: modelOf(form, first, options), b: modelOf(form, second, options) },
    default: 'a',
    fallback: { a: ['b'] },
    maxRetries: 0,
  });
  const settings = { reasoning: 'low', maxOutputTokens: 16_000 } as const;
  const result = await runLoop({ model, tools: [add], input: 'What is 1 and 2?', settings });
  expect([await refusals(first), await refusals(second)]).toEqual([[], []]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Three, as I thought.', turns: 4 });

  // The first host gets its own signatures back, and no others.
  const signatures = [signatureOf(result.messages[1]!), signatureOf(result.messages[3]!)];
  const last = JSON.stringify((await first.requests()).at(-1)!.body);
  expect(signatures.map((signature) => signature !== undefined && last.includes(signature))).toEqual([
    ['anthropic', 'google', 'openai-responses'].includes(form),
    false,
  ]);
});

function signatureOf(message: Message): string | undefined {
  return /[A-Za-z0-9+/]{43}=/.exec(JSON.stringify(message))?.[0];
}
