import type { Io } from './io.ts';
import { oneLine } from './printable.ts';
import { durationText } from './quantities.ts';

/**
 * One line at the bottom of a terminal: what the command waits for, and for how long. It is drawn on an empty line only, and
 * leaves no traces: whoever writes something else removes it first, with `clear` or `hide`.
 */
export interface StatusLine {
  /** Shows what the command waits for. The same again does not restart the clock. */
  show(what: string): void;
  /** Adds what the running tool reports, until the next `show` of something else. */
  detail(text: string): void;
  /** Removes the line until it is drawn again. */
  clear(): void;
  /** Removes the line until `show`. */
  hide(): void;
}

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;
const ERASE_LINE = '\r\u001b[2K';

/** On standard error. Without a terminal that can remove lines, and with NO_COLOR, nothing is shown. */
export function statusLine({ stderr, env }: Pick<Io, 'stderr' | 'env'>): StatusLine {
  if (!stderr.isTTY || env['NO_COLOR'] || env['TERM'] === 'dumb') return NO_STATUS;
  let what: string | undefined;
  let detail = '';
  let since = 0;
  let drawn = false;
  let frame = 0;
  let timer: NodeJS.Timeout | undefined;
  const clear = (): void => {
    if (drawn) stderr.write(ERASE_LINE);
    drawn = false;
  };
  const draw = (): void => {
    const seconds = Math.floor((Date.now() - since) / 1_000);
    const elapsed = seconds < 60 ? `${seconds} s` : durationText(seconds * 1_000);
    const rest = detail === '' ? '' : ` | ${detail}`;
    // A line of the full width would wrap on some terminals.
    const line = oneLine(`${FRAMES[frame++ % FRAMES.length]} ${what} ${elapsed}${rest}`, (stderr.columns ?? 80) - 1);
    stderr.write(`${ERASE_LINE}${line}`);
    drawn = true;
  };
  return {
    show(text) {
      if (text === what) return;
      what = text;
      detail = '';
      since = Date.now();
      timer ??= setInterval(draw, FRAME_MS).unref();
    },
    detail(text) {
      detail = text;
    },
    clear,
    hide() {
      clear();
      what = undefined;
      clearInterval(timer);
      timer = undefined;
    },
  };
}

export const NO_STATUS: StatusLine = { show() {}, detail() {}, clear() {}, hide() {} };
