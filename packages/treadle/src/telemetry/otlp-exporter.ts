import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';

/*
 * Sends batches of telemetry to a collector over OTLP/HTTP as JSON.
 *
 * 1. Nobody waits for it. What does not fit into the queue, or cannot be sent for too long, is lost, and nothing else is.
 * 2. It never keeps a process alive. At its end, `flush` waits for a limited time.
 */

export interface OtlpOptions {
  /** Such as `http://127.0.0.1:4318`. The paths `/v1/traces` and `/v1/metrics` are added. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Called when something could not be sent, once until something can be sent again. */
  readonly onProblem: (why: string) => void;
}

/** Records in the order in which they were made, sent in batches. */
export interface Outbox {
  add(record: object): void;
  /** Sends what there is. Resolves when it was sent, or could not be. */
  flush(): Promise<void>;
}

/** Records that wait. While a collector is away, further ones are lost, which costs nothing. */
const MAX_WAITING = 2_048;
const MAX_BATCH = 512;
const INTERVAL_MS = 2_000;
const TIMEOUT_MS = 10_000;

/** `bodyOf`: the request for a batch, of the records as JSON with commas between. */
export function openOutbox(send: Send, bodyOf: (records: string) => string): Outbox {
  /** As JSON: a text is one object for the garbage collector, which moves it until it is sent. */
  let waiting: string[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let sending: Promise<void> | undefined;
  /** How many are being sent. They come back if they could not be. */
  let sent = 0;

  function schedule(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      void sendAll();
    }, INTERVAL_MS).unref();
  }

  /** One request at a time. A batch that could not be sent is tried again with the next ones. */
  function sendAll(): Promise<void> {
    return (sending ??= (async () => {
      while (waiting.length > 0) {
        const batch = waiting.slice(0, MAX_BATCH);
        waiting = waiting.slice(MAX_BATCH);
        sent = batch.length;
        const isTaken = await send(bodyOf(batch.join(',')));
        sent = 0;
        if (isTaken) continue;
        waiting = [...batch, ...waiting];
        schedule();
        break;
      }
    })().finally(() => {
      sending = undefined;
    }));
  }

  return {
    add(record) {
      if (waiting.length + sent >= MAX_WAITING) return;
      waiting.push(JSON.stringify(record));
      if (waiting.length === MAX_BATCH) void sendAll();
      else schedule();
    },
    async flush() {
      // What is being sent does not contain what was added since.
      await sending;
      await sendAll();
    },
  };
}

/** Resolves to whether the collector took it. Never rejects. */
export type Send = (json: string) => Promise<boolean>;

/** Posts to a path of the collector. */
export type SenderTo = (path: string) => Send;

export function collectorAt(options: OtlpOptions): SenderTo {
  const failing = new Set<string>();
  return (path) => senderTo(options, path, failing);
}

/** What a collector answers if it may take the same later. */
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** `failing`: the paths to which nothing can be sent now. */
function senderTo({ endpoint, headers, onProblem }: OtlpOptions, path: string, failing: Set<string>): Send {
  const url = new URL(endpoint.replace(/\/+$/, '') + path);
  const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
  function failed(why: string): false {
    if (failing.size === 0)
      onProblem(`Telemetry cannot be sent to ${url.origin}${path}: ${why}. What would be sent is lost meanwhile.`);
    failing.add(path);
    return false;
  }

  return async (json) => {
    const bytes = Buffer.from(json);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const sent = request(url, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json', 'content-length': bytes.length },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    sent.on('socket', (socket) => socket.unref());
    sent.on('error', (error) => resolve(failed(error.name === 'TimeoutError' ? 'it does not answer' : error.message)));
    sent.on('response', (response) => {
      response.resume();
      response.on('error', (error) => resolve(failed(error.message)));
      response.on('end', () => {
        const { statusCode = 0 } = response;
        if (statusCode >= 200 && statusCode < 300) {
          failing.delete(path);
          return resolve(true);
        }
        failed(`it answered with status ${statusCode}`);
        // What a collector refuses once, it refuses again.
        resolve(!RETRYABLE.has(statusCode));
      });
    });
    sent.end(bytes);
    return promise;
  };
}
