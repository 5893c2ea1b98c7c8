import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { slowClientFinder } from './slow-clients.ts';

/** A socket that was given `written` bytes, of which the operating system has taken `sent`, and Node keeps `kept`. */
const socket = { bytesWritten: 0, writableLength: 0, _handle: { bytesWritten: 0, writeQueueSize: 0 } };
const sockets = [socket as unknown as Socket];
function progress({ sent, written, kept = 0 }: Readonly<Record<'sent' | 'written', number>> & { kept?: number }): void {
  const given = written - kept;
  Object.assign(socket, { bytesWritten: written, writableLength: written - sent });
  Object.assign(socket._handle, { bytesWritten: given, writeQueueSize: given - sent });
}

test('a client is slow if it has read less than 1,000 bytes a second of what was waiting', () => {
  const find = slowClientFinder(2_000);
  progress({ sent: 500, written: 10_000 });
  expect(find(sockets)).toEqual([]);
  progress({ sent: 2_500, written: 10_000 });
  expect(find(sockets)).toEqual([]);
  progress({ sent: 4_499, written: 900_000, kept: 800_000 });
  expect(find(sockets)).toEqual(sockets);
});

test('a client that has read all that was waiting is not slow, and one for which nothing is waiting neither', () => {
  const find = slowClientFinder(2_000);
  progress({ sent: 500, written: 1_000 });
  expect(find(sockets)).toEqual([]);
  progress({ sent: 1_000, written: 1_500, kept: 300 });
  expect(find(sockets)).toEqual([]);
  progress({ sent: 1_500, written: 1_500 });
  expect([find(sockets), find(sockets)]).toEqual([[], []]);
});

test('a client that has not read the few bytes that were waiting is slow', () => {
  const find = slowClientFinder(2_000);
  progress({ sent: 500, written: 510 });
  expect(find(sockets)).toEqual([]);
  progress({ sent: 509, written: 510 });
  expect(find(sockets)).toEqual(sockets);
});

test('what a real client reads is found while one large write waits', async () => {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [accepted] = (await once(server, 'connection')) as [Socket];
  accepted.on('error', () => {});
  accepted.write(Buffer.alloc(80_000_000));
  // Any byte is enough.
  const find = slowClientFinder(1);
  const isFoundSoon = async (): Promise<boolean> => {
    for (let n = 0; n < 50_000; n++) {
      if (find([accepted]).length > 0) return true;
      await setImmediate();
    }
    return false;
  };
  expect(await isFoundSoon()).toBe(true);
  let read = 0;
  await new Promise<void>((resolve) => {
    client.on('data', ({ length }) => {
      read += length;
      if (read < 20_000_000) return;
      client.pause();
      resolve();
    });
  });
  expect(find([accepted])).toEqual([]);
  expect(await isFoundSoon()).toBe(true);
  accepted.destroy();
  client.destroy();
  server.close();
});
