/** A desk that hands the conversation over to a specialist. Run it: npm run example handoff */
import { handoff, runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

const refund = tool({
  name: 'refund',
  description: 'Pays an order back',
  input: z.object({ order: z.string() }),
  execute: ({ order }) => `Order ${order} is paid back.`,
});

// Scripted models, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
const billing = {
  name: 'billing',
  description: 'refunds and invoices',
  instructions: 'You handle payments.',
  tools: [refund],
  model: scriptedModel([{ calls: [{ name: 'refund', arguments: { order: 'A7' } }] }, 'You get your money back.']),
};

const result = await runLoop({
  model: scriptedModel([{ calls: [{ name: 'hand_off_to_billing' }] }]),
  instructions: 'You are the desk. Hand over what you cannot do.',
  tools: [handoff(billing)],
  input: 'I want my money back for order A7.',
});
console.log(`${result.handedTo}: ${result.orThrow().text}`);
// prints: billing: You get your money back.
