import { createInterface } from 'node:readline';
import type { Dialogue } from './dialogue.ts';
import type { Io } from './io.ts';
import { printable } from './printable.ts';

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
