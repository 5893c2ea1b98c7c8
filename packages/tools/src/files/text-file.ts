import type { OpenFile } from '../ops.ts';

const CHUNK = 64 * 1024;
/** A NUL byte within this many bytes marks a file as binary, as in git. */
const SNIFFED_BYTES = 8 * 1024;
/** Larger files are read in parts, not searched and not edited. */
export const MAX_WHOLE_BYTES: number = 4 * 1024 * 1024;

/** How a text is stored. */
export interface TextForm {
  readonly encoding: 'utf-8' | 'utf-16le' | 'utf-16be';
  readonly bom: boolean;
  /** Of most lines. */
  readonly lineEnd: '\n' | '\r\n';
}

/** A new file. */
export const PLAIN_FORM: TextForm = { encoding: 'utf-8', bom: false, lineEnd: '\n' };

/** How the text is stored that begins with these bytes. Undefined: they are not text. */
export function textFormOf(bytes: Uint8Array): TextForm | undefined {
  const encoding = encodingOf(bytes);
  if (encoding === undefined) return undefined;
  return { encoding, bom: bomOf(bytes) !== undefined, lineEnd: lineEndOf(decodeText(bytes, encoding)) };
}

/** What ends most lines. */
export function lineEndOf(text: string): TextForm['lineEnd'] {
  const lines = text.split('\n').length - 1;
  const twice = text.split('\r\n').length - 1;
  return twice * 2 > lines ? '\r\n' : '\n';
}

/** UTF-16 only with its byte order mark: without one it looks like binary data. */
export function encodingOf(bytes: Uint8Array): TextForm['encoding'] | undefined {
  return bomOf(bytes) ?? (bytes.subarray(0, SNIFFED_BYTES).includes(0) ? undefined : 'utf-8');
}

function bomOf([a, b, c]: Uint8Array): TextForm['encoding'] | undefined {
  if (a === 0xff && b === 0xfe) return 'utf-16le';
  if (a === 0xfe && b === 0xff) return 'utf-16be';
  return a === 0xef && b === 0xbb && c === 0xbf ? 'utf-8' : undefined;
}

/** Without the byte order mark. Bytes that are not valid become U+FFFD. */
export function decodeText(bytes: Uint8Array, encoding: TextForm['encoding']): string {
  return new TextDecoder(encoding).decode(bytes);
}

/** Yields the text of a file in parts: what begins with `head`, which has been read from the handle. */
export async function* readTextFrom(
  { handle }: OpenFile,
  head: { readonly bytes: Uint8Array; readonly encoding: TextForm['encoding'] },
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  const decoder = new TextDecoder(head.encoding);
  yield decoder.decode(head.bytes, { stream: true });
  const buffer = Buffer.allocUnsafe(CHUNK);
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await handle.read(buffer, 0, CHUNK, null);
    if (bytesRead === 0) return yield decoder.decode();
    yield decoder.decode(buffer.subarray(0, bytesRead), { stream: true });
  }
}

/**
 * The bytes of a text in the form of the file that it replaces. A text with `\n` only gets the line ends of the form; one that
 * contains `\r\n` is stored as it is.
 */
export function encodeText(text: string, { encoding, bom, lineEnd }: TextForm): Uint8Array {
  const lines = lineEnd === '\r\n' && !text.includes('\r\n') ? text.replaceAll('\n', '\r\n') : text;
  const marked = bom && !lines.startsWith('\uFEFF') ? `\uFEFF${lines}` : lines;
  const bytes = Buffer.from(marked, encoding === 'utf-8' ? 'utf8' : 'utf16le');
  return encoding === 'utf-16be' ? bytes.swap16() : bytes;
}

/** The first bytes of a file, `limit` at most. */
export async function readBytes(
  { handle, size }: OpenFile,
  signal: AbortSignal,
  limit: number = MAX_WHOLE_BYTES,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  // The size is only a hint: files of /proc have none, and others grow.
  for (let room = Math.min(size + 1, limit); length < limit; room = Math.min(CHUNK, limit - length)) {
    signal.throwIfAborted();
    const buffer = Buffer.allocUnsafe(room);
    const { bytesRead } = await handle.read(buffer, 0, room, null);
    if (bytesRead === 0) break;
    parts.push(buffer.subarray(0, bytesRead));
    length += bytesRead;
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}
