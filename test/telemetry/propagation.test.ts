import { runLoop, tool, type Model, type Tool } from '@treadle/core';
import { openTelemetry } from '@treadle/core/otel';
import { scriptedModel } from '@treadle/core/testing';
import { openaiChat } from '@treadle/models';
import { bashTool, local } from '@treadle/tools';
import { mcpServer, mcpTools } from '@treadle/tools/mcp';
import { expect, test } from 'vitest';
import { newClient, oldClient } from '../mcp/official-clients.ts';
import { listed, scriptedServer } from '../mcp/scripted-server.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { recordingSdk } from './recorded-spans.ts';

/** Runs calls one after the other. Returns the `traceparent` of the span of each, and the results. */
async function traced(
  model: Model,
  tools: readonly Tool[],
): Promise<{ spans: readonly string[]; results: readonly string[] }> {
  const sdk = recordingSdk();
  const { messages } = await runLoop({ model, tools, input: 'go', tracing: openTelemetry({ tracer: sdk.tracer }) });
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  return {
    spans: sdk.spans
      .filter(({ name }) => name.startsWith('execute_tool'))
      .map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`),
    results: results.map((result) => JSON.stringify((result as { content: unknown }).content)),
  };
}

const call = (name: string, args: object): { calls: { name: string; arguments: object }[] } => ({
  calls: [{ name, arguments: args }],
});

test('commands have the span of their call in TRACEPARENT, those of a session too', async () => {
  const command = 'echo "it is $TRACEPARENT"';
  const model = scriptedModel([
    call('bash', { command }),
    call('bash', { command, session: 's' }),
    call('bash', { command: 'sh -c \'echo "it is $TRACEPARENT"\'', session: 's' }),
    'Done.',
  ]);
  const { spans, results } = await traced(model, [bashTool(local(process.cwd()))]);
  expect(spans).toHaveLength(3);
  for (const [index, span] of spans.entries()) expect(results[index]).toContain(`it is ${span}`);
});

test('MCP servers get the span of the call in _meta', async () => {
  const scripted = scriptedServer({
    'tools/list': () => listed('tool'),
    'tools/call': () => ({ content: [{ type: 'text', text: 'done' }] }),
  });
  const server = mcpServer({ name: 'srv', url: 'http://mcp.test/mcp', fetch: scripted.fetch });
  try {
    const { spans } = await traced(scriptedModel([call('tool', { a: 1 }), 'Done.']), await mcpTools(server));
    const called = scripted.received.filter(({ method }) => method === 'tools/call');
    expect(called.map(({ params }) => (params['_meta'] as { traceparent: string }).traceparent)).toEqual(spans);
  } finally {
    await server.close();
  }
});

test.each([
  ['of SDK 2', newClient],
  ['of SDK 1', oldClient],
] as const)('a call of an MCP client %s is part of the trace in its _meta', async (_, open) => {
  const trace = '0af7651916cd43dd8448eb211c80319c';
  const given: (string | undefined)[] = [];
  const look = tool({
    name: 'look',
    description: 'Looks',
    effect: 'pure',
    touches: () => [],
    execute: (__, { traceparent }) => (given.push(traceparent), 'seen'),
  });
  const sdk = recordingSdk();
  const tracing = openTelemetry({ tracer: sdk.tracer });
  await using server = await startInProcess(scriptedModel([]), { tools: [look], tracing });
  await using client = await open(server);
  const meta = { traceparent: `00-${trace}-b7ad6b7169203331-01` };
  expect(await client.call('look', {}, { meta })).toEqual({ text: 'seen', isError: false });
  expect(new Set(sdk.spans.map(({ traceId }) => traceId))).toEqual(new Set([trace]));
  expect(sdk.spans.some(({ parentId }) => parentId === 'b7ad6b7169203331')).toBe(true);
  const called = sdk.spans.find(({ name }) => name === 'execute_tool look');
  expect(given).toEqual([`00-${trace}-${called!.spanId}-01`]);
  // What is none is ignored.
  expect(await client.call('look', {}, { meta: { traceparent: 'x' } })).toEqual({ text: 'seen', isError: false });
  expect(given[1]).not.toContain(trace);
});

test('a model that is reached with a fetch of the user gets the header, and none if the run is not traced', async () => {
  const traces: (string | null)[] = [];
  const model = openaiChat({
    model: 'm',
    apiKey: 'k',
    baseURL: 'http://model.test/v1',
    stream: false,
    fetch: async (_, init) => {
      traces.push(new Headers(init?.headers).get('traceparent'));
      const message = { role: 'assistant', content: 'Hello.' };
      return Response.json({
        choices: [{ message, finish_reason: 'stop' }],
        usage: { prompt_tokens: 1, completion_tokens: 1 },
      });
    },
  });
  const { tracer, spans } = recordingSdk();
  await runLoop({ model, input: 'Hi', tracing: openTelemetry({ tracer }) });
  await runLoop({ model, input: 'Hi' });
  const [chat] = spans;
  expect(traces).toEqual([`00-${chat!.traceId}-${chat!.spanId}-01`, null]);
  expect(chat!.attributes['gen_ai.provider.name']).toBe('openai');
});
