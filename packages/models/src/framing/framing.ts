/** Cuts an answer's bytes into events. Knows no protocol. */
export interface Framing {
  /** What an answer in this framing says of itself in its content type. */
  readonly mediaType: string;
  readonly open: (onEvent: (event: WireEvent) => void) => Frames;
}

export interface Frames {
  /** Chunks may be cut anywhere, also inside a UTF-8 sequence. */
  feed(chunk: Uint8Array): void;
  /** The bytes are over: what is still held back is given out. */
  end(): void;
}

/** One event of a stream. `name` is empty where the wire gives none. */
export interface WireEvent {
  readonly name: string;
  readonly data: string;
}
