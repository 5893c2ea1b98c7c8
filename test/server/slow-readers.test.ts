import { describe, expect, onTestFinished, test } from 'vitest';
import type { Script } from '../provider/provider.ts';
import { stage } from './clients/stage.ts';
import type { StreamEvent } from './open-responses/asking.ts';
import { modelOf } from './process/start.ts';
import { streamClient } from './streams/client.ts';
import { askShortly } from './streams/crowds.ts';
import { eventIn } from './streams/frames.ts';
import { BLOCK, heardLong } from './streams/long-answer.ts';

const here = stage();

const MB = 1024 * 1024;
/** Megabytes that the model says. */
const LENGTH = 48;
/** What the sockets on the way take, and what the server has of the answer so far. */
const BOUND = 24 * MB;

/** Resolves when the provider gets no further, though others are served; how often it has said its text by then. */
async function standstill(script: Script): Promise<number> {
  let said = 0;
  for (let same = 0; same < 20 && said < LENGTH;) {
    await askShortly(here);
    const now = await script.said();
    same = now === said ? same + 1 : 0;
    said = now;
  }
  return said;
}

interface Face {
  readonly path: string;
  readonly body: (model: string) => object;
  /** What a frame adds to the text. */
  readonly piece: (frame: string) => string | undefined;
}

const FACES: Readonly<Record<string, Face>> = {
  Responses: {
    path: '/v1/responses',
    body: (model) => ({ model, input: 'go', store: false }),
    piece: (frame) => (frame.startsWith('event: response.output_text.delta\n') ? eventIn(frame).delta : undefined),
  },
  'Chat Completions': {
    path: '/v1/chat/completions',
    body: (model) => ({ model, messages: [{ role: 'user', content: 'go' }] }),
    piece: (frame) => (JSON.parse(frame.slice('data: '.length)) as Chunk).choices[0]?.delta.content,
  },
};

interface Chunk {
  readonly choices: readonly { readonly delta: { readonly content?: string } }[];
}

describe.each(Object.entries(FACES))('%s', (_name, { path, body, piece }) => {
  test('a client that does not read holds the model back, and nobody else', async () => {
    await askShortly(here);
    const before = await here.server.usage();
    const script = await here.provider.script([{ text: BLOCK, repeat: LENGTH }]);
    const heard = heardLong();
    let last = '';
    const client = streamClient(here.server.url, body(modelOf(script)), {
      path,
      onFrame(frame) {
        heard.take(piece(frame) ?? '');
        last = frame;
      },
    });
    onTestFinished(client.vanish);
    await client.begun;
    client.pause();
    expect(await standstill(script)).toBeLessThan(LENGTH);

    const during = await here.server.usage();
    expect(during.heap + during.external - before.heap - before.external).toBeLessThan(BOUND);
    expect(during.rss - before.rss).toBeLessThan(2 * BOUND);

    client.resume();
    expect(await client.over).toBe(true);
    expect(heard.length()).toBe(LENGTH * BLOCK.length);
    if (path === '/v1/responses') {
      const { type, response } = eventIn(last) as StreamEvent;
      expect(type).toBe('response.completed');
      const whole = heardLong();
      whole.take(response!.output[0]!.content![0]!.text);
      expect(whole.length()).toBe(LENGTH * BLOCK.length);
    }
    await askShortly(here);
    const after = await here.server.usage();
    expect(after.heap + after.external - before.heap - before.external).toBeLessThan(4 * MB);
  });
});

test('a client that never reads, and then vanishes, leaves nothing', async () => {
  await askShortly(here);
  const before = await here.server.usage();
  const scripts = await Promise.all(
    Array.from({ length: 5 }, () => here.provider.script([{ text: BLOCK, repeat: LENGTH }])),
  );
  const clients = scripts.map((script) => streamClient(here.server.url, { model: modelOf(script), input: 'go' }));
  for (const client of clients) {
    onTestFinished(client.vanish);
    await client.begun;
    client.pause();
  }
  for (const script of scripts) expect(await standstill(script)).toBeLessThan(LENGTH);
  for (const client of clients) client.vanish();
  await here.provider.quiet();
  await askShortly(here);
  const after = await here.server.usage();
  expect(after.heap + after.external - before.heap - before.external).toBeLessThan(4 * MB);
});
