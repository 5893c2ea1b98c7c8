import { hash } from 'node:crypto';

/*
 * Long strings in JSON, which are stored elsewhere. In their place there is a reference to each, between two marks. JSON does not
 * contain the mark, because it escapes control characters. So JSON without references is stored as it is.
 */

/** A shorter string stays where it is: a row would need about 100 bytes, and more time. */
export const MIN_CHARS = 512;

const MARK = '\u0001';

/** Replaces each long string, as it is escaped in JSON, by the reference that `store` returns. */
export function takeOutStrings(json: string, store: (text: string) => string): string {
  if (json.length < MIN_CHARS) return json;
  let stored = '';
  let copied = 0;
  for (let start = json.indexOf('"') + 1; start > 0;) {
    const end = stringEnd(json, start);
    if (end - start >= MIN_CHARS) {
      stored += `${json.slice(copied, start)}${MARK}${store(json.slice(start, end))}${MARK}`;
      copied = end;
    }
    start = json.indexOf('"', end + 1) + 1;
  }
  return copied === 0 ? json : stored + json.slice(copied);
}

/** The JSON that `takeOutStrings` was called with, if `find` finds the same strings. */
export function putBackStrings(stored: string, find: (reference: string) => string): string {
  if (!stored.includes(MARK)) return stored;
  const parts = stored.split(MARK);
  for (let index = 1; index < parts.length; index += 2) parts[index] = find(parts[index]!);
  return parts.join('');
}

export function referencesIn(stored: string): readonly string[] {
  return stored.includes(MARK) ? stored.split(MARK).filter((_, index) => index % 2 === 1) : [];
}

export function stringDigest(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}

/** The position of the quote that ends the string which starts at `start`. */
function stringEnd(json: string, start: number): number {
  let end = json.indexOf('"', start);
  while (isEscaped(json, end)) end = json.indexOf('"', end + 1);
  return end;
}

function isEscaped(json: string, at: number): boolean {
  let first = at;
  while (json[first - 1] === '\\') first--;
  return (at - first) % 2 === 1;
}
