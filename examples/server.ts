/** A server with a tool, and a client with a function. Run it: npm run example server */
import { tool } from '@treadle/core';
import { demo } from '@treadle/models';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import OpenAI from 'openai';
import type { FunctionTool, ResponseInput, Tool } from 'openai/resources/responses/responses';

const clock = tool({ name: 'get_time', description: 'The current time', effect: 'pure', execute: () => '12:00' });

const store = sqliteStore(':memory:'); // use a file to keep responses after the process ends
const server = treadleServer({
  models: { default: 'demo', models: new Map([['demo', demo()]]) },
  store,
  tools: [clock],
  port: 0,
  log: newLog({ level: 'warn' }),
});
const { url } = await server.listen();

// The client. It could be any program on this machine.
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any' });
const weather: FunctionTool = {
  type: 'function',
  name: 'get_weather',
  description: 'Current weather for a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  strict: false,
};
const tools: Tool[] = [weather, { type: 'mcp', server_label: 'treadle' }];

/** Creates a response and answers the function calls of the model, until there are no more calls. */
async function respond(input: string | ResponseInput, previousId: string | null = null): Promise<void> {
  const stream = client.responses.stream({ model: 'demo', input, tools, previous_response_id: previousId });
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') process.stdout.write(event.delta);
    if (event.type !== 'response.output_item.done') continue;
    if (event.item.type === 'mcp_call') console.log(`The server ran ${event.item.name}: ${event.item.output}`);
    if (event.item.type === 'function_call') console.log(`The client runs ${event.item.name} ${event.item.arguments}`);
  }
  const { id, output } = await stream.finalResponse();
  const outputs = output.flatMap((item) =>
    item.type === 'function_call'
      ? [{ type: 'function_call_output' as const, call_id: item.call_id, output: '12 degrees and rain' }]
      : [],
  );
  if (outputs.length > 0) await respond(outputs, id);
}

await respond('What time is it, and what is the weather in Oslo?');
console.log();

await server.close();
await store.close();
