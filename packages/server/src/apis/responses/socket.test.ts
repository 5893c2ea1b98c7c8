import { manualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import type { Caller } from '../../http/admission.ts';
import type { ClientSocket, SocketMessage } from '../../http/websocket.ts';
import type { PreparedResponse } from './response.ts';
import { responsesSocket } from './socket.ts';

/** A socket that records what happens to it. */
function recordedSocket(): { readonly socket: ClientSocket; readonly seen: unknown[] } {
  const seen: unknown[] = [];
  const see = (message: object): void => {
    const { type, error } = message as { type: string; error?: { code: string } };
    seen.push(error ? error.code : type);
  };
  const socket: ClientSocket = {
    send: see,
    sendLive: see,
    close: (code) => void seen.push(code),
    holder: () => ({ hold() {}, release() {} }),
    closed: new AbortController().signal,
  };
  return { socket, seen };
}

const message = (body: object): SocketMessage => ({
  bytes: Buffer.from(JSON.stringify(body)),
  isBinary: false,
  requestId: 'req_1',
  admit: () => ({ scopes: ['agents:invoke'] }) as unknown as Caller,
  setStatus() {},
});

async function unexpected(): Promise<never> {
  throw new Error('Nothing is warmed up here.');
}

test('a socket that was open for an hour is closed, after the response in progress', async () => {
  const clock = manualClock();
  const ended = Promise.withResolvers<void>();
  const prepared: PreparedResponse = {
    id: 'resp_1',
    async run({ emit }) {
      await ended.promise;
      void emit?.({ type: 'response.completed', sequence_number: 0 });
      return { response: { status: 'completed' } } as Awaited<ReturnType<PreparedResponse['run']>>;
    },
  };
  const open = responsesSocket({
    responses: { prepare: async () => prepared, warmUp: unexpected },
    parseOptions: {},
    requiresAction: false,
    clock,
  });
  const busy = recordedSocket();
  const idle = recordedSocket();
  const answered = open(busy.socket)(message({ type: 'response.create', input: 'x' }));
  open(idle.socket);
  await clock.advance(3_600_000);
  expect(idle.seen).toEqual(['websocket_connection_limit_reached', 1000]);
  expect(busy.seen).toEqual([]);
  ended.resolve();
  await answered;
  expect(busy.seen).toEqual(['response.completed', 'websocket_connection_limit_reached', 1000]);
});

test('an unexpected error is not shown to the client', async () => {
  const { socket, seen } = recordedSocket();
  const lines: unknown[] = [];
  const prepare = async (): Promise<never> => {
    throw new Error('a secret');
  };
  const answer = responsesSocket({ responses: { prepare, warmUp: prepare }, parseOptions: {}, requiresAction: false })(
    socket,
  );
  const caller = { scopes: ['agents:invoke'], log: { error: (...line: unknown[]) => lines.push(line) } };
  await answer({
    ...message({ type: 'response.create', input: 'x' }),
    admit: () => caller as unknown as Caller,
  });
  expect(seen).toEqual(['internal_error']);
  expect(lines).toHaveLength(1);
});
