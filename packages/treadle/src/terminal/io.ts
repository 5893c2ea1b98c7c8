import type { Readable, Writable } from 'node:stream';
import { CommandError } from '../command-line/command.ts';
import { decodeText, readProblem } from '../command-line/named-file.ts';

/** The parts of the process that a command uses. Tests replace them. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & Screen;
  readonly stderr: Writable & Screen;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Calls `listener` at each SIGINT instead of ending the process, until the returned function is called. */
  onInterrupt(listener: () => void): () => void;
  /** The same for SIGTERM, and for SIGHUP if there is a terminal: then it has been closed. */
  onTerminate(listener: () => void): () => void;
  /** The same for SIGHUP if there is no terminal. Absent: the process cannot receive it. */
  onReload?(listener: () => void): () => void;
  /** From now on, the process continues when the readers of its output have closed. */
  outliveReaders(): void;
  /**
   * Stops the process and those that it was started with, as Ctrl-Z in a shell does, and calls `listener` when it continues. Absent:
   * the system cannot.
   */
  stop?(listener: () => void): void;
  /** Lets a command of the shell have the terminal until it ends. Returns its exit code. */
  runOnTerminal?(command: string): Promise<number>;
  /** Ends the process immediately. */
  quit(code: number): void;
}

/** Emits `resize` when its size has changed. */
interface Screen {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

/** Reads standard input to its end. Throws if it is not a text. */
export async function readStdin(io: Io): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of io.stdin) chunks.push(Buffer.from(chunk));
  try {
    return decodeText(Buffer.concat(chunks));
  } catch (error) {
    throw new CommandError(`Standard input cannot be read: ${readProblem(error)}.`);
  }
}
