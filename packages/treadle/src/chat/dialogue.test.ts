import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Io } from '../terminal/io.ts';
import { pipedDialogue } from './dialogue.ts';

const RED = '\u001b[31mred';

/** What reaches standard output of an answer with an escape sequence. */
function shown(isTTY: boolean): string {
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
  dialogue.writeText(RED);
  dialogue.close();
  return String(stdout.read());
}

test('a terminal is shown what it would obey, a file gets it as it is', () => {
  expect(shown(true)).toBe('\\u001b[31mred');
  expect(shown(false)).toBe(RED);
});
