import { defineAgent, executeAgent, memoryJournal, runLoop, streamLoop, tool, type Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { anthropic, google, ollama, openaiChat, openaiResponses, router } from '@treadle/models';
import { z } from 'zod';

/**
 * What core and models must do on every runtime. It imports nothing of Node, and is run by `npm run runtimes` on Node, Bun,
 * Deno and workerd. Returns the names of the checks; throws if one fails.
 */
export async function conformance(providers: Providers): Promise<string[]> {
  const passed: string[] = [];
  for (const [name, check] of Object.entries(checks(providers))) {
    try {
      await check();
    } catch (thrown) {
      throw new Error(`${name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`, { cause: thrown });
    }
    passed.push(name);
  }
  return passed;
}

/** The base URLs of a scripted provider: by protocol, one of a conversation with a call, and one that rejects requests. */
export interface Providers {
  readonly protocols: Readonly<Record<Protocol, string>>;
  readonly rejecting: string;
  readonly stalling: string;
}

const PROTOCOLS = {
  'openai-chat': openaiChat,
  'openai-responses': openaiResponses,
  anthropic,
  google,
  ollama,
} as const;
type Protocol = keyof typeof PROTOCOLS;

const add = tool({
  name: 'add',
  description: 'The sum of two numbers',
  input: z.object({ a: z.number(), b: z.number() }),
  effect: 'pure',
  execute: ({ a, b }) => String(a + b),
});
const call = { name: 'add', arguments: { a: 2, b: 40 } };

function checks({ protocols, rejecting, stalling }: Providers): Record<string, () => Promise<void>> {
  return {
    async 'a run with a tool'() {
      const model = scriptedModel([{ calls: [call] }, 'It is 42.']);
      const { outcome, text, calls } = await runLoop({ model, tools: [add], input: 'What is 2 + 40?' });
      expectSame([outcome?.type, text, calls], ['completed', 'It is 42.', 1]);
    },

    async 'a stream'() {
      const live = streamLoop({ model: scriptedModel([{ calls: [call] }, 'It is 42.']), tools: [add], input: 'Add.' });
      const seen: string[] = [];
      for await (const item of live) seen.push(item.type === 'text-delta' ? item.text : item.type);
      expectSame(
        ['call-started', 'call-answered', 'It is 42.'].map((item) => seen.join('').includes(item)),
        [true, true, true],
      );
      expectSame((await live.result).outcome?.type, 'completed');
    },

    async 'an agent with a schema'() {
      const agent = defineAgent({
        name: 'adder',
        description: 'Adds',
        model: scriptedModel([
          { calls: [{ name: 'answer', arguments: { sum: 'many' } }, { name: 'submit' }] },
          { calls: [{ name: 'answer', arguments: { sum: 42 } }, { name: 'submit' }] },
        ]),
        prompts: { system: 'You add.', user: (question: string) => question },
        tools: { output: { name: 'answer', description: 'The answer' } },
        validation: { outputSchema: z.object({ sum: z.number() }), maxAttempts: 2 },
      });
      const result = await executeAgent(agent, { input: 'What is 2 + 40?' });
      expectSame(result.type === 'success' ? result.output : result.error, { sum: 42 });
    },

    async 'a run that is resumed from its journal'() {
      const journal = memoryJournal();
      const policy = { judge: () => [{ type: 'ask' as const, reason: 'sums' }] };
      const first = scriptedModel([{ calls: [call] }]);
      const paused = await runLoop({ model: first, tools: [add], policy, journal, runId: 'r', input: 'Add.' });
      const [wait] = paused.waiting;
      if (wait?.type !== 'approval') throw new Error('the run does not wait for an approval');
      const answers = [{ type: 'approval', effect: wait.effect, digest: wait.digest, approved: true }] as const;
      const model = scriptedModel(['It is 42.']);
      const { text, turns } = await runLoop({ model, tools: [add], policy, journal, runId: 'r', answers });
      expectSame([text, turns], ['It is 42.', 2]);
    },

    ...Object.fromEntries(
      (Object.keys(PROTOCOLS) as Protocol[]).flatMap((name) =>
        [true, false].map((stream) => [
          `${name} over HTTP, ${stream ? 'streamed' : 'whole'}`,
          async () => {
            const model = modelOf(name, protocols[name], stream);
            const live = streamLoop({ model, tools: [add], input: 'What is 2 + 40?' });
            let text = '';
            for await (const item of live) if (item.type === 'text-delta') text += item.text;
            const result = await live.result;
            expectSame([result.outcome, result.text, result.calls], [{ type: 'completed' }, 'Es ist 42. 🌨️', 1]);
            if (stream) expectSame(text, result.text);
          },
        ]),
      ),
    ),

    async 'an error of a provider, and a fallback'() {
      const failing = openaiChat({ model: 'm', apiKey: 'sk-wrong-key', baseURL: rejecting, maxRetries: 0 });
      const failed = await runLoop({ model: failing, input: 'Hello' });
      expectSame(failed.outcome?.type === 'failed' && failed.outcome.error.code, 'auth');
      const models = { failing, backup: scriptedModel(['Hello from the backup.']) };
      const model = router({ models, default: 'failing', fallback: { failing: ['backup'] }, maxRetries: 0 });
      expectSame((await runLoop({ model, input: 'Hello' })).text, 'Hello from the backup.');
    },

    async 'a large request, which is written in slices'() {
      let sent = '';
      const fetch: typeof globalThis.fetch = async (_, init) => {
        sent = new TextDecoder().decode(init!.body as Uint8Array);
        return Response.json({ choices: [{ index: 0, message: { content: 'Long.' }, finish_reason: 'stop' }] });
      };
      const input = 'ä"'.repeat(1_000_000);
      const model = openaiChat({ model: 'm', apiKey: 'k', stream: false, fetch });
      expectSame((await runLoop({ model, input })).text, 'Long.');
      const { messages } = JSON.parse(sent) as { readonly messages: readonly { readonly content: string }[] };
      expectSame(messages[0]?.content === input, true);
    },

    async 'a request that is cancelled'() {
      const stop = new AbortController();
      const live = streamLoop({ model: modelOf('openai-chat', stalling, true), input: 'Hello', signal: stop.signal });
      for await (const item of live) if (item.type === 'text-delta') stop.abort();
      expectSame((await live.result).outcome?.type, 'cancelled');
    },
  };
}

function modelOf(name: Protocol, baseURL: string, stream: boolean): Model {
  return PROTOCOLS[name]({ model: 'm-1', apiKey: 'sk-test-key', baseURL, stream, maxRetries: 0 });
}

function expectSame(actual: unknown, expected: unknown): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${a} instead of ${b}`);
}
