import { createInterface } from 'node:readline';
import { CommandError } from '../command-line/command.ts';
import type { Io } from './io.ts';
import { catchInterrupt, type Interrupt } from './signals.ts';

/** Asks on the terminal through standard error. Resolves with undefined at Ctrl-C and Ctrl-D. */
export function askLine(io: Io, interrupt: Interrupt, prompt: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const reader = createInterface({ input: io.stdin, output: io.stderr, terminal: true, historySize: 0 });
    const close = (): void => reader.close();
    interrupt.signal.addEventListener('abort', close);
    reader.on('SIGINT', () => {
      io.stderr.write('\n');
      interrupt.press();
    });
    reader.on('close', () => {
      interrupt.signal.removeEventListener('abort', close);
      resolve(undefined);
    });
    reader.question(prompt, (answer) => {
      resolve(answer);
      reader.close();
    });
  });
}

/** Whether a person says yes to deleting what the lines name. Throws without a terminal. */
export async function confirmOnTerminal(io: Io, lines: readonly string[], question: string): Promise<boolean> {
  if (!io.stdin.isTTY || !io.stderr.isTTY) {
    throw new CommandError('There is no terminal to confirm this on. Add --yes to delete without confirmation.');
  }
  for (const line of lines) io.stderr.write(`${line}\n`);
  const interrupt = catchInterrupt(io);
  try {
    const answer = await askLine(io, interrupt, `${question} [y/N] `);
    return /^\s*y(es)?\s*$/i.test(answer ?? '');
  } finally {
    interrupt.release();
  }
}
