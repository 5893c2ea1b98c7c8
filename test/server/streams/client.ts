import { request, type IncomingMessage } from 'node:http';
import type { StreamEvent } from '../open-responses/asking.ts';
import { eventIn, frameReader } from './frames.ts';

/** A client with a connection of its own, which reads a streamed response as fast or as slowly as it is told. */
export interface StreamClient {
  /** Resolves when the answer begins. Rejects if it is no stream, or if there is none. */
  readonly begun: Promise<void>;
  /** Those that have come so far. */
  readonly events: readonly StreamEvent[];
  /** Resolves when so many events have come, or the stream is over. */
  reached(count: number): Promise<void>;
  /** Resolves when nothing more comes: true if the stream was brought to its end, with `[DONE]`. */
  readonly over: Promise<boolean>;
  pause(): void;
  resume(): void;
  /** Without a word. */
  vanish(): void;
}

export interface StreamClientOptions {
  /** Default: `/v1/responses`. */
  readonly path?: string;
  /** Takes each frame instead of keeping its event: for streams that are too long to be kept, or no responses. */
  readonly onFrame?: (frame: string) => void;
}

export function streamClient(
  url: string,
  body: object,
  { path = '/v1/responses', onFrame }: StreamClientOptions = {},
): StreamClient {
  const events: StreamEvent[] = [];
  const begun = Promise.withResolvers<void>();
  const over = Promise.withResolvers<boolean>();
  let waiting: { readonly count: number; readonly resolve: () => void }[] = [];
  let isOver = false;
  let isDone = false;
  let answer: IncomingMessage | undefined;

  const asked = request(url + path, {
    method: 'POST',
    agent: false,
    headers: { 'content-type': 'application/json' },
  });

  function look(): void {
    waiting = waiting.filter(({ count, resolve }) => {
      if (!isOver && events.length < count) return true;
      resolve();
      return false;
    });
  }

  function end(): void {
    if (isOver) return;
    isOver = true;
    begun.reject(new Error('The connection ended before there was an answer.'));
    over.resolve(isDone);
    look();
  }

  function take(frame: string): void {
    if (frame.startsWith(':')) return;
    if (isDone) throw new Error(`This comes after [DONE]: ${frame}`);
    if (frame === 'data: [DONE]') {
      isDone = true;
      return;
    }
    if (onFrame) onFrame(frame);
    else events.push(eventIn(frame));
  }

  asked.on('response', (incoming) => {
    answer = incoming;
    const read = frameReader(take);
    const { statusCode, headers } = incoming;
    const isStream = statusCode === 200 && headers['content-type'] === 'text/event-stream; charset=utf-8';
    let refusal = '';
    incoming.setEncoding('utf8');
    incoming.on('data', (chunk: string) => {
      if (!isStream) refusal += chunk;
      else {
        try {
          read(chunk);
        } catch (error) {
          over.reject(error as Error);
        }
        look();
      }
    });
    incoming.on('error', () => {});
    incoming.on('close', () => {
      if (!isStream) begun.reject(new Error(`The answer is ${statusCode}: ${refusal}`));
      end();
    });
    if (isStream) begun.resolve();
  });
  asked.on('error', end);
  asked.on('close', end);
  asked.end(JSON.stringify({ ...body, stream: true }));
  // Not everybody waits for it.
  begun.promise.catch(() => {});
  over.promise.catch(() => {});

  return {
    begun: begun.promise,
    events,
    reached: (count) =>
      new Promise((resolve) => {
        waiting.push({ count, resolve });
        look();
      }),
    over: over.promise,
    pause: () => void answer?.pause(),
    resume: () => void answer?.resume(),
    vanish: () => void asked.destroy(),
  };
}
