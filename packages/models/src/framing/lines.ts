const LF = 10;
const CR = 13;
const BOM = 0xfeff;

/**
 * Cuts UTF-8 bytes into lines, ended by LF, CRLF or CR; a BOM at the start is dropped. Only whole lines are decoded: no
 * character is cut where a line ends. A line that spans many chunks is kept in pieces and joined once.
 */
export function lines(onLine: (line: string) => void): { feed(chunk: Uint8Array): void; end(): void } {
  let pieces: Uint8Array[] = [];
  let isFirst = true;
  let afterCR = false;

  const textOf = (last: Uint8Array): string => {
    let bytes = last;
    if (pieces.length > 0) {
      pieces.push(last);
      bytes = Buffer.concat(pieces);
      pieces = [];
    }
    const text = (Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes)).toString();
    if (!isFirst) return text;
    isFirst = false;
    return text.charCodeAt(0) === BOM ? text.slice(1) : text;
  };

  /** A text that ends with a line, but for the very last one. */
  const take = (text: string): void => {
    let from = afterCR && text.charCodeAt(0) === LF ? 1 : 0;
    let cr = text.indexOf('\r', from);
    let lf = text.indexOf('\n', from);
    while (cr !== -1 || lf !== -1) {
      const at = lf === -1 || (cr !== -1 && cr < lf) ? cr : lf;
      onLine(text.slice(from, at));
      from = at + 1;
      if (at === cr) {
        if (text.charCodeAt(from) === LF) from++;
        cr = text.indexOf('\r', from);
      }
      if (lf !== -1 && lf < from) lf = text.indexOf('\n', from);
    }
    afterCR = text.charCodeAt(text.length - 1) === CR;
    if (from < text.length) onLine(text.slice(from));
  };

  return {
    feed(chunk) {
      const end = endOfLines(chunk);
      if (end > 0) take(textOf(end === chunk.length ? chunk : chunk.subarray(0, end)));
      if (end < chunk.length) pieces.push(end === 0 ? chunk : chunk.subarray(end));
    },
    end() {
      if (pieces.length > 0) take(textOf(pieces.pop()!));
    },
  };
}

/** Where the last whole line ends; mostly where the chunk does. */
function endOfLines(chunk: Uint8Array): number {
  if (chunk[chunk.length - 1] === LF) return chunk.length;
  return Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR)) + 1;
}
