import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { spawn } from '@lydell/node-pty';
import headless from '@xterm/headless';
import { main, type Io } from 'treadle';
import { PROCESS_ENV } from '../process-env.ts';

const { Terminal } = headless;

/** Characters of a line that look the same. `colour`: a number of the palette, absent for the default. */
export interface Run {
  readonly text: string;
  readonly columns: number;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly inverse: boolean;
  readonly colour?: number;
}

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** What a person sees: a terminal emulator that the command writes to. */
export interface EmulatedScreen {
  /** The lines on the screen, without spaces at their ends. */
  screen(): string;
  /** The lines on the screen and above it, up to the last one with text. */
  all(): string;
  /** Resolves when the screen, or what has scrolled away, has the text. */
  shows(text: string | RegExp): Promise<void>;
  /** Resolves when it is not there any more. */
  hides(text: string): Promise<void>;
  /** Where the cursor is, from 0. */
  cursor(): { readonly column: number; readonly row: number };
  /** The styles of the first occurrence of a text: `bold`, `dim`, `italic`, `inverse`, and the number of its colour. */
  styleOf(text: string): readonly string[];
  /** The lines of `all` with their styles. */
  runs(): readonly (readonly Run[])[];
  /** Titles and bells so far. */
  readonly titles: readonly string[];
  bells(): number;
  /** How often everything was erased from the very first place of the screen: tmux then moves the screen into its history. */
  erasedAll(): number;
}

interface Emulator extends EmulatedScreen {
  feed(data: string): void;
  resize(size: Size): void;
  /** What the emulator answers to questions of the command. */
  onAnswer(listener: (data: string) => void): void;
}

function emulator({ columns, rows }: Size): Emulator {
  const terminal = new Terminal({ cols: columns, rows, scrollback: 100_000, allowProposedApi: true });
  const watchers = new Set<() => void>();
  const titles: string[] = [];
  let bells = 0;
  let erasedAll = 0;
  terminal.parser.registerCsiHandler({ final: 'J' }, ([what]) => {
    const { cursorX, cursorY, type } = terminal.buffer.active;
    if (what === 0 && cursorX === 0 && cursorY === 0 && type === 'normal') erasedAll++;
    return false;
  });
  terminal.onTitleChange((title) => titles.push(title));
  terminal.onBell(() => void bells++);
  const { buffer } = terminal;
  const lines = (from: number): string[] =>
    Array.from({ length: buffer.active.length - from }, (_, row) =>
      (buffer.active.getLine(from + row)?.translateToString(true) ?? '').trimEnd(),
    );
  const all = (): string => lines(0).join('\n').trimEnd();
  const has = (text: string | RegExp): boolean => (typeof text === 'string' ? all().includes(text) : text.test(all()));
  const when = (check: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const watcher = (): void => {
        if (!check()) return;
        watchers.delete(watcher);
        resolve();
      };
      watchers.add(watcher);
      watcher();
    });
  const runsOf = (row: number): readonly Run[] => {
    const line = buffer.active.getLine(row)!;
    const runs: Run[] = [];
    for (let column = 0; column < line.translateToString(true).length; column++) {
      const cell = line.getCell(column)!;
      const columns = cell.getWidth();
      // The second half of a wide character.
      if (columns === 0) continue;
      const look = {
        bold: Boolean(cell.isBold()),
        dim: Boolean(cell.isDim()),
        italic: Boolean(cell.isItalic()),
        inverse: Boolean(cell.isInverse()),
        ...(!cell.isFgDefault() && { colour: cell.getFgColor() }),
      };
      const text = cell.getChars() || ' ';
      const last = runs.at(-1);
      if (last && isDeepStrictEqual({ ...last, text: '', columns: 0 }, { ...look, text: '', columns: 0 }))
        runs[runs.length - 1] = { ...last, text: last.text + text, columns: last.columns + columns };
      else runs.push({ text, columns, ...look });
    }
    return runs;
  };
  return {
    feed: (data) =>
      terminal.write(data, () => {
        for (const watcher of watchers) watcher();
      }),
    resize: (size) => terminal.resize(size.columns, size.rows),
    onAnswer: (listener) => void terminal.onData(listener),
    screen: () => lines(buffer.active.baseY).join('\n').trimEnd(),
    all,
    shows: (text) => when(() => has(text)),
    hides: (text) => when(() => !has(text)),
    cursor: () => ({ column: buffer.active.cursorX, row: buffer.active.cursorY }),
    styleOf(text) {
      for (let row = 0; row < buffer.active.length; row++) {
        const line = buffer.active.getLine(row)!;
        const column = line.translateToString(true).indexOf(text);
        const cell = column < 0 ? undefined : line.getCell(column);
        if (!cell) continue;
        return [
          ...(cell.isBold() ? ['bold'] : []),
          ...(cell.isDim() ? ['dim'] : []),
          ...(cell.isItalic() ? ['italic'] : []),
          ...(cell.isInverse() ? ['inverse'] : []),
          ...(cell.isFgDefault() ? [] : [String(cell.getFgColor())]),
        ];
      }
      throw new Error(`${text} is not on the screen:\n${all()}`);
    },
    runs: () =>
      all()
        .split('\n')
        .map((_, row) => runsOf(row)),
    titles,
    bells: () => bells,
    erasedAll: () => erasedAll,
  };
}

export interface CommandOnScreen extends EmulatedScreen {
  readonly exit: Promise<number>;
  type(keys: string): void;
  resize(size: Size): void;
}

const SIZE: Size = { columns: 80, rows: 24 };

export interface CommandInProcess extends CommandOnScreen {
  /** The terminal takes nothing until the returned function is called, as over a slow line. */
  stall(): () => void;
  /** The characters that were written so far. */
  written(): number;
}

/** The command in this process, on an emulated terminal. */
export function onScreen(
  args: readonly string[],
  cwd: string,
  options: { readonly size?: Size; readonly env?: Record<string, string>; readonly io?: Partial<Io> } = {},
): CommandInProcess {
  const { size = SIZE, env = {} } = options;
  const emulated = emulator(size);
  let written = 0;
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const stdout = Object.assign(new PassThrough().setEncoding('utf8'), { isTTY: true, ...size });
  // The line discipline of a terminal starts each line at the left.
  stdout.on('data', (text: string) => {
    written += text.length;
    emulated.feed(text.replaceAll(/(?<!\r)\n/g, '\r\n'));
  });
  const io: Io = {
    stdin,
    stdout,
    stderr: stdout,
    env,
    cwd,
    onInterrupt: () => () => {},
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: () => {},
    ...options.io,
  };
  return {
    ...emulated,
    exit: main(args, io),
    type: (keys) => void stdin.write(keys),
    written: () => written,
    stall() {
      stdout.pause();
      return () => void stdout.resume();
    },
    resize(next) {
      emulated.resize(next);
      Object.assign(stdout, next);
      stdout.emit('resize');
    },
  };
}

const MAIN = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));

export interface CommandInPty extends CommandOnScreen {
  readonly pid: number;
  /** Resolves when the command writes a text. */
  writes(text: string): Promise<void>;
  kill(signal: NodeJS.Signals): void;
}

const running = new Set<{ kill(signal?: string): void }>();

const FROM_SOURCE = ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning', MAIN];

/** The command in a process of its own, on a real pseudoterminal. `program`: arguments of Node; default: from source. */
export function inPty(
  args: readonly string[],
  cwd: string,
  options: { readonly size?: Size; readonly env?: Record<string, string>; readonly program?: readonly string[] } = {},
): CommandInPty {
  const { size = SIZE, env = {}, program = FROM_SOURCE } = options;
  const emulated = emulator(size);
  const pty = spawn(process.execPath, [...program, ...args], {
    cwd,
    cols: size.columns,
    rows: size.rows,
    name: 'xterm-256color',
    env: { ...PROCESS_ENV, ...env },
  });
  running.add(pty);
  const written = new Set<(data: string) => void>();
  pty.onData((data) => {
    for (const listener of written) listener(data);
    emulated.feed(data);
  });
  emulated.onAnswer((data) => pty.write(data));
  const exit = new Promise<number>((resolve) => {
    pty.onExit(({ exitCode, signal }) => {
      running.delete(pty);
      resolve(signal ? 128 + signal : exitCode);
    });
  });
  return {
    ...emulated,
    exit,
    type: (keys) => pty.write(keys),
    resize(next) {
      emulated.resize(next);
      pty.resize(next.columns, next.rows);
    },
    kill: (signal) => pty.kill(signal),
    pid: pty.pid,
    writes: (text) =>
      new Promise((resolve) => {
        const listener = (data: string): void => {
          if (!data.includes(text)) return;
          written.delete(listener);
          resolve();
        };
        written.add(listener);
      }),
  };
}

/** For `afterEach`: ends the processes that a failed test has left running. */
export function stopPtys(): void {
  for (const pty of running) pty.kill('SIGKILL');
}
