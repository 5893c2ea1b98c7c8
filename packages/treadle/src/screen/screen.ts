import type { Io } from '../terminal/io.ts';
import { columnsOf } from '../terminal/printable.ts';
import { clipLine, lineColumns, lineText, paintLine, type Line, type Palette } from './spans.ts';

/** What is below the settled lines and may still change. */
export interface LiveLines {
  readonly lines: readonly Line[];
  /** Where the cursor is: a line of `lines`, and the text before it on that line. Absent: it is hidden. */
  readonly cursor?: { readonly line: number; readonly before: string };
}

export interface ScreenSize {
  readonly columns: number;
  readonly rows: number;
}

/**
 * The output of a chat on a terminal. Settled lines are written once, and belong to the scrollback of the terminal from then on.
 * Below them are live lines, which are drawn again when something has changed.
 * 1. One write per frame, at most one frame in FRAME_MS, or in ECHO_MS after a key, and none while the terminal does not keep up.
 * 2. A frame never writes above the live lines, so the scrollback stays as it is.
 * 3. No line is as wide as the terminal, so the terminal wraps none, and the place of every line is known. When the terminal
 *    becomes narrower it wraps lines that were drawn before; `rowsOf` computes their new height.
 */
export interface Screen {
  size(): ScreenSize;
  /** Adds lines above the live lines. They may be wider than the terminal only by mistake, and are cut then. */
  settle(lines: readonly Line[]): void;
  /** Draws again with the next frame. */
  refresh(): void;
  /** The same, sooner: somebody has pressed a key. */
  echo(): void;
  /** Draws what is outstanding now, such as before the process ends. */
  flush(): void;
  /** Clears the terminal, but not its scrollback. */
  clear(): void;
  /** Writes bytes that show nothing, such as a title or a bell, with the next frame. */
  signal(bytes: string): void;
  /** Lets another program have the terminal until the returned function is called. */
  suspend(): () => void;
  /** Removes the live lines. Nothing is drawn afterwards. */
  close(): void;
}

const FRAME_MS = 16;
const ECHO_MS = 4;
const BEGIN = '\u001b[?2026h\u001b[?25l';
const END = '\u001b[?2026l';
const SHOW_CURSOR = '\u001b[?25h';
/**
 * Erases the line of the cursor, which is at its beginning, and all below. The rest is erased from the second column on, because
 * tmux moves the whole screen into its history if it is erased from the very first place.
 */
const ERASE_BELOW = '\u001b[K\u001b[C\u001b[J\r';

export function openScreen(
  { stdout }: Pick<Io, 'stdout'>,
  options: { readonly palette: () => Palette | undefined; readonly live: (size: ScreenSize) => LiveLines },
): Screen {
  const { palette, live } = options;
  let settled: string[] = [];
  let signals = '';
  /** What is drawn now, and the row of the cursor in it. */
  let drawn: readonly string[] = [];
  let widths: readonly number[] = [];
  let cursor = { line: 0, columns: 0 };
  let drawnColumns = 0;
  let timer: NodeJS.Timeout | undefined;
  /** When the timer is to draw. */
  let due = Infinity;
  let lastFrame = -Infinity;
  let isBlocked = false;
  let isStale = false;
  let isSuspended = false;
  let isClosed = false;

  const size = (): ScreenSize => ({ columns: Math.max(stdout.columns ?? 80, 2), rows: Math.max(stdout.rows ?? 24, 2) });

  /** How many rows the cursor is below the first live line, after the terminal has wrapped what is too wide. */
  const rowsAbove = (columns: number): number => {
    const rowsOf = (width: number): number => Math.max(1, Math.ceil(width / columns));
    const above = widths.slice(0, cursor.line).reduce((sum, width) => sum + rowsOf(width), 0);
    return above + Math.floor(Math.max(0, cursor.columns - (cursor.columns === columns ? 1 : 0)) / columns);
  };
  const toTop = (columns: number): string => {
    const up = rowsAbove(columns);
    return `${up > 0 ? `\u001b[${up}A` : ''}\r`;
  };

  const draw = (): void => {
    isStale = false;
    const { columns, rows } = size();
    const next = live({ columns, rows });
    // More would scroll away, and could not be drawn again.
    const first = Math.max(0, next.lines.length - (rows - 1));
    const lines = next.lines.slice(first).map((line) => clipLine(line, columns - 1));
    const painted = lines.map((line) => paintLine(line, palette()));
    const at = next.cursor && { ...next.cursor, line: next.cursor.line - first };
    const before = at === undefined ? '' : at.before;
    // What has not changed at the top is not drawn again.
    const isSame = settled.length === 0 && columns === drawnColumns;
    let same = 0;
    if (isSame) while (same < painted.length && same < drawn.length && painted[same] === drawn[same]) same++;
    same = Math.min(same, Math.max(0, painted.length - 1), Math.max(0, drawn.length - 1));
    const isUnchanged =
      isSame && painted.length === drawn.length && painted.every((line, index) => line === drawn[index]);
    const target = { line: at?.line ?? Math.max(0, lines.length - 1), columns: columnsOf(before) };
    if (isUnchanged && signals === '' && target.line === cursor.line && target.columns === cursor.columns) return;
    let frame = BEGIN + signals;
    if (isUnchanged) frame += moveDown(target.line - cursor.line);
    else {
      frame += isSame ? moveDown(same - cursor.line) : toTop(columns);
      frame += `\r${ERASE_BELOW}${settled.map((line) => `${line}\r\n`).join('')}${painted.slice(same).join('\r\n')}`;
      frame += moveDown(target.line - Math.max(0, painted.length - 1));
    }
    // The terminal measures the text before the cursor itself, because terminals differ in how wide emoji are.
    if (at) {
      frame += `\r${paintLine(clipLine(prefixOf(lines[at.line] ?? [], before), columns - 1), palette())}${SHOW_CURSOR}`;
    }
    settled = [];
    signals = '';
    drawn = painted;
    widths = lines.map(lineColumns);
    cursor = target;
    drawnColumns = columns;
    write(frame + END);
  };
  const write = (bytes: string): void => {
    if (stdout.write(bytes)) return;
    isBlocked = true;
    stdout.once('drain', () => {
      isBlocked = false;
      if (isStale) refresh();
    });
  };
  const drawAfter = (frameMs: number): void => {
    isStale = true;
    const next = lastFrame + frameMs;
    if (isClosed || isSuspended || isBlocked || (timer && due <= next)) return;
    clearTimeout(timer);
    due = next;
    timer = setTimeout(
      () => {
        timer = undefined;
        lastFrame = performance.now();
        if (!isClosed && !isSuspended && !isBlocked) draw();
      },
      Math.max(0, next - performance.now()),
    );
  };
  const refresh = (): void => drawAfter(FRAME_MS);
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (!isClosed && !isSuspended) draw();
  };
  const erase = (): void => {
    write(`${BEGIN}${toTop(size().columns)}${ERASE_BELOW}${SHOW_CURSOR}${END}`);
    drawn = [];
    widths = [];
    cursor = { line: 0, columns: 0 };
  };
  const onResize = (): void => refresh();
  stdout.on('resize', onResize);
  return {
    size,
    settle(lines) {
      const { columns } = size();
      for (const line of lines) settled.push(paintLine(clipLine(line, columns - 1), palette()));
      refresh();
    },
    refresh,
    echo: () => drawAfter(ECHO_MS),
    flush,
    clear() {
      write(`${BEGIN}\u001b[2J\u001b[H${END}`);
      drawn = [];
      widths = [];
      cursor = { line: 0, columns: 0 };
      refresh();
    },
    signal(bytes) {
      signals += bytes;
      refresh();
    },
    suspend() {
      flush();
      erase();
      isSuspended = true;
      return () => {
        isSuspended = false;
        refresh();
      };
    },
    close() {
      if (isClosed) return;
      flush();
      erase();
      isClosed = true;
      stdout.off('resize', onResize);
    },
  };
}

function moveDown(lines: number): string {
  if (lines === 0) return '';
  return lines > 0 ? `\u001b[${lines}B` : `\u001b[${-lines}A`;
}

/** The spans of a line that begin with `text`. */
function prefixOf(line: Line, text: string): Line {
  if (!lineText(line).startsWith(text)) return [{ text }];
  const prefix: Line[number][] = [];
  let left = text.length;
  for (const one of line) {
    if (left <= 0) break;
    prefix.push({ ...one, text: one.text.slice(0, left) });
    left -= one.text.length;
  }
  return prefix;
}
