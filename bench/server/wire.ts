import type { Script } from './script.ts';

/** The encoding of replies in one protocol. */
export interface Wire {
  /** Occurs in a request once for each tool result. */
  readonly resultMark: string;
  readonly whole: (script: Script) => string;
  /** The frames of a stream, one per event. */
  readonly events: (script: Script) => readonly string[];
}
