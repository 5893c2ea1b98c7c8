/*
 * The client for the conformance suite: `conformance client --command "node … conformance-client.ts"`. The suite appends the URL
 * of its server, and names the scenario in the environment. The client lists the tools, lets a run call each of
 * them once, and answers all questions.
 */
import { startLoop, textOf, type Answer, type StartedRun, type Waiting } from '@treadle/core';
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

interface ToolCalls {
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: unknown }[];
}

try {
  const tools = await mcpTools(server);
  const { toolCalls } = context as ToolCalls;
  const calls = toolCalls ?? tools.map(({ name, parameters }) => ({ name, arguments: argumentsFor(parameters) }));
  const model = scriptedModel([{ calls }, 'Done.']);
  const live: StartedRun = startLoop({
    model,
    tools,
    input: 'Call every tool.',
    beforePause: (waiting) => Promise.all(waiting.map((wait) => live.answer(answerTo(wait)))),
  });
  const result = await live.result;
  for (const message of result.messages) {
    if (message.role !== 'tool') continue;
    for (const { name, isError, content } of message.content)
      process.stdout.write(`${name} ${isError ? 'failed' : 'returned'}: ${textOf(content)}\n`);
  }
} finally {
  await server.close();
}

/** The first choice, or a form with all that it needs. */
function answerTo(wait: Waiting): Answer {
  if (wait.type !== 'question') throw new Error(`The run waits for "${wait.type}".`);
  const { choices, schema } = wait.question;
  const [form = {}] = (schema?.['anyOf'] ?? []) as readonly Record<string, unknown>[];
  return { type: 'answer', effect: wait.effect, value: choices ? choices[0] : argumentsFor(form) };
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
