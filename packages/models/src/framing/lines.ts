import { StringDecoder } from 'node:string_decoder';

const LF = 10;
const BOM = 0xfeff;

/**
 * Cuts UTF-8 bytes into lines, ended by LF, CRLF or CR; a BOM at the start is dropped. A line that spans many chunks
 * is kept in pieces and joined once: searching a string that grows would copy it again with every chunk.
 */
export function lines(onLine: (line: string) => void): { feed(chunk: Uint8Array): void; end(): void } {
  const decoder = new StringDecoder('utf8');
  let pieces: string[] = [];
  let first = true;
  let afterCR = false;

  const close = (rest: string): void => {
    if (pieces.length === 0) return onLine(rest);
    pieces.push(rest);
    const line = pieces.join('');
    pieces = [];
    onLine(line);
  };

  const take = (text: string): void => {
    let from = 0;
    if (first) {
      first = false;
      if (text.charCodeAt(0) === BOM) from = 1;
    }
    if (afterCR && from < text.length) {
      afterCR = false;
      if (text.charCodeAt(from) === LF) from++;
    }
    let cr = text.indexOf('\r', from);
    let lf = text.indexOf('\n', from);
    while (cr !== -1 || lf !== -1) {
      const at = lf === -1 || (cr !== -1 && cr < lf) ? cr : lf;
      close(text.slice(from, at));
      from = at + 1;
      if (at === cr) {
        if (from === text.length) afterCR = true;
        else if (text.charCodeAt(from) === LF) from++;
        cr = text.indexOf('\r', from);
      }
      if (lf !== -1 && lf < from) lf = text.indexOf('\n', from);
    }
    if (from < text.length) pieces.push(from === 0 ? text : text.slice(from));
  };

  return {
    feed(chunk) {
      const text = decoder.write(chunk);
      if (text !== '') take(text);
    },
    end() {
      const text = decoder.end();
      if (text !== '') take(text);
      if (pieces.length > 0) close('');
    },
  };
}
