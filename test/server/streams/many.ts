import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { ScriptedCall } from '../../provider/script.ts';
import { call, SERVER_TOOLS, type Stage } from '../clients/stage.ts';
import { textIn } from '../open-responses/asking.ts';
import { checkedStream } from '../open-responses/stream-rules.ts';
import { modelOf } from '../process/start.ts';
import { streamClient, type StreamClient } from './client.ts';

const FORMS = ['openai-chat', 'openai-responses', 'anthropic'] as const;

/** Streams that all run at the same moment: each has called its tools, and one of them waits. */
export interface Many {
  /** Lets the tools go on, and checks that each stream is whole and says what it alone was to say. */
  finish(): Promise<void>;
}

export async function manyStreams({ server, provider }: Stage, count: number): Promise<Many> {
  const crowd = randomUUID();
  const tag = (n: number): string => `${crowd} ${n}`;
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
      await client.begun;
      return client;
    }),
  );
  await Promise.all(clients.map((_, n) => server.held(tag(n))));

  return {
    async finish() {
      for (const n of clients.keys()) server.release(tag(n));
      const whole = await Promise.all(clients.map(({ over }) => over));
      expect(whole.every(Boolean)).toBe(true);
      for (const [n, { events }] of clients.entries()) {
        const response = checkedStream(events);
        expect(response.status).toBe('completed');
        expect(textIn(response)).toBe(`First ${n}.Then ${n}.${`At last ${n}: `.padEnd(400, '日本 ')}`);
        const calls = response.output.filter(({ type }) => type === 'mcp_call');
        const told = calls.map(({ output, error }) => output ?? JSON.stringify(error));
        expect(told).toEqual([
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
