/** One POST of a JSON body. */
export interface Post {
  readonly to: Address;
  readonly body: Uint8Array;
  /** The header of W3C Trace Context. Undefined: none is sent. */
  readonly traceparent?: string | undefined;
}

/** URL and headers of a model's requests. They are the same for all requests, so they are taken apart once. */
export interface Address {
  readonly url: URL;
  readonly origin: string;
  readonly host: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The same, with names and values alternating. */
  readonly rawHeaders: readonly string[];
}

export function addressOf(url: URL, headers: Readonly<Record<string, string>>): Address {
  const { origin, host, pathname, search } = url;
  return { url, origin, host, path: pathname + search, headers, rawHeaders: Object.entries(headers).flat() };
}

/** Returns a header of an answer by its lower-case name. */
export type Header = (name: string) => string | undefined;

/** Receives an answer: `onHead` once, then `onData`, then `onEnd`; or at any point `onFailure`, and nothing after it. */
export interface AnswerHandler {
  onHead(status: number, header: Header): void;
  /** If it returns a promise, the sender must not read on before the promise resolves. */
  onData(chunk: Uint8Array): void | Promise<void>;
  onEnd(): void;
  onFailure(thrown: unknown): void;
}

/** A request in progress. */
export interface PendingPost {
  /** Closes the connection; the handler is not called any more. Does nothing after `onEnd` or `onFailure`. */
  abort(): void;
}

/** Never throws. */
export type Send = (post: Post, handler: AnswerHandler) => PendingPost;

export type Fetch = typeof globalThis.fetch;

/** Sends with a `fetch` that the user provides, for proxies, recording and other runtimes. Slower than `undiciSend`. */
export function fetchSend(fetch: Fetch): Send {
  return (post, handler) => {
    const abort = new AbortController();
    let body: ReadableStreamDefaultReader<Uint8Array> | undefined;
    /** Needed if the provided `fetch` ignores the signal. */
    const cancelBody = (): void => void body?.cancel().catch(() => {});

    const send = async (): Promise<void> => {
      const response = await fetch(post.to.url, {
        method: 'POST',
        headers:
          post.traceparent === undefined ? post.to.headers : { ...post.to.headers, traceparent: post.traceparent },
        // A copy: a fetch that records may read it after the next turn has overwritten the buffer.
        body: Buffer.from(post.body),
        redirect: 'manual',
        signal: abort.signal,
      });
      body = response.body?.getReader();
      if (abort.signal.aborted) return cancelBody();
      handler.onHead(response.status, (name) => response.headers.get(name) ?? undefined);
      for (let piece = await body?.read(); piece?.value !== undefined; piece = await body?.read()) {
        if (abort.signal.aborted) return;
        await handler.onData(piece.value);
        if (abort.signal.aborted) return;
      }
      if (!abort.signal.aborted) handler.onEnd();
    };

    send().catch((thrown: unknown) => {
      if (!abort.signal.aborted) handler.onFailure(thrown);
    });
    return {
      abort() {
        abort.abort();
        cancelBody();
      },
    };
  };
}
