import { createInterface } from 'node:readline';
import type { AskedApproval, Decision } from '../run/drive-run.ts';
import type { Interrupt } from './signals.ts';
import type { Io } from './io.ts';
import { printable } from './printable.ts';

/** Asks on the terminal, leaving standard output alone. Nothing comes back at Ctrl-C and Ctrl-D. */
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

/** Where a person is asked. */
export interface Asking {
  say(line: string): void;
  /** What they answer in one line; nothing at Ctrl-C and Ctrl-D. */
  ask(prompt: string): Promise<string | undefined>;
}

/** Shows the call as it will run, with its exact arguments, and asks until it is yes or no. No answer is no. */
export async function askApproval({ call, reason }: AskedApproval, { say, ask }: Asking): Promise<Decision> {
  say(`${call.name} wants to run with ${printable(call.arguments)}`);
  if (reason) say(`(${printable(reason)})`);
  for (let prompt = 'Allow it? [y/N] '; ; prompt = 'Please say y or n: ') {
    const answer = (await ask(prompt))?.trim().toLowerCase();
    if (answer === 'y' || answer === 'yes') return { approved: true };
    if (!answer || answer === 'n' || answer === 'no') return { approved: false, reason: 'The user said no.' };
  }
}
