/** Prints the deltas and tool calls of a run while it runs. Run it: npm run example streaming */
import { streamLoop, tool } from '@treadle/core';
import { demo } from '@treadle/models';

const clock = tool({ name: 'get_time', description: 'The current time', effect: 'pure', execute: () => '12:00' });

const live = streamLoop({ model: demo(), tools: [clock], input: 'What time is it?' });
for await (const item of live) {
  if (item.type === 'text-delta') process.stdout.write(item.text);
  if (item.type === 'call-started') console.log(`> ${item.call.name} ${item.call.arguments}`);
  if (item.type === 'call-answered') console.log(`< ${item.result.isError ? 'failed' : 'ok'}`);
  if (item.type === 'run-failed') console.error(`${item.code}: ${item.message}`);
}
const { outcome, usage, turns } = await live.result;
console.log(`\n${outcome?.type} after ${turns} turns and ${usage.outputTokens} tokens`);
