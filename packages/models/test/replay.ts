import { deepStrictEqual, ok } from 'node:assert';
import type { ModelDelta, ModelReply, ToolSpec } from '@treadle/core';
import type { WireEvent } from '../src/framing.ts';
import type { Protocol } from '../src/protocol.ts';

interface Replayed {
  readonly reply: ModelReply;
  readonly deltas: readonly ModelDelta[];
}

export interface Replayer {
  /** The reply and the deltas of a stream that arrives in these chunks and then ends. */
  readonly replay: (chunks: Iterable<Uint8Array>) => Replayed;
  /** Expects the same result for a stream whole, byte by byte, split at every point, and with CRLF line ends. */
  readonly expectSameHoweverCut: (whole: Buffer) => void;
  /** Expects a failure, never a shorter reply, for a stream that ends anywhere before the byte `end`. */
  readonly expectFailureWhenCutBefore: (whole: Buffer, end: number) => void;
}

/** `tools`: those of the request. */
export function replayer<State>(protocol: Protocol<State>, tools: readonly ToolSpec[] = []): Replayer {
  function replay(chunks: Iterable<Uint8Array>): Replayed {
    const deltas: ModelDelta[] = [];
    const state = protocol.start(tools);
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

  function eventsOf(chunks: Iterable<Uint8Array>): readonly WireEvent[] {
    const events: WireEvent[] = [];
    const frames = protocol.framing.open((event) => events.push(event));
    for (const chunk of chunks) frames.feed(chunk);
    frames.end();
    return events;
  }

  return {
    replay,
    expectSameHoweverCut(whole) {
      const once = replay([whole]);
      deepStrictEqual(replay(byteByByte(whole)), once);
      const windows = Buffer.from(whole.toString('utf8').replaceAll('\n', '\r\n'));
      deepStrictEqual(replay([windows]), once);
      deepStrictEqual(replay(byteByByte(windows)), once);
      // The protocol sees only events. Comparing those makes thousands of splits affordable.
      const same = eventsOf([whole]);
      for (let at = 1; at < whole.length; at++) {
        const events = eventsOf([whole.subarray(0, at), whole.subarray(at)]);
        if (!areEqual(events, same)) deepStrictEqual({ at, events }, { at, events: same });
      }
    },
    expectFailureWhenCutBefore(whole, end) {
      ok(end > 0, 'nothing to truncate');
      for (let at = 0; at < end; at++) {
        const { reply } = replay([whole.subarray(0, at)]);
        ok(reply.type === 'failure', `a reply after ${at} bytes`);
      }
    },
  };
}

function areEqual(events: readonly WireEvent[], others: readonly WireEvent[]): boolean {
  if (events.length !== others.length) return false;
  return events.every(({ name, data }, index) => name === others[index]!.name && data === others[index]!.data);
}

const byteByByte = (bytes: Buffer): Uint8Array[] => [...bytes].map((byte) => Uint8Array.of(byte));
