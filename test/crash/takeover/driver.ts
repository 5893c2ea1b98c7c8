import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { PROCESS_ENV } from '../../process-env.ts';
import type { ProgramOptions } from './program.ts';

/** A process that drives the run, or tries to. */
export interface Driver extends AsyncDisposable {
  readonly lines: readonly string[];
  /** Resolves when the process has printed a line that starts with this text. Rejects if it ends without. */
  readonly prints: (start: string) => Promise<void>;
  readonly signal: (signal: NodeJS.Signals) => void;
  /** Lets a tool continue that waits for a message. */
  readonly send: () => void;
  /** Resolves to the printed lines when the process has ended. */
  readonly ended: Promise<readonly string[]>;
}

export interface DriverOptions extends ProgramOptions {
  /** Its clock is 60 seconds ahead. */
  readonly ahead?: boolean;
  /** The name of the host is another one for it. */
  readonly renamed?: boolean;
}

export function startDriver({ ahead = false, renamed = false, ...options }: DriverOptions): Driver {
  const url = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
  const preload = [
    ...(ahead ? ['--import', new URL('./ahead.ts', import.meta.url).href] : []),
    ...(renamed ? ['--import', new URL('./renamed.ts', import.meta.url).href] : []),
  ];
  const child = fork(url('./program.ts'), [JSON.stringify(options)], {
    execArgv: ['--conditions=treadle-source', ...preload],
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: PROCESS_ENV,
  });
  const lines: string[] = [];
  const waiting = new Set<() => void>();
  let errors = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (errors += text));
  createInterface({ input: child.stdout! }).on('line', (line) => {
    lines.push(line);
    for (const look of waiting) look();
  });
  const closed = once(child, 'close');
  const hasPrinted = (start: string): boolean => lines.some((line) => line.startsWith(start));
  const ended = closed.then(() => {
    if (hasPrinted('end ')) return lines;
    throw new Error(`The process ended after "${lines.at(-1)}":\n${errors}`);
  });
  ended.catch(() => {});
  return {
    lines,
    async prints(start) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const look = (): void => {
        if (hasPrinted(start)) resolve();
      };
      waiting.add(look);
      look();
      await Promise.race([promise, ended]);
      if (!hasPrinted(start)) throw new Error(`The process ended without "${start}": ${lines.join(', ')}`);
    },
    signal: (signal) => void child.kill(signal),
    // A process whose tool was aborted may end before the message arrives. With a callback, that is not an error.
    send: () => void child.send('go', () => {}),
    ended,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await closed;
    },
  };
}
