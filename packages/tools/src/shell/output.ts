import type { OutputChunk } from '../ops.ts';

/*
 * Output of programs, as a model gets it: plain text of limited length, whatever the program writes. Only the first and the
 * last bytes are kept, so that memory stays flat.
 */

/** Characters of a text that a model gets. */
const HEAD_CHARS = 4_000;
const TAIL_CHARS = 6_000;
const MAX_LINE_CHARS = 2_000;
/** Bytes that are kept. Escape sequences and progress bars take many bytes, and leave few characters. */
const HEAD_BYTES = 32 * 1024;
const TAIL_BYTES = 64 * 1024;
/** The end of a line is shown too, because a progress bar shows its last state there. */
const LINE_END_CHARS = 200;

export interface OutputCollector {
  add(chunk: OutputChunk): void;
  /** The text so far. */
  text(): string;
}

/** Keeps the head and the tail of what a program writes. */
export function outputCollector(): OutputCollector {
  const head: Uint8Array[] = [];
  let headLength = 0;
  let ring: Buffer | undefined;
  /** Bytes that went into the ring. */
  let ringTotal = 0;
  const whole = wholeCharacters();

  function keep(bytes: Uint8Array): void {
    const first = bytes.subarray(0, HEAD_BYTES - headLength);
    if (first.length > 0) head.push(first);
    headLength += first.length;
    const rest = bytes.subarray(first.length);
    const last = rest.subarray(Math.max(0, rest.length - TAIL_BYTES));
    if (last.length === 0) return;
    ring ??= Buffer.alloc(TAIL_BYTES);
    const at = (ringTotal + rest.length - last.length) % TAIL_BYTES;
    const fitting = last.subarray(0, TAIL_BYTES - at);
    ring.set(fitting, at);
    ring.set(last.subarray(fitting.length), 0);
    ringTotal += rest.length;
  }

  return {
    add: (chunk) => keep(whole.add(chunk)),
    text() {
      const start = Buffer.concat(head);
      if (!ring) return shortened(plainText(Buffer.concat([start, whole.rest()])));
      const at = ringTotal % TAIL_BYTES;
      const kept =
        ringTotal <= TAIL_BYTES
          ? ring.subarray(0, ringTotal)
          : Buffer.concat([ring.subarray(at), ring.subarray(0, at)]);
      const end = Buffer.concat([kept, whole.rest()]);
      const omitted = ringTotal - kept.length;
      if (omitted === 0) return shortened(plainText(Buffer.concat([start, end])));
      return joined(plainText(start), plainText(end.subarray(firstCharacter(end))), `about ${count(omitted)} bytes`);
    },
  };
}

/** The text of output while it arrives. Carriage returns start a new line, because what was shown cannot be changed. */
export function outputText(): (chunk: OutputChunk) => string {
  const whole = wholeCharacters();
  return (chunk) => readableText(whole.add(chunk)).replaceAll(/\r+\n?/g, '\n');
}

/** Joins characters that were cut in two. The streams are mixed, so that is done for each. */
function wholeCharacters(): { add(chunk: OutputChunk): Uint8Array; rest(): Uint8Array } {
  const cut: Record<OutputChunk['stream'], Uint8Array> = { stdout: NOTHING, stderr: NOTHING };
  return {
    add({ stream, bytes }) {
      const all = cut[stream].length === 0 ? bytes : Buffer.concat([cut[stream], bytes]);
      const end = endOfCharacters(all);
      cut[stream] = all.subarray(end);
      return all.subarray(0, end);
    },
    rest: () => Buffer.concat([cut.stdout, cut.stderr]),
  };
}

const NOTHING = new Uint8Array(0);

/** How many bytes there are before a character that is not complete. */
function endOfCharacters(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return size > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

function firstCharacter(bytes: Uint8Array): number {
  let at = 0;
  while (at < 3 && (bytes[at]! & 0xc0) === 0x80) at++;
  return at;
}

const ESCAPES =
  // oxlint-disable-next-line no-control-regex
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])?/g;
// oxlint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

/** The text of bytes, with lines as a terminal shows them in the end. */
function plainText(bytes: Uint8Array): string {
  const text = readableText(bytes);
  return text.includes('\r') ? text.replaceAll(/\r+\n/g, '\n').split('\n').map(afterReturns).join('\n') : text;
}

/** The text of bytes without escape sequences and control characters other than tabs, line feeds and carriage returns. */
function readableText(bytes: Uint8Array): string {
  const hasNul = bytes.includes(0);
  if (hasNul && isBinary(bytes)) return `[binary output of ${count(bytes.length)} bytes]`;
  const text = new TextDecoder().decode(bytes).replace(ESCAPES, '');
  // Programs separate names by NUL bytes.
  return (hasNul ? text.replaceAll('\0', '\n') : text).replace(CONTROLS, '');
}

/** More than a tenth are control characters. */
function isBinary(bytes: Uint8Array): boolean {
  let controls = 0;
  for (const byte of bytes) if (byte < 9 || (byte > 13 && byte < 32)) controls++;
  return controls * 10 > bytes.length;
}

/** A carriage return starts the line again. */
function afterReturns(line: string): string {
  return line.split('\r').findLast((part) => part !== '') ?? '';
}

function shortened(text: string): string {
  const lines = cutLines(text);
  const left = lines.length - HEAD_CHARS - TAIL_CHARS;
  return left <= 0 ? lines : joined(lines, lines, `${count(left)} characters`);
}

function joined(first: string, last: string, omitted: string): string {
  const head = cutLines(first).slice(0, HEAD_CHARS);
  const tail = cutLines(last).slice(-TAIL_CHARS);
  const remedy = 'To see it, write the output to a file and read parts of it, or filter it with grep, head or tail';
  return `${head}\n[… ${omitted} left out. ${remedy} …]\n${tail}`.toWellFormed();
}

function cutLines(text: string): string {
  if (text.length <= MAX_LINE_CHARS) return text;
  return text
    .split('\n')
    .map((line) => {
      if (line.length <= MAX_LINE_CHARS) return line;
      const kept = MAX_LINE_CHARS - LINE_END_CHARS;
      return `${line.slice(0, kept)}[… ${count(line.length - MAX_LINE_CHARS)} characters of this line left out …]${line.slice(-LINE_END_CHARS)}`;
    })
    .join('\n');
}

function count(number: number): string {
  return number.toLocaleString('en-US');
}
