// Control characters other than tab and newline, and those that change the direction of writing.
// oxlint-disable-next-line no-control-regex
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Makes visible what a terminal would obey. Models and files can say anything, also the sequences that move the cursor,
 * rename the window or hide half of what somebody is about to approve.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, (char) =>
    char === '\r' ? '' : `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** One line of at most `width` columns. */
export function oneLine(text: string, width: number): string {
  // Far more than fits is not even looked at.
  const line = printable(text.slice(0, width * 8))
    .replace(/\s+/g, ' ')
    .trim();
  const whole = text.length <= width * 8 && columnsOf(line) <= width;
  return whole ? line : `${cut(line, width - 1)}…`;
}

/** With spaces up to that many columns. */
export function padded(line: string, width: number): string {
  return line + ' '.repeat(Math.max(0, width - columnsOf(line)));
}

/** How many columns of a terminal it takes. */
function columnsOf(text: string): number {
  let columns = 0;
  for (const char of text) columns += WIDE.test(char) ? 2 : NARROWEST.test(char) ? 0 : 1;
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

/** What terminals show two columns wide: East Asian writing and pictures. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
/** What joins the character before it. */
const NARROWEST = /[\p{Mn}\p{Me}\p{Cf}]/u;
