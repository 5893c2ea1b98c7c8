import { runLoop, tool, type Message } from '@treadle/core';
import { router } from '@treadle/models';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { modelOf, WAYS } from './protocols.ts';

/** Two hosts of one protocol know nothing of each other: what one has signed, the other refuses. */

let here: Provider;
let there: Provider;
beforeAll(async () => {
  [here, there] = await Promise.all([startProvider(), startProvider()]);
});
afterAll(() => Promise.all([here[Symbol.asyncDispose](), there[Symbol.asyncDispose]()]));

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

test.each(WAYS)('$name: a run falls back from one host to the other, and back again', async ({ form, options }) => {
  const overloaded = { fault: 'status', status: 529 } as const;
  const first = await here.script([
    { reasoning: 'I add.', calls: [call] },
    overloaded,
    { reasoning: 'Once more.', calls: [call] },
    { text: 'Three, as I thought.' },
  ]);
  const second = await there.script([{ reasoning: 'I take over.', calls: [call] }]);
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

  // The first host gets back what is its own, and nothing else.
  const [mine, theirs] = [proofOf(result.messages[1]!), proofOf(result.messages[3]!)];
  const last = JSON.stringify((await first.requests()).at(-1)!.body);
  expect([mine, theirs].map((proof) => proof !== undefined && last.includes(proof))).toEqual([
    form === 'anthropic' || form === 'openai-responses',
    false,
  ]);
});

function proofOf(message: Message): string | undefined {
  return /[A-Za-z0-9+/]{43}=/.exec(JSON.stringify(message))?.[0];
}
