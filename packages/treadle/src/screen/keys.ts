import { StringDecoder } from 'node:string_decoder';
import type { Io } from '../terminal/io.ts';
import { beginningAtEnd, PASTE_END as END, PASTE_START as START } from '../terminal/paste.ts';

/** What a person does on the keyboard. `name`: as in `ctrl-c`, `alt-enter`, `up`, `escape`. */
export type Key =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'key'; readonly name: string }
  | { readonly type: 'paste'; readonly text: string };

const ESC = '\u001b';
/** A terminal sends a sequence at once. What has not become one by then is the Escape key. */
const ESCAPE_MS = 50;
/** What was typed before the keys were read arrives at once. */
const EARLY_MS = 100;

const CONTROLS: Readonly<Record<string, string>> = {
  '\r': 'enter',
  '\n': 'ctrl-j',
  '\t': 'tab',
  '\b': 'backspace',
  '\u007f': 'backspace',
  '\u0000': 'ctrl-space',
  '\u001f': 'ctrl-_',
  [ESC]: 'escape',
};

/** The ends of `ESC [` and `ESC O` sequences. */
const FINALS: Readonly<Record<string, string>> = {
  A: 'up',
  B: 'down',
  C: 'right',
  D: 'left',
  F: 'end',
  H: 'home',
  M: 'enter',
  Z: 'shift-tab',
};
const NUMBERS: Readonly<Record<string, string>> = {
  '1': 'home',
  '3': 'delete',
  '4': 'end',
  '5': 'page-up',
  '6': 'page-down',
  '7': 'home',
  '8': 'end',
};
/** What terminals with extended keyboard protocols send instead of a control character. */
const CODE_POINTS: Readonly<Record<string, string>> = { '9': 'tab', '13': 'enter', '27': 'escape', '127': 'backspace' };

/** `ESC [ numbers final`, or `ESC O final`. */
// oxlint-disable-next-line no-control-regex
const SEQUENCE = /^\u001b(?:\[([0-9;:<>?]*)([A-Za-z~^$@])|O([A-Za-z]))/;
/** The answer to `BACKGROUND_QUERY`. */
// oxlint-disable-next-line no-control-regex
const BACKGROUND = /^\u001b\]11;([^\u0007\u001b]*)(?:\u0007|\u001b\\)/;
/** The beginning of such an answer. On a slow line the rest may come later than that of a key. */
// oxlint-disable-next-line no-control-regex
const BACKGROUND_BEGUN = /^\u001b\]11;[^\u0007\u001b]{0,60}\u001b?$/;
/** A sequence that may become complete with the next chunk. */
// oxlint-disable-next-line no-control-regex
const INCOMPLETE = /^\u001b(?:\[[0-9;:<>?]*|O|\]1?1?)?$/;

/** Asks the terminal for the colour of its background. Those that do not know it answer nothing. */
export const BACKGROUND_QUERY: string = `${ESC}]11;?\u0007`;

/** Text without control characters is one key however long it is, and so is a pasted text. */
export interface KeyDecoder {
  feed(text: string): readonly Key[];
  /** What is left is not the beginning of a sequence. */
  flush(): readonly Key[];
  readonly isWaiting: boolean;
}

export function keyDecoder(onBackground: (isLight: boolean) => void = () => {}): KeyDecoder {
  let held = '';
  /** The pieces of the text that is being pasted; undefined: outside of one. */
  let pasted: string[] | undefined;
  const feed = (text: string): readonly Key[] => {
    const keys: Key[] = [];
    let rest = held + text;
    held = '';
    while (rest !== '') {
      if (pasted) {
        const at = rest.indexOf(END);
        if (at < 0) {
          held = beginningAtEnd(rest, END);
          pasted.push(rest.slice(0, rest.length - held.length));
          break;
        }
        pasted.push(rest.slice(0, at));
        keys.push({ type: 'paste', text: pasted.join('').replaceAll(/\r\n?/g, '\n') });
        pasted = undefined;
        rest = rest.slice(at + END.length);
        continue;
      }
      if (rest.startsWith(START)) {
        pasted = [];
        rest = rest.slice(START.length);
        continue;
      }
      // oxlint-disable-next-line no-control-regex
      const [plain = ''] = /^[^\u0000-\u001f\u007f]*/.exec(rest)!;
      if (plain !== '') {
        keys.push({ type: 'text', text: plain });
        rest = rest.slice(plain.length);
        continue;
      }
      const background = BACKGROUND.exec(rest);
      if (background) {
        const light = isLight(background[1]!);
        if (light !== undefined) onBackground(light);
        rest = rest.slice(background[0].length);
        continue;
      }
      if (INCOMPLETE.test(rest) || BACKGROUND_BEGUN.test(rest)) {
        held = rest;
        break;
      }
      const { length, name } = keyAt(rest);
      if (name !== undefined) keys.push({ type: 'key', name });
      rest = rest.slice(length);
    }
    return keys;
  };
  return {
    feed,
    flush() {
      if (pasted || BACKGROUND_BEGUN.test(held)) return [];
      const keys: Key[] = [];
      for (let rest = held; rest !== '';) {
        const [char = ''] = rest;
        if (char < ' ') keys.push({ type: 'key', name: nameOf(char) });
        else keys.push({ type: 'text', text: char });
        rest = rest.slice(char.length);
      }
      held = '';
      return keys;
    },
    get isWaiting() {
      return held !== '' && pasted === undefined;
    },
  };
}

/** Whether a colour such as `rgb:ffff/ffff/ffff` is light. Undefined: it is not a colour. */
function isLight(colour: string): boolean | undefined {
  const [, ...parts] = /^rgba?:([0-9a-f]{1,4})\/([0-9a-f]{1,4})\/([0-9a-f]{1,4})/i.exec(colour) ?? [];
  if (parts.length !== 3) return undefined;
  const [red, green, blue] = parts.map((part) => parseInt(part, 16) / (16 ** part.length - 1));
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue! > 0.5;
}

/** The key at the beginning of a text that begins with a control character. Without a name: an unknown sequence. */
function keyAt(text: string): { readonly length: number; readonly name?: string } {
  const [char = '', next = ''] = text;
  if (char !== ESC) return { length: char.length, name: nameOf(char) };
  const sequence = SEQUENCE.exec(text);
  if (sequence) {
    const [all, numbers = '', final = '', single] = sequence;
    const name = single === undefined ? sequenceName(numbers.split(';'), final) : FINALS[single];
    return { length: all.length, ...(name !== undefined && { name }) };
  }
  // Alt and a key, or Escape twice.
  if (next === ESC) return { length: 1, name: 'escape' };
  if (next === '[' || next === 'O') return { length: 2 };
  const { name = next } = next < ' ' || next === '\u007f' ? { name: nameOf(next) } : {};
  return { length: 1 + next.length, name: `alt-${name}` };
}

function nameOf(char: string): string {
  return CONTROLS[char] ?? `ctrl-${String.fromCharCode(char.charCodeAt(0) + 96)}`;
}

function sequenceName(numbers: readonly string[], final: string): string | undefined {
  const [first = '', modifier = '1', third = ''] = numbers.map((number) => number.split(':')[0]!);
  if (final === '~' && first === '27') return modified(codePointName(third), modifier);
  if (final === '~') return modified(NUMBERS[first], modifier);
  if (final === 'u') return modified(codePointName(first), modifier);
  return modified(FINALS[final], modifier);
}

function codePointName(code: string): string | undefined {
  const point = Number(code);
  return CODE_POINTS[code] ?? (point > 32 && point < 127 ? String.fromCharCode(point) : undefined);
}

function modified(name: string | undefined, modifier: string): string | undefined {
  if (name === undefined) return undefined;
  const bits = Number(modifier || '1') - 1;
  const prefix = `${bits & 4 ? 'ctrl-' : ''}${bits & 2 ? 'alt-' : ''}${bits & 1 ? 'shift-' : ''}`;
  return prefix + name;
}

/** Reads the keys of a terminal until `close`. `pause` lets another program read them. */
export interface Keyboard {
  pause(): () => void;
  close(): void;
}

export function openKeyboard(
  stdin: Io['stdin'],
  {
    onKey,
    onEnd,
    onBackground,
  }: {
    readonly onKey: (key: Key) => void;
    readonly onEnd: () => void;
    readonly onBackground?: (isLight: boolean) => void;
  },
): Keyboard {
  const terminal = stdin as Io['stdin'] & { readonly setRawMode?: (on: boolean) => unknown };
  const bytes = new StringDecoder('utf8');
  const decoder = keyDecoder(onBackground);
  let timer: NodeJS.Timeout | undefined;
  let isOpen = true;
  /** Keys that were pressed before the terminal was raw may arrive. It has made line breaks of Enter then. */
  let isEarly = false;
  let earlyTimer: NodeJS.Timeout | undefined;
  const take = (keys: readonly Key[]): void => {
    for (const key of keys) if (isOpen) onKey(key);
  };
  const onData = (chunk: Buffer | string): void => {
    clearTimeout(timer);
    const text = typeof chunk === 'string' ? chunk : bytes.write(chunk);
    take(decoder.feed(isEarly ? text.replaceAll('\n', '\r') : text));
    isEarly = false;
    if (decoder.isWaiting) timer = setTimeout(() => take(decoder.flush()), ESCAPE_MS);
  };
  const listen = (): void => {
    isEarly = terminal.setRawMode !== undefined;
    earlyTimer = setTimeout(() => {
      isEarly = false;
    }, EARLY_MS);
    terminal.setRawMode?.(true);
    stdin.on('data', onData).resume();
  };
  const ignore = (): void => {
    clearTimeout(timer);
    clearTimeout(earlyTimer);
    stdin.off('data', onData).pause();
    terminal.setRawMode?.(false);
  };
  stdin.on('end', onEnd).on('close', onEnd);
  listen();
  return {
    pause() {
      ignore();
      return () => {
        if (isOpen) listen();
      };
    },
    close() {
      if (!isOpen) return;
      isOpen = false;
      ignore();
      stdin.off('end', onEnd).off('close', onEnd);
    },
  };
}
