import { TreadleError } from '../errors.ts';
import type { Item } from './options.ts';

/** Items as they are pushed, for one reader who may come late. */
export interface Stream extends AsyncIterable<Item> {
  readonly push: (item: Item) => void;
  /** After what was pushed the reader is done, or gets the error. */
  readonly close: (error?: unknown) => void;
}

/** `onLeave`: the reader went away before the end. */
export function stream(onLeave: () => void): Stream {
  const items: Item[] = [];
  let end: { readonly error?: unknown } | undefined;
  let wake: (() => void) | undefined;
  let read = false;

  async function* iterate(): AsyncGenerator<Item, void, undefined> {
    try {
      for (;;) {
        // In batches: a shift per item would cost more than the item, and a reader may be far behind.
        for (const item of items.splice(0)) yield item;
        if (items.length > 0) continue;
        if (end) break;
        await new Promise<void>((resolve) => (wake = resolve));
      }
      if (end.error !== undefined) throw end.error;
    } finally {
      if (!end) onLeave();
    }
  }

  return {
    push(item) {
      items.push(item);
      wake?.();
    },
    close(error) {
      end = error === undefined ? {} : { error };
      wake?.();
    },
    [Symbol.asyncIterator]() {
      if (read) throw new TreadleError('invalid-options', 'A run can be iterated once. Use onItem for further listeners.');
      read = true;
      return iterate();
    },
  };
}
