import { createInterface } from 'node:readline';
import type { Item } from '@treadle/core';
import type { ExplainRequest } from '../run/ask-approval.ts';
import type { ApprovalRequest, Decision, QuestionRequest } from '../run/drive-run.ts';
import { transcript } from '../run/transcript.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import type { Interrupt } from '../terminal/signals.ts';

/** The user's side of a chat: input, output, approvals and answers. */
export interface Dialogue {
  /** The next message of the user; undefined when they leave. */
  nextMessage(): Promise<string | undefined>;
  /** `steer` receives the lines that the user enters during the run. */
  startRun(run: StartedRun): ShownRun;
  /** Asks for a decision about a call, or about another one that waits for one as well. */
  approve(request: ApprovalRequest, others: readonly ApprovalRequest[], explain?: ExplainRequest): Promise<Decision>;
  /** Asks a question of a tool. Undefined: there is no answer. */
  answer(request: QuestionRequest, rejected?: string): Promise<unknown>;
  /** Asks whether to go on. Without a person it is no. */
  confirm(question: string): Promise<boolean>;
  /** Lets the user choose one of several texts. Undefined: none of them. */
  choose(title: string, choices: readonly string[]): Promise<number | undefined>;
  /** Writes a line of the program. */
  writeLine(line: string): void;
  /** Shows where an earlier conversation ended, for a person who continues it. */
  showEarlier(last: Exchange): void;
  /** What keys do, for people who ask for help. */
  readonly keys?: readonly (readonly [key: string, does: string])[];
  /** Ctrl-C during a run ends only the run, not the chat. */
  readonly outlivesInterrupt: boolean;
  close(): void;
}

/** A message of the user, and the text of its answer so far. */
export interface Exchange {
  readonly asked: string;
  readonly reply: string;
}

/** A run that begins. */
export interface StartedRun {
  readonly interrupt: Interrupt;
  readonly steer: (text: string) => void;
  /** Leaves the run, which goes on without this chat. Absent: the user leaves when it has ended. */
  readonly leave?: () => void;
}

/** A run that the dialogue shows. */
export interface ShownRun {
  readonly onItem: (item: Item) => void;
  /** Shows what is left of its last reply. */
  endReply(): void;
  /** The run does not take lines of the user any more. */
  end(): void;
}

/** Shows runs as lines: for pipes, for screen readers, and for terminals that cannot move the cursor. */
export function lineRun(
  parts: { readonly writeText: (text: string) => void; readonly writeLine: (line: string) => void },
  options: { readonly colours: Colours; readonly width: number; readonly end: () => void },
): ShownRun {
  const { colours, width, end } = options;
  const { onItem, endLine } = transcript({ ...parts, colours, width });
  return { onItem, endReply: endLine, end };
}

/** A chat without a terminal. Each line of standard input is a message, and is read after the previous answer. */
export function pipedDialogue(io: Io): Dialogue {
  const reader = createInterface({ input: io.stdin, crlfDelay: Infinity, terminal: false });
  const lines = reader[Symbol.asyncIterator]();
  const colours = coloursFor(io.stderr, io.env);
  const width = io.stdout.columns ?? 120;
  // Text for files and other programs is not changed. A terminal would execute control sequences.
  const writeText = (text: string): void => void io.stdout.write(io.stdout.isTTY ? printable(text) : text);
  const writeLine = (line: string): void => void io.stderr.write(`${line}\n`);
  return {
    async nextMessage() {
      const { done, value } = await lines.next();
      return done ? undefined : value;
    },
    startRun: () => lineRun({ writeText, writeLine }, { colours, width, end: () => {} }),
    approve: async () => ({ approved: false, reason: 'There is no terminal to ask the user on.' }),
    answer: async () => undefined,
    confirm: async () => false,
    choose: async () => undefined,
    writeLine,
    showEarlier() {},
    outlivesInterrupt: false,
    close: () => reader.close(),
  };
}
