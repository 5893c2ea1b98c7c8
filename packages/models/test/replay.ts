import { deepStrictEqual, ok } from 'node:assert';
import type { ModelDelta, ModelReply } from '@treadle/core';
import type { Protocol } from '../src/protocol.ts';

interface Replayed {
  readonly reply: ModelReply;
  readonly deltas: readonly ModelDelta[];
}

export interface Replayer {
  /** What a protocol makes of a stream that arrives in these chunks and is then over. */
  readonly replay: (chunks: Iterable<Uint8Array>) => Replayed;
  /** The same comes of a stream whole, byte by byte, cut in two at every point, and with CRLF as its line ends. */
  readonly expectSameHoweverCut: (whole: Buffer) => void;
  /** A stream that is over anywhere before the byte `end` is a failure, never a shorter reply. */
  readonly expectFailureWhenCutBefore: (whole: Buffer, end: number) => void;
}

export function replayer<State>(protocol: Protocol<State>): Replayer {
  function replay(chunks: Iterable<Uint8Array>): Replayed {
    const deltas: ModelDelta[] = [];
    const state = protocol.start();
    let settled: ModelReply | undefined;
    const frames = protocol.framing.open((event) => {
      if (settled !== undefined) return;
      const status = protocol.step(state, event, (delta) => deltas.push(delta));
      if (status.type === 'failure') settled = status;
      if (status.type === 'done') settled = protocol.end(state);
    });
    for (const chunk of chunks) frames.feed(chunk);
    frames.end();
    return { reply: settled ?? protocol.end(state), deltas };
  }

  return {
    replay,
    expectSameHoweverCut(whole) {
      const once = replay([whole]);
      deepStrictEqual(replay(byteByByte(whole)), once);
      const windows = Buffer.from(whole.toString('utf8').replaceAll('\n', '\r\n'));
      deepStrictEqual(replay([windows]), once);
      deepStrictEqual(replay(byteByByte(windows)), once);
      // Comparing texts first is what makes thousands of cuts affordable.
      const same = JSON.stringify(once);
      for (let at = 1; at < whole.length; at++) {
        const halves = replay([whole.subarray(0, at), whole.subarray(at)]);
        if (JSON.stringify(halves) !== same) deepStrictEqual({ at, ...halves }, { at, ...once });
      }
    },
    expectFailureWhenCutBefore(whole, end) {
      ok(end > 0, 'nothing to cut');
      for (let at = 0; at < end; at++) {
        const { reply } = replay([whole.subarray(0, at)]);
        ok(reply.type === 'failure', `a reply after ${at} bytes`);
      }
    },
  };
}

const byteByByte = (bytes: Buffer): Uint8Array[] => [...bytes].map((byte) => Uint8Array.of(byte));
