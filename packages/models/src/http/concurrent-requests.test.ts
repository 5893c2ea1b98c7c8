import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { userText, type Message } from '@treadle/core';
import { expect, test } from 'vitest';
import { asked, readBody, request } from '../../test/request.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';

const WHOLE = JSON.stringify({ choices: [{ index: 0, message: { content: 'Hi' }, finish_reason: 'stop' }] });
/** More than fits into the buffers on the way if the host does not read. */
const LONG = 'ø'.repeat(8_000_000);

interface Arrived {
  readonly model: unknown;
  readonly count: number;
}

/** Reads no request before `read` is called, and then all of them. `arrived` lists the complete ones. */
async function slowHost(): Promise<
  {
    readonly url: string;
    readonly arrived: readonly Arrived[];
    read(): void;
    asked(count: number): Promise<void>;
  } & AsyncDisposable
> {
  const arrived: Arrived[] = [];
  const reading = Promise.withResolvers<void>();
  const requests: IncomingMessage[] = [];
  const server = createServer(async (request, response) => {
    requests.push(request.on('error', () => {}));
    server.emit('asked');
    await reading.promise;
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { model, messages } = readBody(Buffer.concat(chunks));
      arrived.push({ model, count: (messages as unknown[]).length });
      response.writeHead(200, { 'content-type': 'application/json' }).end(WHOLE);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    arrived,
    read: () => reading.resolve(),
    async asked(count) {
      while (requests.length < count) await once(server, 'asked');
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

test('concurrent requests of several models with one history arrive complete', async () => {
  await using host = await slowHost();
  const [one, two] = ['one', 'two'].map((model) => openaiChat({ model, baseURL: host.url, maxRetries: 0 }));
  const sameRequest = request({ messages: [userText(LONG), userText('b')] });
  const all = [one!, two!, one!, two!].map((model) => asked(model, sameRequest));
  all.push(asked(one!, { ...sameRequest, instructions: 'Be brief.' }));
  await host.asked(all.length);
  host.read();
  for (const { reply } of await Promise.all(all)) expect(reply.type).toBe('reply');
  const lines = host.arrived.map(({ model, count }) => `${String(model)} ${count}`);
  expect(lines.toSorted()).toEqual(['one 2', 'one 2', 'one 3', 'two 2', 'two 2']);
});

test('nothing more of a cancelled request arrives, though the next turn overwrites its bytes', async () => {
  await using host = await slowHost();
  const model = openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0 });
  const messages: Message[] = [userText(LONG)];
  const sameRequest = request({ messages });
  for (let turn = 1; turn <= 3; turn++) {
    const cancel = new AbortController();
    const cancelled = asked(model, sameRequest, cancel.signal);
    await host.asked(turn);
    cancel.abort();
    expect((await cancelled).reply).toMatchObject({ type: 'failure', error: { code: 'cancelled' } });
    messages.push(userText('more'));
  }
  const replied = asked(model, sameRequest);
  await host.asked(4);
  host.read();
  expect((await replied).reply.type).toBe('reply');
  expect(host.arrived).toEqual([{ model: 'm', count: 4 }]);
});
