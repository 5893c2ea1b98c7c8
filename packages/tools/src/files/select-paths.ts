import { globPattern } from './glob-pattern.ts';

/** A job for a worker thread, because there may be very many paths. */

export interface PathSelection {
  /** Each path ends with a NUL byte; `./` before it does not count. */
  readonly paths: Uint8Array;
  /** All of them have to match. */
  readonly patterns: readonly string[];
}

/** The paths that match, sorted, each followed by a NUL character. */
export function selectPaths({ paths, patterns }: PathSelection): string {
  const globs = patterns.map((pattern) => globPattern(pattern));
  const selected: string[] = [];
  const text = Buffer.from(paths.buffer, paths.byteOffset, paths.byteLength).toString();
  for (let from = 0, end = text.indexOf('\0'); end >= 0; from = end + 1, end = text.indexOf('\0', from)) {
    const path = text.slice(text.startsWith('./', from) ? from + 2 : from, end);
    if (globs.every((glob) => glob.matches(path))) selected.push(path);
  }
  return selected.sort().join('\0');
}
