/*
 * Collections that live long and whose values do not, such as what each request adds and removes.
 *
 * A Map or Set makes a new table after a few deletions. In V8 the old table keeps what was in it, and points to the new one. So
 * once a table is in the old generation, everything that later tables have held survives every collection of the young
 * generation, although it is garbage: a server copied the state of all its requests, which took up to a fifth of its time.
 * Here the tables have boxes, and a box is emptied when its value is removed.
 */

interface Box<T> {
  value: T | undefined;
}

/** A Map whose values come and go. Keys should be small. */
export interface ChurnMap<K, V> extends Iterable<[K, V]> {
  readonly size: number;
  get(key: K): V | undefined;
  has(key: K): boolean;
  set(key: K, value: V): unknown;
  delete(key: K): boolean;
  keys(): Iterable<K>;
  values(): Iterable<V>;
}

/** A Set whose values come and go. The same value may be in it twice. */
export interface ChurnSet<T> extends Iterable<T> {
  readonly size: number;
  /** Returns what removes it. */
  add(value: T): () => void;
}

export function churnMap<K, V>(): ChurnMap<K, V> {
  const boxes = new Map<K, Box<V>>();

  function* entries(): Generator<[K, V]> {
    for (const [key, { value }] of boxes) yield [key, value as V];
  }

  function* values(): Generator<V> {
    for (const { value } of boxes.values()) yield value as V;
  }

  return {
    get size() {
      return boxes.size;
    },
    get: (key) => boxes.get(key)?.value,
    has: (key) => boxes.has(key),
    set(key, value) {
      const box = boxes.get(key);
      if (box) box.value = value;
      else boxes.set(key, { value });
    },
    delete(key) {
      const box = boxes.get(key);
      if (box) box.value = undefined;
      return boxes.delete(key);
    },
    keys: () => boxes.keys(),
    values,
    [Symbol.iterator]: entries,
  };
}

export function churnSet<T>(): ChurnSet<T> {
  const boxes = new Set<Box<T>>();

  function* values(): Generator<T> {
    for (const { value } of boxes) yield value as T;
  }

  return {
    get size() {
      return boxes.size;
    },
    add(value) {
      const box: Box<T> = { value };
      boxes.add(box);
      return () => {
        box.value = undefined;
        boxes.delete(box);
      };
    },
    [Symbol.iterator]: values,
  };
}
