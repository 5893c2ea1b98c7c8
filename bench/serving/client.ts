import { Client } from 'undici';
import { PROMPT } from '../contenders/contender.ts';
import type { OpenFront } from './front.ts';

export interface Ask {
  /** The script. */
  readonly model: string;
  readonly stream: boolean;
  readonly tools?: readonly object[];
  readonly background?: boolean;
}

/** A message of a new conversation. */
export interface ChatAsk {
  readonly model: string;
  readonly onDisconnect: 'cancel' | 'continue';
}

export interface Answer {
  readonly body: Buffer;
  /** Milliseconds from the request to the first byte of the body, the first piece of text and the end. */
  readonly firstByteMs: number;
  readonly firstDeltaMs: number;
  readonly wholeMs: number;
}

export interface PendingAnswer {
  /** Resolves with the first piece of text. */
  readonly started: Promise<void>;
  readonly answer: Promise<Answer>;
  /** Closes the connection before the end. */
  readonly abort: () => void;
}

const HEADERS = ['content-type', 'application/json', 'authorization', 'Bearer key'];
/** Each piece of text of a stream contains it. */
export const DELTA = 'event: response.output_text.delta\n';
export const CHAT_DELTA = 'data: {"type":"token_delta",';

/** Creates a response. */
export function ask(
  { baseURL, fields }: Pick<OpenFront, 'baseURL' | 'fields'>,
  { model, stream, tools, background }: Ask,
): PendingAnswer {
  const body = JSON.stringify({
    model,
    input: PROMPT,
    stream,
    ...(tools && { tools }),
    ...fields,
    ...(background && { background, store: true }),
  });
  return send(baseURL, { path: '/responses', body, mark: DELTA });
}

export function askChat({ baseURL }: Pick<OpenFront, 'baseURL'>, { model, onDisconnect }: ChatAsk): PendingAnswer {
  const body = JSON.stringify({ model, message: PROMPT, tools: [], on_disconnect: onDisconnect });
  return send(baseURL, { path: '/chat', body, mark: CHAT_DELTA });
}

/** Continues to read a conversation. */
export function followChat({ baseURL }: Pick<OpenFront, 'baseURL'>, id: string, after: number): PendingAnswer {
  return send(baseURL, { path: `/chat/${id}/stream?after=${after}`, mark: CHAT_DELTA });
}

interface Sent {
  readonly path: string;
  /** Absent: a GET request. */
  readonly body?: string;
  readonly mark: string;
}

/** The same client for every front. Each request uses one connection, which a later request reuses. */
function send(baseURL: string, { path, body, mark }: Sent): PendingAnswer {
  const { origin, pathname } = new URL(baseURL);
  const free = idleOf(origin);
  const client = free.pop() ?? new Client(origin, { headersTimeout: 0, bodyTimeout: 0 });
  const reader = new Reader(mark, () => free.push(client));
  const method = body === undefined ? 'GET' : 'POST';
  client.dispatch({ path: pathname + path, method, headers: HEADERS, body: body ?? null }, reader);
  return {
    started: reader.started.promise,
    answer: reader.answer.promise,
    abort() {
      // Settles everything that still waits.
      reader.answer.promise.catch(() => {});
      void client.destroy();
    },
  };
}

/** The number of occurrences. */
export function count(bytes: Buffer, mark: string): number {
  let found = 0;
  for (let at = bytes.indexOf(mark); at !== -1; at = bytes.indexOf(mark, at + mark.length)) found++;
  return found;
}

const idle = new Map<string, Client[]>();

function idleOf(origin: string): Client[] {
  let free = idle.get(origin);
  if (!free) idle.set(origin, (free = []));
  return free;
}

class Reader {
  readonly started: PromiseWithResolvers<void> = Promise.withResolvers();
  readonly answer: PromiseWithResolvers<Answer> = Promise.withResolvers();
  readonly #mark: string;
  readonly #free: () => void;
  readonly #sentAt = performance.now();
  #status = 0;
  #chunks: Buffer[] = [];
  #firstByteAt = 0;
  #firstDeltaAt = 0;

  constructor(mark: string, free: () => void) {
    this.#mark = mark;
    this.#free = free;
    // Most callers only wait for the whole answer.
    this.started.promise.catch(() => {});
  }

  onConnect(): void {}

  onHeaders(status: number): boolean {
    this.#status = status;
    return true;
  }

  onData(chunk: Buffer): boolean {
    this.#firstByteAt ||= performance.now();
    this.#chunks.push(chunk);
    if (this.#firstDeltaAt === 0) this.#findFirstDelta();
    return true;
  }

  #findFirstDelta(): void {
    // The mark may be split between two chunks.
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)];
    if (!this.#chunks[0]!.includes(this.#mark)) return;
    this.#firstDeltaAt = performance.now();
    this.started.resolve();
  }

  onComplete(): void {
    this.#free();
    const body = Buffer.concat(this.#chunks);
    if (this.#status !== 200)
      return this.onError(new Error(`status ${this.#status}: ${body.toString().slice(0, 300)}`));
    this.started.resolve();
    this.answer.resolve({
      body,
      firstByteMs: this.#firstByteAt - this.#sentAt,
      firstDeltaMs: this.#firstDeltaAt - this.#sentAt,
      wholeMs: performance.now() - this.#sentAt,
    });
  }

  onError(error: Error): void {
    this.started.reject(error);
    this.answer.reject(error);
  }
}
