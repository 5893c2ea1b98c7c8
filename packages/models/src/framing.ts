/** Splits the bytes of an answer into events. Independent of the protocol. */
export interface Framing {
  /** The content type of an answer in this framing. */
  readonly mediaType: string;
  readonly open: (onEvent: (event: WireEvent) => void) => Frames;
}

export interface Frames {
  /** Chunks may be split anywhere, also inside a UTF-8 sequence. */
  feed(chunk: Uint8Array): void;
  /** No more bytes follow. Emits what is still buffered. */
  end(): void;
}

/** One event of a stream. `name` is empty if the wire has none. */
export interface WireEvent {
  readonly name: string;
  readonly data: string;
}

/** No event is this long. It is held a few times while it is decoded and parsed, which blocks the event loop. */
const MAX_EVENT_MB = 32;
const MAX_EVENT = MAX_EVENT_MB * 1024 * 1024;

function tooLong(): RangeError {
  return new RangeError(`an event has more than ${MAX_EVENT_MB} MB`);
}

const LF = 10;
const CR = 13;
const SPACE = 32;
const BOM = 0xfeff;

/**
 * Server-sent events, as far as model providers use them: `data` and `event` fields and comments. Unlike a browser, it
 * emits an event that the end of the bytes leaves open: some hosts omit the last blank line, and the protocol detects
 * truncated data itself. It also emits JSON that is not in a field: Google sends an error in mid-stream like that.
 */
export const sse: Framing = {
  mediaType: 'text/event-stream',
  open(onEvent) {
    let name = '';
    let data: string | undefined;
    let isPlain = false;

    const emitEvent = (): void => {
      if (data !== undefined) onEvent({ name, data });
      name = '';
      data = undefined;
      isPlain = false;
    };

    const setField = (field: string, value: string): void => {
      if (field === 'data') {
        data = data === undefined ? value : `${data}\n${value}`;
        if (data.length > MAX_EVENT) throw tooLong();
      } else if (field === 'event') name = value;
    };

    const { feed, end } = lines((line) => {
      if (line === '') return emitEvent();
      if (line.startsWith('data:')) return setField('data', valueAfter(line, 4));
      isPlain ||= data === undefined && (line.startsWith('{') || line.startsWith('['));
      if (isPlain) return setField('data', line);
      const colon = line.indexOf(':');
      if (colon === -1) setField(line, '');
      else setField(line.slice(0, colon), valueAfter(line, colon));
    });

    return {
      feed,
      end() {
        end();
        emitEvent();
      },
    };
  },
};

function valueAfter(line: string, colon: number): string {
  return line.slice(line.charCodeAt(colon + 1) === SPACE ? colon + 2 : colon + 1);
}

/** One JSON value per line. Emits a last line without its line end: the protocol detects truncated data itself. */
export const ndjson: Framing = {
  mediaType: 'application/x-ndjson',
  open: (onEvent) =>
    lines((line) => {
      if (line.trim() !== '') onEvent({ name: '', data: line });
    }),
};

/**
 * Splits UTF-8 bytes into lines that end with LF, CRLF or CR, and drops a BOM at the start. Only whole lines are decoded,
 * so no character is split. A line that spans many chunks is buffered in pieces and joined once. Throws a `RangeError` if a line is too long.
 */
export function lines(onLine: (line: string) => void): Frames {
  let pieces: Uint8Array[] = [];
  /** The bytes of the pieces. */
  let buffered = 0;
  let isFirst = true;
  let afterCR = false;

  const decodeWithPieces = (last: Uint8Array): string => {
    let bytes = last;
    if (pieces.length > 0) {
      pieces.push(last);
      bytes = Buffer.concat(pieces);
      pieces = [];
      buffered = 0;
    }
    const text = (Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes)).toString();
    if (!isFirst) return text;
    isFirst = false;
    return text.charCodeAt(0) === BOM ? text.slice(1) : text;
  };

  /** `text` ends at a line end, except at the end of the bytes. */
  const splitLines = (text: string): void => {
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
      if (end > 0) splitLines(decodeWithPieces(end === chunk.length ? chunk : chunk.subarray(0, end)));
      if (end === chunk.length) return;
      pieces.push(end === 0 ? chunk : chunk.subarray(end));
      buffered += chunk.length - end;
      if (buffered > MAX_EVENT) throw tooLong();
    },
    end() {
      if (pieces.length > 0) splitLines(decodeWithPieces(pieces.pop()!));
    },
  };
}

/** The end of the last whole line in the chunk; usually the end of the chunk. */
function endOfLines(chunk: Uint8Array): number {
  if (chunk[chunk.length - 1] === LF) return chunk.length;
  return Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR)) + 1;
}
