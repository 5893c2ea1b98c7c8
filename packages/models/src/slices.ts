import { nextLoopTurn } from '@treadle/core';
import { jsonOf, withTextsReplaced } from './json.ts';

/*
 * Writes large requests without blocking the event loop.
 *
 * 1. The event loop turns before each piece of work. A piece takes some milliseconds.
 * 2. One request is written at a time: the pieces of two requests are never in the same turn, and the memory of one request
 *    is needed at a time.
 * 3. Work stops at the next turn if its signal is aborted. A request that waits stops at once.
 */

/** The characters of a text that are serialised at once. */
const SLICE_CHARS = 262_144;
/** The characters that are serialised in one turn. */
const TURN_CHARS = 1_048_576;
/** Copying bytes is faster than serialising. */
const COPIED_BYTES = 4 * TURN_CHARS;
/** In UTF-8. */
const MAX_BYTES_PER_CHAR = 3;

/** A part of a JSON text, or a long text that becomes the content of a string in it. */
type Piece = string | { readonly text: string };

/** JSON whose long texts have not been serialised yet. */
export interface Pieces {
  readonly list: Piece[];
  chars: number;
}

export function pieces(json = ''): Pieces {
  return { list: [json], chars: json.length };
}

/** Bytes that are written up to `to`. */
export interface Output {
  bytes: Buffer;
  to: number;
}

export interface SlicedWork {
  /** Adds the JSON that `write` returns, which was made of that many characters. Long texts of `sliceableJson` are serialised later. */
  add(pieces: Pieces, chars: number, write: () => string): Promise<void>;
  /** Writes pieces behind what is written. Uses a larger buffer if they do not fit. */
  write(output: Output, pieces: Pieces): Promise<void>;
  copy(output: Output, bytes: Buffer): Promise<void>;
}

/** Resolves when the last request has been written. */
let last: Promise<unknown> = Promise.resolve();

/** Does the work when no other one is in progress. Rejects if the signal is aborted, or if the work throws. */
export async function inSlices<T>(
  signal: AbortSignal | undefined,
  work: (slices: SlicedWork) => Promise<T>,
): Promise<T> {
  const before = last;
  const done = Promise.withResolvers<void>();
  last = before.then(() => done.promise);
  try {
    signal?.throwIfAborted();
    await settledOrAborted(before, signal);
    signal?.throwIfAborted();
    await nextLoopTurn();
    return await work(slicedWork(signal));
  } finally {
    done.resolve();
  }
}

async function settledOrAborted(before: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
  const aborted = Promise.withResolvers<void>();
  const stop = (): void => aborted.resolve();
  signal?.addEventListener('abort', stop);
  await Promise.race([before, aborted.promise]);
  signal?.removeEventListener('abort', stop);
}

function slicedWork(signal: AbortSignal | undefined): SlicedWork {
  let sinceTurn = 0;

  /** To be called after each piece of work. */
  async function pause(chars: number): Promise<void> {
    sinceTurn += chars;
    if (sinceTurn < TURN_CHARS) return;
    sinceTurn = 0;
    await nextLoopTurn();
    signal?.throwIfAborted();
  }

  async function copy(output: Output, bytes: Buffer): Promise<void> {
    await makeRoom(output, bytes.length);
    for (let from = 0; from < bytes.length; from += COPIED_BYTES) {
      output.to += bytes.copy(output.bytes, output.to, from, from + COPIED_BYTES);
      await pause(TURN_CHARS);
    }
  }

  async function makeRoom(output: Output, size: number): Promise<void> {
    if (output.to + size <= output.bytes.length) return;
    const larger = { bytes: Buffer.allocUnsafeSlow((output.to + size) * 2), to: 0 };
    await copy(larger, output.bytes.subarray(0, output.to));
    output.bytes = larger.bytes;
  }

  return {
    async add(pieces, chars, write) {
      for (const piece of chars > SLICE_CHARS ? piecesOf(write) : [write()]) addPiece(pieces, piece);
      await pause(chars);
    },
    async write(output, pieces) {
      for (const piece of pieces.list) {
        const isJson = typeof piece === 'string';
        const all = isJson ? piece : piece.text;
        for (let from = 0; from < all.length;) {
          const to = endOfSlice(all, from);
          const json = isJson ? all.slice(from, to) : jsonOf(all.slice(from, to)).slice(1, -1);
          await makeRoom(output, json.length * MAX_BYTES_PER_CHAR);
          output.to += output.bytes.write(json, output.to);
          await pause(json.length);
          from = to;
        }
      }
    },
    copy,
  };
}

/** Not between the two halves of a character. */
function endOfSlice(text: string, from: number): number {
  const to = from + SLICE_CHARS;
  if (to >= text.length) return text.length;
  return isHighSurrogate(text.charCodeAt(to - 1)) ? to - 1 : to;
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd8_00 && code <= 0xdb_ff;
}

/** In the JSON that is written first, a mark that occurs in no text stands for each long text. */
function piecesOf(write: () => string): readonly Piece[] {
  const mark = crypto.randomUUID();
  const texts: string[] = [];
  const json = withTextsReplaced(
    (text) => (text.length > SLICE_CHARS ? `${mark}.${texts.push(text) - 1};` : text),
    write,
  );
  const parts = json.split(new RegExp(`${mark}\\.(\\d+);`));
  return parts.map((part, index) => (index % 2 === 0 ? part : { text: texts[Number(part)]! }));
}

function addPiece(pieces: Pieces, piece: Piece): void {
  const { list } = pieces;
  const before = list.at(-1);
  pieces.chars += typeof piece === 'string' ? piece.length : piece.text.length;
  if (typeof piece === 'string' && typeof before === 'string' && before.length < SLICE_CHARS) {
    list[list.length - 1] = before + piece;
  } else list.push(piece);
}
