import type { AssistantPart, Clock, ModelDelta, ModelError, ModelReply, ToolSpec } from '@treadle/core';
import type { Emit, Protocol, StreamStatus } from '../protocol.ts';
import { CANCELLED, failureOfConnection, protocolFailure, timedOut } from './failures.ts';
import { detectingReader, streamReader, wholeReader, type Reader } from './readers.ts';
import { retryAfterMs } from './retry.ts';
import type { AnswerHandler, Header, PendingPost, Post, Send } from './send.ts';

/** How the requests of a model are sent; the same for all of them. */
export interface Transport<State> {
  readonly protocol: Protocol<State>;
  /** Whether requests ask for a stream. Hosts may send a whole answer nevertheless. */
  readonly stream: boolean;
  readonly send: Send;
  readonly clock: Clock;
  readonly timeouts: Timeouts;
}

/** One request. */
export interface ExchangeOptions {
  readonly post: Post;
  readonly tools: readonly ToolSpec[];
  readonly emit: Emit;
  readonly signal: AbortSignal;
  /** Completes the reply before the promise is settled. */
  readonly finishReply: (reply: ModelReply) => ModelReply;
}

/** In milliseconds. */
export interface Timeouts {
  /** From the request to the start of the answer. */
  readonly headers: number;
  /** Between two chunks of an answer. */
  readonly idle: number;
}

/** How long a stream may stay open after its last event. If it ends by then, the connection can be reused. */
const LINGER_MS = 100;
/** The limit for the body of an error. The rest is not read. */
const MAX_ERROR_BYTES = 256 * 1024;
/** No answer is this long: an endless one must not fill the memory. Events take many times the size of their text. */
const MAX_ANSWER_MB = 128;
/** A chunk counts as at least so many bytes: it takes more memory than that, however small it is. */
const LEAST_CHUNK_BYTES = 256;
/** The limits of a reply. They are far above what models send: a provider beyond them is broken or hostile. */
const MAX_REPLY_CHARS = 8 * 1024 * 1024;
const MAX_ARGUMENTS_CHARS = 4 * 1024 * 1024;
const MAX_CALLS = 1_000;
const MAX_PARTS = 10_000;

/**
 * One attempt: sends the request and reads the answer. Never rejects. When the promise settles, everything is released:
 * the timer, the listener on `signal`, and the connection unless the next request can use it.
 */
export function exchange<State>(transport: Transport<State>, options: ExchangeOptions): Promise<ModelReply> {
  return new Promise((resolve) => new Exchange(transport, options, resolve).start());
}

class Exchange<State> implements AnswerHandler {
  readonly #transport: Transport<State>;
  readonly #host: string;
  readonly #resolve: (reply: ModelReply) => void;
  readonly #cancel: () => void;
  /** Undefined after the end. All references are dropped then, because undici may reference this object for longer. */
  #options: ExchangeOptions | undefined;
  /** The last event of the stream has been read. */
  #isDone = false;
  #lastDataAt = 0;
  #size = 0;
  #replyChars = 0;
  /** The call that the last delta belongs to, and the length of its arguments. */
  #call = -1;
  #callChars = 0;
  #reader: Reader | undefined;
  #backPressure: Promise<void> | undefined;
  #pending: PendingPost | undefined;
  #stopTimer: (() => void) | undefined;

  constructor(transport: Transport<State>, options: ExchangeOptions, resolve: (reply: ModelReply) => void) {
    this.#transport = transport;
    this.#options = options;
    this.#host = options.post.to.host;
    this.#resolve = resolve;
    this.#cancel = () => this.#failExchange(CANCELLED);
  }

  start(): void {
    const { clock, timeouts, send } = this.#transport;
    const { post, signal } = this.#options!;
    if (signal.aborted) return this.#cancel();
    signal.addEventListener('abort', this.#cancel);
    this.#lastDataAt = clock.now();
    this.#setTimer(timeouts.headers);
    const pending = send(post, this);
    if (this.#options) this.#pending = pending;
    else pending.abort();
  }

  onHead(status: number, header: Header): void {
    if (!this.#options) return;
    const { clock, timeouts } = this.#transport;
    try {
      this.#reader = this.#readerFor(status, header);
      this.#lastDataAt = clock.now();
      if (timeouts.idle < timeouts.headers) this.#checkTimeout();
    } catch (thrown) {
      this.#failUnreadable(thrown);
    }
  }

  onData(chunk: Uint8Array): void | Promise<void> {
    if (!this.#options) return;
    this.#lastDataAt = this.#transport.clock.now();
    this.#size += Math.max(chunk.byteLength, LEAST_CHUNK_BYTES);
    if (this.#size > MAX_ANSWER_MB * 1024 * 1024) {
      const message = `${this.#host} sent more than ${MAX_ANSWER_MB} MB in one answer; the rest was not read.`;
      return this.#failExchange({ ...protocolFailure(message), retryable: false });
    }
    try {
      this.#reader!.data(chunk);
    } catch (thrown) {
      this.#failUnreadable(thrown);
    }
    return this.#backPressure;
  }

  onEnd(): void {
    if (!this.#options) return;
    try {
      this.#settleExchange(this.#reader!.end());
    } catch (thrown) {
      this.#failUnreadable(thrown);
    }
  }

  onFailure(thrown: unknown): void {
    if (this.#isDone) this.onEnd();
    else this.#failExchange(failureOfConnection(thrown, this.#host, { isAnswered: this.#reader !== undefined }));
  }

  /** The listener is behind: reading pauses until `wait` settles. That time does not count towards the idle timeout. */
  #pauseReading(wait: Promise<unknown>): void {
    const resumeReading = (): void => {
      this.#lastDataAt = this.#transport.clock.now();
      if (this.#backPressure === backPressure) this.#backPressure = undefined;
    };
    const backPressure = wait.then(resumeReading, resumeReading);
    this.#backPressure = backPressure;
  }

  #settleExchange(read: ModelReply): void {
    const options = this.#options;
    if (!options) return;
    const excess = read.type === 'reply' ? excessOf(read.content) : undefined;
    if (excess !== undefined) return this.#failExcess(excess);
    // Before anything is released: if it throws, the exchange fails instead of never being settled.
    const reply = options.finishReply(read);
    this.#options = undefined;
    this.#stopTimer?.();
    options.signal.removeEventListener('abort', this.#cancel);
    this.#pending?.abort();
    this.#reader = this.#pending = this.#stopTimer = undefined;
    this.#resolve(reply);
  }

  #failExchange(error: ModelError): void {
    this.#settleExchange({ type: 'failure', error });
  }

  #failExcess(excess: string): void {
    const message = `${this.#host} sent ${excess} in one reply; the reply was discarded.`;
    this.#failExchange({ ...protocolFailure(message), retryable: false });
  }

  /** Why a reply is too large. Checked for each delta, so that the rest is not read. */
  #excessWith(delta: ModelDelta): string | undefined {
    if (delta.type !== 'call-delta') {
      this.#replyChars += delta.text.length;
    } else {
      if (delta.call !== this.#call) this.#callChars = 0;
      this.#call = delta.call;
      this.#callChars += delta.arguments.length;
      this.#replyChars += delta.arguments.length;
      if (delta.call >= MAX_CALLS) return TOO_MANY_CALLS;
      if (this.#callChars > MAX_ARGUMENTS_CHARS) return TOO_LONG_ARGUMENTS;
    }
    return this.#replyChars > MAX_REPLY_CHARS ? TOO_LONG : undefined;
  }

  #failUnreadable(thrown: unknown): void {
    const failure = protocolFailure(`The answer of ${this.#host} cannot be read: ${String(thrown)}`);
    // What is too long for a buffer or for the stack does not become shorter.
    this.#failExchange(thrown instanceof RangeError ? { ...failure, retryable: false } : failure);
  }

  #readerFor(status: number, header: Header): Reader {
    const { protocol, stream } = this.#transport;
    if (status < 200 || status > 299) return this.#errorReader(status, header);
    const type = (header('content-type') ?? '').toLowerCase();
    if (type.includes('html')) {
      const message = `${this.#host} answered with a web page instead of a model's reply. Check the base URL.`;
      return this.#readUpTo(0, () => ({ type: 'failure', error: { ...protocolFailure(message), retryable: false } }));
    }
    const streamed = (): Reader => this.#readStream(protocol);
    if (type.includes(protocol.framing.mediaType)) return streamed();
    return detectingReader({ framing: protocol.framing, stream, streamed, whole: () => wholeReader(protocol.decode) });
  }

  #errorReader(status: number, header: Header): Reader {
    const { protocol, clock } = this.#transport;
    const wait = retryAfterMs(header, clock.now());
    const target = header('location');
    return this.#readUpTo(MAX_ERROR_BYTES, (text) => {
      const error =
        status < 400 ? failureOfRedirect(status, this.#host, target) : { ...protocol.failure(status, text), status };
      return { type: 'failure', error: wait === undefined ? error : { ...error, retryAfterMs: wait } };
    });
  }

  /** Settles with what has arrived once the body exceeds `limit` bytes. */
  #readUpTo(limit: number, decode: (text: string) => ModelReply): Reader {
    const reader = wholeReader(decode);
    return {
      data: (chunk) => {
        reader.data(chunk);
        if (this.#size > limit) this.#settleExchange(reader.end());
      },
      end: () => reader.end(),
    };
  }

  #readStream(protocol: Protocol<State>): Reader {
    const { emit, tools } = this.#options!;
    const emitAndWait: Emit = (delta) => {
      if (!this.#options) return;
      const excess = this.#excessWith(delta);
      if (excess !== undefined) return this.#failExcess(excess);
      const wait = emit(delta);
      if (wait instanceof Promise) this.#pauseReading(wait);
    };
    const onStatus = (status: StreamStatus): boolean => {
      // A listener may have cancelled the request when it received a delta.
      if (!this.#options || this.#isDone) return false;
      if (status.type === 'more') return true;
      if (status.type === 'failure') this.#failExchange(status.error);
      else this.#awaitEnd();
      return false;
    };
    return streamReader(protocol, tools, { emit: emitAndWait, onStatus });
  }

  /** The end usually arrives together with the last event; only otherwise a timer is set. */
  #awaitEnd(): void {
    this.#isDone = true;
    queueMicrotask(() => {
      if (this.#options) this.#setTimer(LINGER_MS);
    });
  }

  #setTimer(ms: number): void {
    this.#stopTimer?.();
    this.#stopTimer = this.#transport.clock.timer(ms, () => (this.#isDone ? this.onEnd() : this.#checkTimeout()));
  }

  /** Checks the remaining time when the timer fires, which is cheaper than setting a timer for each chunk. */
  #checkTimeout(): void {
    const { timeouts, clock } = this.#transport;
    const { headers, idle } = timeouts;
    const remaining = (this.#reader ? idle : headers) - (clock.now() - this.#lastDataAt);
    if (remaining > 0) this.#setTimer(remaining);
    else if (this.#backPressure) this.#setTimer(idle);
    else if (!this.#reader) this.#failExchange(timedOut(`${this.#host} did not answer within ${seconds(headers)}.`));
    else this.#failExchange(timedOut(`${this.#host} sent nothing for ${seconds(idle)} in the middle of its answer.`));
  }
}

const TOO_MANY_CALLS = `more than ${MAX_CALLS} calls`;
const TOO_LONG_ARGUMENTS = `arguments of more than ${MAX_ARGUMENTS_CHARS} characters`;
const TOO_LONG = `more than ${MAX_REPLY_CHARS} characters`;

/** Why a whole reply is too large. The pieces of several calls may have been mixed. */
function excessOf(content: readonly AssistantPart[]): string | undefined {
  if (content.length > MAX_PARTS) return `more than ${MAX_PARTS} parts`;
  let chars = 0;
  let calls = 0;
  for (const part of content) {
    if (part.type === 'tool-call') {
      calls += 1;
      chars += part.arguments.length;
      if (part.arguments.length > MAX_ARGUMENTS_CHARS) return TOO_LONG_ARGUMENTS;
    } else if (part.type === 'text' || part.type === 'reasoning') chars += part.text.length;
  }
  if (calls > MAX_CALLS) return TOO_MANY_CALLS;
  return chars > MAX_REPLY_CHARS ? TOO_LONG : undefined;
}

function failureOfRedirect(status: number, where: string, target: string | undefined): ModelError {
  const to = target === undefined ? 'elsewhere' : `to ${target.split('?', 1)[0]}`;
  const message = `${where} redirects ${to}, which is not followed, because it could expose the key. Set the base URL to the final address.`;
  return { code: 'protocol', message, retryable: false, status };
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}
