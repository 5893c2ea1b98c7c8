import { createInterface } from 'node:readline';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import type { Interrupt } from '../terminal/signals.ts';
import type { AskedApproval, Decision } from '../run/drive-run.ts';

/** A chat without a terminal: each line of standard input is a message, answered before the next is looked at. */
export function pipedDialogue(io: Io): Dialogue {
  const reader = createInterface({ input: io.stdin, crlfDelay: Infinity, terminal: false });
  const lines = reader[Symbol.asyncIterator]();
  return {
    async next() {
      const { done, value } = await lines.next();
      return done ? undefined : value;
    },
    begin: () => () => {},
    approve: async () => ({ approved: false, reason: 'There is no terminal on which the user could be asked.' }),
    // What goes into a file or another program stays as it is; a terminal would obey it.
    writeText: (text) => void io.stdout.write(io.stdout.isTTY ? printable(text) : text),
    writeLine: (line) => void io.stderr.write(`${line}\n`),
    outlivesInterrupt: false,
    close: () => reader.close(),
  };
}

/** Where a chat takes place. */
export interface Dialogue {
  /** What the user says next; nothing when they leave. */
  next(): Promise<string | undefined>;
  /** A run begins; what it returns is called when it has ended. `steer` takes what the user says meanwhile. */
  begin(run: { readonly interrupt: Interrupt; readonly steer: (text: string) => void }): () => void;
  approve(asked: AskedApproval): Promise<Decision>;
  /** The model's words. */
  writeText(text: string): void;
  /** Something about them. */
  writeLine(line: string): void;
  /** Ctrl-C in a run ends only the run, not the chat. */
  readonly outlivesInterrupt: boolean;
  close(): void;
}
