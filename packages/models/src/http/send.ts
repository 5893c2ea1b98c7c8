/** One POST of a JSON body. */
export interface Post {
  readonly to: Address;
  readonly body: Uint8Array;
}

/** Where requests go and what they bear: the same for all requests of a model, and taken apart once. */
export interface Address {
  readonly url: URL;
  readonly origin: string;
  readonly host: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The same, as names and values in turn. */
  readonly rawHeaders: readonly string[];
}

export function addressOf(url: URL, headers: Readonly<Record<string, string>>): Address {
  const { origin, host, pathname, search } = url;
  return { url, origin, host, path: pathname + search, headers, rawHeaders: Object.entries(headers).flat() };
}

/** What a header of an answer says, by its name in small letters. */
export type Header = (name: string) => string | undefined;

/** Who hears what comes back: `head` once, then `data`, then `end`; or at any point `fail`, and then nothing more. */
export interface Answer {
  head(status: number, header: Header): void;
  /** A promise: what follows is to be read when it resolves, and not before. */
  data(chunk: Uint8Array): void | Promise<void>;
  end(): void;
  fail(thrown: unknown): void;
}

/** A request under way. */
export interface Sent {
  /** The connection is gone and `answer` hears nothing more. After `end` or `fail` it does nothing. */
  hangUp(): void;
}

/** Never throws. */
export type Send = (post: Post, answer: Answer) => Sent;
