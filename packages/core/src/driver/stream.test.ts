import { describe, expect, test } from 'vitest';
import type { Item } from '../journal/items.ts';
import { itemStream, type ItemStream } from './stream.ts';

function item(turn: number): Item {
  return { type: 'turn-started', turn };
}

function streamOf(): { items: ItemStream; left: () => number } {
  let left = 0;
  return { items: itemStream(() => void left++), left: () => left };
}

async function drain(items: AsyncIterable<Item>): Promise<Item[]> {
  return Array.fromAsync(items);
}

describe('items come in order, each once', () => {
  test('to a reader who waits', async () => {
    const { items, left } = streamOf();
    const got = drain(items);
    items.push(item(1));
    await Promise.resolve();
    items.push(item(2));
    items.push(item(3));
    items.close();
    expect(await got).toEqual([item(1), item(2), item(3)]);
    expect(left()).toBe(0);
  });

  test('to a reader who comes late, also after the end', async () => {
    const { items, left } = streamOf();
    for (let turn = 0; turn < 10_000; turn++) items.push(item(turn));
    items.close();
    const got = await drain(items);
    expect(got).toHaveLength(10_000);
    expect(got.every((one, index) => one.type === 'turn-started' && one.turn === index)).toBe(true);
    expect(left()).toBe(0);
  });

  test('to a reader who is slower than they come', async () => {
    const { items } = streamOf();
    const got: Item[] = [];
    const reading = (async () => {
      for await (const one of items) {
        got.push(one);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    })();
    for (let turn = 0; turn < 20; turn++) {
      items.push(item(turn));
      if (turn % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    items.close();
    await reading;
    expect(got).toEqual(Array.from({ length: 20 }, (_, turn) => item(turn)));
  });

  test('to a reader who asks for several at once', async () => {
    const { items } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    const asked = [reader.next(), reader.next(), reader.next()];
    items.push(item(1));
    items.push(item(2));
    items.close();
    expect(await Promise.all(asked)).toEqual([
      { done: false, value: item(1) },
      { done: false, value: item(2) },
      { done: true, value: undefined },
    ]);
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });
});

describe('the end', () => {
  test('an error comes after what was pushed before it', async () => {
    const { items } = streamOf();
    items.push(item(1));
    items.close(new Error('journal'));
    const got: Item[] = [];
    const reading = (async () => {
      for await (const one of items) got.push(one);
    })();
    await expect(reading).rejects.toThrow('journal');
    expect(got).toEqual([item(1)]);
  });

  test('a reader who waits for more is told', async () => {
    const { items } = streamOf();
    const got = drain(items);
    await Promise.resolve();
    items.close();
    expect(await got).toEqual([]);
  });
});

describe('leaving', () => {
  test('before the end says so, once', async () => {
    const { items, left } = streamOf();
    items.push(item(1));
    items.push(item(2));
    for await (const one of items) {
      expect(one).toEqual(item(1));
      break;
    }
    expect(left()).toBe(1);
    items.push(item(3));
    items.close();
    expect(left()).toBe(1);
  });

  test('by an error in the reader’s own code says so too', async () => {
    const { items, left } = streamOf();
    items.push(item(1));
    const reading = (async () => {
      for await (const one of items) throw new Error(one.type);
    })();
    await expect(reading).rejects.toThrow('turn-started');
    expect(left()).toBe(1);
  });

  test('after the end says nothing', async () => {
    const { items, left } = streamOf();
    items.push(item(1));
    items.push(item(2));
    items.close();
    for await (const one of items) if (one) break;
    expect(left()).toBe(0);
  });

  test('while waiting for the next item does not wait for it', async () => {
    const { items, left } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    const next = reader.next();
    await Promise.resolve();
    void reader.return!();
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(left()).toBe(1);
    items.close();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  test('before the first item was asked for says so too', async () => {
    const { items, left } = streamOf();
    expect(await items[Symbol.asyncIterator]().return!()).toEqual({ done: true, value: undefined });
    expect(left()).toBe(1);
  });

  test('the iterator gives nothing afterwards', async () => {
    const { items } = streamOf();
    const reader = items[Symbol.asyncIterator]();
    items.push(item(1));
    await reader.return!();
    items.push(item(2));
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });
});

test('there is one reader, and a second one is told what to do', async () => {
  const { items } = streamOf();
  items.close();
  await drain(items);
  expect(() => items[Symbol.asyncIterator]()).toThrow(/iterated once. Use onItem/);
});
