/** A tool call that needs approval: the run pauses and is resumed with the answer. Run it: npm run example approval */
import { memoryJournal, runLoop, tool, type Answer, type Policy } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';

const transfer = tool({
  name: 'transfer',
  description: 'Transfers money',
  input: {
    type: 'object',
    properties: { to: { type: 'string' }, amount: { type: 'number' } },
    required: ['to', 'amount'],
  },
  execute: ({ to, amount }) => `Transferred ${amount} to ${to}.`,
});

/** Small amounts are allowed, large ones need approval. */
const policy: Policy = {
  judge: (calls) =>
    calls.map(({ input }) =>
      (input as { amount: number }).amount > 100 ? { type: 'ask', reason: 'a large amount' } : { type: 'allow' },
    ),
};

// A scripted model, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
const model = scriptedModel([{ calls: [{ name: 'transfer', arguments: { to: 'Ada', amount: 500 } }] }, 'It is done.']);
const run = { model, tools: [transfer], policy, journal: memoryJournal(), runId: 'transfer-1' };

let result = await runLoop({ ...run, input: 'Send Ada 500.' });
while (!result.outcome) {
  const answers = result.waiting.flatMap((wait): Answer[] => {
    if (wait.type !== 'approval') return [];
    console.log(`Allow ${wait.call.name} ${wait.call.arguments}? (${wait.reason}) yes`);
    return [{ type: 'approval', effect: wait.effect, digest: wait.digest, approved: true }];
  });
  result = await runLoop({ ...run, answers });
}
console.log(result.text);
