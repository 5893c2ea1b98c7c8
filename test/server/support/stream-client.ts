import { request, type IncomingMessage } from 'node:http';
import type { StreamEvent } from './responses-client.ts';
import { frameReader, parseEventFrame } from './sse-frames.ts';

/** A client with its own connection. It reads a streamed response; the test can pause reading and disconnect. */
export interface StreamClient {
  /** Resolves when the response headers arrive. Rejects if the response is not a stream, or if there is none. */
  readonly started: Promise<void>;
  /** The events received so far. */
  readonly events: readonly StreamEvent[];
  /** Resolves when this many events were received, or the stream has ended. */
  received(count: number): Promise<void>;
  /** Resolves when the connection is closed: true if the stream ended with `[DONE]`. */
  readonly ended: Promise<boolean>;
  pause(): void;
  resume(): void;
  /** Closes the connection without notice. */
  disconnect(): void;
}

export interface StreamClientOptions {
  /** Default: `/v1/responses`. */
  readonly path?: string;
  /** Receives each frame; `events` then stays empty. For streams that are too long, or that are not responses. */
  readonly onFrame?: (frame: string) => void;
}

export function streamClient(
  url: string,
  body: object,
  { path = '/v1/responses', onFrame }: StreamClientOptions = {},
): StreamClient {
  const events: StreamEvent[] = [];
  const started = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<boolean>();
  let waiting: { readonly count: number; readonly resolve: () => void }[] = [];
  let isClosed = false;
  let isDone = false;
  let response: IncomingMessage | undefined;

  const sent = request(url + path, {
    method: 'POST',
    agent: false,
    headers: { 'content-type': 'application/json' },
  });

  function resolveWaiting(): void {
    waiting = waiting.filter(({ count, resolve }) => {
      if (!isClosed && events.length < count) return true;
      resolve();
      return false;
    });
  }

  function close(): void {
    if (isClosed) return;
    isClosed = true;
    started.reject(new Error('The connection was closed before a response arrived.'));
    ended.resolve(isDone);
    resolveWaiting();
  }

  function takeFrame(frame: string): void {
    if (frame.startsWith(':')) return;
    if (isDone) throw new Error(`A frame follows [DONE]: ${frame}`);
    if (frame === 'data: [DONE]') {
      isDone = true;
      return;
    }
    if (onFrame) onFrame(frame);
    else events.push(parseEventFrame(frame));
  }

  sent.on('response', (incoming) => {
    response = incoming;
    const read = frameReader(takeFrame);
    const { statusCode, headers } = incoming;
    const isStream = statusCode === 200 && headers['content-type'] === 'text/event-stream; charset=utf-8';
    let errorBody = '';
    incoming.setEncoding('utf8');
    incoming.on('data', (chunk: string) => {
      if (!isStream) errorBody += chunk;
      else {
        try {
          read(chunk);
        } catch (error) {
          ended.reject(error as Error);
        }
        resolveWaiting();
      }
    });
    incoming.on('error', () => {});
    incoming.on('close', () => {
      if (!isStream) started.reject(new Error(`The response is ${statusCode}: ${errorBody}`));
      close();
    });
    if (isStream) started.resolve();
  });
  sent.on('error', close);
  sent.on('close', close);
  sent.end(JSON.stringify({ ...body, stream: true }));
  // A test may await only one of them.
  started.promise.catch(() => {});
  ended.promise.catch(() => {});

  return {
    started: started.promise,
    events,
    received: (count) =>
      new Promise((resolve) => {
        waiting.push({ count, resolve });
        resolveWaiting();
      }),
    ended: ended.promise,
    pause: () => void response?.pause(),
    resume: () => void response?.resume(),
    disconnect: () => void sent.destroy(),
  };
}
