import { describe, expect, onTestFinished, test } from 'vitest';
import type { Script } from '../provider/provider.ts';
import { expectServerResponds, useServerFixture } from './support/fixture.ts';
import { responsesClient } from './support/responses-client.ts';
import { modelOf } from './support/server-process.ts';
import { parseEventFrame } from './support/sse-frames.ts';
import { streamClient } from './support/stream-client.ts';

const fixture = useServerFixture();

const MB = 1024 * 1024;
/** The length of the model's reply in blocks. */
const LENGTH = 7;
/** Upper limit for what the socket buffers and the server hold of the reply. */
const BOUND = 20 * MB;

/**
 * One megabyte of distinct lines. The provider sends it `LENGTH` times. JSON needs six bytes for most of its characters: a
 * reply may have 8 MiB, and the buffers of the sockets could hold that.
 */
const BLOCK = Array.from({ length: 32_768 }, (_, n) => `line ${n} `.padEnd(31, '\u0001') + '\n').join('');

/** Compares text that arrives in pieces with the expected reply. Throws at the first difference. */
function replyChecker(): { readonly take: (piece: string) => void; readonly length: () => number } {
  let length = 0;
  return {
    length: () => length,
    take(piece) {
      for (let at = 0; at < piece.length;) {
        const from = length % BLOCK.length;
        const expected = BLOCK.slice(from, from + piece.length - at);
        if (!piece.startsWith(expected, at))
          throw new Error(`The text differs at ${length}: ${piece.slice(at, at + 200)}`);
        at += expected.length;
        length += expected.length;
      }
    },
  };
}

/**
 * Resolves when the provider is blocked in all these scripts while the server answers other clients. Returns how many
 * blocks of each script were sent by then.
 */
async function blockedAt(...scripts: readonly Script[]): Promise<readonly number[]> {
  let sent = scripts.map(() => 0);
  for (let unchanged = 0; unchanged < 20 && sent.some((count) => count < LENGTH);) {
    await expectServerResponds(fixture);
    const now = await Promise.all(scripts.map((script) => script.said()));
    unchanged = String(now) === String(sent) ? unchanged + 1 : 0;
    sent = now;
  }
  return sent;
}

interface Endpoint {
  readonly path: string;
  readonly body: (model: string) => object;
  /** The text in a frame. */
  readonly textOf: (frame: string) => string | undefined;
}

interface ChatChunk {
  readonly choices: readonly { readonly delta: { readonly content?: string } }[];
}

const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  Responses: {
    path: '/v1/responses',
    body: (model) => ({ model, input: 'go', store: false }),
    textOf: (frame) =>
      frame.startsWith('event: response.output_text.delta\n') ? parseEventFrame(frame).delta : undefined,
  },
  'Chat Completions': {
    path: '/v1/chat/completions',
    body: (model) => ({ model, messages: [{ role: 'user', content: 'go' }] }),
    textOf: (frame) => (JSON.parse(frame.slice('data: '.length)) as ChatChunk).choices[0]?.delta.content,
  },
};

describe.each(Object.entries(ENDPOINTS))('%s', (_name, { path, body, textOf }) => {
  test('a client that does not read slows down its own model, but no other client', async () => {
    await expectServerResponds(fixture);
    const before = await fixture.server.usage();
    const script = await fixture.provider.script([{ text: BLOCK, repeat: LENGTH }]);
    const received = replyChecker();
    let last = '';
    const client = streamClient(fixture.server.url, body(modelOf(script)), {
      path,
      onFrame(frame) {
        received.take(textOf(frame) ?? '');
        last = frame;
      },
    });
    onTestFinished(client.disconnect);
    await client.started;
    client.pause();
    for (const sent of await blockedAt(script)) expect(sent).toBeLessThan(LENGTH);

    const during = await fixture.server.usage();
    expect(during.heap + during.external - before.heap - before.external).toBeLessThan(BOUND);
    expect(during.rss - before.rss).toBeLessThan(2 * BOUND);

    client.resume();
    expect(await client.ended).toBe(true);
    expect(received.length()).toBe(LENGTH * BLOCK.length);
    if (path === '/v1/responses') {
      const { type, response } = parseEventFrame(last);
      expect(type).toBe('response.completed');
      const final = replyChecker();
      final.take(response!.output[0]!.content![0]!.text);
      expect(final.length()).toBe(LENGTH * BLOCK.length);
    }
    await expectServerResponds(fixture);
    const after = await fixture.server.usage();
    expect(after.heap + after.external - before.heap - before.external).toBeLessThan(4 * MB);
  });
});

test('frees all memory when clients that never read disconnect', async () => {
  await expectServerResponds(fixture);
  const before = await fixture.server.usage();
  const scripts = await Promise.all(
    Array.from({ length: 2 }, () => fixture.provider.script([{ text: BLOCK, repeat: LENGTH }])),
  );
  const clients = scripts.map((script) => streamClient(fixture.server.url, { model: modelOf(script), input: 'go' }));
  for (const client of clients) {
    onTestFinished(client.disconnect);
    await client.received(1);
    client.pause();
  }
  for (const sent of await blockedAt(...scripts)) expect(sent).toBeLessThan(LENGTH);
  for (const client of clients) client.disconnect();
  await fixture.provider.quiet();
  // What was interrupted is stored, which takes longer with PostgreSQL. Until then the server holds the text.
  const { retrieveEnded } = responsesClient(() => fixture.server.url);
  for (const { events } of clients) await retrieveEnded(events[0]!.response!.id);
  await expectServerResponds(fixture);
  const after = await fixture.server.usage();
  expect(after.heap + after.external - before.heap - before.external).toBeLessThan(4 * MB);
});
