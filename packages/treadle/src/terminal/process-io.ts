import type { Writable } from 'node:stream';
import { EXIT } from '../command-line/command.ts';
import type { Io } from './io.ts';

/** The signal may take a moment. */
const CONTINUED_MS = 50;

export function processIo(): Io {
  let outlivesReaders = false;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (outlivesReaders) return;
      // The reader has closed the pipe, as `| head` does.
      if (error.code === 'EPIPE') process.exit(EXIT.completed);
      if (stream === process.stdout) process.stderr.write(`treadle: The output cannot be written: ${error.message}\n`);
      process.exit(EXIT.failed);
    });
  }
  return {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    cwd: process.cwd(),
    onInterrupt: (listener) => onSignal('SIGINT', listener),
    onTerminate(listener) {
      const releases = [onSignal('SIGTERM', listener)];
      // Without a terminal, nohup may have made the process ignore SIGHUP. A listener would undo that.
      if (hasTerminal()) releases.push(onSignal('SIGHUP', listener));
      return () => releases.forEach((release) => release());
    },
    onReload: (listener) => (hasTerminal() ? () => {} : onSignal('SIGHUP', listener)),
    outliveReaders() {
      outlivesReaders = true;
    },
    quit: (code) => process.exit(code),
    runOnTerminal,
    ...(process.platform !== 'win32' && { stop }),
  };
}

async function runOnTerminal(command: string): Promise<number> {
  const { spawn } = await import('node:child_process');
  return new Promise((resolve, reject) => {
    const child = spawn(command, { stdio: 'inherit', shell: true });
    child.once('error', reject).once('exit', (code) => resolve(code ?? EXIT.failed));
  });
}

/** Timers wait while the process is stopped. It is not stopped if no shell could continue it. */
function stop(listener: () => void): void {
  process.kill(0, 'SIGTSTP');
  setTimeout(listener, CONTINUED_MS);
}

/** Then SIGHUP says that the terminal was closed. */
function hasTerminal(): boolean {
  return [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY);
}

function onSignal(signal: NodeJS.Signals, listener: () => void): () => void {
  process.on(signal, listener);
  return () => process.off(signal, listener);
}

/** Ends the process after all output is written, even if a tool that ignores its signal still runs. */
export async function exit(code: number): Promise<void> {
  await Promise.all([drained(process.stdout), drained(process.stderr)]);
  process.exit(code);
}

function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => stream.write('', () => resolve()));
}
