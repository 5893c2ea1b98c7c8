import { forkRun, memoryJournal, runLoop, tool, type ProviderData } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { call } from '../../test/parts.ts';
import { bytesOf, request } from '../../test/request.ts';
import { chunk, DONE, says, scriptedServer, stream, type Seen } from '../../test/scripted-server.ts';
import { openaiChat, openaiChatProtocol } from './openai-chat.ts';

/* Gemini sends a thought signature with a call, in `extra_content`, and rejects the call in a history without it. */

const EXTRA = { google: { thought_signature: 'AbC+/=' } };
const wireCall = { index: 0, id: 'c1', function: { name: 'add', arguments: '{"a":1}' } };

/** A reply with two calls. Only the first has a signature, which arrives in its own chunk or with the call. */
const calling = (separately: boolean): ReturnType<typeof stream> =>
  stream(
    chunk({ tool_calls: [{ ...wireCall, ...(!separately && { extra_content: EXTRA }) }] }),
    ...(separately ? [chunk({ tool_calls: [{ index: 0, extra_content: EXTRA }] })] : []),
    chunk({ tool_calls: [{ index: 1, id: 'c2', function: { name: 'add', arguments: '{"a":2}' } }] }, 'tool_calls'),
    DONE,
  );

const add = tool({ name: 'add', description: 'Adds', input: { type: 'object' }, effect: 'pure', execute: () => '3' });

/** The `extra_content` of the calls in a request. */
function extrasIn({ body }: Seen): unknown[] {
  const { messages } = body as { messages: readonly { tool_calls?: readonly { extra_content?: unknown }[] }[] };
  return messages.flatMap(({ tool_calls: calls = [] }) => calls.map((one) => one.extra_content));
}

describe.each([false, true])('in a chunk of its own: %s', (separately) => {
  test('data of a call goes back to its host, also in a fork from the journal', async () => {
    await using host = await scriptedServer(calling(separately), says('Three.'), says('Three.'));
    const model = openaiChat({ model: 'm', baseURL: host.url });
    const journal = memoryJournal();
    const result = await runLoop({ model, tools: [add], journal, runId: 'run', input: 'Add.' });
    expect(result.text).toBe('Three.');
    const provider: ProviderData = { protocol: `openrouter@${new URL(host.url).host}`, data: EXTRA };
    expect(result.messages[1]?.content).toEqual([
      { ...call('c1', 'add', '{"a":1}'), provider },
      call('c2', 'add', '{"a":2}'),
    ]);
    expect(extrasIn(host.seen[1]!)).toEqual([EXTRA, undefined]);

    const fork = await forkRun({ journal, runId: 'run', at: 3, changes: { instructions: 'Be brief.' } });
    await runLoop({ model: openaiChat({ model: 'm', baseURL: host.url }), tools: [add], journal, runId: fork });
    expect(extrasIn(host.seen[2]!)).toEqual([EXTRA, undefined]);
  });
});

test('data of a call is sent to no other host', async () => {
  await using first = await scriptedServer(calling(false));
  await using second = await scriptedServer(says('Three.'));
  const [model, other] = [first, second].map(({ url }, index) => openaiChat({ model: `m${index}`, baseURL: url }));
  const prepareTurn = ({ turn }: { turn: number }) => (turn === 1 ? {} : { model: 'm1' });
  const result = await runLoop({ model: model!, models: [other!], prepareTurn, tools: [add], input: 'Add.' });
  expect(result.text).toBe('Three.');
  expect(extrasIn(second.seen[0]!)).toEqual([undefined, undefined]);
});

test('a whole answer has it too, and what is not an object is ignored', () => {
  const { decode } = openaiChatProtocol({ model: 'm', stream: false, signer: 's' });
  const answer = (extra: unknown): unknown =>
    decode(
      JSON.stringify({
        choices: [{ message: { tool_calls: [{ ...wireCall, extra_content: extra }] }, finish_reason: 'tool_calls' }],
      }),
    );
  const first = { ...call('c1', 'add', '{"a":1}') };
  expect(answer(EXTRA)).toMatchObject({ content: [{ ...first, provider: { protocol: 's', data: EXTRA } }] });
  for (const odd of ['text', 7, null]) expect((answer(odd) as { content: unknown }).content).toEqual([first]);
});

test('a call without data has no extra_content', () => {
  const { body } = openaiChatProtocol({ model: 'm', stream: false, signer: 's' });
  const messages = [{ role: 'assistant', content: [call('c1', 'add', '{}')] }] as const;
  expect(new TextDecoder().decode(bytesOf(body(request({ messages }))))).not.toContain('extra_content');
});
