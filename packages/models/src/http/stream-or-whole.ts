import type { Framing } from '../framing/framing.ts';
import { sse } from '../framing/sse.ts';

const EVENT = /^(?:data|event|id|retry)?:/;
/** As long as the longest beginning of an event. */
const ENOUGH = 'retry:'.length;

/**
 * Whether an answer is a stream, by how it begins and not by what it calls itself; undefined: more of it has to come.
 * Events begin with their fields. A stream of JSON lines is told from JSON by its first line, which is a whole value;
 * where no stream was asked for, that is the answer.
 */
export function isStream(chunks: readonly Uint8Array[], framing: Framing, asked: boolean): boolean | undefined {
  if (framing !== sse) return asked ? isLines(chunks) : false;
  if (chunks[0]![0] === BRACE) return false;
  const text = beginning(chunks);
  if (EVENT.test(text)) return true;
  const isOpen = text === '' || (text.length < ENOUGH && !/^[{[]/.test(text));
  return isOpen ? undefined : false;
}

const LF = 10;
const BRACE = 123;

/** Only what has just come is searched, as the first line may be long. */
function isLines(chunks: readonly Uint8Array[]): boolean | undefined {
  if (!chunks.at(-1)!.includes(LF)) return undefined;
  const text = beginning(chunks);
  const end = text.search(/[\r\n]/);
  if (end === -1) return undefined;
  try {
    JSON.parse(text.slice(0, end));
    return true;
  } catch {
    return false;
  }
}

/** Without a BOM and the blank lines with which some hosts keep a connection open. */
function beginning(chunks: readonly Uint8Array[]): string {
  return new TextDecoder().decode(Buffer.concat(chunks)).trimStart();
}
