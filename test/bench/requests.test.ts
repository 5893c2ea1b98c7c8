import { expect, test } from 'vitest';
import { requestReader } from '../../bench/server/requests.ts';

const BYTES = Buffer.from(
  'POST /v1/a?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhällPOST /v1/b HTTP/1.1\r\n' +
    'transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nGET /c HTTP/1.1\r\n\r\n',
);

test.for([1, 2, 7, 1_000])('reads requests that arrive in chunks of %d bytes', (size) => {
  const read: [string, string][] = [];
  const feed = requestReader((path, body) => read.push([path, body.toString()]));
  for (let at = 0; at < BYTES.length; at += size) feed(BYTES.subarray(at, at + size));
  expect(read).toEqual([
    ['/v1/a', 'häll'],
    ['/v1/b', 'abcd'],
    ['/c', ''],
  ]);
});
