import { Client } from 'undici';
import { PROMPT } from '../contenders/contender.ts';
import type { OpenFront } from './front.ts';

export interface Ask {
  /** The script. */
  readonly model: string;
  readonly stream: boolean;
  readonly tools?: readonly object[];
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
const DELTA = 'event: response.output_text.delta\n';

/** The same client for every front. Each request uses one connection, which a later request reuses. */
export function ask(
  { baseURL, fields }: Pick<OpenFront, 'baseURL' | 'fields'>,
  { model, stream, tools }: Ask,
): PendingAnswer {
  const { origin, pathname } = new URL(baseURL);
  const free = idleOf(origin);
  const client = free.pop() ?? new Client(origin, { headersTimeout: 0, bodyTimeout: 0 });
  const body = JSON.stringify({ model, input: PROMPT, stream, ...(tools && { tools }), ...fields });
  const reader = new Reader(() => free.push(client));
  client.dispatch({ path: `${pathname}/responses`, method: 'POST', headers: HEADERS, body }, reader);
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
  readonly #free: () => void;
  readonly #sentAt = performance.now();
  #status = 0;
  #chunks: Buffer[] = [];
  #firstByteAt = 0;
  #firstDeltaAt = 0;

  constructor(free: () => void) {
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
    if (!this.#chunks[0]!.includes(DELTA)) return;
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
