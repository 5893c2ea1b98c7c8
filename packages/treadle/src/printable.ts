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

/** One line of at most `width` characters. */
export function oneLine(text: string, width: number): string {
  // Far more than fits is not even looked at.
  const chars = [
    ...printable(text.slice(0, width * 8))
      .replace(/\s+/g, ' ')
      .trim(),
  ];
  const whole = chars.length <= width && text.length <= width * 8;
  return whole ? chars.join('') : `${chars.slice(0, width - 1).join('')}…`;
}
