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

/** Records that wait. While a collector is away, further ones are lost, which costs nothing. Those with content are large. */
const MAX_WAITING = { records: 2_048, chars: 32 * 1024 * 1024 };
/** Collectors refuse requests of more than 20 MiB. */
const MAX_BATCH = { records: 512, chars: 4 * 1024 * 1024 };
const INTERVAL_MS = 2_000;
const TIMEOUT_MS = 10_000;

/** `bodyOf`: the request for a batch, of the records as JSON with commas between. */
export function openOutbox(send: Send, bodyOf: (records: string) => string): Outbox {
  /** As JSON: a text is one object for the garbage collector, which moves it until it is sent. */
  const waiting: string[] = [];
  let chars = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let sending: Promise<void> | undefined;

  const reaches = (limit: typeof MAX_BATCH): boolean => waiting.length >= limit.records || chars >= limit.chars;

  function schedule(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      void sendAll();
    }, INTERVAL_MS).unref();
  }

  /** The oldest records that one request may have; at least one. */
  function nextBatch(): readonly string[] {
    let size = 0;
    const end = waiting.findIndex((text, index) => {
      size += text.length;
      return index === MAX_BATCH.records || (index > 0 && size > MAX_BATCH.chars);
    });
    return end < 0 ? [...waiting] : waiting.slice(0, end);
  }

  /** One request at a time. A batch that could not be sent is tried again with the next ones. */
  function sendAll(): Promise<void> {
    return (sending ??= (async () => {
      while (waiting.length > 0) {
        const batch = nextBatch();
        if (!(await send(bodyOf(batch.join(','))))) return schedule();
        waiting.splice(0, batch.length);
        for (const { length } of batch) chars -= length;
      }
    })().finally(() => {
      sending = undefined;
    }));
  }

  return {
    add(record) {
      if (reaches(MAX_WAITING)) return;
      const wasFull = reaches(MAX_BATCH);
      const text = JSON.stringify(record);
      waiting.push(text);
      chars += text.length;
      if (!wasFull && reaches(MAX_BATCH)) void sendAll();
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
    const onError = ({ name, message }: Error): void =>
      resolve(failed(name === 'AbortError' ? 'it does not answer' : message));
    sent.on('error', onError);
    sent.on('response', (response) => {
      response.resume();
      response.on('error', onError);
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
