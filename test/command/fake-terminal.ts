import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { main, type Io } from 'treadle';
import { withoutSandboxLine } from './in-process.ts';

/** The command on a terminal that the test controls. */
export interface FakeTerminal {
  readonly exit: Promise<number>;
  type(keys: string): void;
  /** Resolves when the text is on the screen, after the text of the previous call. */
  shows(text: string): Promise<void>;
  /** Everything since the start, without control sequences. */
  screen(): string;
}

export function fakeTerminal(args: readonly string[], cwd: string, columns = 100): FakeTerminal {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const watchers = new Set<() => void>();
  let shown = '';
  let seen = 0;
  const output = Object.assign(new PassThrough().setEncoding('utf8'), { isTTY: true, columns });
  output.on('data', (text: string) => {
    shown += text;
    for (const watcher of watchers) watcher();
  });
  // Lines that the command has erased are not on the screen.
  // oxlint-disable-next-line no-control-regex
  const withoutErased = (): string => shown.replace(/[^\n]*\r\u001b\[2K/g, '');
  const screen = (): string => withoutSandboxLine(stripVTControlCharacters(withoutErased()).replaceAll('\r', ''));
  const io: Io = {
    stdin,
    stdout: output,
    stderr: output,
    env: {},
    cwd,
    onInterrupt: () => () => {},
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: () => {},
  };
  return {
    exit: main(args, io),
    type: (keys) => void stdin.write(keys),
    screen,
    shows: (text) =>
      new Promise((resolve) => {
        const watcher = (): void => {
          const at = screen().indexOf(text, seen);
          if (at < 0) return;
          seen = at + text.length;
          watchers.delete(watcher);
          resolve();
        };
        watchers.add(watcher);
        watcher();
      }),
  };
}
