import { createInterface } from 'node:readline';
import type { ExplainRequest } from '../run/ask-approval.ts';
import type { ApprovalRequest, Decision, QuestionRequest } from '../run/drive-run.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import type { Interrupt } from '../terminal/signals.ts';

/** The user's side of a chat: input, output, approvals and answers. */
export interface Dialogue {
  /** The next message of the user; undefined when they leave. */
  nextMessage(): Promise<string | undefined>;
  /** Starts a run and returns the function that ends it. `steer` receives the lines that the user enters during it. */
  startRun(run: { readonly interrupt: Interrupt; readonly steer: (text: string) => void }): () => void;
  approve(request: ApprovalRequest, explain?: ExplainRequest): Promise<Decision>;
  /** Asks a question of a tool. Undefined: there is no answer. */
  answer(request: QuestionRequest, rejected?: string): Promise<unknown>;
  /** Writes text of the model. */
  writeText(text: string): void;
  /** Writes a line of the program, such as a tool call. */
  writeLine(line: string): void;
  /** Ctrl-C during a run ends only the run, not the chat. */
  readonly outlivesInterrupt: boolean;
  close(): void;
}

/** A chat without a terminal. Each line of standard input is a message, and is read after the previous answer. */
export function pipedDialogue(io: Io): Dialogue {
  const reader = createInterface({ input: io.stdin, crlfDelay: Infinity, terminal: false });
  const lines = reader[Symbol.asyncIterator]();
  return {
    async nextMessage() {
      const { done, value } = await lines.next();
      return done ? undefined : value;
    },
    startRun: () => () => {},
    approve: async () => ({ approved: false, reason: 'There is no terminal to ask the user on.' }),
    answer: async () => undefined,
    // Text for files and other programs is not changed. A terminal would execute control sequences.
    writeText: (text) => void io.stdout.write(io.stdout.isTTY ? printable(text) : text),
    writeLine: (line) => void io.stderr.write(`${line}\n`),
    outlivesInterrupt: false,
    close: () => reader.close(),
  };
}
