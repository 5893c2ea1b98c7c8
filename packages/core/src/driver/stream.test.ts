import { describe, expect, test } from 'vitest';
import type { Item } from '../journal/items.ts';
import { itemStream, type ItemStream } from './stream.ts';

function item(turn: number): Item {
  return { type: 'turn-started', turn };
}

function streamOf(): { items: ItemStream; leaves: () => number } {
  let leaves = 0;
  return { items: itemStream(() => void leaves++), leaves: () => leaves };
}

async function drain(items: AsyncIterable<Item>): Promise<Item[]> {
  return Array.fromAsync(items);
}

describe('delivers each item once, in order', () => {
  test('to a reader that waits for items', async () => {
    const { items, leaves } = streamOf();
    const received = drain(items);
    items.push(item(1));
    await Promise.resolve();
    items.push(item(2));
    items.push(item(3));
    items.close();
    expect(await received).toEqual([item(1), item(2), item(3)]);
    expect(leaves()).toBe(0);
  });

  test('to a reader that starts after the end', async () => {
    const { items, leaves } = streamOf();
    for (let turn = 0; turn < 10_000; turn++) items.push(item(turn));
    items.close();
    const received = await drain(items);
    expect(received).toHaveLength(10_000);
    expect(received.every((one, index) => one.type === 'turn-started' && one.turn === index)).toBe(true);
    expect(leaves()).toBe(0);
  });

  test('to a reader that is slower than the items arrive', async () => {
    const { items } = streamOf();
    const received: Item[] = [];
    const reading = (async () => {
      for await (const one of items) {
        received.push(one);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    })();
    for (let turn = 0; turn < 20; turn++) {
      items.push(item(turn));
      if (turn % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    items.close();
    await reading;
    expect(received).toEqual(Array.from({ length: 20 }, (_, turn) => item(turn)));
  });

  test('to a reader that requests several items at once', async () => {
    const { items } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    const requested = [reader.next(), reader.next(), reader.next()];
    items.push(item(1));
    items.push(item(2));
    items.close();
    expect(await Promise.all(requested)).toEqual([
      { done: false, value: item(1) },
      { done: false, value: item(2) },
      { done: true, value: undefined },
    ]);
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });
});

describe('close', () => {
  test('rejects with the error after the items pushed before it', async () => {
    const { items } = streamOf();
    items.push(item(1));
    items.close(new Error('journal'));
    const received: Item[] = [];
    const reading = (async () => {
      for await (const one of items) received.push(one);
    })();
    await expect(reading).rejects.toThrow('journal');
    expect(received).toEqual([item(1)]);
  });

  test('ends the iteration of a reader that waits', async () => {
    const { items } = streamOf();
    const received = drain(items);
    await Promise.resolve();
    items.close();
    expect(await received).toEqual([]);
  });
});

describe('leaving the iteration', () => {
  test('before the end calls onLeave once', async () => {
    const { items, leaves } = streamOf();
    items.push(item(1));
    items.push(item(2));
    for await (const one of items) {
      expect(one).toEqual(item(1));
      break;
    }
    expect(leaves()).toBe(1);
    items.push(item(3));
    items.close();
    expect(leaves()).toBe(1);
  });

  test('by an exception in the reader calls onLeave', async () => {
    const { items, leaves } = streamOf();
    items.push(item(1));
    const reading = (async () => {
      for await (const one of items) throw new Error(one.type);
    })();
    await expect(reading).rejects.toThrow('turn-started');
    expect(leaves()).toBe(1);
  });

  test('after the end does not call onLeave', async () => {
    const { items, leaves } = streamOf();
    items.push(item(1));
    items.push(item(2));
    items.close();
    for await (const one of items) if (one) break;
    expect(leaves()).toBe(0);
  });

  test('while waiting for the next item calls onLeave at once', async () => {
    const { items, leaves } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    const next = reader.next();
    await Promise.resolve();
    void reader.return!();
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(leaves()).toBe(1);
    items.close();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  test('before the first item was requested calls onLeave', async () => {
    const { items, leaves } = streamOf();
    expect(await items[Symbol.asyncIterator]().return!()).toEqual({ done: true, value: undefined });
    expect(leaves()).toBe(1);
  });

  test('ends the iterator', async () => {
    const { items } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    items.push(item(1));
    await reader.return!();
    items.push(item(2));
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });
});

test('rejects a second reader', async () => {
  const { items } = streamOf();
  items.close();
  await drain(items);
  expect(() => items[Symbol.asyncIterator]()).toThrow(/iterated once. Use onItem/);
});
