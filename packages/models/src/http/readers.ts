import type { ModelReply } from '@treadle/core';
import type { Framing } from '../framing/framing.ts';
import type { Emit, Protocol, StreamStatus } from '../protocol.ts';
import { isStream } from './stream-or-whole.ts';

/** What happens with the body of an answer once its head is known. */
export interface Reader {
  data(chunk: Uint8Array): void;
  /** What has been read amounts to this. */
  end(): ModelReply;
}

/** Of whole texts: it keeps nothing between two. Drops a BOM. */
const UTF8 = new TextDecoder();

/** Reads a text as a whole. */
export function collected(decode: (text: string) => ModelReply): Reader {
  const chunks: Uint8Array[] = [];
  return {
    data: (chunk) => void chunks.push(chunk),
    end: () => decode(UTF8.decode(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))),
  };
}

/** Reads a stream. What each event comes to goes to `told`, which says whether the next one is still of interest. */
export function streamed<State>(
  protocol: Protocol<State>,
  emit: Emit,
  told: (status: StreamStatus) => boolean,
): Reader {
  const state = protocol.start();
  let isOpen = true;
  const frames = protocol.framing.open((event) => {
    if (isOpen) isOpen = told(protocol.step(state, event, emit));
  });
  return {
    data: frames.feed,
    end() {
      frames.end();
      return protocol.end(state);
    },
  };
}

/** For hosts that send a whole answer though asked for a stream, and for those that name the content wrongly. */
export function byItsBeginning(answer: {
  readonly framing: Framing;
  /** Whether a stream was asked for. */
  readonly stream: boolean;
  readonly events: () => Reader;
  readonly whole: () => Reader;
}): Reader {
  let chunks: Uint8Array[] = [];
  let chosen: Reader | undefined;
  const choose = (streams: boolean): Reader => {
    chosen = streams ? answer.events() : answer.whole();
    for (const chunk of chunks) chosen.data(chunk);
    chunks = [];
    return chosen;
  };
  return {
    data(chunk) {
      if (chosen !== undefined) return chosen.data(chunk);
      chunks.push(chunk);
      const streams = isStream(chunks, answer.framing, answer.stream);
      if (streams !== undefined) choose(streams);
    },
    end: () => (chosen ?? choose(false)).end(),
  };
}
