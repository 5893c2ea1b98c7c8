import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import type { Model, ModelRequest } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { openaiChat } from '../openai-chat/openai-chat.ts';

const REQUEST: ModelRequest = {
  messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: {},
  key: 'k',
};
const PIECE = 'x'.repeat(16 * 1024);
const PIECES = 500;
/** The pieces that fit into the buffers on the way if the client does not read. */
const AHEAD = 20;

/** Sends 8 MB as fast as the client reads. `ahead` resolves when the first pieces have been sent. */
async function fastHost(): Promise<{ readonly url: string; readonly ahead: Promise<void> } & AsyncDisposable> {
  const ahead = Promise.withResolvers<void>();
  const frame = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: PIECE } }] })}\n\n`;
  const sendAll = (response: ServerResponse): void => {
    let sent = 0;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const sendPieces = (): void => {
      while (sent < PIECES) {
        if (++sent === AHEAD) ahead.resolve();
        if (!response.write(frame)) return;
      }
      response.end('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
    };
    response.on('drain', sendPieces);
    sendPieces();
  };
  const server = createServer((request, response) => {
    request.resume().once('end', () => sendAll(response));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    ahead: ahead.promise,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Long enough for all data that has arrived to be read. */
async function eventLoopTurns(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await setImmediate();
}

type Clock = ReturnType<typeof manualClock>;

const IDLE_MS = 100;

const MODELS: readonly (readonly [string, (baseURL: string, clock: Clock) => Model])[] = [
  ['undici', (baseURL, clock) => openaiChat({ model: 'm', apiKey: 'k', baseURL, clock, timeouts: { idle: IDLE_MS } })],
  [
    'a fetch',
    (baseURL, clock) => openaiChat({ model: 'm', apiKey: 'k', baseURL, clock, fetch, timeouts: { idle: IDLE_MS } }),
  ],
];

test.each(MODELS)('a slow listener slows the host down, and no delta is lost: %s', async (_, modelAt) => {
  await using host = await fastHost();
  const caughtUp = Promise.withResolvers<void>();
  let received = 0;
  const clock = manualClock();
  const replied = modelAt(host.url, clock).reply(
    REQUEST,
    (delta) => {
      if (delta.type === 'text-delta') received += delta.text.length;
      return caughtUp.promise;
    },
    new AbortController().signal,
  );
  await host.ahead;
  await eventLoopTurns();
  expect(received).toBeGreaterThan(0);
  expect(received).toBeLessThan((AHEAD / 2) * PIECE.length);
  // The time that the listener takes does not count towards the idle timeout.
  await clock.advance(10 * IDLE_MS);
  caughtUp.resolve();
  const reply = await replied;
  expect(reply).toMatchObject({ type: 'reply', finish: 'stop' });
  expect(received).toBe(PIECES * PIECE.length);
});

test.each(MODELS)('a request that waits for its listener can be cancelled: %s', async (_, modelAt) => {
  await using host = await fastHost();
  const cancel = new AbortController();
  const replied = modelAt(host.url, manualClock()).reply(REQUEST, () => new Promise(() => {}), cancel.signal);
  await host.ahead;
  await eventLoopTurns();
  cancel.abort();
  expect(await replied).toMatchObject({ type: 'failure', error: { code: 'cancelled' } });
});
