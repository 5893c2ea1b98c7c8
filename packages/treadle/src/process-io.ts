import type { Writable } from 'node:stream';
import { EXIT } from './exit-code.ts';
import type { Io } from './io.ts';

export function processIo(): Io {
  // Whoever read our output has seen enough (| head): there is nobody left to tell.
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
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
    onInterrupt(listener) {
      process.on('SIGINT', listener);
      return () => process.off('SIGINT', listener);
    },
    quit: (code) => process.exit(code),
  };
}

/** Ends the process with what was written delivered, even if a tool that ignores its signal still runs. */
export async function exit(code: number): Promise<void> {
  await Promise.all([drained(process.stdout), drained(process.stderr)]);
  process.exit(code);
}

function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => stream.write('', () => resolve()));
}
