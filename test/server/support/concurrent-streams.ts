import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { ScriptedCall } from '../../provider/script.ts';
import { call, SERVER_TOOLS, type ServerFixture } from './fixture.ts';
import { textIn } from './responses-client.ts';
import { modelOf } from './server-process.ts';
import { streamClient, type StreamClient } from './stream-client.ts';
import { validateStream } from './stream-rules.ts';

const FORMS = ['openai-chat', 'openai-responses', 'anthropic'] as const;

/** Streams that all run at the same time. Each has called tools, one of which is waiting. */
export interface ConcurrentStreams {
  /** Releases the tools, and checks that each stream is complete and has its own content. */
  finish(): Promise<void>;
}

export async function startConcurrentStreams(
  { server, provider }: ServerFixture,
  count: number,
): Promise<ConcurrentStreams> {
  const group = randomUUID();
  const tag = (n: number): string => `${group} ${n}`;
  const clients: StreamClient[] = await Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const script = await provider.script([
        {
          reasoning: `About ${n}.`,
          text: `First ${n}.`,
          calls: [add(n, 1), call('fail', { why: `for ${n}` }), add(n, 2)],
        },
        { text: `Then ${n}.`, calls: [call('hold', { tag: tag(n) }), add(n, 3)] },
        { text: `At last ${n}: `.padEnd(400, '日本 ') },
      ]);
      const client = streamClient(server.url, {
        model: modelOf(script, FORMS[n % 3]),
        input: `Ask ${n}`,
        tools: [SERVER_TOOLS],
      });
      await client.started;
      return client;
    }),
  );
  await Promise.all(clients.map((_, n) => server.held(tag(n))));

  return {
    async finish() {
      for (const n of clients.keys()) server.release(tag(n));
      const isComplete = await Promise.all(clients.map(({ ended }) => ended));
      expect(isComplete.every(Boolean)).toBe(true);
      for (const [n, { events }] of clients.entries()) {
        const response = validateStream(events);
        expect(response.status).toBe('completed');
        expect(textIn(response)).toBe(`First ${n}.Then ${n}.${`At last ${n}: `.padEnd(400, '日本 ')}`);
        const calls = response.output.filter(({ type }) => type === 'mcp_call');
        const results = calls.map(({ output, error }) => output ?? JSON.stringify(error));
        expect(results).toEqual([
          `${n + 1}`,
          expect.stringContaining(`for ${n}`),
          `${n + 2}`,
          `released ${tag(n)}`,
          `${n + 3}`,
        ]);
        expect(response.usage).toMatchObject({ input_tokens: 60, output_tokens: 30 });
      }
    },
  };
}

function add(a: number, b: number): ScriptedCall {
  return call('add', { a, b });
}
