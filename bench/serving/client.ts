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
  /** From the request until the first byte of the body, the first piece of text and the end, in milliseconds. */
  readonly firstByteMs: number;
  readonly firstDeltaMs: number;
  readonly wholeMs: number;
}

export interface Asked {
  /** Resolves with the first piece of text. */
  readonly begun: Promise<void>;
  readonly answer: Promise<Answer>;
  /** Goes away in the middle. */
  readonly leave: () => void;
}

const HEADERS = ['content-type', 'application/json', 'authorization', 'Bearer key'];
const DELTA = 'event: response.output_text.delta\n';

/** The same for every front: each request on a connection of its own while it lasts, which the next one then has. */
export function ask({ baseURL, fields }: Pick<OpenFront, 'baseURL' | 'fields'>, { model, stream, tools }: Ask): Asked {
  const { origin, pathname } = new URL(baseURL);
  const free = idleOf(origin);
  const client = free.pop() ?? new Client(origin, { headersTimeout: 0, bodyTimeout: 0 });
  const body = JSON.stringify({ model, input: PROMPT, stream, ...(tools && { tools }), ...fields });
  const reader = new Reader(() => free.push(client));
  client.dispatch({ path: `${pathname}/responses`, method: 'POST', headers: HEADERS, body }, reader);
  return {
    begun: reader.begun.promise,
    answer: reader.answer.promise,
    leave() {
      // Nobody waits any more for what does not come.
      reader.answer.promise.catch(() => {});
      void client.destroy();
    },
  };
}

/** How often it stands in the bytes. */
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
  readonly begun: PromiseWithResolvers<void> = Promise.withResolvers();
  readonly answer: PromiseWithResolvers<Answer> = Promise.withResolvers();
  readonly #free: () => void;
  readonly #sentAt = performance.now();
  #status = 0;
  #chunks: Buffer[] = [];
  #firstByteAt = 0;
  #firstDeltaAt = 0;

  constructor(free: () => void) {
    this.#free = free;
    // Most wait for the whole answer only.
    this.begun.promise.catch(() => {});
  }

  onConnect(): void {}

  onHeaders(status: number): boolean {
    this.#status = status;
    return true;
  }

  onData(chunk: Buffer): boolean {
    this.#firstByteAt ||= performance.now();
    this.#chunks.push(chunk);
    if (this.#firstDeltaAt === 0) this.#look();
    return true;
  }

  #look(): void {
    // It may be cut in two.
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)];
    if (!this.#chunks[0]!.includes(DELTA)) return;
    this.#firstDeltaAt = performance.now();
    this.begun.resolve();
  }

  onComplete(): void {
    this.#free();
    const body = Buffer.concat(this.#chunks);
    if (this.#status !== 200)
      return this.onError(new Error(`status ${this.#status}: ${body.toString().slice(0, 300)}`));
    this.begun.resolve();
    this.answer.resolve({
      body,
      firstByteMs: this.#firstByteAt - this.#sentAt,
      firstDeltaMs: this.#firstDeltaAt - this.#sentAt,
      wholeMs: performance.now() - this.#sentAt,
    });
  }

  onError(error: Error): void {
    this.begun.reject(error);
    this.answer.reject(error);
  }
}
