import { TreadleError } from '../errors.ts';
import type { Item } from '../journal/items.ts';

/** A queue of items for one reader, who may start late. */
export interface ItemStream extends AsyncIterable<Item> {
  readonly push: (item: Item) => void;
  /** The reader ends after the items pushed so far, or gets the error. */
  readonly close: (error?: unknown) => void;
}

type Next = IteratorResult<Item, undefined>;

const DONE: Next = { done: true, value: undefined };

/**
 * `onLeave` is called when the reader stops before the end. This is not a generator, because a generator can be closed only
 * when its next item has arrived.
 */
export function itemStream(onLeave: () => void): ItemStream {
  let items: Item[] = [];
  /** Taken from `items` as a whole, because a shift for each item would be slower. */
  let batch: readonly Item[] = [];
  let at = 0;
  let asked: PromiseWithResolvers<Next>[] = [];
  let end: { readonly error?: unknown } | undefined;
  let read = false;

  function push(item: Item): void {
    if (end) return;
    const first = asked.shift();
    if (first) first.resolve({ done: false, value: item });
    else items.push(item);
  }

  function close(error?: unknown): void {
    end ??= error === undefined ? {} : { error };
    const open = asked;
    asked = [];
    for (const { resolve } of open) resolve(last());
  }

  async function last(): Promise<Next> {
    const error = end?.error;
    end = {};
    if (error !== undefined) throw error;
    return DONE;
  }

  const reader: AsyncIterableIterator<Item, undefined> = {
    next() {
      if (at === batch.length) [batch, items, at] = [items, [], 0];
      if (at < batch.length) return Promise.resolve({ done: false, value: batch[at++]! });
      if (end) return last();
      const next = Promise.withResolvers<Next>();
      asked.push(next);
      return next.promise;
    },
    async return() {
      const early = end === undefined;
      [batch, items, at] = [[], [], 0];
      end = {};
      close();
      if (early) onLeave();
      return DONE;
    },
    [Symbol.asyncIterator]: () => reader,
  };

  return {
    push,
    close,
    [Symbol.asyncIterator]() {
      if (read)
        throw new TreadleError('invalid-options', 'A run can be iterated once. Use onItem for further listeners.');
      read = true;
      return reader;
    },
  };
}
