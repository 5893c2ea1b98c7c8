/** A tool call that needs approval: the run pauses and is resumed with the answer. Run it: npm run example approval */
import { approve, memoryJournal, runLoop, tool, type Answer } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

const transfer = tool({
  name: 'transfer',
  description: 'Transfers money',
  input: z.object({ to: z.string(), amount: z.number() }),
  needsApproval: ({ amount }) => amount > 100, // rules for all tools belong into a policy
  execute: ({ to, amount }) => `Transferred ${amount} to ${to}.`,
});

// A scripted model, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
const model = scriptedModel([{ calls: [{ name: 'transfer', arguments: { to: 'Ada', amount: 500 } }] }, 'It is done.']);
// With sqliteStore of @treadle/store, another process can resume the run days later.
const run = { model, tools: [transfer], journal: memoryJournal(), runId: 'transfer-1' };

const paused = await runLoop({ ...run, input: 'Send Ada 500.' });
const answers: Answer[] = [];
for (const wait of paused.waiting) {
  if (wait.type !== 'approval') continue;
  console.log(`Allow ${wait.call.name} ${wait.call.arguments}? yes`);
  answers.push(approve(wait, { by: 'ann' }));
}
// prints: Allow transfer {"to":"Ada","amount":500}? yes

const result = await runLoop({ ...run, answers });
console.log(result.orThrow().text);
// prints: It is done.
