import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { partsSeen, postChat, type ChatEvents } from './chat-events.ts';
import { call, type ServerFixture } from './fixture.ts';
import { modelOf } from './server-process.ts';

const FORMS = ['openai-chat', 'openai-responses', 'anthropic'] as const;

/** Chats that all run at the same time. Each has called tools, one of which is waiting. */
export interface ConcurrentChats {
  /** Releases the tools, and checks that each stream is complete, has its own content, and is what the server has stored. */
  finish(): Promise<void>;
}

/** Half of the chats continue when their client disconnects, so their events are stored. */
export async function startConcurrentChats(
  { server, provider }: ServerFixture,
  count: number,
): Promise<ConcurrentChats> {
  const group = randomUUID();
  const tag = (n: number): string => `${group} ${n}`;
  const clients: ChatEvents[] = await Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const script = await provider.script([
        { reasoning: `About ${n}.`, text: `First ${n}.`, calls: [call('add', { a: n, b: 1 }), call('fail', {})] },
        { text: `Then ${n}.`, calls: [call('hold', { tag: tag(n) })] },
        { text: `At last ${n}: `.padEnd(400, '日本 ') },
      ]);
      return postChat(server.url, {
        model: modelOf(script, FORMS[n % 3]),
        message: `Ask ${n}`,
        tools: ['add', 'fail', 'hold'],
        on_disconnect: n % 2 === 0 ? 'cancel' : 'continue',
      });
    }),
  );
  await Promise.all(clients.map((_, n) => server.held(tag(n))));

  return {
    async finish() {
      for (const n of clients.keys()) server.release(tag(n));
      for (const [n, { ended }] of clients.entries()) {
        const events = await ended;
        expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
        expect(events.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
        const answer = await fetch(`${server.url}/v1/chat/${events[0]!['conversation_id']}`);
        const { messages } = (await answer.json()) as { readonly messages: readonly { readonly parts: unknown }[] };
        expect(messages[1]!.parts).toEqual(partsSeen(events));
        expect(messages[1]!.parts).toMatchObject([
          { type: 'reasoning', text: `About ${n}.` },
          { type: 'text', text: `First ${n}.` },
          { type: 'tool_call', result: { content: `${n + 1}`, is_error: false } },
          { type: 'tool_call', result: { is_error: true } },
          { type: 'text', text: `Then ${n}.` },
          { type: 'tool_call', result: { content: `released ${tag(n)}` } },
          { type: 'text', text: `At last ${n}: `.padEnd(400, '日本 ') },
        ]);
      }
    },
  };
}

/** Conversations with one answer, which nobody reads any more. */
export async function addIdleConversations({ server, provider }: ServerFixture, count: number): Promise<void> {
  const clients = await Promise.all(Array.from({ length: 8 }, () => provider.script([])));
  let remaining = count;
  await Promise.all(
    clients.map(async (script) => {
      while (remaining-- > 0) {
        await script.add({ text: 'Hello.' });
        const { ended } = await postChat(server.url, { model: modelOf(script), message: 'Hi', tools: [] });
        expect((await ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
      }
    }),
  );
}
