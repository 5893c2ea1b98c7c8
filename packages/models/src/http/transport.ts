import type { Clock, ModelError, ModelReply } from '@treadle/core';
import type { Emit, Protocol } from '../protocol.ts';
import { CANCELLED, failureOfConnection, misunderstood, timedOut } from './failures.ts';
import { isStream } from './stream-or-whole.ts';
import { retryAfterMs } from './retry-after.ts';
import type { Post, Send } from './send.ts';

export interface Transport {
  readonly send: Send;
  readonly clock: Clock;
  readonly timeouts: Timeouts;
}

/** In milliseconds. */
export interface Timeouts {
  /** From the request until the answer begins. */
  readonly headers: number;
  /** Between two pieces of an answer. */
  readonly idle: number;
}

export interface Exchange<State> {
  readonly protocol: Protocol<State>;
  readonly post: Post;
  /** Whether the request asks for a stream; hosts may answer otherwise. */
  readonly stream: boolean;
  readonly emit: Emit;
  readonly signal: AbortSignal;
}

/** What happens with the body of an answer once its head is known. */
interface Reader {
  data(chunk: Uint8Array): void;
  /** What has been read amounts to this. */
  end(): ModelReply;
}

/** After a stream's last word the connection gets this long to end in order, so that it can be used again. */
const LINGER_MS = 100;
/** Of the body of an error; what lies beyond is not read. */
const MAX_ERROR_BYTES = 256 * 1024;
/** Of whole texts: it keeps nothing between two. Drops a BOM. */
const UTF8 = new TextDecoder();
/** No model says so much: an answer without an end must not fill the memory. */
const MAX_ANSWER_MB = 256;

/**
 * One attempt: sends the request and reads the answer. Never rejects. When the promise is settled nothing is left
 * behind: no timer, no listener on `signal`, and no connection unless it is fit for the next request.
 */
export function exchange<State>(
  { send, clock, timeouts }: Transport,
  { protocol, post, stream, emit, signal }: Exchange<State>,
): Promise<ModelReply> {
  const { promise, resolve } = Promise.withResolvers<ModelReply>();
  const where = post.to.host;
  let over = false;
  let done = false;
  let heardAt = 0;
  let reader: Reader | undefined;
  let hangUp: () => void = () => {};
  let stopTimer: () => void = () => {};

  const settle = (reply: ModelReply): void => {
    if (over) return;
    over = true;
    stopTimer();
    signal.removeEventListener('abort', cancel);
    hangUp();
    resolve(reply);
  };
  const fail = (error: ModelError): void => settle({ type: 'failure', error });
  const cancel = (): void => fail(CANCELLED);

  const watch = (ms: number, fire: () => void): void => {
    stopTimer();
    stopTimer = clock.timer(ms, fire);
  };
  /** A timer that looks when it fires what there is to wait for is cheaper than one that is set anew each time. */
  const watchSilence = (): void => {
    const left = (reader ? timeouts.idle : timeouts.headers) - (clock.now() - heardAt);
    if (left > 0) watch(left, watchSilence);
    else if (reader) fail(timedOut(`${where} fell silent in the middle of its answer, for ${seconds(timeouts.idle)}.`));
    else fail(timedOut(`${where} gave no answer within ${seconds(timeouts.headers)}.`));
  };

  const collected = (limit: number, end: (text: string) => ModelReply): Reader => {
    const chunks: Uint8Array[] = [];
    let size = 0;
    const whole = (): ModelReply => end(UTF8.decode(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)));
    return {
      data(chunk) {
        chunks.push(chunk);
        size += chunk.byteLength;
        if (size > limit) settle(whole());
      },
      end: whole,
    };
  };

  const streamed = (): Reader => {
    const state = protocol.start();
    const frames = protocol.framing.open((event) => {
      if (over || done) return;
      const status = protocol.step(state, event, emit);
      if (status.type === 'failure') fail(status.error);
      // Whoever was told of a delta may have cancelled by now.
      if (over || status.type !== 'done') return;
      done = true;
      watch(LINGER_MS, () => settle(protocol.end(state)));
    });
    return {
      data: frames.feed,
      end() {
        frames.end();
        return protocol.end(state);
      },
    };
  };

  /** For hosts that send a whole answer though asked for a stream, and for those that name the content wrongly. */
  const byItsBeginning = (): Reader => {
    let chunks: Uint8Array[] = [];
    let chosen: Reader | undefined;
    const choose = (streams: boolean): Reader => {
      chosen = streams ? streamed() : collected(Infinity, protocol.decode);
      for (const chunk of chunks) if (!over) chosen.data(chunk);
      chunks = [];
      return chosen;
    };
    return {
      data(chunk) {
        if (chosen !== undefined) return chosen.data(chunk);
        chunks.push(chunk);
        const streams = isStream(chunks, protocol.framing, stream);
        if (streams !== undefined) choose(streams);
      },
      end: () => (chosen ?? choose(false)).end(),
    };
  };

  const bounded = (reader: Reader): Reader => {
    let size = 0;
    return {
      data(chunk) {
        size += chunk.byteLength;
        if (size <= MAX_ANSWER_MB * 1024 * 1024) return reader.data(chunk);
        const message = `${where} sent more than ${MAX_ANSWER_MB} MB in one answer, and the rest was not read.`;
        fail({ ...misunderstood(message), retryable: false });
      },
      end: reader.end,
    };
  };

  const readerFor = (status: number, header: (name: string) => string | undefined): Reader => {
    if (status < 200 || status > 299) {
      const wait = retryAfterMs(header, clock.now());
      const target = header('location');
      return collected(MAX_ERROR_BYTES, (text) => {
        const error = status < 400 ? redirected(status, where, target) : { ...protocol.failure(status, text), status };
        return { type: 'failure', error: wait === undefined ? error : { ...error, retryAfterMs: wait } };
      });
    }
    const type = (header('content-type') ?? '').toLowerCase();
    if (type.includes('html')) {
      const message = `${where} answered with a web page instead of a model's reply. Check the base URL.`;
      return collected(0, () => ({ type: 'failure', error: { ...misunderstood(message), retryable: false } }));
    }
    return bounded(type.includes(protocol.framing.mediaType) ? streamed() : byItsBeginning());
  };

  const guarded = (act: () => void): void => {
    if (over) return;
    try {
      act();
    } catch (thrown) {
      fail(misunderstood(`The answer of ${where} cannot be understood: ${String(thrown)}`));
    }
  };

  if (signal.aborted) {
    cancel();
    return promise;
  }
  signal.addEventListener('abort', cancel, { once: true });
  heardAt = clock.now();
  watch(timeouts.headers, watchSilence);
  const stop = send(post, {
    head: (status, header) =>
      guarded(() => {
        reader = readerFor(status, header);
        heardAt = clock.now();
        if (timeouts.idle < timeouts.headers) watchSilence();
      }),
    data: (chunk) => {
      heardAt = clock.now();
      guarded(() => reader!.data(chunk));
    },
    end: () => guarded(() => settle(reader!.end())),
    fail: (thrown) => guarded(() => (done ? settle(reader!.end()) : fail(failureOfConnection(thrown, where)))),
  });
  if (over) stop();
  else hangUp = stop;
  return promise;
}

function redirected(status: number, where: string, target: string | undefined): ModelError {
  const to = target === undefined ? 'elsewhere' : `to ${target.split('?', 1)[0]}`;
  const message = `${where} redirects ${to}, which is not followed, lest a key go astray. Set the base URL to the right place.`;
  return { code: 'invalid-request', message, retryable: false, status };
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}
