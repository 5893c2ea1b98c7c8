import type { Io } from '../terminal/io.ts';
import type { Key } from './keys.ts';
import { clipLine, lineOf, paintLine, type Line, type Palette } from './spans.ts';

/** Lines on a screen of their own, which leaves the scrollback as it is. */
export interface Pager {
  press(key: Key): void;
  draw(): void;
}

const OPEN = '\u001b[?1049h\u001b[?25l';
const CLOSE = '\u001b[?1049l\u001b[?25h';

/** `lines`: for a width. `close` is called at q, Escape, Enter or Ctrl-C. */
export function openPager(
  { stdout }: Pick<Io, 'stdout'>,
  options: {
    readonly lines: (width: number) => readonly Line[];
    readonly palette: () => Palette | undefined;
    /** Begins with the last lines. */
    readonly atEnd?: boolean;
    readonly close: () => void;
  },
): Pager {
  let top = options.atEnd ? Number.MAX_SAFE_INTEGER : 0;
  const size = (): { columns: number; room: number } => ({
    columns: stdout.columns ?? 80,
    room: Math.max(1, (stdout.rows ?? 24) - 1),
  });
  const draw = (): void => {
    const { columns, room } = size();
    const all = options.lines(columns - 1);
    top = Math.min(Math.max(0, top), Math.max(0, all.length - room));
    const shown = all.slice(top, top + room).map((line) => paintLine(clipLine(line, columns - 1), options.palette()));
    const place = all.length <= room ? 'all' : `${top + 1} to ${Math.min(all.length, top + room)} of ${all.length}`;
    const foot = paintLine(
      clipLine(lineOf(`${place} · arrows, Space and b scroll · q closes`, 'inverse'), columns - 1),
      options.palette(),
    );
    const blank = Array.from({ length: room - shown.length }, () => '');
    stdout.write(`\u001b[?2026h\u001b[H\u001b[J${[...shown, ...blank, foot].join('\r\n')}\u001b[?2026l`);
  };
  const steps: Readonly<Record<string, () => number>> = {
    up: () => -1,
    k: () => -1,
    down: () => 1,
    j: () => 1,
    'page-up': () => -size().room,
    b: () => -size().room,
    'page-down': () => size().room,
    ' ': () => size().room,
    home: () => -Infinity,
    g: () => -Infinity,
    end: () => Number.MAX_SAFE_INTEGER,
    G: () => Number.MAX_SAFE_INTEGER,
  };
  stdout.write(OPEN);
  stdout.on('resize', draw);
  draw();
  return {
    draw,
    press(key) {
      const name = key.type === 'paste' ? '' : key.type === 'text' ? key.text : key.name;
      if (['q', 'escape', 'enter', 'ctrl-c'].includes(name)) {
        stdout.off('resize', draw);
        stdout.write(CLOSE);
        options.close();
        return;
      }
      const step = Object.hasOwn(steps, name) ? steps[name]!() : 0;
      top = step === -Infinity ? 0 : top + step;
      draw();
    },
  };
}
