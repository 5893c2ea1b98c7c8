import { createOpenAI } from '@ai-sdk/openai';
import { HumanMessage, ToolMessage, type AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool as agentTool } from '@openai/agents';
import { tool, type Message } from '@treadle/core';
import { scriptedModel, type ScriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { generateText, isStepCount, streamText, tool as sdkTool } from 'ai';
import OpenAI from 'openai';
import pino from 'pino';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { treadleServer } from '../../treadle-server.ts';

/** Popular clients. Each runs its own tool, and the server runs tools in between. */

const closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const look = tool({
  name: 'look',
  description: 'Looks.',
  parameters: { type: 'object', properties: {} },
  effect: 'pure',
  execute: async () => 'seen',
});

async function serve(): Promise<{ readonly baseURL: string; readonly model: ScriptedModel }> {
  const model = scriptedModel([
    { text: 'I look.', calls: [{ name: 'look' }] },
    {
      text: 'I ask.',
      calls: [
        { name: 'look', arguments: { n: 1 } },
        { name: 'ask', arguments: { city: 'Oslo' } },
      ],
    },
    { text: 'Again.', calls: [{ name: 'ask', arguments: { city: 'Rome' } }] },
    'All done.',
  ]);
  const store = sqliteStore(':memory:');
  const server = treadleServer({
    models: { default: 'main', models: new Map([['main', model]]) },
    store,
    tools: [look],
    defaultTools: ['look'],
    port: 0,
    log: pino({ level: 'silent' }),
  });
  const { url } = await server.listen();
  closers.push(
    () => server.close(0),
    () => store.close(),
  );
  return { baseURL: `${url}/v1`, model };
}

function short({ role, content }: Message): string {
  const parts = content.map((part) => ('name' in part ? `[${part.name}]` : 'text' in part ? part.text : part.type));
  return `${role}: ${parts.join(' ')}`;
}

/** The conversation of the last model call. */
function expectWhole(model: ScriptedModel): void {
  model.assertDone();
  expect(model.requests.at(-1)!.messages.map(short)).toEqual([
    'user: go',
    'assistant: I look. [look]',
    'tool: [look]',
    'assistant: I ask. [look] [ask]',
    'tool: [look] [ask]',
    'assistant: Again. [ask]',
    'tool: [ask]',
  ]);
}

const input = z.object({ city: z.string() });
const answer = async ({ city }: { city: string }): Promise<string> => `12 degrees in ${city}`;

test('the official client with its tool runner', async () => {
  const { baseURL, model } = await serve();
  const client = new OpenAI({ apiKey: 'none', baseURL, maxRetries: 0, logLevel: 'off' });
  const runner = client.chat.completions.runTools({
    model: 'main',
    messages: [{ role: 'user', content: 'go' }],
    stream: true,
    tools: [
      {
        type: 'function',
        function: {
          name: 'ask',
          description: 'Asks.',
          parameters: { type: 'object', properties: { city: { type: 'string' } } },
          parse: (json: string) => input.parse(JSON.parse(json)),
          function: answer,
        },
      },
    ],
  });
  expect(await runner.finalContent()).toBe('All done.');
  expectWhole(model);
});

test.each([[false], [true]])('the AI SDK (streamed: %s)', async (isStreamed) => {
  const { baseURL, model } = await serve();
  const options = {
    model: createOpenAI({ apiKey: 'none', baseURL }).chat('main'),
    prompt: 'go',
    tools: { ask: sdkTool({ description: 'Asks.', inputSchema: input, execute: answer }) },
    stopWhen: isStepCount(5),
    maxRetries: 0,
  };
  const text = isStreamed ? await streamText(options).text : (await generateText(options)).text;
  expect(text).toBe('All done.');
  expectWhole(model);
});

test.each([[false], [true]])('LangChain (streamed: %s)', async (isStreamed) => {
  const { baseURL, model } = await serve();
  const chat = new ChatOpenAI({ model: 'main', apiKey: 'none', configuration: { baseURL }, maxRetries: 0 });
  const bound = chat.bindTools([{ name: 'ask', description: 'Asks.', schema: input }]);

  // Not with its option `streaming`, which downloads a tokenizer.
  async function streamed(messages: BaseMessage[]): Promise<AIMessageChunk> {
    const chunks = await Array.fromAsync(await bound.stream(messages));
    return chunks.reduce((whole, chunk) => whole.concat(chunk));
  }

  const messages: BaseMessage[] = [new HumanMessage('go')];
  for (;;) {
    const said = isStreamed ? await streamed(messages) : await bound.invoke(messages);
    messages.push(said);
    if (!said.tool_calls?.length) {
      expect(said.text).toBe('All done.');
      expect(said.usage_metadata).toMatchObject({ input_tokens: 10, output_tokens: 5, total_tokens: 15 });
      break;
    }
    for (const { id, args } of said.tool_calls) {
      messages.push(new ToolMessage({ tool_call_id: id!, content: await answer(input.parse(args)) }));
    }
  }
  expectWhole(model);
});

test.each([[false], [true]])('OpenAI Agents on chat completions (streamed: %s)', async (stream) => {
  setTracingDisabled(true);
  const { baseURL, model } = await serve();
  const client = new OpenAI({ apiKey: 'none', baseURL, maxRetries: 0, logLevel: 'off' });
  const agent = new Agent({
    name: 'a',
    model: new OpenAIChatCompletionsModel(client as never, 'main'),
    tools: [agentTool({ name: 'ask', description: 'Asks.', parameters: input, execute: answer })],
  });
  if (stream) {
    const live = await run(agent, 'go', { stream: true });
    await live.completed;
    expect(live.finalOutput).toBe('All done.');
  } else {
    expect((await run(agent, 'go')).finalOutput).toBe('All done.');
  }
  expectWhole(model);
});
