/** A tool that the client executes, such as a page in a browser: the run pauses for it. Run it: npm run example client-tools */
import { answer, memoryJournal, runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

// Without execute, the client runs the tool.
const locate = tool({
  name: 'get_location',
  description: 'Where the user is',
  input: z.object({ precise: z.boolean() }),
});

// A scripted model, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
const model = scriptedModel([{ calls: [{ name: 'get_location', arguments: { precise: false } }] }, 'You are in Oslo.']);
const run = { model, tools: [locate], journal: memoryJournal(), runId: 'where-1' };

/** The client's side: it gets the calls, which are plain JSON, and returns the results. */
function runOnClient(call: { readonly name: string; readonly arguments: string }): string {
  console.log(`The client runs ${call.name} ${call.arguments}`);
  return 'Oslo';
}

let result = await runLoop({ ...run, input: 'Where am I?' });
while (result.waiting.length > 0) {
  const answers = result.waiting.map((wait) => answer(wait, runOnClient(wait.call)));
  result = await runLoop({ ...run, answers });
}
// prints: The client runs get_location {"precise":false}

console.log(result.orThrow().text);
// prints: You are in Oslo.
