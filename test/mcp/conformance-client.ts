/*
 * The client for the conformance suite: `conformance client --command "node … conformance-client.ts"`. The suite appends the URL
 * of its server, and names the scenario in the environment. The client lists the tools and lets a run call each of them once.
 */
import { runLoop, textOf } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { memorySecrets } from '@treadle/store';
import { mcpServer, mcpTools, signInFetch } from '@treadle/tools/mcp';

const url = process.argv.at(-1)!;
const context = JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}') as Readonly<
  Record<string, string | undefined>
>;
const { client_id: id, client_secret: secret } = context;

const server = mcpServer({
  name: 'conformance',
  url,
  fetch: signInFetch({
    name: 'conformance',
    url,
    secrets: memorySecrets(),
    clientMetadataUrl: 'https://conformance-test.local/client-metadata.json',
    ...(id !== undefined && { client: { id, ...(secret !== undefined && { secret }) } }),
    browser: {
      redirectUrl: 'http://127.0.0.1:3000/callback',
      /** The person agrees to everything. */
      async authorize(page) {
        const { headers } = await fetch(page, { redirect: 'manual' });
        return new URL(headers.get('location')!).searchParams;
      },
    },
  }),
});

try {
  const tools = await mcpTools(server);
  const calls = tools.map(({ name, parameters }) => ({ calls: [{ name, arguments: argumentsFor(parameters) }] }));
  const result = await runLoop({
    model: scriptedModel([...calls, 'Done.']),
    tools,
    input: 'Call every tool.',
    maxTurns: 50,
  });
  for (const message of result.messages) {
    if (message.role !== 'tool') continue;
    for (const { name, isError, content } of message.content)
      process.stdout.write(`${name} ${isError ? 'failed' : 'returned'}: ${textOf(content)}\n`);
  }
} finally {
  await server.close();
}

/** A value of the right type for each required argument. */
function argumentsFor({ properties = {}, required = [] }: Record<string, unknown>): Record<string, unknown> {
  const values: Readonly<Record<string, unknown>> = { number: 1, integer: 1, boolean: true, array: [], object: {} };
  return Object.fromEntries(
    (required as readonly string[]).map((name) => {
      const { type } = ((properties as Record<string, { type?: string }>)[name] ?? {}) as { type?: string };
      return [name, values[type ?? ''] ?? 'text'];
    }),
  );
}
