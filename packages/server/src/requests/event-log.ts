import { systemClock, type Clock, type Lease } from '@treadle/core';
import type { StreamStore } from '@treadle/store';
import { afterConnections } from '../http/large-work.ts';

/*
 * Streams of events that a client can continue after any event, at any process with the same store.
 *
 * 1. An event has a number, which grows within its stream. It is stored before it is sent to anybody.
 * 2. Who writes events does not know who reads them. Every reader, also the client that caused them, follows the store: it
 *    reads the events after the last one that it has, and waits for more. So nobody gets an event twice or misses one.
 * 3. A reader takes its own time. A slow one delays neither the run nor other readers.
 * 4. Few readers look for events in one turn of the event loop, however many there are.
 */

/** Numbers the events of one stream and stores them. There is one writer at a time: the process that has the lease. */
export interface EventWriter {
  /** Adds an event. Returns a promise if many are waiting to be stored: it resolves when there is room. Never throws. */
  add(event: object): void | Promise<void>;
  /** Stores all events that were added. Rejects if that is not possible. */
  flush(): Promise<void>;
  /** The number of the event that was added last. */
  readonly last: number;
}

export interface EventWriterOptions {
  readonly streams: StreamStore;
  readonly stream: string;
  /** The last number that is used: `streams.last`, read with the lease. */
  readonly last: number;
  readonly lease?: Lease;
  /** Called once if the store fails, or the lease is lost. No event is stored after that. */
  readonly onFailure?: (error: unknown) => void;
  readonly clock?: Clock;
}

/** The time between two batches. The first event after a pause does not wait. */
const BATCH_MS = 20;
/** From this number of waiting events on, the writer asks to wait. */
const MOST_WAITING = 256;

export function eventWriter(options: EventWriterOptions): EventWriter {
  const { streams, stream, lease, onFailure, clock = systemClock } = options;
  let { last } = options;
  let waiting: object[] = [];
  let storing: Promise<void> | undefined;
  let cancelTimer: (() => void) | undefined;
  let storedAt = -Infinity;
  let room: PromiseWithResolvers<void> | undefined;
  let failure: { readonly error: unknown } | undefined;

  function schedule(): void {
    if (storing || cancelTimer || waiting.length === 0 || failure) return;
    // A clock that was set back must not delay the batch.
    const ms = Math.min(BATCH_MS, storedAt + BATCH_MS - clock.now());
    // Events of the same callback belong to the same batch.
    if (ms <= 0) storing = Promise.resolve().then(storeBatch);
    else cancelTimer = clock.timer(ms, () => void (storing = storeBatch()));
  }

  async function storeBatch(): Promise<void> {
    cancelTimer?.();
    cancelTimer = undefined;
    const batch = waiting;
    waiting = [];
    storedAt = clock.now();
    try {
      await streams.append(stream, last - batch.length + 1, batch, lease);
    } catch (error) {
      failure = { error };
      onFailure?.(error);
    }
    storing = undefined;
    room?.resolve();
    room = undefined;
    schedule();
  }

  return {
    get last() {
      return last;
    },
    add(event) {
      if (failure) return;
      last += 1;
      waiting.push(event);
      schedule();
      if (waiting.length < MOST_WAITING) return;
      room ??= Promise.withResolvers();
      return room.promise;
    },
    async flush() {
      while (!failure && (storing || waiting.length > 0)) await (storing ??= storeBatch());
      if (failure) throw failure.error;
    },
  };
}

/** Where a reader gets numbered events. */
export interface EventSource<T extends { readonly seq: number }> {
  /** The events after a number, in order, up to a page. Empty: there are no more now. */
  read(after: number): Promise<readonly T[]>;
  /** The bytes of what `read` reads; absent if a page is always small. */
  size?(after: number): Promise<number>;
  /** Whether more events may come. It is asked before a read: if it is false and nothing is read, the stream has ended. */
  isLive(): boolean | Promise<boolean>;
  /** Calls `listener` when there may be more to read. */
  watch(listener: () => void): () => void;
}

export interface FollowOptions {
  /** The number of the last event that the reader has. */
  readonly after: number;
  /** Aborts when the reader has gone. */
  readonly signal: AbortSignal;
  /** Counts the bytes of a page until it was delivered, which gives them back. Throws a 429 or a 503 if they are too many. */
  readonly hold?: ((bytes: number) => void) | undefined;
}

/** The events of a page, and their text. */
const PAGE_COPIES = 2;

/** How many readers look for events in one turn of the event loop: a client may have thousands of them for one stream. */
const READERS_IN_TURN = 16;
const waitingReaders: (() => void)[] = [];

/** Resolves when it is the turn of a reader. */
function readerTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waitingReaders.push(resolve) === 1) afterConnections(wakeReaders);
  });
}

function wakeReaders(): void {
  for (const resolve of waitingReaders.splice(0, READERS_IN_TURN)) resolve();
  if (waitingReaders.length > 0) afterConnections(wakeReaders);
}

/**
 * Delivers all events after a number, in order and once, until the source is not live any more or the signal aborts. An
 * event waits for the promise that `deliver` returned for the one before it.
 */
export async function follow<T extends { readonly seq: number }>(
  source: EventSource<T>,
  { after, signal, hold }: FollowOptions,
  deliver: (event: T) => void | Promise<void>,
): Promise<void> {
  let woken = Promise.withResolvers<void>();
  const wake = (): void => woken.resolve();
  const stopWatching = source.watch(wake);
  signal.addEventListener('abort', wake, { once: true });
  let last = after;

  /** A function of its own, so that no page is held while the reader waits for the next one. */
  async function deliverPage(): Promise<boolean> {
    const bytes = hold && source.size ? PAGE_COPIES * (await source.size(last)) : 0;
    if (bytes > 0) hold!(bytes);
    const events = await source.read(last);
    for (const event of events) {
      await deliver(event);
      if (signal.aborted) break;
      last = event.seq;
    }
    if (bytes > 0) hold!(-bytes);
    return events.length === 0;
  }

  try {
    while (!signal.aborted) {
      // Both are asked after this: what happens later wakes the reader again.
      woken = Promise.withResolvers();
      const isLive = await source.isLive();
      const isEmpty = await deliverPage();
      if (signal.aborted) return;
      if (isEmpty) {
        if (!isLive) return;
        await woken.promise;
      }
      // A reader of a long stream must not keep others waiting: neither the store nor a fast client makes it wait.
      await readerTurn();
    }
  } finally {
    stopWatching();
    signal.removeEventListener('abort', wake);
  }
}
