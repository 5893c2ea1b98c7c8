import type { Clock, ModelError, ModelReply } from '@treadle/core';
import type { Emit, Protocol } from '../protocol.ts';
import { CANCELLED, failureOfConnection, misunderstood, timedOut } from './failures.ts';
import { byItsBeginning, collected, streamed, type Reader } from './readers.ts';
import { retryAfterMs } from './retry-after.ts';
import type { Answer, Header, Post, Send, Sent } from './send.ts';

/** How a model is reached; the same for all its requests. */
export interface Transport<State> {
  readonly protocol: Protocol<State>;
  /** Whether requests ask for a stream; hosts may answer otherwise. */
  readonly stream: boolean;
  readonly send: Send;
  readonly clock: Clock;
  readonly timeouts: Timeouts;
}

/** One request. */
export interface Asked {
  readonly post: Post;
  readonly emit: Emit;
  readonly signal: AbortSignal;
  /** What the model makes of the reply. */
  readonly finished: (reply: ModelReply) => ModelReply;
}

/** In milliseconds. */
export interface Timeouts {
  /** From the request until the answer begins. */
  readonly headers: number;
  /** Between two pieces of an answer. */
  readonly idle: number;
}

/** After a stream's last word the connection gets this long to end in order, so that it can be used again. */
const LINGER_MS = 100;
/** Of the body of an error; what lies beyond is not read. */
const MAX_ERROR_BYTES = 256 * 1024;
/** No model says so much: an answer without an end must not fill the memory. */
const MAX_ANSWER_MB = 256;

/**
 * One attempt: sends the request and reads the answer. Never rejects. When the promise is settled nothing is left
 * behind: no timer, no listener on `signal`, and no connection unless it is fit for the next request.
 */
export function exchange<State>(transport: Transport<State>, asked: Asked): Promise<ModelReply> {
  return new Promise((resolve) => new Exchange(transport, asked, resolve).begin());
}

class Exchange<State> implements Answer {
  readonly #transport: Transport<State>;
  readonly #host: string;
  readonly #resolve: (reply: ModelReply) => void;
  readonly #cancel: () => void;
  /** Undefined: it is over. Then all that it held is let go, because it may itself be held for a while. */
  #asked: Asked | undefined;
  /** The stream has had its last word. */
  #isDone = false;
  #heardAt = 0;
  #size = 0;
  #reader: Reader | undefined;
  #held: Promise<void> | undefined;
  #sent: Sent | undefined;
  #stopTimer: (() => void) | undefined;

  constructor(transport: Transport<State>, asked: Asked, resolve: (reply: ModelReply) => void) {
    this.#transport = transport;
    this.#asked = asked;
    this.#host = asked.post.to.host;
    this.#resolve = resolve;
    this.#cancel = () => this.#fail(CANCELLED);
  }

  begin(): void {
    const { clock, timeouts, send } = this.#transport;
    const { post, signal } = this.#asked!;
    if (signal.aborted) return this.#cancel();
    signal.addEventListener('abort', this.#cancel);
    this.#heardAt = clock.now();
    this.#watch(timeouts.headers);
    const sent = send(post, this);
    if (this.#asked) this.#sent = sent;
    else sent.hangUp();
  }

  head(status: number, header: Header): void {
    if (!this.#asked) return;
    const { clock, timeouts } = this.#transport;
    try {
      this.#reader = this.#readerFor(status, header);
      this.#heardAt = clock.now();
      if (timeouts.idle < timeouts.headers) this.#watchSilence();
    } catch (thrown) {
      this.#misunderstood(thrown);
    }
  }

  data(chunk: Uint8Array): void | Promise<void> {
    if (!this.#asked) return;
    this.#heardAt = this.#transport.clock.now();
    this.#size += chunk.byteLength;
    if (this.#size > MAX_ANSWER_MB * 1024 * 1024) {
      const message = `${this.#host} sent more than ${MAX_ANSWER_MB} MB in one answer, and the rest was not read.`;
      return this.#fail({ ...misunderstood(message), retryable: false });
    }
    try {
      this.#reader!.data(chunk);
    } catch (thrown) {
      this.#misunderstood(thrown);
    }
    return this.#held;
  }

  /** Whoever listens is behind: no more is read until it has caught up, and that is not the host's silence. */
  #hold(wait: Promise<unknown>): void {
    const goOn = (): void => {
      this.#heardAt = this.#transport.clock.now();
      if (this.#held === held) this.#held = undefined;
    };
    const held = wait.then(goOn, goOn);
    this.#held = held;
  }

  end(): void {
    if (!this.#asked) return;
    try {
      this.#settle(this.#reader!.end());
    } catch (thrown) {
      this.#misunderstood(thrown);
    }
  }

  fail(thrown: unknown): void {
    if (this.#isDone) this.end();
    else this.#fail(failureOfConnection(thrown, this.#host));
  }

  #settle(given: ModelReply): void {
    const asked = this.#asked;
    if (!asked) return;
    // First, so that what it throws is told as a failure: nobody else would settle the promise.
    const reply = asked.finished(given);
    this.#asked = undefined;
    this.#stopTimer?.();
    asked.signal.removeEventListener('abort', this.#cancel);
    this.#sent?.hangUp();
    this.#reader = this.#sent = this.#stopTimer = undefined;
    this.#resolve(reply);
  }

  #fail(error: ModelError): void {
    this.#settle({ type: 'failure', error });
  }

  #misunderstood(thrown: unknown): void {
    this.#fail(misunderstood(`The answer of ${this.#host} cannot be understood: ${String(thrown)}`));
  }

  #readerFor(status: number, header: Header): Reader {
    const { protocol, stream } = this.#transport;
    if (status < 200 || status > 299) return this.#errorReader(status, header);
    const type = (header('content-type') ?? '').toLowerCase();
    if (type.includes('html')) {
      const message = `${this.#host} answered with a web page instead of a model's reply. Check the base URL.`;
      return this.#upTo(0, () => ({ type: 'failure', error: { ...misunderstood(message), retryable: false } }));
    }
    const events = (): Reader => this.#streamed(protocol);
    if (type.includes(protocol.framing.mediaType)) return events();
    return byItsBeginning({ framing: protocol.framing, stream, events, whole: () => collected(protocol.decode) });
  }

  #errorReader(status: number, header: Header): Reader {
    const { protocol, clock } = this.#transport;
    const wait = retryAfterMs(header, clock.now());
    const target = header('location');
    return this.#upTo(MAX_ERROR_BYTES, (text) => {
      const error =
        status < 400 ? redirected(status, this.#host, target) : { ...protocol.failure(status, text), status };
      return { type: 'failure', error: wait === undefined ? error : { ...error, retryAfterMs: wait } };
    });
  }

  /** What comes beyond so many bytes is not waited for. */
  #upTo(limit: number, decode: (text: string) => ModelReply): Reader {
    const reader = collected(decode);
    return {
      data: (chunk) => {
        reader.data(chunk);
        if (this.#size > limit) this.#settle(reader.end());
      },
      end: () => reader.end(),
    };
  }

  #streamed(protocol: Protocol<State>): Reader {
    const { emit } = this.#asked!;
    const show: Emit = (delta) => {
      const wait = emit(delta);
      if (wait instanceof Promise) this.#hold(wait);
    };
    return streamed(protocol, show, (status) => {
      // Whoever was told of a delta may have cancelled by now.
      if (!this.#asked || this.#isDone) return false;
      if (status.type === 'more') return true;
      if (status.type === 'failure') this.#fail(status.error);
      else this.#linger();
      return false;
    });
  }

  /** Mostly the end is there already, behind the last word. */
  #linger(): void {
    this.#isDone = true;
    queueMicrotask(() => {
      if (this.#asked) this.#watch(LINGER_MS);
    });
  }

  #watch(ms: number): void {
    this.#stopTimer?.();
    this.#stopTimer = this.#transport.clock.timer(ms, () => (this.#isDone ? this.end() : this.#watchSilence()));
  }

  /** A timer that looks when it fires what there is to wait for is cheaper than one that is set anew each time. */
  #watchSilence(): void {
    const { timeouts, clock } = this.#transport;
    const { headers, idle } = timeouts;
    const left = (this.#reader ? idle : headers) - (clock.now() - this.#heardAt);
    if (left > 0) this.#watch(left);
    else if (this.#held) this.#watch(idle);
    else if (!this.#reader) this.#fail(timedOut(`${this.#host} gave no answer within ${seconds(headers)}.`));
    else this.#fail(timedOut(`${this.#host} fell silent in the middle of its answer, for ${seconds(idle)}.`));
  }
}

function redirected(status: number, where: string, target: string | undefined): ModelError {
  const to = target === undefined ? 'elsewhere' : `to ${target.split('?', 1)[0]}`;
  const message = `${where} redirects ${to}, which is not followed, lest a key go astray. Set the base URL to the right place.`;
  return { code: 'protocol', message, retryable: false, status };
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}
