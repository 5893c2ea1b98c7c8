/// <reference path="../undici-parts.d.ts" />
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { connections, type Connection, type Connections } from './connections.ts';
import type { Post, Send } from './send.ts';

/** Above this many bytes the pieces of a body are written one by one, below it one write is cheaper than several. */
const JOIN_BYTES = 64 * 1024;

let ready: Connections | undefined;
let loading: Promise<Connections> | undefined;

/** Undici, loaded with the first request. All models of a process share its connections. */
async function load(): Promise<Connections> {
  const [client, connect] = await Promise.all([
    import('undici/lib/dispatcher/client.js'),
    import('undici/lib/core/connect.js'),
  ]);
  ready = connections({ Client: client.default, buildConnector: connect.default as never });
  return ready;
}

export const dispatch: Send = (post, answer) => {
  let over = false;
  let connection: Connection | undefined;

  const handler: Dispatcher.DispatchHandler = {
    onRequestStart() {},
    onResponseStart(_controller, status, headers) {
      if (!over && status >= 200) answer.head(status, (name) => only(headers, name));
    },
    onResponseData(_controller, chunk) {
      if (!over) answer.data(chunk);
    },
    onResponseEnd() {
      if (over) return;
      over = true;
      connection!.release();
      answer.end();
    },
    onResponseError(_controller, error) {
      fail(error);
    },
  };

  const fail = (thrown: unknown): void => {
    if (over) return;
    over = true;
    connection?.drop();
    answer.fail(thrown);
  };

  const begin = (connections: Connections): void => {
    if (over) return;
    try {
      connection = connections.take(post.url.origin);
      connection.client.dispatch(requestOf(post), handler);
    } catch (thrown) {
      fail(thrown);
    }
  };

  if (ready !== undefined) begin(ready);
  else (loading ??= load()).then(begin, fail);

  return () => {
    if (over) return;
    over = true;
    connection?.drop();
  };
};

function requestOf({ url, headers, body }: Post): Dispatcher.DispatchOptions {
  const size = body.reduce((sum, piece) => sum + piece.byteLength, 0);
  return {
    method: 'POST',
    path: url.pathname + url.search,
    headers: { ...headers, 'content-length': String(size) },
    // Documented to be any iterable, but not typed so.
    body: size > JOIN_BYTES ? (body as unknown as Readable) : Buffer.concat(body, size),
    headersTimeout: 0,
    bodyTimeout: 0,
  };
}

function only(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}
