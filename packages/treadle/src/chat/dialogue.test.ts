import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Io } from '../terminal/io.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { pipedDialogue } from './dialogue.ts';

const RED = '\u001b[31mred';

/** What is written to standard output for an answer with an escape sequence. */
function written(isTTY: boolean): string {
  const stdout = Object.assign(new PassThrough(), { isTTY });
  const io: Io = {
    stdin: new PassThrough(),
    stdout,
    stderr: new PassThrough(),
    env: {},
    cwd: '.',
    onInterrupt: () => () => {},
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: () => {},
  };
  const dialogue = pipedDialogue(io);
  const interrupt = catchInterrupt(io);
  dialogue.startRun({ interrupt, steer: () => {} }).onItem({ type: 'text-delta', text: RED });
  dialogue.close();
  return String(stdout.read());
}

test('escapes control sequences for a terminal, but not for a file', () => {
  expect(written(true)).toBe('\\u001b[31mred');
  expect(written(false)).toBe(RED);
});
