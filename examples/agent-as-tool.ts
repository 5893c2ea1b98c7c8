/** An agent as a tool of another: a run inside a run, with a share of its limits. Run it: npm run example agent-as-tool */
import { agentTool, runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

const search = tool({
  name: 'search',
  description: 'Searches the archive',
  input: z.object({ words: z.string() }),
  effect: 'pure',
  execute: ({ words }) => `Three documents mention ${words}.`,
});

// Scripted models, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
const researcher = agentTool({
  name: 'research',
  description: 'Answers questions about the archive',
  instructions: 'Search before you answer.',
  model: scriptedModel([{ calls: [{ name: 'search', arguments: { words: 'looms' } }] }, 'Three.']),
  tools: [search],
  onToolCall: ({ call }) => console.log(`research: ${call.name} ${call.arguments}`),
});

const model = scriptedModel([
  { calls: [{ name: 'research', arguments: { task: 'How many documents mention looms?' } }] },
  'Three documents mention looms.',
]);
const result = await runLoop({
  model,
  tools: [researcher],
  input: 'How much do we know about looms?',
  limits: { tokens: 50_000 }, // the child run may use half of what is left
  onToolResult: ({ call, result }) => console.log(`${call.name}: ${result.isError ? 'failed' : 'ok'}`),
});
console.log(result.orThrow().text);
// prints: research: search {"words":"looms"}
// prints: research: ok
// prints: Three documents mention looms.
