/** An answer that is too long to be held by anybody: the provider says it a block at a time. */

/** A megabyte, in a thousand pieces, no two of which are alike. */
export const BLOCK = Array.from({ length: 32_768 }, (_, n) => `line ${n} `.padEnd(31, '.') + '\n').join('');

/** Holds a text that comes in pieces against what it should be. Throws where it differs. */
export function heardLong(): { readonly take: (piece: string) => void; readonly length: () => number } {
  let length = 0;
  return {
    length: () => length,
    take(piece) {
      for (let at = 0; at < piece.length;) {
        const from = length % BLOCK.length;
        const expected = BLOCK.slice(from, from + piece.length - at);
        if (!piece.startsWith(expected, at))
          throw new Error(`Something else was said at ${length}: ${piece.slice(at, 200)}`);
        at += expected.length;
        length += expected.length;
      }
    },
  };
}
