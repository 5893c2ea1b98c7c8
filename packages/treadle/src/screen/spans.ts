import { columnsOf } from '../terminal/printable.ts';

/** How a piece of text looks. */
export type Style =
  | 'bold'
  | 'dim'
  | 'italic'
  | 'underline'
  | 'strikethrough'
  | 'inverse'
  | 'red'
  | 'green'
  | 'yellow'
  | 'blue'
  | 'magenta'
  | 'cyan';

/** Printable text without line breaks or tabs, in some styles. */
export interface Span {
  readonly text: string;
  readonly styles?: readonly Style[];
}

export type Line = readonly Span[];

/**
 * The colours of a terminal: `standard` are its first eight, which fit most backgrounds. Some of them cannot be read well on a
 * background that is known to be `dark` or `light`, and are replaced there.
 */
export type Palette = 'standard' | 'dark' | 'light';

/** Of the 256 colours, which are the same on all terminals. */
const REPLACED: Readonly<Record<Palette, Readonly<Partial<Record<Style, string>>>>> = {
  standard: {},
  dark: { blue: '38;5;75' },
  light: { green: '38;5;28', yellow: '38;5;130', cyan: '38;5;30' },
};

const CODES: Readonly<Record<Style, number>> = {
  bold: 1,
  dim: 2,
  italic: 3,
  underline: 4,
  inverse: 7,
  strikethrough: 9,
  red: 31,
  green: 32,
  yellow: 33,
  blue: 34,
  magenta: 35,
  cyan: 36,
};

export function span(text: string, ...styles: readonly Style[]): Span {
  return styles.length === 0 ? { text } : { text, styles };
}

export function lineOf(text: string, ...styles: readonly Style[]): Line {
  return [span(text, ...styles)];
}

export function lineText(line: Line): string {
  return line.map(({ text }) => text).join('');
}

export function lineColumns(line: Line): number {
  return line.reduce((sum, { text }) => sum + columnsOf(text), 0);
}

/** With more styles on every span. */
export function styled(line: Line, ...styles: readonly Style[]): Line {
  return line.map(({ text, styles: own = [] }) => span(text, ...own, ...styles));
}

/** The bytes for a terminal. Without a palette it has no colours. Each line resets what it sets, so lines can be drawn in any order. */
export function paintLine(line: Line, palette: Palette | undefined): string {
  let painted = '';
  for (const { text, styles = [] } of line) {
    const codes = palette ? styles.map((style) => REPLACED[palette][style] ?? CODES[style]) : [];
    painted += codes.length === 0 ? text : `\u001b[${codes.join(';')}m${text}\u001b[0m`;
  }
  return painted;
}

/** The beginning of a line, with `…` at its end if something was left out. */
export function clipLine(line: Line, width: number): Line {
  if (lineColumns(line) <= width) return line;
  const clipped: Span[] = [];
  let left = Math.max(0, width - 1);
  for (const { text, styles = [] } of line) {
    const part = startOf(text, left);
    left -= columnsOf(part);
    if (part !== '') clipped.push(span(part, ...styles));
    if (part.length < text.length) break;
  }
  return width < 1 ? [] : [...clipped, span('…', 'dim')];
}

/**
 * Breaks a line at spaces, or inside of words that are longer than a line. `indent`: the columns that further lines begin
 * with. `breaks: 'anywhere'`: spaces stay as they are, for code.
 */
export function wrapLine(
  line: Line,
  width: number,
  { indent = 0, breaks = 'spaces' }: { readonly indent?: number; readonly breaks?: 'spaces' | 'anywhere' } = {},
): readonly Line[] {
  if (lineColumns(line) <= width) return [line];
  // A very narrow terminal has no room for an indent.
  const margin = indent < width - 8 ? indent : 0;
  const lines: Span[][] = [[]];
  let used = 0;
  const current = (): Span[] => lines.at(-1)!;
  const startLine = (): void => {
    lines.push(margin === 0 ? [] : [span(' '.repeat(margin))]);
    used = margin;
  };
  const put = (text: string, styles: readonly Style[]): void => {
    if (text === '') return;
    const last = current().at(-1);
    if (last && sameStyles(last.styles, styles)) current()[current().length - 1] = span(last.text + text, ...styles);
    else current().push(span(text, ...styles));
    used += columnsOf(text);
  };
  const putLong = (word: string, styles: readonly Style[]): void => {
    for (let rest = word; rest !== '';) {
      const part = startOf(rest, width - used);
      if (part === '' && used > margin) {
        startLine();
        continue;
      }
      // A character that is wider than the terminal is drawn all the same.
      const taken = part === '' ? [...rest][0]! : part;
      put(taken, styles);
      rest = rest.slice(taken.length);
    }
  };
  for (const word of breaks === 'anywhere' ? [line] : wordsOf(line)) {
    const bare = columnsOf(lineText(word).trimEnd());
    if (used + bare > width && bare <= width - margin) {
      trimEnd(current());
      startLine();
    }
    const fits = used + bare <= width;
    for (const { text, styles = [] } of word) {
      if (fits) put(startOf(text, width - used), styles);
      else putLong(text, styles);
    }
  }
  return lines.map((one) => trimEnd(one));
}

/** The same for a text that is being written: all of its spaces stay, so that the lines together are the text. */
export function wrapText(text: string, width: number): readonly string[] {
  const lines = [''];
  for (const word of text.split(/(?<= )(?=[^ ])/)) {
    if (columnsOf(lines.at(-1)! + word) > width && lines.at(-1) !== '') lines.push('');
    for (let rest = lines.pop()! + word; ;) {
      const part = startOf(rest, width);
      // A character that is wider than the terminal is drawn all the same.
      const taken = part === '' ? ([...rest][0] ?? '') : part;
      lines.push(taken);
      rest = rest.slice(taken.length);
      if (rest === '') break;
    }
  }
  return lines;
}

/** The words of a line with the spaces after them. A word may have several styles. */
function wordsOf(line: Line): readonly Line[] {
  const words: Span[][] = [];
  let isOpen = false;
  for (const { text, styles = [] } of line) {
    for (const part of text.split(/(?<= )(?=[^ ])/)) {
      if (isOpen && !(part.startsWith(' ') && part.trim() !== '')) words.at(-1)!.push(span(part, ...styles));
      else words.push([span(part, ...styles)]);
      isOpen = !part.endsWith(' ');
    }
  }
  return words;
}

function trimEnd(line: Span[]): Span[] {
  const last = line.at(-1);
  if (last && line.length > 1 && last.text.endsWith(' ')) {
    line[line.length - 1] = span(last.text.trimEnd(), ...(last.styles ?? []));
  }
  return line;
}

function sameStyles(a: readonly Style[] = [], b: readonly Style[] = []): boolean {
  return a.length === b.length && a.every((style, index) => style === b[index]);
}

/** As much of the beginning of a text as fits. */
function startOf(text: string, width: number): string {
  if (text.length <= width && columnsOf(text) <= width) return text;
  let columns = 0;
  let end = 0;
  for (const char of text) {
    columns += columnsOf(char);
    if (columns > width) break;
    end += char.length;
  }
  return text.slice(0, end);
}

/** The styles that a code ends. */
const ENDS: Readonly<Record<number, (style: Style) => boolean>> = {
  0: () => true,
  22: (style) => style === 'bold' || style === 'dim',
  23: (style) => style === 'italic',
  24: (style) => style === 'underline',
  27: (style) => style === 'inverse',
  29: (style) => style === 'strikethrough',
  39: (style) => CODES[style] > 29,
};
const STYLES = new Map(Object.entries(CODES).map(([style, code]) => [code, style as Style]));

/** A line of the program that was painted for a terminal. */
export function lineFromAnsi(text: string): Line {
  const spans: Span[] = [];
  let styles: readonly Style[] = [];
  // oxlint-disable-next-line no-control-regex
  for (const [piece, codes] of text.matchAll(/\u001b\[([0-9;]*)m|[^\u001b]+|\u001b/g)) {
    if (codes === undefined) {
      if (piece !== '\u001b') spans.push(span(piece, ...styles));
      continue;
    }
    for (const code of codes.split(';').map(Number)) {
      const style = STYLES.get(code);
      const ends = ENDS[code];
      if (ends) styles = styles.filter((one) => !ends(one));
      else if (style) styles = [...styles, style];
    }
  }
  return spans;
}
