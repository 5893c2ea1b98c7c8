import type { Engine } from '../engine/engine.ts';
import { eventWriter, follow, type EventSource, type FollowOptions } from '../engine/event-log.ts';
import type { RunPlan } from '../engine/run.ts';
import type { RunCaller } from '../engine/tools.ts';
import type { ChatEvent, NumberedEvent } from './events.ts';

/**
 * The streams of conversations: where their events go (sinks), and where clients read them.
 *
 * A stream has `done` before the end of the run is stored, so that a crash does not lose it. Readers get it after that.
 */
export interface ChatStreams {
  /** Sends events to a client and stores only how many they are. `after`: the number of the last event so far. */
  directSink(id: string, after: number, deliver: Deliver): ChatSink;
  /** Stores events. Readers follow the stream. */
  storedSink(run: SinkRun, id: string, after: number): ChatSink;
  /** The events of a conversation, which is not checked. Live while a run is in progress. */
  events(id: string, caller: StreamCaller): EventSource<NumberedEvent>;
  /** The stored events after a number. */
  eventsAfter(id: string, after: number): Promise<readonly NumberedEvent[]>;
  /** Delivers events until the run has ended, the signal aborts, or the server shuts down. */
  followChat(id: string, caller: StreamCaller, options: FollowOptions & { readonly deliver: Deliver }): Promise<void>;
  /** Lets readers see that a run has ended, which does not change the stream. */
  wakeReaders(id: string): void;
}

export type Deliver = (event: NumberedEvent) => void | Promise<void>;

type StreamCaller = Pick<RunCaller, 'tenant'>;

/** The run whose events are stored. */
type SinkRun = Pick<RunPlan, 'id' | 'lease'>;

/** Where the events of a run go. */
export interface ChatSink {
  /** Returns a promise if the client or the store is slow. */
  add(event: ChatEvent): void | Promise<void>;
  /** Stores what has to be stored. `last`: the last event of the run. */
  flush(last?: ChatEvent): Promise<void>;
  /** Called when the end of the run is stored. */
  ended(): void;
  readonly last: number;
}

/** How often a reader that has everything but `done` looks whether the end of the run is stored. */
const END_POLL_MS = 50;

/** `stopping` aborts when the server shuts down. Readers can continue at another process, or after the restart. */
export function chatStreams(
  { store, driven, log }: Pick<Engine, 'store' | 'driven' | 'log'>,
  stopping: AbortSignal,
): ChatStreams {
  const { responses: records, conversations: chains, streams } = store;
  /** Readers that wait for the end of a run. */
  const readers = new Map<string, Set<() => void>>();

  function directSink(id: string, after: number, deliver: Deliver): ChatSink {
    let last = after;
    let final: NumberedEvent | undefined;
    return {
      get last() {
        return last;
      },
      add: (event) => deliver({ ...event, seq: ++last }),
      async flush(event) {
        if (event) final = { ...event, seq: ++last };
        await streams.append(id, final ? last : last + 1, final ? [final] : []);
      },
      ended() {
        if (final) void deliver(final);
      },
    };
  }

  function storedSink({ id: runId, lease }: SinkRun, id: string, after: number): ChatSink {
    const writer = eventWriter({
      streams,
      stream: id,
      last: after,
      ...(lease && { lease }),
      onFailure: (error) => {
        log.error({ err: error, run: runId }, 'the events of a chat could not be stored');
        void driven.get(runId)?.detach();
      },
    });
    const add = (event: ChatEvent): void | Promise<void> => writer.add({ ...event, seq: writer.last + 1 });
    return {
      get last() {
        return writer.last;
      },
      add,
      async flush(event) {
        if (event) void add(event);
        await writer.flush();
      },
      ended() {},
    };
  }

  function events(id: string, { tenant }: StreamCaller): EventSource<NumberedEvent> {
    let isLive = false;
    let wake: (() => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    return {
      async isLive() {
        const chain = await chains.get(tenant, id);
        const head = chain?.head === undefined ? undefined : await records.head(tenant, chain.head);
        isLive = head?.status === 'in_progress';
        return isLive;
      },
      async read(after) {
        const page = await streams.read(id, after);
        const found = page.map(({ event }) => event as NumberedEvent);
        if (isLive && found.at(-1)?.type === 'done') {
          // The end of the run is not stored yet. It does not change the stream, so no other process is told about it.
          found.pop();
          clearTimeout(timer);
          if (wake) timer = setTimeout(wake, END_POLL_MS).unref();
        }
        return found;
      },
      watch(listener) {
        wake = listener;
        const some = readers.get(id) ?? new Set();
        readers.set(id, some.add(listener));
        const stopWatching = streams.watch(id, listener);
        return () => {
          wake = undefined;
          clearTimeout(timer);
          stopWatching();
          some.delete(listener);
          if (some.size === 0 && readers.get(id) === some) readers.delete(id);
        };
      },
    };
  }

  async function eventsAfter(id: string, after: number): Promise<readonly NumberedEvent[]> {
    const events: NumberedEvent[] = [];
    for (let last = after; ;) {
      const page = await streams.read(id, last);
      if (page.length === 0) return events;
      for (const { event } of page) events.push(event as NumberedEvent);
      last = page.at(-1)!.seq;
    }
  }

  return {
    directSink,
    storedSink,
    events,
    eventsAfter,
    followChat: (id, caller, { after, signal, deliver }) =>
      follow(events(id, caller), { after, signal: AbortSignal.any([signal, stopping]) }, deliver),
    wakeReaders(id) {
      for (const wake of readers.get(id) ?? []) wake();
    },
  };
}
