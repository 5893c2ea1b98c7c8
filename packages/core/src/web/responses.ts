import type { LiveExecution } from '../agents/execute.ts';
import type { ExecuteResult } from '../agents/result.ts';
import type { LiveRun, LoopResult } from '../driver/options.ts';
import { messageOf, TreadleError } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import type { ResultBlock } from '../messages.ts';
import { systemClock } from '../platform.ts';

/* Runs as web responses. They need nothing but `Response` and streams, which Node, Bun, Deno, browsers and workers have. */

/** Of `streamLoop` or `streamAgent`. */
export type Live = LiveRun | LiveExecution<unknown>;

/** The headers of a response with server-sent events. */
export const EVENT_STREAM_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  // Some proxies buffer events otherwise.
  'x-accel-buffering': 'no',
};

/** One server-sent event; without a name if `type` is undefined. A client that reconnects sends the last `id`. */
export function eventFrame(type: string | undefined, data: object, id?: number): string {
  const json = JSON.stringify(data);
  const frame = type === undefined ? `data: ${json}\n\n` : `event: ${type}\ndata: ${json}\n\n`;
  return id === undefined ? frame : `id: ${id}\n${frame}`;
}

/** A comment, for connections that are silent: proxies close them. */
export const KEEP_ALIVE_FRAME = ': keep-alive\n\n';

/**
 * The text of the model as it arrives, as plain text. If the run does not complete, the stream breaks off with a `RunError`, so
 * that the client gets an error and not a short text. A client that disconnects cancels the run.
 */
export function toTextResponse(live: Live, init: ResponseInit = {}): Response {
  const text = (item: Item): string | undefined => (item.type === 'text-delta' ? item.text : undefined);
  const body = bytesOf(live, text, async () => void (await live.result).orThrow());
  return new Response(body, { ...init, headers: headersOf({ 'content-type': 'text/plain; charset=utf-8' }, init) });
}

export interface StreamInit extends ResponseInit {
  /** After this time without an event a comment is sent; default 15,000. */
  readonly heartbeatMs?: number;
}

export interface EventStreamInit extends StreamInit {
  /** The types of items that are sent; by default all but facts, which contain the whole conversation, and problems of tools. */
  readonly types?: readonly Item['type'][];
}

const SENT: readonly Item['type'][] = [
  'text-delta',
  'reasoning-delta',
  'call-delta',
  'tool-report',
  'turn-started',
  'call-started',
  'call-answered',
  'waiting',
  'run-failed',
];

/**
 * The items of a run as server-sent events: `event` is the type of an item, `data` the item. The last event is `done` with the
 * result without its messages, or `error` if the result was rejected. A client that disconnects cancels the run.
 */
export function toEventStreamResponse(live: Live, init: EventStreamInit = {}): Response {
  const { types = SENT, ...rest } = init;
  return streamedResponse(live, rest, {
    frame: (item) => (types.includes(item.type) ? eventFrame(item.type, item) : undefined),
    async last() {
      try {
        return eventFrame('done', summaryOf(await live.result));
      } catch (thrown) {
        const { code = 'failed' } = thrown as { readonly code?: string };
        return eventFrame('error', { code, message: messageOf(thrown) });
      }
    },
  });
}

/** How a run is written as server-sent events. */
interface Written {
  readonly headers?: Readonly<Record<string, string>>;
  /** The events for an item; undefined if there are none. */
  readonly frame: (item: Item) => string | undefined;
  /** The last events. */
  readonly last: () => Promise<string>;
}

/** A run as server-sent events. A client that disconnects cancels it. */
export function streamedResponse(live: Live, init: StreamInit, { headers, frame, last }: Written): Response {
  const { heartbeatMs = 15_000, ...rest } = init;
  const body = bytesOf(live, frame, last, { ms: heartbeatMs, frame: KEEP_ALIVE_FRAME });
  return new Response(body, { ...rest, headers: headersOf({ ...EVENT_STREAM_HEADERS, ...headers }, rest) });
}

/** A result without the conversation. */
function summaryOf(result: LoopResult | ExecuteResult<unknown>): object {
  const { messages: _, ...rest } = result;
  return rest;
}

function headersOf(own: Readonly<Record<string, string>>, { headers }: ResponseInit): Headers {
  const all = new Headers(own);
  new Headers(headers).forEach((value, name) => all.set(name, value));
  return all;
}

const END: IteratorResult<Item, unknown> = { done: true, value: undefined };

interface Heartbeat {
  readonly ms: number;
  readonly frame: string;
}

/** The items of a run as bytes, one chunk for each that has a text, and one for the text of `last`. */
function bytesOf(
  live: Live,
  textOf: (item: Item) => string | undefined,
  last: () => Promise<string | void>,
  heartbeat?: Heartbeat,
): ReadableStream<Uint8Array> {
  if (typeof live?.[Symbol.asyncIterator] !== 'function') {
    throw new TreadleError(
      'invalid-options',
      'This is not a run in progress. Pass what streamLoop or streamAgent returned.',
    );
  }
  const encoder = new TextEncoder();
  const items = live[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<Item, unknown>> | undefined;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      for (;;) {
        // `last` reports the error.
        next ??= items.next().catch(() => END);
        const taken = await withHeartbeat(next, heartbeat);
        if (taken === undefined) return controller.enqueue(encoder.encode(heartbeat!.frame));
        next = undefined;
        const text = taken.done ? await last() : textOf(taken.value);
        if (text !== undefined) controller.enqueue(encoder.encode(text));
        if (taken.done) return controller.close();
        if (text !== undefined) return;
      }
    },
    async cancel() {
      await items.return?.();
    },
  });
}

/** Undefined if it takes longer than the time of the heartbeat. */
async function withHeartbeat<T>(next: Promise<T>, heartbeat: Heartbeat | undefined): Promise<T | undefined> {
  if (!heartbeat) return next;
  const { promise: silent, resolve } = Promise.withResolvers<undefined>();
  const cancelTimer = systemClock.timer(heartbeat.ms, () => resolve(undefined));
  try {
    return await Promise.race([next, silent]);
  } finally {
    cancelTimer();
  }
}

/** The text of a result, for people. What is not text is only described. */
export function shownResult(content: readonly ResultBlock[]): string {
  return content.map(textOfBlock).join('\n');
}

function textOfBlock(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return block.text;
    case 'image':
      return `(An image of type ${block.mediaType}, which was sent to the model.)`;
    case 'file': {
      const name = block.name === undefined ? '' : ` "${block.name}"`;
      return `(A file${name} of type ${block.mediaType}, which was sent to the model.)`;
    }
    default:
      return block satisfies never;
  }
}
