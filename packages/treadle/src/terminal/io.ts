import type { Readable, Writable } from 'node:stream';

/** All that a command sees of the process that it runs in. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & Screen;
  readonly stderr: Writable & Screen;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Calls `listener` at each SIGINT, which then does nothing else; the returned function ends that. */
  onInterrupt(listener: () => void): () => void;
  /** The same at each SIGTERM. */
  onTerminate(listener: () => void): () => void;
  /** From now on it is no reason to end that nobody reads what is written: there is other work to do. */
  outliveReaders(): void;
  /** Ends the process at once. */
  quit(code: number): void;
}

interface Screen {
  readonly isTTY?: boolean;
  readonly columns?: number;
}
