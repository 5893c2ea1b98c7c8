/** An answer with a schema: JSON that is validated and typed. Run it: npm run example structured-output */
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

const Recipe = z.object({ name: z.string(), minutes: z.number(), steps: z.array(z.string()).min(1) });

// A scripted model, so that the example needs no key. Its first answer is rejected, and it gets the problems back.
const answer = { name: 'Pancakes', minutes: 20, steps: ['Mix.', 'Fry.'] };
const model = scriptedModel([JSON.stringify({ ...answer, minutes: 'twenty' }), JSON.stringify(answer)]);

const result = await runLoop({ model, input: 'How do I make pancakes?', output: Recipe });
const { output, turns } = result.orThrow();
console.log(`${output.name}: ${output.steps.length} steps, ${output.minutes} minutes (${turns} turns)`);
// prints: Pancakes: 2 steps, 20 minutes (2 turns)
