import type { Writable } from 'node:stream';
import { EXIT } from '../command-line/command.ts';
import type { Io } from './io.ts';

export function processIo(): Io {
  let outlivesReaders = false;
  // Whoever read our output has seen enough (| head): there is nobody left to tell.
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (outlivesReaders) return;
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
    onInterrupt: (listener) => heed('SIGINT', listener),
    onTerminate: (listener) => heed('SIGTERM', listener),
    outliveReaders() {
      outlivesReaders = true;
    },
    quit: (code) => process.exit(code),
  };
}

function heed(signal: NodeJS.Signals, listener: () => void): () => void {
  process.on(signal, listener);
  return () => process.off(signal, listener);
}

/** Ends the process with what was written delivered, even if a tool that ignores its signal still runs. */
export async function exit(code: number): Promise<void> {
  await Promise.all([drained(process.stdout), drained(process.stderr)]);
  process.exit(code);
}

function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => stream.write('', () => resolve()));
}
