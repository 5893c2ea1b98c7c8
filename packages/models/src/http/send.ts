/** One POST of a JSON body. */
export interface Post {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}

/** Who hears what comes back: `head` once, then `data`, then `end`; or at any point `fail`, and then nothing more. */
export interface Answer {
  head(status: number, header: (name: string) => string | undefined): void;
  data(chunk: Uint8Array): void;
  end(): void;
  fail(thrown: unknown): void;
}

/**
 * Sends and never throws. The returned function hangs up: the connection is gone and `answer` hears nothing more. After
 * `end` or `fail` it does nothing.
 */
export type Send = (post: Post, answer: Answer) => () => void;
