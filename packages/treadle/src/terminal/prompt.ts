import { createInterface } from 'node:readline';
import type { Io } from './io.ts';
import type { Interrupt } from './signals.ts';

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
