import { manualClock } from '@treadle/core/testing';
import { sqliteStore, type StoredEvent, type StreamStore } from '@treadle/store';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventWriter, follow, type EventSource } from './event-log.ts';

let store: ReturnType<typeof sqliteStore>;
beforeEach(() => {
  store = sqliteStore(':memory:');
});
afterEach(() => store.close());

const event = (n: number): object => ({ n });
const stored = (from: number, to: number): StoredEvent[] =>
  Array.from({ length: to - from + 1 }, (_, index) => ({ seq: from + index, event: event(from + index) }));

describe('a writer', () => {
  test('stores the first event at once, and those that follow in batches of 20 ms', async () => {
    const batches: number[][] = [];
    const streams: StreamStore = {
      ...store.streams,
      append: async (_, first, events) => void batches.push([first, events.length]),
    };
    const clock = manualClock(1_000);
    const writer = eventWriter({ streams, stream: 's', last: 4, clock });
    void writer.add(event(5));
    void writer.add(event(6));
    await writer.flush();
    expect(batches).toEqual([[5, 2]]);
    for (let n = 7; n <= 9; n++) void writer.add(event(n));
    await Promise.resolve();
    expect(batches).toHaveLength(1);
    await clock.advance(20);
    await writer.flush();
    expect(batches).toEqual([
      [5, 2],
      [7, 3],
    ]);
    expect(writer.last).toBe(9);
  });

  test('asks to wait while many events are not stored', async () => {
    const writer = eventWriter({ streams: store.streams, stream: 's', last: 0 });
    let room: void | Promise<void>;
    for (let n = 1; n <= 256; n++) room = writer.add(event(n));
    expect(room!).toBeInstanceOf(Promise);
    await room!;
    expect(await store.streams.last('s')).toBe(256);
    expect(writer.add(event(257))).toBeUndefined();
    await writer.flush();
  });

  test('that fails stores nothing more, and says so once', async () => {
    await store.streams.append('s', 5, []);
    const failures: unknown[] = [];
    const writer = eventWriter({ streams: store.streams, stream: 's', last: 0, onFailure: (e) => failures.push(e) });
    void writer.add(event(1));
    await expect(writer.flush()).rejects.toMatchObject({ code: 'run-exists' });
    void writer.add(event(2));
    await expect(writer.flush()).rejects.toMatchObject({ code: 'run-exists' });
    expect(failures).toHaveLength(1);
  });
});

describe('a reader', () => {
  const source = (isLive: () => boolean, stream = 's'): EventSource<StoredEvent> => ({
    read: (after) => store.streams.read(stream, after),
    isLive,
    watch: (listener) => store.streams.watch(stream, listener),
  });

  test('gets every event after its number once, whenever it starts, stops and continues', async () => {
    let name = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 40 }),
        fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 8 }),
        async (total, cuts) => {
          const stream = `s${name++}`;
          let isLive = true;
          const got: StoredEvent[] = [];
          const read = async (): Promise<void> => {
            // It disconnects after so many events, and continues after the last one that it has.
            for (const cut of [...cuts, Infinity]) {
              const reader = new AbortController();
              let count = 0;
              const after = got.at(-1)?.seq ?? 0;
              await follow(
                source(() => isLive, stream),
                { after, signal: reader.signal },
                (one) => {
                  got.push(one);
                  if (++count >= cut) reader.abort();
                },
              );
            }
          };
          const reading = read();
          const writer = eventWriter({ streams: store.streams, stream, last: 0 });
          for (let n = 1; n <= total; n++) {
            void writer.add(event(n));
            if (n % 3 === 0) await writer.flush();
          }
          await writer.flush();
          isLive = false;
          // Nothing is appended: the end has to be noticed by whoever knows it.
          await store.streams.append(stream, total + 1, []);
          await reading;
          expect(got).toEqual(stored(1, total));
        },
      ),
      { numRuns: 30 },
    );
  });

  test('ends when the source is not live and everything was read', async () => {
    await store.streams.append('s', 1, [event(1), event(2)]);
    const got: StoredEvent[] = [];
    await follow(
      source(() => false),
      { after: 1, signal: new AbortController().signal },
      (one) => void got.push(one),
    );
    expect(got).toEqual(stored(2, 2));
  });

  test('counts the bytes of each page before it is read, and gives them back after it was delivered', async () => {
    const log: string[] = [];
    const pages = {
      size: async (after: number) => (after < 2 ? 1_000 : 0),
      async read(after: number) {
        log.push('read');
        return after < 2 ? [{ seq: after + 1 }] : [];
      },
      isLive: () => false,
      watch: () => () => {},
    };
    const { signal } = new AbortController();
    const hold = (bytes: number): void => void log.push(String(bytes));
    await follow(pages, { after: 0, signal, hold }, () => void log.push('delivered'));
    const page = ['2000', 'read', 'delivered', '-2000'];
    expect(log).toEqual([...page, ...page, 'read']);
    const refuse = (): void => {
      throw new Error('too many bytes');
    };
    const reads = log.length;
    await expect(follow(pages, { after: 0, signal, hold: refuse }, () => {})).rejects.toThrow('too many bytes');
    expect(log).toHaveLength(reads);
  });

  test('of many pages lets the event loop turn after each', async () => {
    let turns = 0;
    const turn = (): void => {
      turns++;
      ticking = setImmediate(turn);
    };
    let ticking = setImmediate(turn);
    const pages = {
      read: async (after: number) => (after < 5 ? [{ seq: after + 1 }] : []),
      isLive: () => false,
      watch: () => () => {},
    };
    await follow(pages, { after: 0, signal: new AbortController().signal }, () => {});
    clearImmediate(ticking);
    expect(turns).toBeGreaterThanOrEqual(5);
  });

  test('waits for the promise of each delivery, and stops when its signal aborts', async () => {
    await store.streams.append('s', 1, [event(1), event(2), event(3)]);
    const reader = new AbortController();
    const deliveries: PromiseWithResolvers<void>[] = [];
    const delivered = (count: number): Promise<void> => waitUntil(() => deliveries.length === count);
    const following = follow(
      source(() => true),
      { after: 0, signal: reader.signal },
      () => {
        deliveries.push(Promise.withResolvers());
        return deliveries.at(-1)!.promise;
      },
    );
    await delivered(1);
    await new Promise(setImmediate);
    expect(deliveries).toHaveLength(1);
    deliveries[0]!.resolve();
    await delivered(2);
    reader.abort();
    deliveries[1]!.resolve();
    await following;
    expect(deliveries).toHaveLength(2);
  });
});

async function waitUntil(isDone: () => boolean): Promise<void> {
  while (!isDone()) await new Promise(setImmediate);
}

test('few readers of a stream look for its events in one turn of the event loop', async () => {
  const wakeAll: (() => void)[] = [];
  let reads = 0;
  const source: EventSource<StoredEvent> = {
    read: async () => ((reads += 1), []),
    isLive: () => true,
    watch: (listener) => {
      wakeAll.push(listener);
      return () => {};
    },
  };
  const left = new AbortController();
  const following = Array.from({ length: 100 }, () => follow(source, { after: 0, signal: left.signal }, () => {}));
  await new Promise(setImmediate);
  expect(reads).toBe(100);
  for (const wake of wakeAll) wake();
  let most = 0;
  while (reads < 200) {
    const before = reads;
    await new Promise(setImmediate);
    most = Math.max(most, reads - before);
  }
  expect(most).toBe(16);
  left.abort();
  await Promise.all(following);
});
