import type { Engine } from '../engine/engine.ts';
import { eventWriter, type EventSource, type EventWriter } from './event-log.ts';
import type { RunPlan } from './run.ts';
import type { Reader } from '../engine/stored-reads.ts';

/**
 * The stored streams of runs: the events of conversations, and those of background responses.
 *
 * A stream has the last event of a run before the end of the run is stored, so that a crash does not lose it. Readers get it
 * after that: then the next request can be sent at once, to any process.
 */
export interface StoredStreams {
  /** Stores the events of a run. If they cannot be stored, the run is detached. `last`: the last number that is used. */
  writer(run: StreamRun, stream: string, last: number): EventWriter;
  source<T extends object>(followed: FollowedStream<T>): EventSource<Numbered<T>>;
  /** The stored events after a number. `hold` counts their bytes. */
  eventsAfter(stream: string, after: number, hold: Reader['hold']): Promise<readonly object[]>;
  /** Lets readers see that a run has ended, which does not change the stream. */
  wakeReaders(stream: string): void;
}

/** The run whose events are stored. */
export type StreamRun = Pick<RunPlan, 'id' | 'lease'>;

export interface Numbered<T> {
  readonly seq: number;
  readonly event: T;
}

export interface FollowedStream<T> {
  readonly stream: string;
  /** Whether the run is in progress. */
  isLive(): Promise<boolean>;
  /** Whether an event is the last of its run. */
  isLast(event: T): boolean;
}

/** How often a reader that has everything but the last event looks whether the end of the run is stored. */
const END_POLL_MS = 50;

export function storedStreams({ store, driven, log }: Pick<Engine, 'store' | 'driven' | 'log'>): StoredStreams {
  const { streams } = store;
  /** Readers that wait for the end of a run. */
  const readers = new Map<string, Set<() => void>>();

  function source<T extends object>({ stream, ...followed }: FollowedStream<T>): EventSource<Numbered<T>> {
    let isLive = false;
    let wake: (() => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    return {
      async isLive() {
        isLive = await followed.isLive();
        return isLive;
      },
      size: (after) => streams.pageSize(stream, after),
      async read(after) {
        const found = [...(await streams.read(stream, after))] as Numbered<T>[];
        const last = found.at(-1);
        if (isLive && last && followed.isLast(last.event)) {
          // The end of the run is not stored yet. It does not change the stream, so no other process is told about it.
          found.pop();
          clearTimeout(timer);
          if (wake) timer = setTimeout(wake, END_POLL_MS).unref();
        }
        return found;
      },
      watch(listener) {
        wake = listener;
        const some = readers.get(stream) ?? new Set();
        readers.set(stream, some.add(listener));
        const stopWatching = streams.watch(stream, listener);
        return () => {
          wake = undefined;
          clearTimeout(timer);
          stopWatching();
          some.delete(listener);
          if (some.size === 0 && readers.get(stream) === some) readers.delete(stream);
        };
      },
    };
  }

  return {
    writer: ({ id: runId, lease }, stream, last) =>
      eventWriter({
        streams,
        stream,
        last,
        ...(lease && { lease }),
        onFailure(error) {
          log.error({ err: error, run: runId }, 'the events of a run could not be stored');
          void driven.get(runId)?.detach();
        },
      }),
    source,
    async eventsAfter(stream, after, hold) {
      const events: object[] = [];
      for (let last = after; ;) {
        hold?.(await streams.pageSize(stream, last));
        const page = await streams.read(stream, last);
        if (page.length === 0) return events;
        for (const { event } of page) events.push(event as object);
        last = page.at(-1)!.seq;
      }
    },
    wakeReaders(stream) {
      for (const wake of readers.get(stream) ?? []) wake();
    },
  };
}
