import { exactText as visible } from '@treadle/core/describe';

// Control characters other than tab and newline, and characters that change the writing direction.
// oxlint-disable-next-line no-control-regex
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Escapes control sequences. Text from models and files can contain sequences that move the cursor, rename the window or
 * hide a part of the call that a user is about to approve.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, (char) =>
    char === '\r' ? '' : `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/**
 * Text that a user is about to approve, with everything visible. Lines after the first are indented, so that they cannot be
 * mistaken for lines of the program.
 */
export function exactText(text: string, indent: string): string {
  return visible(text).replaceAll('\n', `\n${indent}`);
}

/** The same on one line. */
export function exactLine(text: string): string {
  return visible(text).replaceAll('\n', '\\n').replaceAll('\t', '\\t');
}

/** One line of at most `width` columns. */
export function oneLine(text: string, width: number): string {
  // Limits the work for very long texts.
  const line = printable(text.slice(0, width * 8))
    .replace(/\s+/g, ' ')
    .trim();
  const whole = text.length <= width * 8 && columnsOf(line) <= width;
  return whole ? line : `${cut(line, width - 1)}…`;
}

/** Appends spaces up to `width` columns. */
export function padded(line: string, width: number): string {
  return line + ' '.repeat(Math.max(0, width - columnsOf(line)));
}

/** Pads the cells of each column to the same width; those of column `right` are aligned to the right. */
export function alignColumns(
  rows: readonly (readonly string[])[],
  { right }: { readonly right?: number } = {},
): readonly (readonly string[])[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => columnsOf(row[column]!))));
  return rows.map((row) =>
    row.map((cell, column) => (column === right ? cell.padStart(widths[column]!) : padded(cell, widths[column]!))),
  );
}

/** The number of terminal columns that a text takes: at least as many as terminals that know joined emoji use. */
export function columnsOf(text: string): number {
  if (PLAIN.test(text)) return text.length;
  let columns = 0;
  for (const char of text) columns += WIDE.test(char) ? 2 : ZERO_WIDTH.test(char) ? 0 : 1;
  return columns;
}

function cut(text: string, width: number): string {
  let columns = 0;
  let end = 0;
  for (const char of text) {
    columns += columnsOf(char);
    if (columns > width) break;
    end += char.length;
  }
  return text.slice(0, end);
}

const PLAIN = /^[\x20-\x7e]*$/;
/** Characters that take two columns: East Asian scripts and pictographs. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}\p{Emoji_Presentation}]/u;
/** Characters that take no column of their own. */
const ZERO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}]/u;
