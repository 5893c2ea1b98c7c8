/** Below the limit of the loop for a result, so that the notes at the end are not cut off. */
const MAX_CHARS = 12_000;

/** The lines of a result, with a limit of lines and characters. */
export interface Listing {
  readonly length: number;
  /** Returns false if the listing is full; the line is not added then. */
  add(line: string): boolean;
  /** The lines, followed by notes about what is missing. */
  text(notes: readonly string[]): string;
}

export function listing(maxLines: number): Listing {
  const lines: string[] = [];
  let chars = 0;
  return {
    get length() {
      return lines.length;
    },
    add(line) {
      if (lines.length === maxLines || (lines.length > 0 && chars + line.length > MAX_CHARS)) return false;
      lines.push(line);
      chars += line.length + 1;
      return true;
    },
    text: (notes) => [...lines, ...notes.map((note) => `[${note}]`)].join('\n'),
  };
}

/** For searches that stopped at their limit. */
export const CUT_NOTE = 'the folder has too many files to look at all of them: give the path of a subfolder';

export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** How many lines a text has. A newline at its end starts no other line. */
export function linesIn(text: string): number {
  return text === '' ? 0 : text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
}

/** A name for one line of a result: quoted if it has line ends or other control characters. */
export function shownName(name: string): string {
  return /[\p{Cc}\u2028\u2029]/u.test(name) ? JSON.stringify(name) : name;
}
