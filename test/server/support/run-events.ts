import type { JournalEntry } from '@treadle/core';
import { frameReader } from './sse-frames.ts';

/** A client that reads the events of a run as a stream. */
export interface RunEvents {
  readonly entries: readonly JournalEntry[];
  /** Resolves when it has this many entries. */
  received(count: number): Promise<void>;
  /** Resolves to the data of the last frame when the stream has ended: `[DONE]`, or undefined if it was cut. */
  readonly ended: Promise<string | undefined>;
  disconnect(): void;
}

export async function readRunEvents(
  url: string,
  id: string,
  { after = -1, headers = {} }: { readonly after?: number; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<RunEvents> {
  const connection = new AbortController();
  const answer = await fetch(`${url}/v1/runs/${id}/events?after=${after}`, {
    headers: { accept: 'text/event-stream', ...headers },
    signal: connection.signal,
  });
  if (answer.status !== 200) throw new Error(`status ${answer.status}: ${await answer.text()}`);
  const entries: JournalEntry[] = [];
  let arrived = Promise.withResolvers<void>();
  let last: string | undefined;
  const push = frameReader((frame) => {
    if (frame.startsWith(':')) return;
    const lines = frame.split('\n');
    last = lines.at(-1)!.slice('data: '.length);
    const [name] = lines;
    if (!name!.startsWith('event: ') || name === 'event: error') return;
    const entry = JSON.parse(last) as JournalEntry;
    if (name !== `event: ${entry.event.type}`) throw new Error(`${name} has the type ${entry.event.type}.`);
    entries.push(entry);
    arrived.resolve();
    arrived = Promise.withResolvers();
  });
  async function readAll(): Promise<string | undefined> {
    const decoder = new TextDecoder();
    try {
      for await (const chunk of answer.body!) push(decoder.decode(chunk as Uint8Array, { stream: true }));
      return last;
    } catch {
      return undefined;
    }
  }
  return {
    entries,
    async received(count) {
      while (entries.length < count) await arrived.promise;
    },
    ended: readAll(),
    disconnect: () => connection.abort(),
  };
}
