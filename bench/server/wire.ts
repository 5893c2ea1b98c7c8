import type { Script } from './script.ts';

/** How one protocol puts a reply. */
export interface Wire {
  /** Stands once in a request for each tool result. */
  readonly resultMark: string;
  readonly whole: (script: Script) => string;
  /** The frames of a stream, one for each event. */
  readonly events: (script: Script) => readonly string[];
}
