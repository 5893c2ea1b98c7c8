import type { ModelReply, ToolSpec } from '@treadle/core';
import { sse, type Framing } from '../framing.ts';
import type { Emit, Protocol, StreamStatus } from '../protocol.ts';

/** Reads the body of an answer whose head is known. */
export interface Reader {
  data(chunk: Uint8Array): void;
  /** The reply that the body contained. */
  end(): ModelReply;
}

/** Decodes whole texts only: it has no state between two. Drops a BOM. */
const UTF8 = new TextDecoder();

/** Reads a body that is decoded as a whole. */
export function wholeReader(decode: (text: string) => ModelReply): Reader {
  const chunks: Uint8Array[] = [];
  return {
    data: (chunk) => void chunks.push(chunk),
    end: () => decode(UTF8.decode(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))),
  };
}

/** `onStatus` receives the status after each event and returns whether to read the next one. */
interface StreamListener {
  readonly emit: Emit;
  readonly onStatus: (status: StreamStatus) => boolean;
}

/** Reads a stream. `tools`: those of the request. */
export function streamReader<State>(
  protocol: Protocol<State>,
  tools: readonly ToolSpec[],
  { emit, onStatus }: StreamListener,
): Reader {
  const state = protocol.start(tools);
  let isOpen = true;
  const frames = protocol.framing.open((event) => {
    if (isOpen) isOpen = onStatus(protocol.step(state, event, emit));
  });
  return {
    data: frames.feed,
    end() {
      frames.end();
      return protocol.end(state);
    },
  };
}

/**
 * Chooses a reader by the start of the body: for hosts that do not stream though asked to, and for those that send a wrong
 * content type.
 */
export function detectingReader(answer: {
  readonly framing: Framing;
  /** Whether the request asked for a stream. */
  readonly stream: boolean;
  readonly streamed: () => Reader;
  readonly whole: () => Reader;
}): Reader {
  let chunks: Uint8Array[] = [];
  let chosen: Reader | undefined;
  const choose = (isStream: boolean): Reader => {
    chosen = isStream ? answer.streamed() : answer.whole();
    for (const chunk of chunks) chosen.data(chunk);
    chunks = [];
    return chosen;
  };
  return {
    data(chunk) {
      if (chosen !== undefined) return chosen.data(chunk);
      chunks.push(chunk);
      const isStream = startsStream(chunks, answer.framing, answer.stream);
      if (isStream === 'blank') chunks = [];
      else if (isStream !== undefined) choose(isStream);
    },
    end: () => (chosen ?? choose(false)).end(),
  };
}

const EVENT_FIELD = /^(?:data|event|id|retry)?:/;
const LONGEST_FIELD = 'retry:'.length;
const LF = 10;
const BRACE = 123;

/**
 * Whether a body is a stream; undefined: not enough of it has arrived; `blank`: nothing but blanks, which need not be kept.
 * So the start of a body is read a few times at most, however it is split. Events start with a field. A stream of JSON lines
 * differs from JSON in that its first line is a whole value. If no stream was asked for, that line is the answer.
 */
function startsStream(chunks: readonly Uint8Array[], framing: Framing, asked: boolean): boolean | 'blank' | undefined {
  if (framing !== sse) return asked ? startsJsonLines(chunks) : false;
  if (chunks[0]![0] === BRACE) return false;
  const text = startOf(chunks);
  if (text === '') return 'blank';
  if (EVENT_FIELD.test(text)) return true;
  const isUndecided = text.length < LONGEST_FIELD && !/^[{[]/.test(text);
  return isUndecided ? undefined : false;
}

/** Searches only the newest chunk for a line end, because the first line may be long. */
function startsJsonLines(chunks: readonly Uint8Array[]): boolean | 'blank' | undefined {
  if (!chunks.at(-1)!.includes(LF)) return undefined;
  const text = startOf(chunks);
  if (text === '') return 'blank';
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
function startOf(chunks: readonly Uint8Array[]): string {
  return UTF8.decode(Buffer.concat(chunks)).trimStart();
}
